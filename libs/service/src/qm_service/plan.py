"""A definition, turned into the tables that the writer looks things up in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from qm_events import EventData, Topic, all_facts, topics_of
from qm_events.audit import AccessAudited
from qm_events.codec import current
from qm_events.registry import TOPICS
from qm_service.model import Decider, Definition, Fold, Projection, Reaction


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens on which type of fact."""

    definition: Definition
    source: str
    own: tuple[Topic, ...]
    inputs: tuple[Topic, ...]
    deciders: Mapping[str, Decider[Any]]
    projections: Mapping[str, Projection[Any]]
    adapters: Mapping[str, TypeAdapter[Any]]
    folds: Mapping[str, Sequence[tuple[str, Fold[Any]]]]
    """Wire type -> (projection, fold)."""
    reactions: Mapping[str, Reaction]
    audit: type[AccessAudited] | None

    def handles(self, wire: str) -> bool:
        """Tell whether a record of this type, which may be an old version, has to be decoded."""
        now = current(wire)
        return now in self.folds or now in self.reactions


def plan_of(definition: Definition) -> Plan:
    """Compile a definition. Raises ValueError for one that contradicts itself."""
    projections = {projection.name: projection for projection in definition.projections}
    if len(projections) != len(definition.projections):
        raise ValueError(f"{definition.name}: a projection is named twice")
    own = topics_of(definition.name)
    folds: dict[str, list[tuple[str, Fold[Any]]]] = {}
    for projection in definition.projections:
        for cls, fold in projection.folds.items():
            folds.setdefault(cls.wire_type, []).append((projection.name, fold))
    handled: list[type[EventData]] = [*definition.reactions, *(c for p in definition.projections for c in p.folds)]
    inputs = sorted({cls.topic for cls in handled} - {topic.name for topic in own})
    return Plan(
        definition=definition,
        source=f"/quartermaster/{definition.name}",
        own=own,
        inputs=tuple(TOPICS[name] for name in inputs),
        deciders={decider.kind: decider for decider in definition.deciders},
        projections=projections,
        adapters={name: TypeAdapter(projection.model) for name, projection in projections.items()},
        folds=folds,
        reactions={cls.wire_type: reaction for cls, reaction in definition.reactions.items()},
        audit=_audit_fact(own),
    )


def _audit_fact(own: tuple[Topic, ...]) -> type[AccessAudited] | None:
    topics = {topic.name for topic in own}
    return next((cls for cls in all_facts() if issubclass(cls, AccessAudited) and cls.topic in topics), None)
