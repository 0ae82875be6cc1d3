"""Limits and use of a scope as they are shown: every dimension, the months, and what is borrowed."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from fractions import Fraction

from pydantic import BaseModel, Field

from qm_admission import hours, precedence, quota
from qm_admission.dimensions import DIMENSIONS, unit_of
from qm_admission.lending import Lending, borrowed
from qm_admission.months import month_of
from qm_admission.quota import EMPTY, HOURS, PER_ACCELERATOR, Exhausted, OverQuota, Quantities, Scope, limit_of
from qm_admission.shares import CARD_SHARES, CARDS, SHARES, counted_as, name_of, whole
from qm_events.units import card_hours
from qm_service.simulation import Effect


class DimensionView(BaseModel):
    """One dimension at one scope."""

    unit: str = Field(description="Of the figures here, in words")
    limit: int | None = Field(description="Of this scope, without what it may borrow; null = none")
    used: int = Field(description="Now, by all orders of the scope; slices of cards rounded up together")
    parts_used: str | None = Field(
        None, description="What of `used` slices of cards are, exactly, as `p/q`; null = none"
    )
    available: int | None = Field(description="The least that is left on the whole path; null = nothing limits it")
    bound_by: str | None = Field(description="The scope that leaves the least")
    report_only: bool = Field(description="The limit is told and not enforced")
    borrow_limit: int = Field(description="How much beyond the limit may be borrowed from others in the tenant")
    lend_limit: int = Field(description="How much of what is not used others may borrow")
    borrowed: int = Field(description="What of `used` is borrowed now")
    borrowable: int = Field(description="What more could be borrowed now")


class MonthView(BaseModel):
    """Card-hours of one month at one scope, as decimals with 9 places."""

    month: str = Field(description="As `2026-06`, in the zone of the tenant")
    renews_at: datetime = Field(description="When the month ends")
    limit: str | None = Field(description="Null = none")
    settled: str = Field(description="Used, as metering says")
    held: str = Field(description="Held ahead for the rest of the month by orders that are admitted")
    available: str | None = Field(description="The least that is left on the whole path; null = nothing limits it")
    threshold: int | None = Field(description="The last of 80, 95 and 100 % that was announced; null = none")
    percent: int | None = Field(description="Settled and held, of the limit, rounded down; null where the limit is 0")


class QuotaView(BaseModel):
    """Limits and use of a scope. Its ETag is the version of all rules of the tenant."""

    tenant: str
    project: str | None
    over_quota: OverQuota
    hours_exhausted: Exhausted = Field(description="What happens to a running order whose card-hours are used up")
    notice_seconds: int = Field(description="How long before that the notice comes")
    priority_at_most: int | None = Field(description="As it was set; null: 0, or as the tenant")
    priority_allowed: int = Field(description="The highest priority that an order of the scope may ask for")
    limits: dict[str, int] = Field(description="As they were set; `card_hours_month` in card-hours")
    report_only: list[str] = Field(description="Limits that are told and not enforced")
    borrow: dict[str, int] = Field(description="How much beyond its limits the project may borrow")
    lend: dict[str, int] = Field(description="How much of what it does not use others may borrow")
    dimensions: dict[str, DimensionView] = Field(
        description="Card-hours are those of this month; `months` has them in decimals"
    )
    months: list[MonthView] = Field(description="The month that is now, and all later ones for which hours are held")


def view(
    tenant: str, project: str | None, scopes: Mapping[str, Scope], lending: Lending | None, now: datetime, zone: str
) -> QuotaView:
    """Return what is shown of the scope; `scopes` are those of its path."""
    path = quota.path_of(tenant, project)
    own = scopes.get(path[-1], EMPTY)
    names = [name for name in DIMENSIONS if name not in (HOURS, f"{PER_ACCELERATOR}<accelerator>")]
    typed = {
        counted_as(name)[0]
        for scope in scopes.values()
        for name in (*scope.limits, *scope.used)
        if "/" in name and name.startswith((PER_ACCELERATOR, CARD_SHARES))
    }
    return QuotaView(
        tenant=tenant,
        project=project,
        over_quota=quota.over_quota_of(path, scopes),
        hours_exhausted=own.exhausted or "warn",
        notice_seconds=own.notice_seconds,
        priority_at_most=own.priority_at_most,
        priority_allowed=precedence.allowed(path, scopes),
        limits=dict(own.limits),
        report_only=list(own.report_only),
        borrow=dict(own.borrow),
        lend=dict(own.lend),
        dimensions={name: _dimension(name, own, path, scopes, lending) for name in (*names, *sorted(typed))}
        | {HOURS: _this_month(hours.key(month_of(now, zone)), own, path, scopes)},
        months=list(_months(own, path, scopes, now, zone)),
    )


def _dimension(
    name: str, own: Scope, path: Sequence[str], scopes: Mapping[str, Scope], lending: Lending | None
) -> DimensionView:
    left, bound_by = quota.available(path, scopes, name) or (None, None)
    room = lending.room(path[-1], own, name) if lending and name in own.borrow else 0
    has = borrowed(own, name)
    return DimensionView(
        unit=unit_of(name),
        limit=own.limits.get(name),
        used=whole(own.used, name) if name.startswith(CARDS) else own.used.get(name, 0),
        parts_used=_parts(own.used, name),
        available=left,
        bound_by=bound_by,
        report_only=name in own.report_only,
        borrow_limit=own.borrow.get(name, 0),
        lend_limit=own.lend.get(name, 0),
        borrowed=has,
        borrowable=max(0, min(own.borrow.get(name, 0), room) - has),
    )


def _parts(used: Mapping[str, int], name: str) -> str | None:
    parts = used.get(name_of(name), 0) if name.startswith(CARDS) else 0
    share = Fraction(parts, SHARES)
    return f"{share.numerator}/{share.denominator}" if parts else None


def _this_month(key: str, own: Scope, path: Sequence[str], scopes: Mapping[str, Scope]) -> DimensionView:
    left, bound_by = quota.available(path, scopes, key) or (None, None)
    return DimensionView(
        unit="card-microseconds",
        limit=limit_of(own, key),
        used=own.used.get(key, 0),
        available=left,
        bound_by=bound_by,
        report_only=HOURS in own.report_only,
        borrow_limit=0,
        lend_limit=0,
        borrowed=0,
        borrowable=0,
    )


def _months(
    own: Scope, path: Sequence[str], scopes: Mapping[str, Scope], now: datetime, zone: str
) -> Iterator[MonthView]:
    current = hours.key(month_of(now, zone))
    for name in sorted({current, *(name for name in hours.of_months(own.used) if name > current)}):
        limit, used, settled = limit_of(own, name), own.used.get(name, 0), own.settled.get(name, 0)
        left = hours.room(path, scopes, name)
        yield MonthView(
            month=name.partition("@")[2],
            renews_at=hours.renews_at(name, zone),
            limit=None if limit is None else card_hours(limit),
            settled=card_hours(settled),
            held=card_hours(max(0, used - settled)),
            available=None if left is None else card_hours(left),
            threshold=own.reached.get(name),
            percent=used * 100 // limit if limit else None,
        )


def effects(path: Sequence[str], scopes: Mapping[str, Scope], amounts: Quantities) -> list[Effect]:
    """Return what a claim does at every scope, in every dimension that it takes."""
    return [
        _effect(name, scopes.get(name, EMPTY), dimension, amounts[dimension]) for name in path for dimension in amounts
    ]


def _effect(name: str, scope: Scope, dimension: str, amount: int) -> Effect:
    base = dimension.partition("@")[0]
    limit, used = limit_of(scope, counted_as(dimension)[0]), quota.used_of(scope, dimension)
    most = None if limit is None else limit + scope.borrow.get(counted_as(base)[0], 0)
    if most is not None and base.startswith(CARD_SHARES):
        most *= SHARES
    return Effect(
        scope=name,
        dimension=dimension,
        unit="card-microseconds" if base == HOURS else unit_of(dimension),
        limit=most,
        used=used,
        requested=amount,
        left_after=None if most is None else most - used - amount,
    )
