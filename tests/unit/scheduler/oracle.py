"""What the scheduler should say, found the slow way: by trying everything on the documents. Shares no code with it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

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
            smaller = Bin(
                each.name, each.cpu - spec.cpu_milli, each.memory - spec.memory_mib, tuple(rest), each.rack, each.domain
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
        )
        for node in nodes
    ]


# ---- reasons


def verdicts(nodes: Sequence[Node], docs: Sequence[OrderDoc]) -> dict[str, list[WaitCode]]:
    """Return the reasons of every waiting order, by the rule of passing; one that should have been placed has none."""
    cleaning = frozenset(doc.allocation for doc in docs if doc.is_holding and doc.releasing)
    now = fleet(nodes, repaired=False, ended=False)
    idle = fleet(nodes, repaired=False, ended=True)
    waiting = sorted((doc for doc in docs if doc.is_waiting), key=_rank)
    claimed: set[str] = set()
    found = {}
    for doc in waiting:
        assert doc.request is not None
        types = doc.request.specification.accelerators
        open_types = [name for name in types if name not in claimed]
        behind = len(open_types) < len(types)
        if open_types and fits(now, doc.request, open_types):
            found[doc.order] = []
            continue
        found[doc.order] = _codes(nodes, doc.request, cleaning, behind=behind)
        if fits(idle, doc.request):
            one = doc.request.model_copy(update={"count": 1})
            claimed |= {name for name in types if fits(idle, one, [name], topology=False)}
    return found


def _rank(doc: OrderDoc) -> tuple[object, ...]:
    assert doc.request is not None
    return (-doc.request.priority, doc.submitted_at, doc.order)


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
        kind[0] in spec.accelerators and kind[1] >= spec.accelerator_memory_mib for each in now for kind in each.cards
    )
    bare = asked.model_copy(update={"specification": spec.model_copy(update={"cpu_milli": 0, "memory_mib": 0})})
    roomy = [Bin(each.name, 0, 0, each.cards, each.rack, each.domain) for each in now]
    return free >= asked.cards and not fits(roomy, bare, topology=False)
