"""What a refusal or a wait advises: in units that a person reads, and only what would help."""

from datetime import UTC, datetime

from qm_admission import remedies
from qm_events.specs import Violation
from tests.unit.admission.desk import request

HOUR = 3_600_000_000


def violation(dimension: str, limit: int, used: int, requested: int, scope: str = "acme") -> Violation:
    return Violation(
        scope=scope,
        dimension=dimension,
        limit=limit,
        used=used,
        requested=requested,
        short_by=used + requested - limit,
        renews_at=datetime(2026, 7, 1, tzinfo=UTC) if "@" in dimension else None,
    )


def test_hours_are_told_in_hours_and_their_limit_under_the_name_by_which_it_is_set() -> None:
    months = [violation(f"card_hours_month@2026-0{month}", 10 * HOUR, 9 * HOUR, 3 * HOUR) for month in (6, 7)]
    assert remedies.when_held(months) == (
        "Waits for 2.000000000 card-hours of 2026-06 in acme and 2.000000000 card-hours of 2026-07 in acme more; "
        "release what is not needed, or ask for a higher limit of card_hours_month in acme."
    )


def test_no_smaller_order_is_advised_where_each_order_is_one_too_many() -> None:
    none = [violation("concurrent_orders", 0, 0, 1), violation("cards/a100", 4, 0, 8, "acme/vision")]
    limits = "sk for a higher limit of concurrent_orders in acme and cards/a100 in acme/vision."
    assert remedies.when_never(request(cards=8), none) == f"A{limits}"
    assert remedies.when_refused(request(cards=8), none) == f"Order again when use has fallen, or a{limits}"


def test_a_smaller_order_is_advised_where_it_would_pass() -> None:
    found = [violation("cards/a100", 4, 0, 8)]
    assert remedies.when_never(request(cards=1, count=8), found) == (
        "Order a count of at most 4; or ask for a higher limit of cards/a100 in acme."
    )
    assert remedies.when_refused(request(cards=8), found) == (
        "Order a smaller specification, or one without a100; or order again when use has fallen, "
        "or ask for a higher limit of cards/a100 in acme."
    )
