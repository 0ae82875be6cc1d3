"""The service, put together: the only place where the catalog meets its adapters."""

import asyncio
from contextlib import suppress

from qm_catalog.api import routes
from qm_catalog.consumers import CATALOG
from qm_catalog.directory import declare
from qm_catalog.notice_senders import Mail, Sender, Webhook
from qm_catalog.notifier import Notifier
from qm_catalog.peers import Peers
from qm_catalog.people import People
from qm_catalog.settings import Settings
from qm_events.catalog import MemberGranted, TenantRegistered
from qm_events.ids import PLATFORM
from qm_events.specs import Role
from qm_service.commands import Unavailable
from qm_service.database import DatabaseUnavailable
from qm_service.runtime import Runtime
from qm_service.sealed import SubjectKeys
from qm_service.service import Kit, Service, Worker

_RETRY_SECONDS = 0.2


class FirstStart:
    """Names the first operator, as soon as this process can write. A `Worker`."""

    def __init__(self, runtime: Runtime, operator: str) -> None:
        self._runtime = runtime
        self._operator = operator
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin; what is down is waited for in the background."""
        self._task = asyncio.create_task(self._run(), name="catalog-first-start")

    async def stop(self) -> None:
        """Give up."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def idle(self) -> bool:
        """Tell whether it is done."""
        return self._task is None or self._task.done()

    async def _run(self) -> None:
        while True:
            with suppress(Unavailable, DatabaseUnavailable):
                return await self.prepare()
            await asyncio.sleep(_RETRY_SECONDS)

    async def prepare(self) -> None:
        """Do it now, once: a role taken back since is not given again. Raises Unavailable, DatabaseUnavailable."""
        platform = TenantRegistered(tenant=PLATFORM, display_name="Platform")
        first = (platform, MemberGranted(tenant=PLATFORM, subject=self._operator, role=Role.OPERATOR))
        if await self._runtime.version(f"tenant/{PLATFORM}") < len(first):
            for fact in first:
                await self._runtime.execute(declare(PLATFORM, fact))


def build(kit: Kit) -> Service:
    """Return the catalog on the kit's database, log and clock."""
    runtime = Runtime(CATALOG, kit.database, kit.log, kit.clock, lease_seconds=kit.settings.lease_seconds)
    settings = kit.settings if isinstance(kit.settings, Settings) else Settings()
    keys = SubjectKeys(kit.database)
    peers = Peers({"admission": settings.admission_url, "scheduler": settings.scheduler_url}, settings.peer_seconds)
    workers: list[Worker] = []
    if settings.bootstrap_operator:
        workers.append(FirstStart(runtime, settings.bootstrap_operator))
    if senders := _senders(settings):
        people = People(runtime, keys)
        lease = settings.lease_seconds
        workers.append(Notifier(runtime, people, senders, kit.database, kit.log, kit.clock, lease_seconds=lease))
    return Service("catalog", runtime, routes(runtime, keys, peers), [*workers, peers])


def _senders(settings: Settings) -> dict[str, Sender]:
    """Return the ways by which approvers are told: those that are set up."""
    found: dict[str, Sender] = {}
    if settings.notice_smtp_host:
        password = settings.notice_smtp_password
        found["mail"] = Mail(
            host=settings.notice_smtp_host,
            port=settings.notice_smtp_port,
            security=settings.notice_smtp_security,
            user=settings.notice_smtp_user,
            password=password.get_secret_value() if password else None,
            sender=settings.notice_from,
            link=settings.notice_link,
        )
    if settings.notice_webhook_url and settings.notice_webhook_secret:
        secret = settings.notice_webhook_secret.get_secret_value()
        found["webhook"] = Webhook(settings.notice_webhook_url, secret)
    return found
