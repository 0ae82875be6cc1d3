"""Approvers are told by mail and webhook: once each, at once or in a digest, never by a replay, and without leaving an
address anywhere."""

import hmac
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from qm_catalog.app import build
from qm_catalog.consumers import CATALOG
from qm_catalog.directory import declare
from qm_catalog.forms import SubjectForm
from qm_catalog.notices import notices_of
from qm_catalog.notifier import Notifier
from qm_catalog.people import People
from qm_catalog.settings import Settings
from qm_events import EventData, new_event
from qm_events.admission import ApprovalGranted, ApprovalRequested, Submission
from qm_events.admission_approval import ApprovalEscalated, ApprovalReminded, ApprovalRerouted
from qm_events.approval import ApprovalPolicy, Notices
from qm_events.catalog import TenantRegistered
from qm_events.specs import OrderRequest, ServiceModel, Specification
from qm_service.replay import replay
from qm_service.runtime import NOBODY
from qm_service.sealed import SubjectKeys
from qm_service.service import Kit
from qm_service.testing.world import World
from tests.unit.catalog.post import Endpoint, PostOffice, endpoint, post_office

REQUEST = OrderRequest(
    tenant="acme",
    project="vision",
    requester="dev",
    specification=Specification(
        name="a100-8", version=1, accelerators=("a100",), cards_per_unit=8,
        accelerator_memory_mib=1, cpu_milli=1, memory_mib=1,
    ),
    service_model=ServiceModel.VM,
)  # fmt: skip
BOTH = Notices(channels=("mail", "webhook"))
ADDRESS = "ann@acme.invalid"


@dataclass
class Desk:
    """The catalog with its notifier, and where the notices arrive."""

    world: World
    notifier: Notifier
    people: People
    mail: PostOffice
    hook: Endpoint
    said: int = 0

    async def tell(self, *facts: EventData) -> None:
        """Let admission say something, and send what is due."""
        for fact in facts:
            self.said += 1
            at = self.world.clock.now()
            more = {"tenant": "acme", "project": "vision", "correlation": "o1"}
            event = new_event("admission/o1", self.said, at, "/quartermaster/admission", fact, **more)
            await self.world.publish(event)
        await self.send()

    async def send(self) -> None:
        """Take and send what there is."""
        await self.world.settle()
        while await self.notifier.reactor.step() or await self.notifier.step():
            pass

    async def advance(self, **span: float) -> None:
        """Let time pass, and send what is due then."""
        await self.world.advance(**span)
        await self.send()

    def asked(self, wanted: Notices | None = BOTH, approval: str = "a1", *people: str) -> ApprovalRequested:
        """Return a question to ann, or to these."""
        at = self.world.clock.now()
        return ApprovalRequested(
            order="o1", approval=approval, policy="big", level=1, approvers=people or ("ann",), digest="d",
            requested_at=at, lapses_at=at + timedelta(days=2), awaited=people or ("ann",),
            by=ApprovalPolicy(name="big", levels=(), notices=wanted),
            submission=Submission(request=REQUEST, digest="d", submitted_at=at),
        )  # fmt: skip


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """Two people with an address, one without."""
    async with AsyncExitStack() as stack:
        mail, hook = await stack.enter_async_context(post_office()), await stack.enter_async_context(endpoint())
        world = World(folder=tmp_path)
        settings = Settings(
            notice_smtp_host="127.0.0.1", notice_smtp_port=mail.port, notice_smtp_security="none",
            notice_from="qm@acme.invalid", notice_link="https://console.invalid/approvals",
            notice_webhook_url=hook.url, notice_webhook_secret="s3cret",
        )  # fmt: skip
        tokens: Any = None
        service = build(Kit(world.database("catalog"), world.log, world.clock, settings, tokens))
        notifier = service.workers[0]
        assert isinstance(notifier, Notifier)
        world.add(service.runtime)
        await stack.enter_async_context(world)
        await service.runtime.execute(declare("acme", TenantRegistered(tenant="acme", display_name="Acme")))
        people = People(service.runtime, SubjectKeys(service.runtime.database))
        for subject, email in (("ann", ADDRESS), ("bob", "bob@acme.invalid"), ("cem", None)):
            await people.register(SubjectForm(tenant="acme", subject=subject, email=email), NOBODY)
        found = Desk(world, notifier, people, mail, hook)
        await found.send()
        yield found


async def test_those_awaited_are_told_at_once_by_mail(desk: Desk) -> None:
    await desk.tell(desk.asked(BOTH, "a1", "ann", "bob", "cem"))
    assert sorted(to for (to,), _ in desk.mail.mails) == [ADDRESS, "bob@acme.invalid"]
    (_, mail), *_ = sorted(desk.mail.mails, key=lambda it: it[0])
    assert mail["subject"] == "Approval needed in acme/vision: order o1"
    text = mail.get_payload()
    for part in ("dev wants 8 cards, a100-8 as vm; policy big", "2026-06-03", "qm approve a1", "/approvals/a1"):
        assert part in text
    assert mail["message-id"] == f"<{mail['quartermaster-notice']}@quartermaster>"
    results = sorted((await desk.notifier.box.results()).values())
    assert results == ["answered 204", "sent", "sent", "undeliverable: no address is known"]


async def test_a_webhook_is_posted_once_and_signed(desk: Desk) -> None:
    await desk.tell(desk.asked(BOTH, "a1", "ann", "bob"))
    ((headers, body),) = desk.hook.calls
    told = json.loads(body)
    message = f"{headers['quartermaster-notice']}.{headers['quartermaster-timestamp']}.".encode() + body
    assert headers["quartermaster-signature"] == f"v1={hmac.new(b's3cret', message, 'sha256').hexdigest()}"
    assert told["id"] == headers["quartermaster-notice"]
    (notice,) = told["notices"]
    assert (notice["kind"], notice["recipients"], notice["approval"]) == ("asked", ["ann", "bob"], "a1")
    assert ADDRESS not in body.decode()


async def test_who_joins_and_who_is_reminded_is_told(desk: Desk) -> None:
    at = desk.world.clock.now()
    base = {"order": "o1", "approval": "a1", "level": 1, "notices": Notices(channels=("mail",))}
    await desk.tell(
        ApprovalRerouted(
            **base, cause="people_changed", approvers=("ann", "bob"), awaited=("ann", "bob"), joined=("bob",),
            needed=1, rerouted_at=at,
        ),
        ApprovalReminded(**base, awaited=("ann",), number=1, reminded_at=at),
        ApprovalEscalated(
            **base, to="approvers", approvers=("ann",), awaited=("ann",), joined=("ann",), escalated_at=at
        ),
    )  # fmt: skip
    told = [(to[0], mail["subject"].partition(":")[0], mail.get_payload()) for to, mail in desk.mail.mails]
    assert sorted(to for to, _, _ in told) == [ADDRESS, ADDRESS, "bob@acme.invalid"]
    assert sum("Reminder" in subject for _, subject, _ in told) == 1
    assert sum("not decided in time" in text for _, _, text in told) == 1


async def test_a_policy_without_notices_tells_nobody(desk: Desk) -> None:
    await desk.tell(desk.asked(None))
    assert (desk.mail.mails, desk.hook.calls) == ([], [])


async def test_a_digest_collects_until_its_time_and_is_one_mail(desk: Desk) -> None:
    hourly = Notices(channels=("mail",), digest_seconds=3_600)
    await desk.tell(desk.asked(hourly, "a1"))
    await desk.advance(minutes=30)
    await desk.tell(desk.asked(hourly, "a2"))
    assert desk.mail.mails == []
    await desk.advance(minutes=30)
    ((_, mail),) = desk.mail.mails
    assert mail["subject"] == "2 approvals wait for you in acme"
    assert "qm approve a1" in mail.get_payload()
    assert "qm approve a2" in mail.get_payload()
    await desk.advance(hours=3)
    assert len(desk.mail.mails) == 1


async def test_what_was_decided_before_the_digest_is_not_in_it(desk: Desk) -> None:
    hourly = Notices(channels=("mail",), digest_seconds=3_600)
    at = desk.world.clock.now()
    granted = ApprovalGranted(order="o1", approval="a1", level=1, approver="bob", digest="d", decided_at=at)
    await desk.tell(desk.asked(hourly, "a1"), granted, desk.asked(hourly, "a2"))
    await desk.advance(hours=1)
    ((_, mail),) = desk.mail.mails
    assert "approve a1" not in mail.get_payload()
    assert "decided before" in (await desk.notifier.box.results()).values()


async def test_a_server_that_is_away_is_tried_again_with_the_same_id(desk: Desk) -> None:
    desk.mail.replies, desk.hook.statuses = ["451 later"], [503]
    await desk.tell(desk.asked())
    assert desk.mail.mails == []
    await desk.advance(seconds=11)
    ((_, mail),) = desk.mail.mails
    ids = [headers["quartermaster-notice"] for headers, _ in desk.hook.calls]
    assert len(ids) == 2
    assert len(set(ids)) == 1
    assert mail["quartermaster-notice"] != ids[0]


async def test_an_address_that_is_refused_for_good_is_not_tried_again(desk: Desk) -> None:
    desk.mail.replies = ["550 no such user"] * 5
    await desk.tell(desk.asked(Notices(channels=("mail",))))
    await desk.advance(days=1)
    assert len(desk.mail.replies) == 4
    assert list((await desk.notifier.box.results()).values()) == ["undeliverable: the server refuses the address: 550"]


async def test_a_notice_that_was_sent_and_not_noted_goes_out_again_under_the_same_id(desk: Desk) -> None:
    done = desk.notifier.box.done

    async def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    desk.notifier.box.done = killed  # type: ignore[method-assign]  # the process ends here
    with pytest.raises(KeyboardInterrupt):
        await desk.tell(desk.asked(Notices(channels=("mail",))))
    desk.notifier.box.done = done  # type: ignore[method-assign]  # and begins again
    await desk.send()
    assert len({mail["message-id"] for _, mail in desk.mail.mails}) == 1
    assert len(desk.mail.mails) == 2


async def test_an_erased_person_is_told_nothing(desk: Desk) -> None:
    await desk.people.erase("acme", "ann", NOBODY)
    await desk.tell(desk.asked(Notices(channels=("mail",))))
    assert desk.mail.mails == []


async def test_no_address_is_on_the_log_or_in_a_database(desk: Desk, tmp_path: Path) -> None:
    await desk.tell(desk.asked())
    assert desk.mail.mails
    assert [name for name, raw in _files(tmp_path) if ADDRESS.encode() in raw] == []
    for topic in ("directory", "admissions"):
        for fact in await desk.world.facts(topic):
            assert ADDRESS not in repr(fact)


def _files(folder: Path) -> list[tuple[str, bytes]]:
    return [(file.name, file.read_bytes()) for file in folder.iterdir()]


async def test_a_replay_sends_nothing_and_neither_does_what_was_there_before(desk: Desk) -> None:
    await desk.tell(desk.asked())
    sent = len(desk.mail.mails), len(desk.hook.calls)
    await replay(CATALOG, desk.world.database("again"), desk.world.log)
    tokens: Any = None
    fresh = build(Kit(desk.world.database("again"), desk.world.log, desk.world.clock, _settings(desk), tokens)).workers[
        0
    ]
    assert isinstance(fresh, Notifier)
    while await fresh.reactor.step() or await fresh.step():
        pass
    assert (len(desk.mail.mails), len(desk.hook.calls)) == sent
    await fresh.stop()


def _settings(desk: Desk) -> Settings:
    return Settings(
        notice_smtp_host="127.0.0.1", notice_smtp_port=desk.mail.port, notice_smtp_security="none",
        notice_webhook_url=desk.hook.url, notice_webhook_secret="s3cret",
    )  # fmt: skip


def test_an_id_follows_from_the_fact_and_the_recipient() -> None:
    at = World().clock.now()
    fact = ApprovalReminded(
        order="o1", approval="a1", level=1, awaited=("ann", "bob"), number=1, notices=BOTH, reminded_at=at
    )
    event = new_event("admission/o1", 3, at, "/x", fact, tenant="acme")
    first, second = (notices_of(event, ("mail", "webhook"), at) for _ in range(2))
    assert [it.id for it in first] == [it.id for it in second]
    assert len({it.id for it in first}) == 3
    assert notices_of(event, (), at) == []


async def test_nothing_is_started_where_nothing_is_set_up(tmp_path: Path) -> None:
    world = World(folder=tmp_path)
    tokens: Any = None
    service = build(Kit(world.database("catalog"), world.log, world.clock, Settings(), tokens))
    assert not any(isinstance(worker, Notifier) for worker in service.workers)
