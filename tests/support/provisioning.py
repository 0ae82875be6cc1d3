"""A provisioner on the desk: real rules, runner, steps and twins over a journal in memory; it may die at any await."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from qm_events import Event, EventData, new_event
from qm_events import provisioner as facts
from qm_events.specs import OrderRequest, PlacedUnit, Specification
from qm_provisioner.adapters.simulated import SimulatedBackend, SimulatedClouds
from qm_provisioner.alarms import Alarms
from qm_provisioner.attempt import Outside
from qm_provisioner.behaviour import Behaviour
from qm_provisioner.commands import Begin, NoteEnd
from qm_provisioner.domain import DECIDER
from qm_provisioner.environment import Environment
from qm_provisioner.ports import Secret, Thing
from qm_provisioner.projections import is_open
from qm_provisioner.runner import Runner
from qm_provisioner.slots import Limited
from qm_provisioner.steps import Model
from qm_service.clock import ManualClock
from qm_service.model import Act, Context, Rejected
from qm_service.runtime import Outcome, Refused

ORDER = "o1"
START = datetime(2026, 6, 1, 8, 0, tzinfo=UTC)


class Killed(asyncio.CancelledError):
    """The process died here. Nothing of ours can catch it."""


@dataclass
class Awaits:
    """Counts every await at which a process hands over to something outside, and may act at the n-th."""

    at: int | None = None
    act: Callable[[], Awaitable[None]] | None = None
    passed: int = 0
    dead: bool = False

    async def cross(self) -> None:
        """Pass one; a dead process passes none."""
        if self.dead:
            raise Killed
        self.passed += 1
        if self.passed == self.at:
            if self.act is None:
                self.dead = True
                raise Killed
            await self.act()

    async def around(self, call: Awaitable[Any]) -> Any:
        """Pass one before a call and one after its effect."""
        try:
            await self.cross()
        except Killed:
            call.close()  # type: ignore[attr-defined]  # a coroutine that is never awaited warns
            raise
        result = await call
        await self.cross()
        return result


class Around:
    """Anything, with an await to die at before and after each of its calls."""

    def __init__(self, inner: Any, awaits: Awaits, *plain: str) -> None:
        self._inner, self._awaits, self._plain = inner, awaits, plain

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if name in self._plain:
            return attribute
        return lambda *args, **kwargs: self._awaits.around(attribute(*args, **kwargs))


class MemoryVault:
    """Credentials in a dict that outlives processes; remembers every one that it ever held."""

    def __init__(self) -> None:
        self.live: dict[str, Secret] = {}
        self.ever: list[Secret] = []

    async def get(self, order: str) -> Secret | None:
        """See `Vault.get`."""
        return self.live.get(order)

    async def put(self, order: str, secret: Secret) -> None:
        """See `Vault.put`."""
        self.live[order] = secret
        self.ever.append(secret)

    async def revoke(self, order: str) -> None:
        """See `Vault.revoke`."""
        self.live.pop(order, None)


class Journal:
    """The committed facts, and what they make of each environment."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.facts: list[EventData] = []
        self.states: dict[str, Environment] = {}
        self.versions: dict[str, int] = {}

    def decide(self, act: Act) -> Sequence[Event[Any]]:
        """Carry out a command in one go."""
        state = self.states.get(act.stream, DECIDER.initial)
        decision = DECIDER.decide(state, act.command, Context(self.clock.now(), self))  # type: ignore[arg-type]
        if isinstance(decision, Rejected):
            raise Refused(decision)
        for fact in decision:
            state = DECIDER.evolve(state, fact)
        self.states[act.stream] = state
        self.facts += decision
        first = self.versions.get(act.stream, 0) + 1
        self.versions[act.stream] = first + len(decision) - 1
        return [
            new_event(act.stream, first + number, self.clock.now(), "/test", fact)
            for number, fact in enumerate(decision)
        ]


class DeskRuntime:
    """As much of `qm_service.runtime.Runtime` as a runner uses: one process over the journal."""

    def __init__(self, journal: Journal, awaits: Awaits) -> None:
        self._journal, self._awaits = journal, awaits
        self.committed: list[Callable[[Sequence[Event[Any]]], None]] = []
        self.docs = self

    async def execute(self, act: Act) -> Outcome:
        """Decide and commit; may die just before and just after."""
        await self._awaits.cross()
        await asyncio.sleep(0)
        events = self._journal.decide(act)
        for listener in self.committed:
            if not self._awaits.dead:
                listener(events)
        await self._awaits.cross()
        return Outcome(act.stream, 0, events)

    def context(self) -> Any:
        """Return the documents, whole."""
        return SimpleNamespace(docs=self)

    def get(self, _: str, key: str) -> Environment | None:
        """Return one document."""
        return self._journal.states.get(f"environment/{key}")

    async def page(self, *_: Any, after: tuple[str, ...] | None, **__: Any) -> list[tuple[str, Environment]]:
        """Return the documents that call for work."""
        return [] if after else [(env.order, env) for env in self._journal.states.values() if is_open(env)]


def order_of(model: str, count: int = 1) -> Begin:
    """Return an order of `count` units of two cards each on a service model, placed."""
    request = OrderRequest.model_construct(
        tenant="acme",
        project="vision",
        requester="ann",
        specification=Specification(
            name="two-h100",
            version=1,
            accelerators=("h100",),
            cards_per_unit=2,
            accelerator_memory_mib=81_920,
            cpu_milli=16_000,
            memory_mib=262_144,
        ),
        service_model=model,
        count=count,
        model="llama",
        image="ubuntu",
    )
    units = tuple(
        PlacedUnit(node=f"n{number}", accelerator="h100", cards=(f"n{number}-c0", f"n{number}-c1"))
        for number in range(count)
    )
    return Begin(ORDER, "a1", request, units, ())


@dataclass
class Desk:
    """One provisioner that can be killed and started again over the same journal, vault and cloud."""

    model: Model
    awaits: Awaits = field(default_factory=Awaits)
    clock: ManualClock = field(default_factory=lambda: ManualClock(START))
    vault: MemoryVault = field(default_factory=MemoryVault)
    wrap: Callable[[Any], Any] = lambda backend: backend

    def __post_init__(self) -> None:
        self.journal = Journal(self.clock)
        self.clouds = SimulatedClouds(":memory:")
        self._boot()

    def _boot(self) -> None:
        self.alarms = Alarms(self.clock)
        self.backend = SimulatedBackend(self.clouds, self.model.name, self.alarms)
        backend: Any = Around(self.wrap(self.backend), self.awaits)
        self.slots = Limited(backend, 64)
        vault: Any = Around(self.vault, self.awaits)
        self.runtime: Any = DeskRuntime(self.journal, self.awaits)
        outside = Outside({self.model.name: self.model}, {self.model.name: self.slots}, vault, self.alarms)
        self.runner = Runner(self.runtime, outside)

    async def __aenter__(self) -> "Desk":
        await self.runner.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.runner.stop()
        self.clouds.db.close()

    async def restart(self) -> None:
        """Start a new process after the old one died."""
        await self.runner.stop()
        self.awaits = Awaits()
        self._boot()
        await self.runner.start()

    async def command(self, command: Any) -> None:
        """Let a fact of another service arrive."""
        events = self.journal.decide(Act(f"environment/{ORDER}", command))
        if not self.awaits.dead:
            for listener in self.runtime.committed:
                listener(events)

    async def begin(self, count: int = 1) -> None:
        """Let the cards be allocated."""
        steps = tuple(step.name for step in self.model.steps)
        await self.command(replace(order_of(self.model.name, count), steps=steps))

    async def end(self, cause: str = "released", fault: facts.FaultReport | None = None) -> None:
        """Let the order end."""
        await self.command(NoteEnd(ORDER, facts.EndCause(cause), self.clock.now(), fault))

    async def settle(self, *, patient: bool = True) -> None:
        """Let all happen that follows; the clock moves as often as needed, unless not `patient`."""
        for _ in range(3_000):
            await asyncio.sleep(0)
            if self.awaits.dead:
                await asyncio.sleep(0)
                return
            if not self.runner.idle():
                continue
            if not self.open or not patient:
                return
            self.clock.advance(timedelta(seconds=30))
            await asyncio.sleep(0)
        raise AssertionError(f"still busy: {self.env}")

    @property
    def env(self) -> Environment:
        """Return the environment as committed."""
        return self.journal.states[f"environment/{ORDER}"]

    @property
    def open(self) -> bool:
        """Tell whether there is work left."""
        return is_open(self.env)

    async def things(self) -> Sequence[Thing]:
        """Return all that exists at the cloud."""
        return await self.backend.list_all()

    def made(self) -> int:
        """Return how many things were ever made at the cloud."""
        return int(self.clouds.db.execute("SELECT count(*) FROM things").fetchone()[0])

    def said(self, *classes: type[EventData]) -> list[Any]:
        """Return the facts of these classes, in order."""
        return [fact for fact in self.journal.facts if isinstance(fact, classes)]

    def undone(self) -> list[str]:
        """Return the steps whose undo was reached, in order."""
        intents = self.said(facts.EnvironmentStepIntended)
        return [fact.step for fact in intents if fact.direction == "undo" and fact.attempt == 1]


def script(desk: Desk, steps: Mapping[str, Mapping[str, Any]]) -> None:
    """Tell the cloud how to behave."""
    desk.clouds.script(desk.model.name, {name: Behaviour.model_validate(body) for name, body in steps.items()})


def assert_no_leak(desk: Desk, text: str = "") -> None:
    """No credential that ever was is in a fact, in a document or in `text`."""
    told = "\n".join([text, repr(desk.journal.states), *map(repr, desk.journal.facts)])
    parts = [part for secret in desk.vault.ever for value in secret.values.values() for part in value.splitlines()]
    assert not [part for part in parts if part in told]
