"""Telling approvers and requesters: a reactor puts what is to be told into the box, a loop sends what is due. A
`Worker`, so no replay reaches it. At least once, under an id that stays the same."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from qm_catalog.consumers import CATALOG
from qm_catalog.domain import RECORDS
from qm_catalog.notice_box import NoticeBox, Parcel
from qm_catalog.notice_senders import Sender, Undeliverable
from qm_catalog.notices import FACTS, OUTCOMES, Channel, Notice, notices_of, outcome_of
from qm_catalog.people import People
from qm_catalog.request_record import Record
from qm_events import Event
from qm_events.sealed import REDACTED
from qm_service.clock import Clock
from qm_service.database import Database, DatabaseUnavailable
from qm_service.log import EventLog
from qm_service.reactor import Reactor
from qm_service.runtime import Runtime

_logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
_BACK_OFF = (10, 60, 300, 1_800)
"""Seconds until it is tried again; the last one then every time."""
_ATTEMPTS = 50
"""A day or so."""


class Notifier:
    """Sends notices by those senders that there are. One process of many does: the one whose reactor leads."""

    def __init__(
        self,
        runtime: Runtime,
        people: People,
        senders: Mapping[Channel, Sender],
        database: Database,
        log: EventLog,
        clock: Clock,
        *,
        lease_seconds: float = 10.0,
    ) -> None:
        self.box = NoticeBox(database)
        handlers = dict.fromkeys(FACTS, self._take)
        self.reactor = Reactor("notices", CATALOG, database, log, clock, handlers, lease_seconds=lease_seconds)
        self._runtime = runtime
        self._people = people
        self._senders = senders
        self._clock = clock
        self._quiet = True
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin."""
        await self.reactor.start()
        self._task = asyncio.create_task(self._run(), name="notices")

    async def stop(self) -> None:
        """End; what is on its way is sent again by the next start."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await self.reactor.stop()

    def idle(self) -> bool:
        """Tell whether nothing was to be taken or sent when it looked last."""
        return not self.reactor.leads or (self.reactor.idle() and self._quiet)

    async def step(self) -> bool:
        """Send what is due now; False if nothing was."""
        parcels = await self.box.due(self._clock.now())
        for parcel in parcels:
            await self._send(parcel)
        self._quiet = not parcels
        return bool(parcels)

    async def _take(self, event: Event[Any]) -> str:
        found = await self._found(event)
        if found:
            self._quiet = False
            await self.box.add(found)
        return f"{len(found)} notices"

    async def _found(self, event: Event[Any]) -> list[Notice]:
        if type(event.data) not in OUTCOMES:
            return notices_of(event, self._senders, self._clock.now())
        # The order is a fact of this service: it was here before admission could speak of it.
        record = await self._record(event.data.order)
        request = record.asked.request if record else None
        return outcome_of(event, request, self._senders, self._clock.now()) if request else []

    async def _record(self, order: str) -> Record | None:
        return (await self._runtime.docs.many(RECORDS, [order])).get(order)

    async def _send(self, parcel: Parcel) -> None:
        if stale := [it for it in parcel.notices if await self._over(it)]:
            await self.box.done(stale, "decided before")
        parcel = Parcel(tuple(it for it in parcel.notices if it not in stale), parcel.attempts)
        sender = self._senders.get(parcel.notices[0].channel) if parcel.notices else None
        if sender is None:
            return
        try:
            address = await self._address(parcel.notices[0])
            result = await sender.send(parcel, address, self._clock.now())
        except Undeliverable as error:
            await self.box.done(parcel.notices, f"undeliverable: {error}")
        except DatabaseUnavailable:
            raise
        except Exception as error:
            await self._again(parcel, error)
        else:
            await self.box.done(parcel.notices, result)

    async def _again(self, parcel: Parcel, error: Exception) -> None:
        # The kind of fault alone: what a server says may repeat an address.
        why = type(error).__name__
        if parcel.attempts + 1 >= _ATTEMPTS:
            await self.box.done(parcel.notices, f"given up: {why}")
            return
        seconds = _BACK_OFF[min(parcel.attempts, len(_BACK_OFF) - 1)]
        _logger.warning("notice %s is sent again in %s s: %s", parcel.id, seconds, why)
        await self.box.later(parcel, self._clock.now() + timedelta(seconds=seconds), why)

    async def _address(self, notice: Notice) -> str:
        """Return where a notice goes: unsealed now, and kept nowhere."""
        if notice.channel != "mail":
            return ""
        person = (await self._people.known(notice.tenant, [notice.recipient])).get(notice.recipient)
        if person is None or not person.email or person.email == REDACTED:
            raise Undeliverable("no address is known")
        return person.email

    async def _over(self, notice: Notice) -> bool:
        """Tell whether the record knows that the question is closed, or that this person has spoken."""
        record = None if notice.outcome else await self._record(notice.body["order"])
        asked = [it for it in record.vetted.approvals if it.approval == notice.body["approval"]] if record else []
        return any(it.status != "pending" or notice.recipient in {v.voter for v in it.votes} for it in asked)

    async def _run(self) -> None:
        while True:
            try:
                if not self.reactor.leads or not await self.step():
                    await asyncio.sleep(_LOOK_SECONDS)
            except DatabaseUnavailable:
                await asyncio.sleep(_LOOK_SECONDS)
