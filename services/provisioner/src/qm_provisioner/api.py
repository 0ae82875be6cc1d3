"""The routes: what an environment is doing, the credential of one, and (simulated clouds only) how they misbehave."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from qm_events.provisioner import Direction, ReceiptLine
from qm_events.specs import EndCause, PlacedUnit, Probe
from qm_provisioner.behaviour import Behaviour
from qm_provisioner.commands import Disclose, Script
from qm_provisioner.credentials import CredentialUnreadable
from qm_provisioner.domain import DECIDER
from qm_provisioner.environment import Environment, Phase
from qm_provisioner.ports import Scriptable, Vault
from qm_provisioner.problems import CredentialsLost, CredentialsRevoked, EnvironmentNotReady
from qm_provisioner.projections import ENVIRONMENTS
from qm_provisioner.steps import Model
from qm_service.caller import Access
from qm_service.commands import Cause
from qm_service.model import Act
from qm_service.problem import NotFound, ValidationFailed, problems
from qm_service.runtime import Runtime


class CredentialView(BaseModel):
    """A credential and where it lets its owner in."""

    order: str
    kind: str
    values: dict[str, str]
    endpoint: dict[str, Any]


class StepView(BaseModel):
    """A step in one direction; `attempt` counts from 1, `error` is the last attempt's."""

    step: str
    direction: Direction
    state: Literal["intended", "done", "failed"]
    attempt: int
    external_name: str
    intended_at: datetime
    ended_at: datetime | None
    error: str
    outputs: dict[str, Any]


class Receipt(BaseModel):
    """The way back, line by line; `digest` is the SHA-256 of the lines in canonical JSON."""

    outcome: Literal["clean", "quarantined"]
    lines: list[ReceiptLine]
    digest: str
    released_at: datetime


class EnvironmentView(BaseModel):
    """An environment, from its first step to its receipt. Instants that have not come are null."""

    order: str
    allocation: str
    service_model: str
    phase: Phase
    cause: EndCause | None
    error: str
    units: list[PlacedUnit]
    planned: list[str]
    """All steps of the build, in order."""
    steps: list[StepView]
    probes: list[Probe]
    endpoint: dict[str, Any] | None
    started_at: datetime | None
    ready_at: datetime | None
    failed_at: datetime | None
    revoked_at: datetime | None
    wiped_at: datetime | None
    validated_at: datetime | None
    quarantined_at: datetime | None
    receipt: Receipt | None


def routes(runtime: Runtime, vault: Vault) -> APIRouter:
    """Return the routes of the product."""
    router = APIRouter()

    @router.get(
        "/orders/{order}/credentials",
        responses=problems(EnvironmentNotReady, CredentialsRevoked, CredentialsLost),
    )
    async def read_credentials(order: str, access: Access, response: Response) -> CredentialView:
        """Hand out the credential of a ready environment; that it was handed out, and to whom, is a fact."""
        env = await _visible(runtime, order, access)
        # Decided by the writer, so that nothing is handed out after a release that came first.
        await runtime.execute(Act(_stream(order), Disclose()), _cause(access, env))
        response.headers["Cache-Control"] = "no-store"
        try:
            secret = await vault.get(order)
        except CredentialUnreadable as error:
            raise CredentialsLost(str(error)) from None
        if secret is None:
            raise CredentialsLost(f"The store has no credential of order {order}.")
        return CredentialView(order=order, kind=secret.kind, values=dict(secret.values), endpoint=env.endpoint or {})

    @router.get("/environments/{order}", responses=problems())
    async def read_environment(order: str, access: Access) -> EnvironmentView:
        """Show the steps with their times, attempts and external names, the probes, and the receipt."""
        return _view(await _visible(runtime, order, access))

    return router


def _stream(order: str) -> str:
    return f"{DECIDER.kind}/{order}"


def _cause(access: Access, env: Environment) -> Cause:
    tenant, project = _scope(env)
    return access.cause(tenant, project, env.order)


def _scope(env: Environment) -> tuple[str, str]:
    if env.request is None:
        raise NotFound("There is no such environment.")
    return env.request.tenant, env.request.project


async def _visible(runtime: Runtime, order: str, access: Access) -> Environment:
    """Return the environment. Raises NotFound, or Forbidden for who sees it and may not do this."""
    env: Environment | None = await runtime.docs.get(ENVIRONMENTS.name, order)
    if env is None:
        raise NotFound(f"There is no environment of an order {order}.")
    access.check(*_scope(env))
    return env


_SAME = {name for name in EnvironmentView.model_fields if name not in {"service_model", "planned", "steps", "receipt"}}
_STEP = tuple(StepView.model_fields)


def _view(env: Environment) -> EnvironmentView:
    return EnvironmentView.model_validate(
        {name: getattr(env, name) for name in _SAME}
        | {
            "service_model": env.request.service_model if env.request else "",
            "planned": env.steps,
            "steps": [{name: getattr(run, name) for name in _STEP} for run in env.runs],
            "receipt": _receipt(env),
        }
    )


def _receipt(env: Environment) -> Receipt | None:
    if env.released_at is None:
        return None
    outcome: Literal["clean", "quarantined"] = "clean" if env.quarantined_at is None else "quarantined"
    return Receipt(outcome=outcome, lines=list(env.lines), digest=env.digest, released_at=env.released_at)


# ---- simulated clouds


class ScriptBody(BaseModel):
    """How the cloud of a service model behaves from now on; what is left out behaves well."""

    model_config = ConfigDict(extra="forbid")

    steps: dict[str, Behaviour] = Field(default_factory=dict, max_length=200)
    """By step, by `undo:<step>` or by `probe:<check>`."""


CardPath = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$")]
"""As the fleet names cards."""


class CardBody(BaseModel):
    """Whether a card fails: what looks for it as the user, or validates it, does not see it."""

    model_config = ConfigDict(extra="forbid")

    broken: bool = Field(strict=True)


class CardView(BaseModel):
    """A card of the simulated clouds."""

    card: str
    broken: bool


def twin_routes(runtime: Runtime, clouds: Scriptable, models: Mapping[str, Model]) -> APIRouter:
    """Return the routes of the simulated clouds; `models` are those that have one."""
    router = APIRouter()

    @router.put("/sim/backends/{service_model}", responses=problems())
    async def script_backend(service_model: str, body: ScriptBody, access: Access) -> ScriptBody:
        """Replace the behaviour of a simulated cloud; counts of failures begin anew."""
        model = models.get(service_model)
        if model is None:
            raise NotFound(f"There is no simulated cloud of {service_model}; there are {', '.join(models)}.")
        if unknown := sorted(set(body.steps) - set(scriptable(model))):
            known = ", ".join(scriptable(model))
            raise ValidationFailed(f"{service_model} has no {', '.join(unknown)}; it has {known}.", field="steps")
        await runtime.execute(Act(_stream(f"sim-{service_model}"), Script()), access.cause())
        clouds.script(service_model, body.steps)
        return body

    @router.put("/sim/cards/{card}", responses=problems())
    async def break_card(card: CardPath, body: CardBody, access: Access) -> CardView:
        """Let a card fail, or mend it."""
        await runtime.execute(Act(_stream(f"sim-{card}"), Script()), access.cause())
        clouds.break_card(card, body.broken)
        return CardView(card=card, broken=body.broken)

    return router


def scriptable(model: Model) -> list[str]:
    """Return all that a script of the model may name."""
    steps = [step.name for step in model.steps]
    return [*steps, *(f"undo:{step}" for step in steps), *(f"probe:{check.name}" for check in model.checks)]
