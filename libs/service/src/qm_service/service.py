"""What a service hands to the chassis (`Service`) and what it is built from (`Kit`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fastapi import APIRouter

from qm_service.clock import Clock
from qm_service.database import Database
from qm_service.log import EventLog
from qm_service.runtime import Runtime
from qm_service.settings import Settings
from qm_service.tokens import TokenVerifier


class Worker(Protocol):
    """Something that acts on the outside world beside the runtime: a runner, a notifier. Never part of a replay."""

    async def start(self) -> None:
        """Begin; return at once."""

    async def stop(self) -> None:
        """End within seconds, leaving nothing behind that a restart does not find on the log."""

    def idle(self) -> bool:
        """Tell whether nothing is at work or due now."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service, ready to be served. Its router knows paths without `/v1`."""

    name: str
    runtime: Runtime
    router: APIRouter
    workers: Sequence[Worker] = ()


@dataclass(frozen=True, slots=True)
class Kit:
    """What `build(kit) -> Service` may use; only the caller of `build` opens and closes it."""

    database: Database
    log: EventLog
    clock: Clock
    settings: Settings
    tokens: TokenVerifier
