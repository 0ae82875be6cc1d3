"""One document an order, of its environments: the fold of its own facts, the same as the state that decisions see."""

from typing import Any

from qm_events import Event
from qm_provisioner.environment import EVOLVE, NOTHING, Environment, Phase, evolve
from qm_service.directory import DIRECTORY_PROJECTIONS
from qm_service.model import Column, Fold, Projection

_OPEN = (Phase.BUILDING, Phase.VERIFYING, Phase.RELEASING)


def is_open(env: Environment) -> bool:
    """Tell whether the environment calls for work."""
    return env.phase in _OPEN


def _evolved(env: Environment | None, event: Event[Any]) -> Environment:
    return evolve(env or NOTHING, event.data)


ENVIRONMENTS: Projection[Environment] = Projection(
    name="environments",
    version=2,
    model=Environment,
    folds={fact: Fold(_evolved) for fact in EVOLVE},
    columns={"open": Column(bool, is_open)},
)

PROJECTIONS: tuple[Projection[Any], ...] = (ENVIRONMENTS, *DIRECTORY_PROJECTIONS)
