"""The scheduler: the fleet, the queue, who gets which cards, and why the others wait.

Owns the topics `allocations` (streams `allocation/<order>` and `reservation/<id>`, a public contract) and `fleet`
(streams `node/<node>`). Reads `admissions` for orders to place, `orders` for their ends and extensions, `environments`
for what is ready, being cleaned, clean again or lost, and `directory` for who may see what.

Invariants, at every position of the log
- A card has at most one holder. `allocation.allocated` and the `cards.held` of its nodes are written in one step, and
  so are `allocation.returned` and the `cards.returned` of its nodes.
- All units of an order are placed or none; a unit is on one node, within the CPU and memory that nobody holds there.
- Only cards that are healthy, clean, unheld and on a node without a cordon are given. Health never takes a card from
  its holder: it is isolated when it comes back.
- Per accelerator type, each card is in exactly one class of `pool.CLASSES`, so these add up to the total.
- Nobody passes a better ranked order that claims the same cards before a place is kept for that one, and there only if
  this costs it nothing; `queue`, `holds` and docs/scheduling.md say what that means and why nobody starves.
- Nobody has to leave without the place that it was for: the promise that binds place and victims and the word to each
  victim are written in one step, and a victim ranks strictly lower (`loose`), so there is no circle.
- Every waiting order that does not fit has at least one reason, and the first was told on the log.
- Decisions depend on the documents and on fixed hashes alone: not on the order of arrival, of a set or of a dict.

A replay applies placements, it never decides them again.

Not on its log: the newest time at which a source repeated itself about a card (`health`), which only saves facts.
Its database can be dropped and is the same after `qm scheduler replay`.
"""
