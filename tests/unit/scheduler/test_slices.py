"""Slices: where they go, what they leave, and what holds at every step whatever is asked for."""

from collections import Counter
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qm_events.accelerators import SliceProfile, check_geometry
from qm_events.specs import Slice, WaitCode
from qm_scheduler.cuts import UNUSED, count, cut, part_of, state_of
from qm_scheduler.fleet import Card
from qm_scheduler.views import capacity_view
from tests.unit.scheduler.slices import H100, NPU, milli, profile
from tests.unit.scheduler.yard import Yard, request

SMALL, HALF = profile("1g.10gb"), profile("3g.40gb")
SLICES = (SMALL, profile("2g.20gb"), HALF, profile("4g.40gb"), milli(250), milli(400), milli(999))


def yard(cards: int = 1, nodes: int = 1, **more: Any) -> Yard:
    found = Yard()
    for n in range(nodes):
        found.node(f"n{n}", {"h100": cards}, **more)
    return found


def slices_of(yard: Yard, order: str) -> list[tuple[str, int | None, int | None]]:
    found = [unit.slice for unit in yard.doc(order).units]
    return [(one.card, one.start, one.size or one.milli) for one in found if one is not None]


# ---- one card


def test_the_placement_tables_of_the_vendor_reach_192_masks() -> None:
    parts = [part_of(profile(one.profile)) for one in H100.profiles]
    seen, left = {UNUSED}, [UNUSED]
    while left:
        taken = left.pop()[1]
        for part in parts:
            assert part is not None
            for start in part.starts:
                place = ((1 << part.size) - 1) << start
                if not taken & place and (8, taken | place) not in seen:
                    seen.add((8, taken | place))
                    left.append((8, taken | place))
    assert len(seen) == 192


def test_slices_are_cut_where_they_spoil_the_least_for_others() -> None:
    it = yard()
    it.order("a", request(cut=SMALL))
    it.order("b", request(cut=profile("4g.40gb")))
    it.order("c", request(cut=profile("2g.20gb")))
    assert [slices_of(it, name)[0][1] for name in "abc"] == [6, 0, 4]


def test_a_node_is_used_in_every_way_at_once_and_a_card_in_one() -> None:
    it = yard(cards=3)
    for name, asked in {"whole": None, "cut": SMALL, "part": milli(300), "cut2": HALF, "part2": milli(700)}.items():
        it.order(name, request(cut=asked))
    used = {name: it.cards(name) for name in ("whole", "cut", "part", "cut2", "part2")}
    assert used["cut"] == used["cut2"]
    assert used["part"] == used["part2"]
    assert len({used["whole"], used["cut"], used["part"]}) == 3


def test_units_of_one_order_share_a_card_and_are_placed_all_or_none() -> None:
    it = yard(cards=2)
    it.order("seven", request(cut=SMALL, count=7))
    assert len(set(it.cards("seven"))) == 1
    it.order("eight", request(cut=SMALL, count=8))
    assert not it.placed("eight")
    it.cancel("eight")
    it.order("again", request(cut=SMALL, count=7))
    assert {start for _, start, _ in slices_of(it, "again")} == set(range(7))


def test_templates_of_another_vendor_are_cut_by_their_own_table() -> None:
    it = Yard()
    it.node("n", {"npu": 1})
    for name in ("vir04", "vir02", "vir01"):
        it.order(name, request(("npu",), cut=profile(name, NPU)))
    it.order("more", request(("npu",), cut=profile("vir02", NPU)))
    assert [slices_of(it, name)[0][1:] for name in ("vir04", "vir02", "vir01")] == [(4, 4), (2, 2), (1, 1)]
    assert it.codes("more") == [WaitCode.CAPACITY_IN_USE]


def test_a_share_of_a_card_never_adds_up_to_more_than_the_card() -> None:
    it = yard()
    for name in "abcd":
        it.order(name, request(cut=milli(334)))
    assert [it.placed(name) for name in "abcd"] == [True, True, False, False]
    it.give_back("a")
    assert it.placed("c")


@pytest.mark.parametrize(
    "wrong",
    [
        {"starts": (7,), "size": 2},
        {"starts": (0, 1), "size": 2},
        {"starts": (0,), "size": 1, "share": "1/11"},
        {"starts": (0, 1), "size": 1, "share": "2/3"},
    ],
)
def test_a_table_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    one = SliceProfile(profile="odd", memory_mib=1, **({"share": "1/2"} | wrong))
    with pytest.raises(ValueError, match=r"overlap|within|whole number|side by side"):
        check_geometry(H100.model_copy(update={"profiles": (one,)}))


def test_a_slice_that_is_given_twice_is_no_state() -> None:
    it = yard()
    it.order("a", request(cut=SMALL))
    mine = it.doc("a").units[0].slice
    assert mine is not None
    with pytest.raises(ValueError, match="twice"):
        state_of([mine, mine])


# ---- whole cards beside slices


def test_slices_fill_cards_that_are_cut_before_they_cut_another() -> None:
    it = yard(cards=2, nodes=3)
    for n in range(7):
        it.order(f"o{n}", request(cut=SMALL))
    assert len({card for n in range(7) for card in it.cards(f"o{n}")}) == 1


def test_a_card_that_is_used_in_part_is_in_use_for_whole_cards_and_whole_again_when_given_back() -> None:
    it = yard()
    it.order("part", request(cut=SMALL))
    it.order("whole", request())
    assert it.codes("whole") == [WaitCode.CAPACITY_IN_USE]
    it.give_back("part")
    assert it.placed("whole")


def test_what_is_left_on_many_cards_is_told_as_fragments() -> None:
    it = yard(cards=4)
    for n in range(4):
        it.order(f"o{n}", request(cut=milli(600)))
    it.order("waits", request(cut=milli(700)))
    assert it.codes("waits") == [WaitCode.CAPACITY_FRAGMENTED, WaitCode.CAPACITY_IN_USE]
    figures = it.why("waits")[0].figures
    assert (figures["free_total"], figures["largest_free_on_one_node"]) == (2, 0)


def test_a_geometry_that_no_card_has_is_unavailable() -> None:
    it = Yard()
    it.node("n", {"a100": 1})
    it.order("o", request(cut=SMALL))
    assert it.codes("o") == [WaitCode.SPECIFICATION_UNAVAILABLE]


# ---- health


def test_a_sick_card_takes_its_slices_with_it_and_tells_each_order() -> None:
    it = yard(cards=2)
    it.order("a", request(cut=SMALL))
    it.order("b", request(cut=HALF))
    card = it.cards("a")[0]
    it.health("n0", card, "failed")
    assert {name: it.doc(name).impaired for name in "ab"} == {name: {card: "failed"} for name in "ab"}
    it.order("c", request(cut=SMALL))
    assert it.cards("c") != it.cards("a")
    it.give_back("a")
    assert it.state("n0").cards[card].parts[0].allocation == it.doc("b").allocation
    assert it.state("n0").cards[card].quarantine is not None


def test_a_slice_that_was_not_cleaned_isolates_its_card_and_leaves_the_others_on_it() -> None:
    it = yard()
    it.order("a", request(cut=SMALL))
    it.order("b", request(cut=HALF))
    it.give_back_dirty("a")
    (card,) = it.state("n0").cards.values()
    assert card.quarantine is not None
    assert [part.allocation for part in card.parts] == [it.doc("b").allocation]
    it.order("c", request(cut=SMALL))
    assert it.codes("c") == [WaitCode.HEALTHY_CAPACITY_INSUFFICIENT]
    it.give_back("b")
    it.clear("n0", card.card)
    assert it.placed("c")


# ---- promises


def test_a_stream_of_slices_does_not_starve_a_whole_node() -> None:
    it = yard(cards=2)
    it.order("s0", request(cut=SMALL, duration_seconds=600))
    it.ready("s0")
    it.order("node", request(cards=2))
    it.order("s1", request(cut=SMALL, duration_seconds=600))
    assert it.doc("node").promise is not None
    assert not it.placed("s1")
    it.give_back("s0")
    assert it.placed("node")


def test_a_slice_is_promised_the_place_that_ends_first() -> None:
    it = yard(nodes=2)
    for name, seconds in {"long": 7_200, "short": 600}.items():
        it.order(name, request(duration_seconds=seconds))
        it.ready(name)
    it.order("slice", request(cut=HALF, count=2))
    it.order("later", request(cut=SMALL))
    it.order("other", request(cut=milli(10), duration_seconds=86_400))
    estimate = it.board.pool.ends[it.doc("short").allocation]
    assert it.board.next_end(("h100",)) == estimate
    it.give_back("short")
    assert it.placed("slice")
    assert it.nodes_of("slice") == it.nodes_of("short") * 2


# ---- whatever happens

asks = st.one_of(
    st.builds(
        request,
        cards=st.sampled_from([1, 1, 2]),
        count=st.sampled_from([1, 1, 2]),
        cpu=st.sampled_from([0, 1, 3]),
        duration_seconds=st.sampled_from([None, 600, 7_200]),
    ),
    st.builds(
        request,
        cut=st.sampled_from(SLICES),
        count=st.sampled_from([1, 1, 1, 2, 3]),
        cpu=st.sampled_from([0, 1, 3]),
        within=st.sampled_from([None, None, None, "node", "rack"]),
        required=st.booleans(),
        project=st.sampled_from(["vision", "speech"]),
        duration_seconds=st.sampled_from([None, 600, 7_200]),
    ),
)
steps = st.one_of(
    st.tuples(st.just("order"), asks),
    st.tuples(st.just("order"), asks),
    st.tuples(st.sampled_from(["back", "back", "dirty", "cancel", "ready", "cleaning"]), st.integers(0, 9)),
    st.tuples(st.sampled_from(["failed", "healthy", "clear"]), st.integers(0, 3)),
    st.tuples(st.sampled_from(["cordon", "uncordon"]), st.integers(0, 1)),
)


def play(it: Yard, what: str, arg: Any, n: int) -> None:
    if what == "order":
        it.order(f"o{n:02}", arg)
        return
    if what in ("cordon", "uncordon"):
        getattr(it, what)(f"n{arg}")
        return
    if what in ("failed", "healthy", "clear"):
        node, card = f"n{arg // 2}", f"n{arg // 2}-h100-{arg % 2}"
        if what == "clear":
            it.clear(node, card)
        else:
            it.health(node, card, what)
        return
    docs = [
        doc for doc in it.docs.all["allocations"].values() if (doc.is_waiting if what == "cancel" else doc.is_holding)
    ]
    if docs:
        order = docs[arg % len(docs)].order
        {
            "back": it.give_back,
            "dirty": it.give_back_dirty,
            "cancel": it.cancel,
            "ready": it.ready,
            "cleaning": it.release_started,
        }[what](order)


def check(it: Yard) -> None:
    """Law 6 for slices: one way a card, no overlap, no more than a card, nothing lost; and what waits does not fit."""
    total, classes = Fraction(0), Counter[str]()
    for node in it.docs.all["nodes"].values():
        for card in node.cards.values():
            assert not (card.allocation and card.parts)
            check_parts(card)
            total += 1
            which = it.board.pool.class_of(node, card)
            for name, share in it.board.pool.split(node, card) if which == "partial" else [(which, Fraction(1))]:
                assert share >= 0
                classes[name] += share  # type: ignore[assignment]  # a Counter adds fractions as well
    assert sum(classes.values()) == total
    for shown in capacity_view(it.board, it.now).items:
        assert sum(map(Fraction, shown.parts.values())) == shown.partial
    fresh = it.fresh_board()
    assert {sight: view.rooms for sight, view in fresh.pool.views.items()} == {
        sight: view.rooms for sight, view in it.board.pool.views.items()
    }
    for doc in it.docs.all["allocations"].values():
        if doc.is_waiting and not it.board.pool.holds:
            assert not can_place(it, doc.request), f"{doc.order} waits and fits"


def check_parts(card: Card) -> None:
    places = [
        {*range(one.start, one.start + one.size)}
        for part in card.parts
        if (one := part.slice).start is not None and one.size is not None
    ]
    shares = [part.slice.milli for part in card.parts if part.slice.milli is not None]
    assert not (places and shares)
    assert sum(map(len, places)) == len(set().union(*places))
    assert sum(shares) <= 1_000
    assert sum(Fraction(part.slice.share) for part in card.parts) <= 1


def can_place(it: Yard, asked: Any) -> bool:
    """Try all ways, on the documents alone."""
    within = asked.topology.within if asked.topology and asked.topology.required else None
    bins = []
    for node in it.docs.all["nodes"].values():
        if node.cordon is not None:
            continue
        cpu = node.cpu_milli - sum(holding.cpu_milli for holding in node.holdings.values())
        cards = tuple(
            frozenset(part.slice for part in card.parts)
            for card in node.cards.values()
            if card.allocation is None and card.quarantine is None and card.health == "healthy"
        )
        bins.append((node.node, node.rack or node.node, cpu, cards))
    groups: Any = [bins]
    if within == "node":
        groups = [[each] for each in bins]
    if within == "rack":
        groups = [[each for each in bins if each[1] == rack] for rack in {each[1] for each in bins}]
    return any(_fill([(cpu, cards) for _, _, cpu, cards in group], asked) for group in groups)


def _fill(bins: list[tuple[int, tuple[frozenset[Any], ...]]], asked: Any) -> bool:
    spec, wanted = asked.specification, asked.count
    for cpu, cards in bins:
        room = wanted if not spec.cpu_milli else cpu // spec.cpu_milli
        if spec.slice is None:
            wanted -= min(room, sum(not card for card in cards) // spec.cards_per_unit)
        else:
            wanted -= min(room, sum(_most(card, spec.slice) for card in cards))
    return bool(wanted <= 0)


def _most(card: frozenset[Any], asked: Slice) -> int:
    """Try every set of starts."""
    if asked.milli is not None:
        if any(one.milli is None for one in card):
            return 0
        return int((1_000 - sum(one.milli for one in card)) // asked.milli)
    if any(one.positions != asked.positions for one in card):
        return 0
    taken = {at for one in card for at in range(one.start, one.start + one.size)}
    best = 0
    for chosen in product((False, True), repeat=len(asked.starts)):
        starts = [start for start, take in zip(asked.starts, chosen, strict=True) if take]
        places = [at for start in starts for at in range(start, start + (asked.size or 0))]
        if len(set(places)) == len(places) and taken.isdisjoint(places):
            best = max(best, len(starts))
    return best


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.lists(steps, max_size=14), st.sampled_from([None, "r"]))
def test_the_laws_hold_at_every_step_and_what_waits_does_not_fit(plan: list[tuple[str, Any]], rack: str | None) -> None:
    it = yard(cards=2, nodes=2, cpu=6, rack=rack)
    for n, (what, arg) in enumerate(plan):
        play(it, what, arg, n)
        check(it)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.lists(steps, max_size=14))
def test_the_same_inputs_are_decided_alike_by_an_index_that_was_built_anew(plan: list[tuple[str, Any]]) -> None:
    one, other = (yard(cards=2, nodes=2, cpu=6) for _ in range(2))
    for n, (what, arg) in enumerate(plan):
        play(one, what, arg, n)
        other.board = other.fresh_board()
        play(other, what, arg, n)
    assert [event.data for event in one.facts] == [event.data for event in other.facts]


def test_greedy_cutting_is_exact_for_every_state_of_a_card() -> None:
    for one in H100.profiles:
        part = part_of(profile(one.profile))
        assert part is not None
        for mask in range(256):
            taken = {at for at in range(8) if mask >> at & 1}
            free = [s for s in one.starts if taken.isdisjoint(range(s, s + one.size))]
            assert count(part, (8, mask) if mask else UNUSED) == len(free)
            assert (cut(part, (8, mask)) is not None) == bool(free)
