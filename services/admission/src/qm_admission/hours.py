"""Monthly card-hours, held ahead of time. Pure, in card-microseconds as metering counts them.

What an order takes of a month is named with the month, `card_hours_month@2026-06`, and posted to the ledger like every
other amount. An order with an end holds all its months; until it is ready it counts as if it began now, for its
duration does not run yet. An order without an end holds as far as the month and what is left of its limits allow
(`covered until`), and is looked at again before that.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from math import ceil

from qm_admission.months import bounds, micros, month_end, pieces
from qm_admission.quota import HOURS, Scope, limit_of
from qm_events.specs import OrderRequest

LEAST = timedelta(hours=1)
"""An order without an end is not admitted for less, unless the month itself ends before."""


@dataclass(frozen=True, slots=True)
class Life:
    """How long an order takes how many cards. With neither duration nor end it runs until somebody ends it."""

    cards: int
    seconds: int | None = None
    expires_at: datetime | None = None
    share: str | None = None
    """What each counts of a card; None = all of it."""

    @property
    def portion(self) -> int | Fraction:
        """Its cards, slices as the exact part that they are."""
        return self.cards if self.share is None else self.cards * Fraction(self.share)

    def end(self, start: datetime) -> datetime | None:
        """Return the promised end of an order that begins at `start`; None = it has none."""
        if self.expires_at is not None:
            return self.expires_at
        return None if self.seconds is None else start + timedelta(seconds=self.seconds)


@dataclass(frozen=True, slots=True)
class Cover:
    """What is held, and up to when; `until` None = to the end of the order."""

    amounts: Mapping[str, int]
    until: datetime | None = None


def life_of(request: OrderRequest) -> Life:
    """Return the life that a request asks for."""
    cut = request.specification.slice
    return Life(request.cards, request.duration_seconds, request.expires_at, cut.share if cut else None)


def key(month: str) -> str:
    """Return the dimension of a month."""
    return f"{HOURS}@{month}"


def held(cards: int | Fraction, start: datetime, end: datetime, zone: str) -> dict[str, int]:
    """Return the card-microseconds of `cards` in [start, end), by month; those of slices rounded up to a whole one."""
    return {key(month): ceil(cards * micros(until - since)) for month, since, until in pieces(start, end, zone)}


def renews_at(dimension: str, zone: str) -> datetime:
    """Return when the month that a dimension names ends."""
    return bounds(dimension.partition("@")[2], zone)[1]


def of_months(amounts: Mapping[str, int]) -> dict[str, int]:
    """Return those of the amounts that are hours of a month."""
    return {name: amount for name, amount in amounts.items() if name.startswith(f"{HOURS}@")}


def room(path: Iterable[str], scopes: Mapping[str, Scope], dimension: str) -> int | None:
    """Return what is left of a month on the whole path; None where nothing limits it."""
    left = [
        limit - scope.used.get(dimension, 0)
        for name in path
        if (scope := scopes.get(name)) and HOURS not in scope.report_only
        if (limit := limit_of(scope, dimension)) is not None
    ]
    return max(0, min(left)) if left else None


def cover(
    cards: int | Fraction,
    start: datetime,
    end: datetime | None,
    zone: str,
    path: Iterable[str],
    scopes: Mapping[str, Scope],
    own: Mapping[str, int] | None = None,
) -> Cover:
    """Return what can be held from `start` on: to the end, or as far as limits and, without an end, the month allow.

    `own` is what the order holds already and gives back for this.
    """
    amounts: dict[str, int] = {}
    path = tuple(path)
    for month, since, until in pieces(start, end or month_end(start, zone), zone):
        wanted, left = ceil(cards * micros(until - since)), room(path, scopes, key(month))
        if left is not None and (left := left + (own or {}).get(key(month), 0)) < wanted:
            amounts[key(month)] = ceil(cards * (left // cards))
            return Cover({name: amount for name, amount in amounts.items() if amount}, since + _span(left // cards))
        amounts[key(month)] = wanted
    return Cover(amounts, None if end else month_end(start, zone))


def asked(
    life: Life, now: datetime, zone: str, path: Iterable[str], scopes: Mapping[str, Scope]
) -> tuple[dict[str, int], datetime | None]:
    """Return the hours that an order asks for at admission, and up to when they reach where that is not its end."""
    end = life.end(now)
    if end is not None:
        return held(life.portion, now, end, zone), None
    least = min(now + LEAST, month_end(now, zone))
    found = cover(life.portion, now, None, zone, path, scopes)
    if found.until is None or found.until < least:
        return held(life.portion, now, least, zone), least
    return dict(found.amounts), found.until


def _span(micro: int) -> timedelta:
    return timedelta(microseconds=micro)
