"""The laws of the product, checked on the topics alone: nothing of the product is used here. All return what is broken.

`always` holds at any moment, also in the middle of a storm; `at_rest` when all that follows has happened.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from tests.support.oracle import misbilled
from tests.support.topics import Fact
from tests.support.turns import overtaken

ENDS = ("order.cancel_requested", "order.release_requested", "order.expired")
ONCE: tuple[tuple[str, ...], ...] = (
    ENDS,
    ("order.submitted",),
    ("order.admitted", "order.rejected"),
    ("order.withdrawn",),
    ("quota.refunded",),
    ("allocation.withdrawn",),
)
"""Of each group, an order has one fact at most."""
EACH: tuple[tuple[str, ...], ...] = (
    ("allocation.allocated",),
    ("allocation.preempted",),
    ("allocation.returned",),
    ("environment.started",),
    ("environment.ready", "environment.failed"),
    ("environment.validated", "environment.quarantined"),
    ("environment.released",),
)
"""Of each group, an allocation has one fact at most; `environment.failed` after `environment.ready` is told apart."""
TURNS: tuple[tuple[str, str], ...] = (
    ("allocation.queued", "allocation.preempted"),
    ("quota.claimed", "order.suspended"),
    ("quota.committed", "order.suspended"),
)
"""An order has the first once, and once more each time that it gave up what the second says."""


def always(facts: Sequence[Fact]) -> list[str]:
    """Check what holds at every position of the log."""
    unique, forks = told_once(facts)
    return [*forks, *_once(unique), *_cards(unique), *_allocations(unique), *_ledger(unique), *overtaken(unique)]


def at_rest(facts: Sequence[Fact]) -> list[str]:
    """Check what holds as well when nothing is under way."""
    unique, _ = told_once(facts)
    return [*always(facts), *_ended_everywhere(unique), *_nothing_held(unique), *misbilled(by_order(unique))]


def told_once(facts: Sequence[Fact]) -> tuple[list[Fact], list[str]]:
    """Return each fact once, where it came first, and what is wrong with the streams: holes, forks, ids."""
    told: dict[tuple[str, int], bytes] = {}
    heads: Counter[str] = Counter()
    ids: dict[str, tuple[str, int]] = {}
    unique, broken = [], []
    for fact in facts:
        name = (fact.stream, int(fact.body["version"]))
        if name in told:
            if told[name] != fact.raw:
                broken.append(f"fork: {name} was told with two contents")
            continue
        told[name] = fact.raw
        if name[1] != heads[fact.stream] + 1:
            broken.append(f"hole: {fact.stream} goes from {heads[fact.stream]} to {name[1]}")
        heads[fact.stream] = name[1]
        if ids.setdefault(str(fact.body["id"]), name) != name:
            broken.append(f"one id for two facts: {name} and {ids[str(fact.body['id'])]}")
        unique.append(fact)
    return unique, broken


def by_order(facts: Iterable[Fact]) -> dict[str, list[Fact]]:
    """Return the facts of each order, of all topics."""
    orders: dict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        if "order" in fact.data:
            orders[fact.data["order"]].append(fact)
    return orders


def lost(facts: Sequence[Fact], accepted: Mapping[str, str], label: str) -> list[str]:
    """Check that every order that a client was told of is there, and each `label` it gave led to one order at most."""
    submitted = {fact.data["order"]: fact for fact in told_once(facts)[0] if fact.type == "order.submitted"}
    named = {order: fact.data["request"]["labels"].get(label) for order, fact in submitted.items()}
    missing = [f"lost: order {order} ({name})" for name, order in accepted.items() if named.get(order) != name]
    doubled = [name for name, count in Counter(named.values()).items() if name is not None and count > 1]
    return missing + [f"doubled: {name} led to more than one order" for name in doubled]


def _once(facts: Sequence[Fact]) -> Iterator[str]:
    for order, told in by_order(facts).items():
        counts = Counter(fact.type for fact in told)
        for group in ONCE:
            if sum(counts[kind] for kind in group) > 1:
                yield f"order {order}: more than one of {group}: {counts}"
        for kind, again in TURNS:
            if counts[kind] > 1 + counts[again]:
                yield f"order {order}: {counts[kind]} of {kind} and {counts[again]} of {again}"
        yield from _each(told)


def _each(told: Iterable[Fact]) -> Iterator[str]:
    by_allocation: dict[str, Counter[str]] = defaultdict(Counter)
    for fact in told:
        if "allocation" in fact.data and fact.topic in ("allocations", "environments"):
            by_allocation[fact.data["allocation"]][fact.type] += 1
    for allocation, counts in by_allocation.items():
        for group in EACH:
            count = max if group == ("environment.ready", "environment.failed") else sum
            if count(counts[kind] for kind in group) > 1:
                yield f"allocation {allocation}: more than one of {group}: {counts}"


# ---- cards


class _Node:
    """A node as its stream tells it."""

    def __init__(self) -> None:
        self.size: Mapping[str, int] = {}
        self.held: dict[str, tuple[str, ...]] = {}
        """Allocation -> cards."""
        self.slices: dict[str, tuple[Mapping[str, Any], ...]] = {}
        """Allocation -> its slices of these cards, where it holds no whole ones."""
        self.used: dict[str, Mapping[str, int]] = {}
        self.quarantined: set[str] = set()
        self.sick: set[tuple[str, str]] = set()

    def retired(self, data: Mapping[str, Any]) -> Iterator[str]:
        if self.held:
            yield f"retired and held by {sorted(self.held)}: {data}"
        self.quarantined.clear()
        self.sick.clear()

    def registered(self, data: Mapping[str, Any]) -> Iterator[str]:
        self.size = {name: data[name] for name in _SIZES}
        yield from ()

    def health_changed(self, data: Mapping[str, Any]) -> Iterator[str]:
        (self.sick.discard if data["health"] == "healthy" else self.sick.add)((data["card"], data["source"]))
        yield from ()

    def cleared(self, data: Mapping[str, Any]) -> Iterator[str]:
        self.quarantined.discard(data["card"])
        yield from ()

    def held_by(self, data: Mapping[str, Any]) -> Iterator[str]:
        slices = tuple(data.get("slices") or ())
        others = [name for name in self.held if not slices or name not in self.slices]
        wanted, taken = set(data["cards"]), {card for name in others for card in self.held[name]}
        bad = self.quarantined | {card for card, _ in self.sick}
        if data["allocation"] in self.held:
            yield f"held twice by allocation {data['allocation']}"
        if wanted & taken or wanted & bad:
            yield f"{sorted(wanted & taken)} have two holders, {sorted(wanted & bad)} are out of service: {data}"
        self.held[data["allocation"]] = tuple(data["cards"])
        if slices:
            self.slices[data["allocation"]] = slices
            yield from self._cut(wanted)
        self.used[data["allocation"]] = {name: data[name] for name in _SIZES}
        for name in _SIZES:
            if sum(used[name] for used in self.used.values()) > self.size[name]:
                yield f"more {name} held than there is: {data}"

    def _cut(self, cards: set[str]) -> Iterator[str]:
        for card in cards:
            here = [one for slices in self.slices.values() for one in slices if one["card"] == card]
            places = [at for one in here if "size" in one for at in range(one["start"], one["start"] + one["size"])]
            milli = sum(one.get("milli", 0) for one in here)
            if len(set(places)) < len(places) or milli > 1_000 or (places and milli):
                yield f"slices of card {card} do not lie beside one another: {here}"

    def returned(self, data: Mapping[str, Any]) -> Iterator[str]:
        self.slices.pop(data["allocation"], None)
        back = {*data["pooled"], *data["quarantined"]}
        if back != set(self.held.pop(data["allocation"], ())):
            yield f"other cards returned than held: {data}"
        self.used.pop(data["allocation"], None)
        self.quarantined |= set(data["quarantined"])


_SIZES = ("cpu_milli", "memory_mib")
_FLEET: Mapping[str, Callable[[_Node, Mapping[str, Any]], Iterator[str]]] = {
    "node.registered": _Node.registered,
    "node.retired": _Node.retired,
    "card.health_changed": _Node.health_changed,
    "card.cleared": _Node.cleared,
    "cards.held": _Node.held_by,
    "cards.returned": _Node.returned,
}


def _cards(facts: Iterable[Fact]) -> Iterator[str]:
    nodes: dict[str, _Node] = defaultdict(_Node)
    for fact in facts:
        if fact.topic == "fleet" and fact.type in _FLEET:
            node = nodes[fact.data["node"]]
            yield from (f"node {fact.data['node']}: {fault}" for fault in _FLEET[fact.type](node, fact.data))


def _allocations(facts: Sequence[Fact]) -> Iterator[str]:
    """Check that what is allocated is held, on the same nodes, and what is returned is held no more."""
    held, returned = _on_nodes(facts, "cards.held"), _on_nodes(facts, "cards.returned")
    for fact in facts:
        if fact.type == "allocation.allocated":
            units: dict[str, set[str]] = defaultdict(set)
            for unit in fact.data["units"]:
                units[unit["node"]] |= set(unit["cards"])
            if (found := held.get(fact.data["allocation"], {})) != units:
                yield f"allocation {fact.data['allocation']}: {dict(units)} allocated, {found} held"
        if fact.type == "allocation.returned":
            cards = {*fact.data["pooled"], *fact.data["quarantined"]}
            back = {card for some in returned.get(fact.data["allocation"], {}).values() for card in some}
            if cards != back:
                yield f"allocation {fact.data['allocation']}: {sorted(cards)} returned, on the nodes {sorted(back)}"


def _on_nodes(facts: Iterable[Fact], kind: str) -> dict[str, dict[str, set[str]]]:
    found: dict[str, dict[str, set[str]]] = defaultdict(dict)
    for fact in facts:
        if fact.type == kind:
            data = fact.data
            cards = {*data.get("cards", ()), *data.get("pooled", ()), *data.get("quarantined", ())}
            found[data["allocation"]][data["node"]] = cards
    return found


# ---- quota


def _ledger(facts: Sequence[Fact]) -> Iterator[str]:
    """Check the identity of each claim, and the limits in the order in which admission decided."""
    for order, told in by_order(facts).items():
        yield from _claim(order, [fact for fact in told if fact.type in _QUOTA], Counter())
    used: dict[str, Counter[str]] = defaultdict(Counter)
    limits: dict[str, Mapping[str, int]] = {}
    mine = [fact for fact in facts if fact.topic in ("admissions", "quotas")]
    for at, decided in groupby(sorted(mine, key=_time), _time):
        for fact in decided:
            if fact.type == "quota_limit.set":
                limits[_scope(fact.data)] = _enforced(fact.data)
            for scope in fact.data.get("scopes", ()):
                _post(used[scope], fact)
        yield from _over(at, used, limits)


_QUOTA = ("quota.claimed", "quota.committed", "quota.adjusted", "quota.refunded")
HOURS = "card_hours_month"


def _claim(order: str, told: Sequence[Fact], left: Counter[str]) -> Iterator[str]:
    """Follow what one order holds, in `left`. Hours that metering has said are held no more."""
    for fact in told:
        data = fact.data
        if fact.type != "quota.claimed" and told[0].type != "quota.claimed":
            yield f"order {order}: {fact.type} without a claim"
            return
        match fact.type:
            case "quota.claimed":
                left.update(data["amounts"]["values"])
            case "quota.adjusted" if data["cause"] != "corrected":
                left.update({} if data["cause"] == "used" else data["taken"]["values"])
                left.subtract(data["returned"]["values"])
            case "quota.committed":
                left.subtract(data["returned"]["values"])
                if +left != Counter(data["amounts"]["values"]):
                    yield f"order {order}: committed {data['amounts']}, claimed less returned {+left}"
            case "quota.refunded":
                held = Counter(left)
                left.subtract(data["amounts"]["values"])
                if any(amount and not name.startswith(HOURS) for name, amount in left.items()):
                    yield f"order {order}: refunded {data['amounts']}, still held {+held}"
        if any(amount < 0 for amount in left.values()):
            yield f"order {order}: {fact.type} gives back more than is held: {left}"


def _nothing_held(facts: Sequence[Fact]) -> Iterator[str]:
    """Check that what has ended holds nothing, also no hours that metering did not settle."""
    for order, told in by_order(facts).items():
        quota = [fact for fact in told if fact.type in _QUOTA]
        left: Counter[str] = Counter()
        broken = list(_claim(order, quota, left))
        if not broken and any(fact.type == "quota.refunded" for fact in quota) and +left:
            yield f"order {order}: has ended and still holds {+left}"


def _enforced(data: Mapping[str, Any]) -> Mapping[str, int]:
    borrow = (data.get("borrow") or {}).get("values", {})
    told = data.get("report_only") or ()
    return {name: limit + borrow.get(name, 0) for name, limit in data["limits"]["values"].items() if name not in told}


def _post(used: Counter[str], fact: Fact) -> None:
    if fact.type == "quota.claimed":
        used.update(fact.data["amounts"]["values"])
    elif fact.type == "quota.adjusted":
        used.update(fact.data["taken"]["values"])
        used.subtract(fact.data["returned"]["values"])
    elif fact.type == "quota.committed":
        used.subtract(fact.data["returned"]["values"])
    elif fact.type == "quota.refunded":
        used.subtract(fact.data["amounts"]["values"])


def _over(at: datetime, used: Mapping[str, Counter[str]], limits: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    for scope, amounts in used.items():
        for dimension, amount in amounts.items():
            limit = limits.get(scope, {}).get(dimension)
            if amount < 0 or (limit is not None and amount > limit):
                yield f"{at}: {amount} of {dimension} used at {scope}, limit {limit}"


def _scope(data: Mapping[str, Any]) -> str:
    return f"{data['tenant']}/{data['project']}" if data.get("project") else str(data["tenant"])


def _time(fact: Fact) -> datetime:
    return datetime.fromisoformat(fact.body["time"])


# ---- the end


def _ended_everywhere(facts: Sequence[Fact]) -> Iterator[str]:
    for order, told in by_order(facts).items():
        kinds = {fact.type for fact in told}
        failed = any(fact.type == "environment.failed" and not fact.data.get("elsewhere") for fact in told)
        ended = failed or bool(kinds & {*ENDS, "order.rejected"})
        wanted = {
            "quota.claimed": {"quota.refunded"},
            "allocation.queued": {"allocation.returned", "allocation.withdrawn"},
            "environment.started": {"environment.released"},
            "order.submitted": {"order.rejected", "order.withdrawn", "quota.refunded"},
        }
        for begun, over in wanted.items():
            if begun in kinds and bool({fact.type for fact in told if not _lives_on(fact)} & over) != ended:
                yield f"order {order}, {ended=}: after {begun} came {sorted(kinds & over)}"


def _lives_on(fact: Fact) -> bool:
    """Whether it tells of cards that were given up by an order that is not over."""
    return bool(fact.data.get("lives_on")) or fact.data.get("cause") == "preempted"
