"""What the scheduler should say, found the slow way: by trying everything on the documents. Shares no code with it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from qm_events.specs import Health, OrderRequest, WaitCode
from qm_scheduler.fleet import Card, Node
from qm_scheduler.projections import OrderDoc


@dataclass(frozen=True)
class Bin:
    """A node as a brute-force placer sees it."""

    name: str
    cpu: int
    memory: int
    cards: tuple[tuple[str, int], ...]
    rack: str | None
    domain: str | None
    traits: tuple[str, ...] = ()


def fits(
    bins: Sequence[Bin], asked: OrderRequest, types: Iterable[str] | None = None, *, topology: bool = True
) -> bool:
    """Return whether some way to place all units exists."""
    return any(
        _can_place(some, asked, set(types or asked.specification.accelerators), asked.count)
        for some in _groups(bins, asked, topology)
    )


def _groups(bins: Sequence[Bin], asked: OrderRequest, topology: bool) -> Iterator[Sequence[Bin]]:
    within = asked.topology.within if asked.topology and asked.topology.required and topology else None
    if within is None:
        yield bins
        return
    for first in bins:
        name = {"node": first.name, "rack": first.rack, "domain": first.domain}[within]
        if within == "node" or name is None:
            yield [first]
        else:
            yield [each for each in bins if getattr(each, within) == name]


def _can_place(bins: Sequence[Bin], asked: OrderRequest, types: set[str], left: int) -> bool:
    if left == 0:
        return True
    spec = asked.specification
    for at, each in enumerate(bins):
        if each.cpu < spec.cpu_milli or each.memory < spec.memory_mib:
            continue
        if any(trait not in each.traits for trait in spec.traits or ()):
            continue
        for kind in sorted(set(each.cards)):
            if (
                kind[0] not in types
                or kind[1] < spec.accelerator_memory_mib
                or each.cards.count(kind) < spec.cards_per_unit
            ):
                continue
            rest = list(each.cards)
            for _ in range(spec.cards_per_unit):
                rest.remove(kind)
            smaller = replace(
                each, cpu=each.cpu - spec.cpu_milli, memory=each.memory - spec.memory_mib, cards=tuple(rest)
            )
            if _can_place([*bins[:at], smaller, *bins[at + 1 :]], asked, types, left - 1):
                return True
    return False


# ---- the four fleets


def well(node: Node, card: Card) -> bool:
    return card.quarantine is None and card.health is Health.HEALTHY and node.cordon is None


def fleet(nodes: Sequence[Node], *, repaired: bool, ended: bool, cleaning: frozenset[str] = frozenset()) -> list[Bin]:
    """Return what the fleet offers, as it is, if all were well, if all leases had ended."""
    gone = cleaning if repaired else frozenset[str]()

    def counts(node: Node, card: Card) -> bool:
        unheld = ended or card.allocation is None or card.allocation in gone
        return card.present and unheld and (repaired or well(node, card))

    def left(node: Node, total: int, part: Callable[[str], int]) -> int:
        return total - (0 if ended else sum(part(key) for key in node.holdings if key not in gone))

    return [
        Bin(
            node.node,
            left(node, node.cpu_milli, lambda key, node=node: node.holdings[key].cpu_milli),
            left(node, node.memory_mib, lambda key, node=node: node.holdings[key].memory_mib),
            tuple((card.accelerator, card.memory_mib) for card in node.cards.values() if counts(node, card)),
            node.rack,
            node.domain,
            node.traits,
        )
        for node in nodes
    ]


# ---- places that are kept


def left_open(nodes: Sequence[Node], docs: Sequence[OrderDoc], doc: OrderDoc, now: datetime) -> list[Bin]:
    """Return what is free and not kept from an order, card by card, by trying how many may go."""
    free = {each.name: each for each in fleet(nodes, repaired=False, ended=False)}
    kept = [each for each in docs if each.is_waiting and each.promise and _binds(each, doc, now)]
    by_node = {node.node: node for node in nodes}
    return [_spare(by_node[name], each, kept, docs) for name, each in free.items()]


def _binds(kept: OrderDoc, doc: OrderDoc, now: datetime) -> bool:
    assert kept.promise is not None
    assert kept.request is not None
    assert doc.request is not None
    if kept.order == doc.order or doc.request.priority > kept.request.priority:
        return False
    ends = [doc.request.expires_at] if doc.request.expires_at else []
    if doc.request.duration_seconds:
        ends.append(now + timedelta(seconds=600 + doc.request.duration_seconds))
    return not (ends and kept.promise.until and min(ends) <= kept.promise.until)


def _spare(node: Node, free: Bin, kept: Sequence[OrderDoc], docs: Sequence[OrderDoc]) -> Bin:
    times = {
        doc.promise.until for doc in kept if doc.promise and any(at.node == node.node for at in doc.promise.places)
    }
    cpu, memory, cards = free.cpu, free.memory, Counter(free.cards)
    for time in times:
        due = [doc for doc in kept if doc.promise and _not_after(doc.promise.until, time)]
        later = _at(node, free, docs, time)
        left_cpu, left_memory, left = later.cpu, later.memory, Counter(later.cards)
        for doc in due:
            assert doc.promise is not None
            assert doc.request is not None
            spec = doc.request.specification
            for at in doc.promise.places:
                if at.node == node.node:
                    left[at.accelerator, at.card_memory_mib] -= at.units * spec.cards_per_unit
                    left_cpu -= at.units * spec.cpu_milli
                    left_memory -= at.units * spec.memory_mib
        named = {(at.accelerator, at.card_memory_mib) for doc in due if doc.promise for at in doc.promise.places}
        cpu, memory = min(cpu, left_cpu), min(memory, left_memory)
        cards = Counter({kind: min(n, left[kind]) if kind in named else n for kind, n in cards.items()})
    return replace(free, cpu=cpu, memory=memory, cards=tuple((+cards).elements()))


def _not_after(one: datetime | None, other: datetime | None) -> bool:
    return one is None or (other is not None and one <= other)


def _at(node: Node, free: Bin, docs: Sequence[OrderDoc], time: datetime | None) -> Bin:
    gone = {
        doc.allocation
        for doc in docs
        if doc.is_holding and (doc.releasing or (time and doc.ends_at and doc.ends_at <= time))
    }
    back = tuple(
        (card.accelerator, card.memory_mib)
        for card in node.cards.values()
        if card.allocation in gone and card.present and well(node, card)
    )
    over = [holding for key, holding in node.holdings.items() if key in gone]
    return replace(
        free,
        cpu=free.cpu + sum(holding.cpu_milli for holding in over),
        memory=free.memory + sum(holding.memory_mib for holding in over),
        cards=free.cards + back,
    )


# ---- reasons


def verdicts(nodes: Sequence[Node], docs: Sequence[OrderDoc], now: datetime) -> dict[str, list[WaitCode]]:
    """Return the reasons of every waiting order; one that should have been placed has none."""
    cleaning = frozenset(doc.allocation for doc in docs if doc.is_holding and doc.releasing)
    idle = fleet(nodes, repaired=False, ended=True)
    claimed: set[str] = set()
    found = {}
    for doc in in_order(docs):
        assert doc.request is not None
        if fits(left_open(nodes, docs, doc, now), doc.request):
            found[doc.order] = []
            continue
        one = doc.request.model_copy(update={"count": 1})
        types = doc.request.specification.accelerators if fits(idle, doc.request) else ()
        claims = {name for name in types if fits(idle, one, [name], topology=False)}
        found[doc.order] = _codes(nodes, doc.request, cleaning, behind=bool(claims & claimed))
        claimed |= claims
    return found


def in_order(docs: Sequence[OrderDoc]) -> list[OrderDoc]:
    """Return those who wait, best rank first."""
    held: Counter[str] = Counter()
    for doc in docs:
        if doc.is_holding:
            held[doc.project] += sum(len(unit.cards) for unit in doc.units)

    def rank(doc: OrderDoc) -> tuple[object, ...]:
        assert doc.request is not None
        return (-doc.request.priority, doc.promise is None, held[doc.project], doc.submitted_at, doc.order)

    return sorted((doc for doc in docs if doc.is_waiting), key=rank)


def position(docs: Sequence[OrderDoc], order: str) -> int:
    """Return how many are served before an order, from 1, by serving all who accept one of its types in turn."""
    held: Counter[str] = Counter()
    for doc in docs:
        if doc.is_holding:
            held[doc.project] += sum(len(unit.cards) for unit in doc.units)
    mine = next(doc for doc in docs if doc.order == order)
    assert mine.request is not None
    types = mine.request.specification.accelerators
    left = [doc for doc in docs if doc.is_waiting and doc.request and doc.request.specification.accelerators == types]
    for count in range(len(left)):
        served = min(left, key=lambda doc: _due(doc, held))
        if served.order == order:
            return count + 1
        assert served.request is not None
        left.remove(served)
        held[served.project] += served.request.cards
    raise AssertionError(order)


def _due(doc: OrderDoc, held: Counter[str]) -> tuple[object, ...]:
    assert doc.request is not None
    return (-doc.request.priority, doc.promise is None, held[doc.project], doc.submitted_at, doc.order)


def _codes(nodes: Sequence[Node], asked: OrderRequest, cleaning: frozenset[str], *, behind: bool) -> list[WaitCode]:
    now, repaired, ended, both = (
        fleet(nodes, repaired=r, ended=e, cleaning=cleaning)
        for r, e in ((False, False), (True, False), (False, True), (True, True))
    )
    if not fits(both, asked, topology=False):
        return [WaitCode.SPECIFICATION_UNAVAILABLE]
    possible, apart = fits(both, asked), fits(now, asked, topology=False)
    codes = [WaitCode.HIGHER_PRIORITY_AHEAD] if behind and possible else []
    if fits(now, asked):
        return codes
    if not possible:
        return [WaitCode.TOPOLOGY_UNSATISFIABLE]
    by_repair, by_ends = (fits(bins, asked) for bins in (repaired, ended))
    if by_repair or not by_ends:
        codes.append(WaitCode.HEALTHY_CAPACITY_INSUFFICIENT)
    if asked.topology and asked.topology.required and apart:
        codes.append(WaitCode.TOPOLOGY_UNSATISFIABLE)
    if not apart and _fragmented(now, asked):
        codes.append(WaitCode.CAPACITY_FRAGMENTED)
    if by_ends or not by_repair:
        codes.append(WaitCode.CAPACITY_IN_USE)
    return codes


def _fragmented(now: Sequence[Bin], asked: OrderRequest) -> bool:
    spec = asked.specification
    free = sum(
        kind[0] in spec.accelerators and kind[1] >= spec.accelerator_memory_mib
        for each in now
        if set(spec.traits or ()) <= set(each.traits)
        for kind in each.cards
    )
    bare = asked.model_copy(update={"specification": spec.model_copy(update={"cpu_milli": 0, "memory_mib": 0})})
    roomy = [replace(each, cpu=0, memory=0) for each in now]
    return free >= asked.cards and not fits(roomy, bare, topology=False)
