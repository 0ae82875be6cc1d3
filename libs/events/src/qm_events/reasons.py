"""Why an order waits, in words: what each reason means, which figures come with it and what the reader can do."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from qm_events.specs import WaitCode


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a code tells its reader. An order's own reason carries the figures and may better the remedy."""

    meaning: str
    remedy: str
    figures: Mapping[str, str] = field(default_factory=dict)
    given_by: str | None = None
    """The service that finds it; None: the code is kept for a later release."""


REASONS: Mapping[WaitCode, Meaning] = {
    WaitCode.SPECIFICATION_UNAVAILABLE: Meaning(
        "The fleet could not take the order even if it were idle and well",
        "Order a specification that the fleet has, or fewer units",
        {
            "accelerators": "the types that would serve",
            "cards_per_unit": "cards that a unit needs on one node",
            "requested_units": "units of the order",
            "units_possible": "units that the fleet could hold",
            "cards_in_fleet": "cards of these types, in whatever state",
            "largest_node_cards": "the most cards of one type on one node",
            "lacks": "what the fleet lacks: accelerators, traits, accelerator_memory_mib, cpu_milli, memory_mib, "
            "cards_per_unit, or units; `several` where no single one of them would do",
        },
        "scheduler",
    ),
    WaitCode.QUOTA_EXHAUSTED: Meaning(
        "A limit of the project or its tenant is used up; one reason a limit",
        "Release something, order less, or ask for a higher limit",
        {
            "scope": "`tenant` or `tenant/project`",
            "dimension": "what is limited",
            "limit": "the limit",
            "used": "what others hold of it",
            "requested": "what the order needs",
            "short_by": "how much is missing",
        },
        "admission",
    ),
    WaitCode.OLDER_ORDER_AHEAD: Meaning(
        "The quota is free, but an older order waits for the same limit and goes first",
        "Wait: the older order is admitted or ends; or order in another project",
        {
            "scope": "`tenant` or `tenant/project`",
            "dimension": "what the older order waits for",
            "limit": "the limit",
            "used": "what others hold of it",
            "requested": "what the order needs",
        },
        "admission",
    ),
    WaitCode.APPROVAL_PENDING: Meaning(
        "A person must agree and has not yet",
        "Ask one of the approvers",
        {
            "level": "which level of the policy",
            "levels": "how many there are",
            "needed": "how many people must agree at this level",
            "agreed": "how many have agreed",
            "awaited": "who is counted on now",
            "approvers": "who may decide; empty = nobody can",
            "policy": "the policy that asks",
        },
        "admission",
    ),
    WaitCode.RESERVATION_NOT_STARTED: Meaning(
        "The order belongs to a reservation that has not begun",
        "Wait until the reservation begins",
        {"reservation": "which", "starts_at": "when it begins"},
        "scheduler",
    ),
    WaitCode.MAINTENANCE_WINDOW: Meaning(
        "The nodes that would fit are under maintenance, or will be before the order ends",
        "Wait until the maintenance ends, or order another type",
        {"starts_at": "when it begins", "ends_at": "when the first of it ends"},
        "scheduler",
    ),
    WaitCode.BACKEND_UNAVAILABLE: Meaning(
        "The platform that would build the environment does not answer", "Nothing to do: the operators see it"
    ),
    WaitCode.WAITING_FOR_PREEMPTION: Meaning(
        "Cards were taken back for this order and are being cleaned",
        "Nothing to do: it starts when they are clean",
        {
            "cards_awaited": "cards that others give up and that are not back yet",
            "orders_leaving": "orders that give them up",
            "expected_at": "when they should be back",
        },
        "scheduler",
    ),
    WaitCode.RECENTLY_RECLAIMED: Meaning(
        "It gave borrowed cards back to their owner and stays out for a while",
        "Wait until then, or order within the quota of the project",
        {"not_before": "when it may be given cards again"},
        "scheduler",
    ),
    WaitCode.HIGHER_PRIORITY_AHEAD: Meaning(
        "Orders that must be served first wait for the same cards",
        "Wait, or ask for a higher priority; another accelerator type may be free",
        {
            "count": "orders before this one",
            "position": "its place among them, from 1",
            "cards": "cards that the orders before it ask for",
            "because": "why the first of them goes first: its priority, a place that is kept for it, the share of its "
            "project (fewer cards by weight), or that it was submitted earlier",
        },
        "scheduler",
    ),
    WaitCode.HEALTHY_CAPACITY_INSUFFICIENT: Meaning(
        "It would fit if the cards that are out of service were well",
        "Nothing to do: the operators see these cards; fewer cards or another type may fit now",
        {
            "requested": "cards of the order",
            "healthy_free": "healthy free cards",
            "isolated": "cards out of service, by cause",
            "units_now": "units of the order that could be placed now, for an order of no more than these",
        },
        "scheduler",
    ),
    WaitCode.TOPOLOGY_UNSATISFIABLE: Meaning(
        "There are enough nodes, but no single domain has them",
        "Make the topology a preference, or order fewer units",
        {
            "within": "the domain that is required",
            "requested_units": "units of the order",
            "largest_domain": "units that the best domain has room for now",
            "largest_domain_when_idle": "units that the best domain could ever hold",
        },
        "scheduler",
    ),
    WaitCode.CAPACITY_FRAGMENTED: Meaning(
        "There are enough free cards, but too few on each node",
        "Order smaller units, or wait until leases end",
        {
            "requested": "cards of the order",
            "cards_per_unit": "cards that a unit needs on one node",
            "free_total": "free cards",
            "largest_free_on_one_node": "the most free cards of one type on one node",
        },
        "scheduler",
    ),
    WaitCode.CAPACITY_IN_USE: Meaning(
        "The cards are simply in use",
        "Wait for the next lease to end, or order fewer cards or another type",
        {
            "requested": "cards of the order",
            "free": "free cards",
            "short": "what there is too little of: cards, cpu_milli, memory_mib",
            "next_end": "when the next lease ends, if that is known",
            "reserved": "cards that are reserved for others, where it would fit without that",
        },
        "scheduler",
    ),
}
"""By rank: the first that holds is the reason."""
