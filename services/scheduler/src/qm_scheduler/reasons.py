"""Why an order waits: one rule a code, in the order of their rank. All that hold are told, each with figures, with what
would have to change and with what the reader can do. Nobody else's order, tenant or node is named.

What tells them apart, for an order that does not fit now. It fits the fleet with nobody on it and all cards well, else
the specification or the domain is unavailable and nothing else matters. Then two things can let it in, repair and ends
of leases: a cause holds if it alone would do, or if it cannot do without it. Enough free cards, but no node has them:
fragmentation. Enough nodes, but no domain has them: topology.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qm_events.envelope import utc_text
from qm_events.specs import WaitCode, WaitReason
from qm_events.units import SHARES_OF_A_CARD, amount
from qm_scheduler.case import Case
from qm_scheduler.placement import largest, most_on_one_node, total
from qm_scheduler.pool import CLASSES, OUT_OF_SERVICE, Sight


@dataclass(frozen=True, slots=True)
class Ahead:
    """Those before an order that want the same cards, one of whom must be served first."""

    count: int
    shares: int
    """What they ask for, in 1/126,000 of a card."""
    because: str
    """Why the first of them goes first: `priority`, `kept_place`, `share` or `submitted`."""

    @property
    def cards(self) -> int:
        """What they ask for in cards, slices rounded up together."""
        return -(-self.shares // SHARES_OF_A_CARD)

    @property
    def position(self) -> int:
        """Its place among them, from 1."""
        return self.count + 1


Rule = Callable[[Case, Ahead | None], WaitReason | None]


def reason_of(code: WaitCode, counterfactual: str, remedy: str, **figures: Any) -> WaitReason:
    """Return a reason with its figures."""
    return WaitReason(code=code, figures=figures, counterfactual=counterfactual, remedy=remedy)


def specification_unavailable(case: Case, _: Ahead | None) -> WaitReason | None:
    """Hold if the fleet could not take the order even if it were idle and well."""
    if case.exists:
        return None
    view, shape = case.pool.views[Sight.ALL], case.shape
    units = total(view, shape)
    return reason_of(
        WaitCode.SPECIFICATION_UNAVAILABLE,
        f"fits when the fleet can hold {amount(shape.units, 'unit')} of it; idle and well it would hold {units}. "
        f"{_LACKS[case.lacks]}",
        f"Order at most {amount(units, 'unit')}, or ask the operators for more such nodes."
        if units
        else "Order a specification that the fleet has, or ask the operators for such nodes.",
        accelerators=list(shape.accelerators),
        cards_per_unit=shape.cards,
        requested_units=shape.units,
        units_possible=units,
        cards_in_fleet=case.pool.count(shape.accelerators, *CLASSES),
        largest_node_cards=most_on_one_node(view, shape),
        lacks=case.lacks,
    )


_LACKS: Mapping[str, str] = {
    "accelerators": "It has no card of the types that are asked for.",
    "units": "It has nodes for a unit, but not enough of them.",
    "traits": "No node with such cards has the traits that are asked for.",
    "accelerator_memory_mib": "Its cards of the type have less memory.",
    "cpu_milli": "No node with such cards has so much CPU.",
    "memory_mib": "No node with such cards has so much memory.",
    "cards_per_unit": "No node has so many cards.",
    "several": "Its nodes lack more than one of what a unit needs.",
}


def higher_priority_ahead(case: Case, line: Ahead | None) -> WaitReason | None:
    """Hold if an order that must be served first waits for the same cards."""
    if line is None or not case.possible:
        return None
    return reason_of(
        WaitCode.HIGHER_PRIORITY_AHEAD,
        f"is served when {_BEFORE[line.because]} and {amount(line.count, 'order')} before it in all, for "
        f"{amount(line.cards, 'cards')}, have theirs or are gone",
        "Wait, ask for a higher priority, or order with a duration: who ends before a place is needed may pass.",
        count=line.count,
        position=line.position,
        cards=line.cards,
        because=line.because,
    )


_BEFORE: Mapping[str, str] = {
    "priority": "an order of a higher priority",
    "kept_place": "an order for which a place is kept",
    "share": "an order of a project that holds fewer cards for its weight",
    "submitted": "an order that was submitted earlier",
}


def healthy_capacity_insufficient(case: Case, _: Ahead | None) -> WaitReason | None:
    """Hold if repair alone would let it in, or nothing but repair."""
    if not case.is_short or not (case.repair_helps or not case.ends_help):
        return None
    isolated = {cause: cards for cause in OUT_OF_SERVICE if (cards := case.pool.count(case.shape.accelerators, cause))}
    if leased := case.sick_in_use:
        isolated["in_use"] = leased
    return reason_of(
        WaitCode.HEALTHY_CAPACITY_INSUFFICIENT,
        f"fits when enough of the {amount(sum(isolated.values()), 'cards')} that are out of service are well again",
        f"The operators see these cards; it starts when they are well. {_smaller(case)}",
        requested=case.requested,
        healthy_free=case.free,
        isolated=isolated,
        units_now=case.units_now,
    )


def _smaller(case: Case) -> str:
    """What may be ordered instead, and only what is so: nobody may take what is kept for another."""
    if case.units_now:
        return f"An order of {amount(case.units_now, 'unit')} would be placed now."
    return "Not one unit would be placed now; another accelerator type may be free."


def topology_unsatisfiable(case: Case, _: Ahead | None) -> WaitReason | None:
    """Hold if it is the domain that is missing: now, or in this fleet for good."""
    within = case.shape.within
    if within is None or not case.shape.required or not case.exists or case.fits_now:
        return None
    for_good = not case.possible
    if not for_good and not case.fits_apart:
        return None
    here, ever = (largest(case.pool.views[sight], case.shape, within) for sight in (Sight.FREE, Sight.ALL))
    return reason_of(
        WaitCode.TOPOLOGY_UNSATISFIABLE,
        f"fits when one {within} has room for {amount(case.shape.units, 'unit')}; "
        f"the best has room for {here}, idle for {ever}",
        f"Make the topology a preference, or order at most {amount(ever if for_good else here, 'unit')}."
        if (ever if for_good else here)
        else "Make the topology a preference, or wait until leases end.",
        within=within.value,
        requested_units=case.shape.units,
        largest_domain=here,
        largest_domain_when_idle=ever,
    )


def capacity_fragmented(case: Case, _: Ahead | None) -> WaitReason | None:
    """Hold if there are enough free cards, but too few on each node."""
    if not case.is_short or case.fits_apart or case.cards_fit or case.free < case.requested:
        return None
    return reason_of(
        WaitCode.CAPACITY_FRAGMENTED,
        f"fits when {amount(case.shape.cards, 'cards')} are free on one node for each of "
        f"{amount(case.shape.units, 'unit')}; {case.free} are free, at most {case.largest_free} on one node",
        f"Order units of at most {amount(case.largest_free, 'cards')}, or wait until leases end.",
        requested=case.requested,
        cards_per_unit=case.shape.cards,
        free_total=case.free,
        largest_free_on_one_node=case.largest_free,
    )


def capacity_in_use(case: Case, _: Ahead | None) -> WaitReason | None:
    """Hold if ends of leases alone would let it in, or nothing but these."""
    if not case.is_short or not (case.ends_help or not case.repair_helps):
        return None
    end = case.next_end(case.shape.accelerators)
    return reason_of(
        WaitCode.CAPACITY_IN_USE,
        f"fits when leases end: {amount(case.requested, 'cards')} asked, {case.free} free; "
        f"short of {', '.join(case.short)}",
        f"Wait for the next lease to end. {_smaller(case)}",
        requested=case.requested,
        free=case.free,
        short=list(case.short),
        next_end=utc_text(end) if end else None,
    )


RULES: Sequence[Rule] = (
    specification_unavailable,
    higher_priority_ahead,
    healthy_capacity_insufficient,
    topology_unsatisfiable,
    capacity_fragmented,
    capacity_in_use,
)
"""By rank: the first that holds is the reason."""
RANK = {code: rank for rank, code in enumerate(WaitCode)}


def standing_reasons(case: Case) -> tuple[WaitReason, ...]:
    """Return the reasons that hold for every order of the shape, whoever is before it; worked out once."""
    if case.standing is None:
        case.standing = tuple(reason for rule in RULES if (reason := rule(case, None)))
    return case.standing


def explain(case: Case, line: Ahead | None, own: Sequence[WaitReason] = ()) -> tuple[WaitReason, ...]:
    """Return all reasons that hold; `line` = None: nobody is in the way; `own` concern this order alone. Empty only for
    an order that can be placed."""
    ahead = higher_priority_ahead(case, line)
    reasons = (*standing_reasons(case), *own, *((ahead,) if ahead else ()))
    return tuple(sorted(reasons, key=lambda reason: RANK[reason.code]))


def first_code(case: Case, own: Sequence[WaitReason], *, behind: bool) -> WaitCode | None:
    """Return the code of the first reason; `behind`: somebody must be served first."""
    codes = [each.code for each in own]
    if behind:
        codes += [WaitCode.HIGHER_PRIORITY_AHEAD]
    elif (found := next((reason.code for rule in RULES if (reason := rule(case, None))), None)) is not None:
        codes += [found]
    return min(codes, key=lambda code: RANK[code], default=None)
