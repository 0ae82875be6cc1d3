"""Does what the log says is intended, and reports what came of it. One task for each environment that calls for work.

It acts on committed facts only: what it knows of an environment is the document as of a commit, told by `committed` or
read by SQL, so no call is made whose intent could still be lost. A crash anywhere leaves an intent on the log; the
next runner finds it and performs the step again, which looks before it acts. Not a part of any replay.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from qm_events import Event
from qm_events.provisioner import EnvironmentEndNoted
from qm_provisioner.attempt import ENDED, Outside, Report, Scope, perform
from qm_provisioner.domain import DECIDER
from qm_provisioner.environment import Environment, Phase
from qm_provisioner.projections import ENVIRONMENTS, is_open
from qm_service.database import DatabaseUnavailable
from qm_service.model import Act, Docs
from qm_service.runtime import Runtime, Unavailable

_logger = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_PAGE = 500


class Flow:
    """The work on one environment."""

    __slots__ = ("phase", "scope", "task")

    def __init__(self) -> None:
        self.scope = Scope()
        self.task: asyncio.Task[None] | None = None
        self.phase = Phase.ABSENT
        """Of the work at hand; the environment may be further already."""

    def end(self) -> None:
        """Break off what an ended order needs no more; the way back never is."""
        if self.phase is not Phase.RELEASING:
            self.scope.abandon(ENDED)


class Runner:
    """The worker of the provisioner."""

    def __init__(self, runtime: Runtime, outside: Outside) -> None:
        self._runtime = runtime
        self._outside = outside
        self._known: dict[str, Environment] = {}
        """The environments that call for work, as of a commit."""
        self._flows: dict[str, Flow] = {}
        self._view: Docs | None = None
        """The memory of the runtime that `_known` is in step with; with another one, commits were missed."""
        self._told: set[str] | None = None
        """While `_known` is read: what was told by commits meanwhile."""
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin; what is open is picked up as soon as this process is the writer."""
        self._runtime.committed.append(self._committed)
        self._tasks = [asyncio.create_task(self._outside.alarms.run()), asyncio.create_task(self._watch())]

    async def stop(self) -> None:
        """Break off everything: the log knows what was intended."""
        self._runtime.committed.remove(self._committed)
        tasks = [*self._tasks, *self._drop()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks = []

    def idle(self) -> bool:
        """Tell whether all work is known and waits for a later instant, or for a place behind work that does."""
        try:
            if self._told is not None or self._view is not self._runtime.context().docs:
                return False
        except Unavailable:
            return not self._flows
        waiting = self._outside.alarms.asleep() + sum(one.slots.queued for one in self._outside.backends.values())
        if len(self._flows) > waiting or any(flow.scope.breaking for flow in self._flows.values()):
            return False
        return self._outside.alarms.in_step()

    # ---- what calls for work

    def _committed(self, events: Sequence[Event[Any]]) -> None:
        docs = self._runtime.context().docs
        for order in dict.fromkeys(event.key for event in events if event.subject == f"{DECIDER.kind}/{event.key}"):
            if self._told is not None:
                self._told.add(order)
            self._learn(order, docs.get(ENVIRONMENTS.name, order))
        for event in events:
            if isinstance(event.data, EnvironmentEndNoted) and (flow := self._flows.get(event.key)):
                flow.end()

    def _learn(self, order: str, env: Environment | None) -> None:
        if env is None or not is_open(env):
            self._known.pop(order, None)
            return
        self._known[order] = env
        if order not in self._flows:
            flow = self._flows[order] = Flow()
            flow.task = asyncio.create_task(self._run(order, flow), name=f"environment {order}")

    async def _watch(self) -> None:
        """Read what is open when this process becomes the writer, and whenever commits may have been missed."""
        while True:
            try:
                view = self._runtime.context().docs
                if view is not self._view:
                    self._view = view
                    await self._read()
            except Unavailable:
                self._view = None
                self._drop()
            except Exception as error:
                _logger.error("open environments cannot be read: %s", type(error).__name__)
                self._view = None
            await asyncio.sleep(_LOOK_SECONDS)

    async def _read(self) -> None:
        self._told = set()
        after: tuple[str, ...] | None = None
        try:
            while rows := await self._runtime.docs.page(ENVIRONMENTS.name, {"open": True}, after=after, limit=_PAGE):
                for order, env in rows:
                    # What a commit told meanwhile is newer than what was read.
                    if order not in self._told:
                        self._learn(order, env)
                after = (rows[-1][0],)
        finally:
            self._told = None

    def _drop(self) -> list[asyncio.Task[None]]:
        """Break off all flows: another process may be the writer now."""
        tasks = [flow.task for flow in self._flows.values() if flow.task is not None]
        for task in tasks:
            task.cancel()
        self._flows, self._known = {}, {}
        return tasks

    # ---- one environment

    async def _run(self, order: str, flow: Flow) -> None:
        try:
            while (env := self._known.get(order)) is not None:
                flow.phase = env.phase
                report = await perform(self._outside, flow.scope, env)
                if report is not None:
                    await self._tell(env, report)
                if self._known.get(order) is env:
                    raise Unavailable("its report led to nothing")
        except (Unavailable, DatabaseUnavailable) as error:
            _logger.warning("environment %s waits: %s", order, error)
            self._view = None
        except Exception as error:
            _logger.error("environment %s stopped: %s", order, type(error).__name__)  # its text may hold a secret
            self._view = None
        finally:
            if self._flows.get(order) is flow:
                del self._flows[order]

    async def _tell(self, env: Environment, report: Report) -> None:
        tenant, project = (env.request.tenant, env.request.project) if env.request else (None, None)
        await self._runtime.execute(
            Act(f"{DECIDER.kind}/{env.order}", report, tenant=tenant, project=project, correlation=env.order)
        )
