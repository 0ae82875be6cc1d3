"""Random small fleets and queues against brute force: who is placed, who waits and why, what holds at every step."""

from collections import Counter
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from qm_events.scheduler import CardSpec
from qm_scheduler.consumers import SCHEDULER
from qm_scheduler.placement import place
from qm_scheduler.pool import Pool, Sight
from qm_scheduler.view import shape_of
from tests.unit.scheduler import oracle
from tests.unit.scheduler.yard import MIB, START, Yard, request

NODES = ("n1", "n2", "n3")
TYPES = ("h100", "a100")

shapes = st.builds(
    request,
    st.sampled_from([("h100",), ("a100",), ("h100", "a100"), ("a100", "h100")]),
    st.sampled_from([1, 1, 2, 2, 3]),
    st.sampled_from([1, 1, 1, 2, 3]),
    st.sampled_from([0, 0, 2, 5]),
    priority=st.integers(0, 1),
    within=st.sampled_from([None, None, None, "node", "rack", "domain"]),
    required=st.booleans(),
    card_memory=st.sampled_from([40 * MIB, 40 * MIB, 80 * MIB]),
    traits=st.sampled_from([(), (), (), ("ib",), ("ib", "nvme")]),
    project=st.sampled_from(["vision", "speech", "maps"]),
    duration_seconds=st.sampled_from([None, None, 600, 7_200, 86_400]),
    expires_at=st.sampled_from([None, None, None, START + timedelta(hours=1), START + timedelta(days=1)]),
)


@st.composite
def descriptions(draw: st.DrawFn, node: str) -> dict[str, Any]:
    count = draw(st.integers(2, 4))
    kinds = draw(st.sampled_from([("h100",), ("h100",), ("a100",), TYPES]))
    cards = [
        CardSpec(
            card=f"{node}-{n}",
            accelerator=draw(st.sampled_from(kinds)),
            memory_mib=draw(st.sampled_from([80 * MIB, 80 * MIB, 40 * MIB])),
        )
        for n in range(count)
    ]
    place = {level: draw(st.sampled_from([None, "x", "y"])) for level in ("rack", "domain")}
    traits = draw(st.sampled_from([None, ("ib",), ("nvme", "ib")]))
    return {"node": node, "cards": cards, "cpu": draw(st.integers(4, 12)), "traits": traits, **place}


fleets = st.tuples(*(descriptions(node) for node in NODES))


@st.composite
def steps(draw: st.DrawFn) -> tuple[Any, ...]:
    node = draw(st.sampled_from(NODES))
    health = (
        "health",
        node,
        draw(st.integers(0, 3)),
        draw(st.sampled_from(["healthy", "suspect", "failed", "unknown"])),
    )
    pick = st.integers(0, 9)
    return draw(
        st.one_of(
            st.tuples(st.just("order"), shapes),
            st.tuples(st.just("order"), shapes),
            st.tuples(st.just("order"), shapes),
            st.tuples(
                st.sampled_from(["cancel", "back", "back", "suspect", "dirty", "cleaning", "ready", "ready"]), pick
            ),
            st.just(health),
            st.sampled_from([("cordon", node), ("uncordon", node), ("clear", node), ("retire", node)]),
            st.tuples(st.just("describe"), descriptions(node)),
        )
    )


def carry_out(yard: Yard, number: int, step: tuple[Any, ...]) -> None:
    kind, *rest = step
    match kind:
        case "order":
            yard.order(f"o{number}", *rest)
        case "cancel":
            waiting = [seq[1] for _, seq in yard.board.queue.listed()]
            if waiting:
                yard.cancel(waiting[rest[0] % len(waiting)])
        case "describe":
            describe(yard, *rest)
        case "back" | "suspect" | "dirty" | "cleaning" | "ready":
            give_back(yard, kind, *rest)
        case _:
            operate(yard, kind, *rest)


def operate(yard: Yard, kind: str, node: str, n: int = 0, health: str = "") -> None:
    match kind:
        case "health" | "clear" if node not in yard.docs.all["nodes"]:
            pass
        case "health" if f"{node}-{n}" in yard.state(node).cards:
            yard.health(node, f"{node}-{n}", health)
        case "cordon":
            yard.cordon(node)
        case "retire":
            yard.retire(node)
        case "uncordon":
            yard.uncordon(node)
        case "clear":
            for card in list(yard.state(node).cards):
                yard.clear(node, card)


def describe(yard: Yard, told: dict[str, Any]) -> None:
    yard.node(**told)


def give_back(yard: Yard, kind: str, pick: int) -> None:
    holding = sorted(order for order, doc in yard.docs.all["allocations"].items() if doc.is_holding)
    if not holding:
        return
    order = holding[pick % len(holding)]
    match kind:
        case "cleaning":
            yard.release_started(order)
        case "ready":
            yard.ready(order)
        case "dirty":
            yard.give_back_dirty(order)
        case _:
            yard.give_back(order, yard.cards(order)[:1] if kind == "suspect" else ())


def check(yard: Yard) -> None:
    nodes, docs = list(yard.docs.all["nodes"].values()), list(yard.docs.all["allocations"].values())
    # No card twice: what orders hold is what nodes have given, card by card.
    by_orders = Counter(
        (doc.allocation, card) for doc in docs if doc.is_holding for unit in doc.units for card in unit.cards
    )
    by_nodes = Counter(
        (card.allocation, card.card) for node in nodes for card in node.cards.values() if card.allocation
    )
    assert by_orders == by_nodes
    assert not by_nodes or max(by_nodes.values()) == 1
    # Per type, each card is in exactly one class.
    there = Counter(card.accelerator for node in nodes for card in node.cards.values())
    assert +Counter({name: sum(classes.values()) for name, classes in yard.board.pool.counts.items()}) == there
    # Who waits, waits rightly, and was told the first reason.
    verdicts = oracle.verdicts(nodes, docs, yard.now)
    for order, codes in verdicts.items():
        assert codes, f"{order} fits and was not placed"
        assert yard.codes(order) == codes
        assert yard.doc(order).reasons[0].code is codes[0]
    assert set(yard.board.queue.orders) == set(verdicts)
    # A restarted service has nothing to add and sees the same.
    for nodes_first in (True, False):
        fresh = yard.fresh_board(nodes_first=nodes_first)
        assert SCHEDULER.settle(yard.context(fresh)) == ()
        for sight in Sight:
            assert fresh.pool.views[sight].rooms == yard.board.pool.views[sight].rooms
        for name in TYPES:
            assert fresh.queue.front(name) == yard.board.queue.front(name)
        assert fresh.pool.holds == yard.board.pool.holds
        assert list(fresh.queue.listed()) == list(yard.board.queue.listed())
        assert fresh.queue.places() == yard.board.queue.places()


@settings(derandomize=True, max_examples=150, deadline=None)
@given(fleets, st.lists(steps(), min_size=3, max_size=14))
def test_every_step_leaves_the_queue_as_brute_force_says(fleet: Any, walk: list[tuple[Any, ...]]) -> None:
    yard = Yard()
    for told in fleet:
        describe(yard, told)
    for number, step in enumerate(walk):
        carry_out(yard, number, step)
        check(yard)
    for event in yard.facts:
        assert type(event.data).model_validate_json(event.data.model_dump_json()) == event.data


@settings(derandomize=True, max_examples=300, deadline=None)
@given(fleets, shapes)
def test_an_order_is_placed_exactly_where_some_way_exists(fleet: Any, asked: Any) -> None:
    pool = Pool()
    yard = Yard(board=type(Yard().board)(pool=pool))
    for told in fleet:
        describe(yard, told)
    bins = {
        each.name: each for each in oracle.fleet(list(yard.docs.all["nodes"].values()), repaired=False, ended=False)
    }
    picks = place(pool.views[Sight.FREE], shape_of(asked))
    assert (picks is not None) == oracle.fits(list(bins.values()), asked)
    if picks is None:
        return
    spec = asked.specification
    assert sum(pick.units for pick in picks) == asked.count
    for name, each in bins.items():
        here = [pick for pick in picks if pick.node == name]
        units = sum(pick.units for pick in here)
        assert units * spec.cpu_milli <= each.cpu
        for pick in here:
            assert pick.kind[0] in spec.accelerators
            assert pick.kind[1] >= spec.accelerator_memory_mib
            assert pick.units * spec.cards_per_unit <= each.cards.count(pick.kind[:2])
