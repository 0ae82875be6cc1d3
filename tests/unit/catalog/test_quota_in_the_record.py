"""What the record says of quota: why it waits, how far its card-hours reach, and what happens when they are used up."""

from datetime import timedelta
from typing import Any

from qm_catalog.record_conditions import conditions
from qm_catalog.record_phase import reasons
from qm_catalog.request_record import Record
from qm_events import EventData, admission
from qm_events.admission_quota import QuotaAdjusted, QuotaHoursEnding, QuotaHoursExhausted
from qm_events.envelope import utc_text
from qm_events.specs import Amounts, Remedy, Violation
from tests.unit.catalog import walk
from tests.unit.catalog.stage import Stage
from tests.unit.catalog.walk import ORDER, at, fold, in_order, tell

PATH = ("acme", "acme/vision")
HOUR = 3_600_000_000
AHEAD = Violation(scope="acme", dimension="cards/a100", limit=4, used=1, requested=2, short_by=0, why="older_first")
HOURS = Violation(
    scope="acme",
    dimension="card_hours_month@2026-06",
    limit=100 * HOUR,
    used=95 * HOUR,
    requested=16 * HOUR,
    short_by=11 * HOUR,
    unit="card_us",
    renews_at=at(60 * 24 * 29),
)
WAIT = Remedy(kind="wait_until", text="Wait.", at=at(60 * 24 * 29))


def held(*violations: Violation) -> EventData:
    return admission.OrderHeld(order=ORDER, violations=violations, remedy="Ask.", held_at=at(2), remedies=(WAIT,))


def adjusted(cause: Any, minute: float | None = None, **more: Any) -> EventData:
    until = None if minute is None else at(minute)
    return QuotaAdjusted(
        order=ORDER, scopes=PATH, taken=Amounts(), returned=Amounts(), cause=cause, covered_until=until, **more
    )


def exhausted(action: Any) -> EventData:
    return QuotaHoursExhausted(order=ORDER, scopes=PATH, action=action, exhausted_at=at(300))


def reserved(record: Record) -> tuple[str, str, str]:
    return next((c.status, c.reason, c.message) for c in conditions(record) if c.type == "QuotaReserved")


def test_what_is_short_comes_before_what_an_older_order_waits_for() -> None:
    found = reasons(fold(in_order(tell(walk.submitted(), (2, held(AHEAD, HOURS))))))
    assert [it.code for it in found] == ["QuotaExhausted", "OlderOrderAhead"]
    assert found[0].counterfactual == "fits with 11.000000000 card-hours of 2026-06 more at acme"
    assert (found[0].figures["unit"], found[0].remedies) == ("card_us", (WAIT,))
    assert "older orders" in found[1].counterfactual
    assert "unit" not in found[1].figures


def test_the_record_says_how_far_card_hours_reach() -> None:
    claimed, said = walk.admitted()
    said = (3, said[1].model_copy(update={"covered_until": at(100)}))
    record = fold(in_order(tell(walk.submitted(), claimed, said)))
    assert reserved(record) == ("True", "Claimed", f"card-hours are held up to {utc_text(at(100))}")
    ending = QuotaHoursEnding(
        order=ORDER, scopes=PATH, covered_until=at(300), action="warn", remedy="r", noticed_at=at(240), looks_at=at(300)
    )
    told = [claimed, said, (5, adjusted("renewed", 200)), (240, ending), (300, exhausted("warn"))]
    record = fold(in_order(tell(walk.submitted(), *told)))
    assert reserved(record)[:2] == ("True", "HoursExhausted")
    record = fold(in_order(tell(walk.submitted(), *told, (400, adjusted("renewed", 500)))))
    assert reserved(record)[2] == f"card-hours are held up to {utc_text(at(500))}"


def test_settling_after_the_refund_is_no_anomaly() -> None:
    refunded = admission.QuotaRefunded(order=ORDER, scopes=PATH, amounts=Amounts())
    told = [*walk.admitted(), (50, refunded), (51, adjusted("used", record="r")), (52, adjusted("corrected"))]
    assert fold(in_order(tell(walk.submitted(), *told))).vetted.anomalies == ()


async def test_used_up_hours_end_the_order_where_its_quota_says_so(stage: Stage) -> None:
    for action, ended in (("warn", False), ("end", True)):
        order = (await stage.order())["id"]
        now = stage.world.clock.now()
        claimed, admitted = (data.model_copy(update={"order": order}) for _, data in walk.admitted())
        said = QuotaHoursExhausted(order=order, scopes=PATH, action=action, exhausted_at=now + timedelta(hours=1))
        await stage.tell(claimed, admitted, said)
        await stage.world.advance(hours=2)
        told = await stage.world.facts("orders", f"order/{order}")
        assert [it.wire_type for it in told][1:] == (["order.expired.v1"] if ended else [])
        if ended:
            assert told[-1].expired_at == now + timedelta(hours=1)
