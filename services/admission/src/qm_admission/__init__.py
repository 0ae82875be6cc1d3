"""Admission: may this order have this, who must agree, and if not, what stands in the way and what would help.

Owns the topics `admissions` (streams `admission/<order>`: what became of each order) and `quotas` (streams
`quota/<tenant>`: limits, approval policies, requests for quota; `delegations/<tenant>`: who is away and who speaks for
him). Reads `orders` (submitted, extended, ended), `allocations` (which cards; left the queue), `environments` (ready,
released, quarantined), `usage` (what a month really took) and `directory` (who has which role, manager and group, which
specifications there are, what a card-hour costs, in which zone a month is).

Invariants
- Use of a scope = claimed + adjusted − returned at commit − refunded, at every scope of the path and in every
  dimension, in integers. A claim is one check over all of them: all or nothing.
- No claim passes a limit. Use is above a limit only where the limit was lowered, or card-hours moved with an order or
  were used beyond what was held; then nothing is available.
- Card-hours of a month = what metering said + what is held ahead. Each line counts once; an order that has ended holds
  none.
- What projects borrow together was lent by others when it was taken.
- A claim is committed at most once and refunded exactly once, whatever is delivered, how often, and in which order.
- An order passes no older one that waits for something it takes itself (`lines`).
- A vote binds to the digest of the parameters. Only a vote approves: no change of people, time or delegation does, and
  nobody entitled is never a consent. One word a person and one a seat; nobody decides on an order of his own.
- What an order was rejected for is a code: `quota-never-fits`, `priority-not-allowed`, `quota-exceeded`,
  `approval-denied`, `approval-lapsed`.

Not on its log: nothing. Its database can be dropped and is the same after `qm admission replay`.
"""
