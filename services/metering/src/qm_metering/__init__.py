"""Metering: how long which cards were held for whom, and which of that time the project pays.

Owns the topic `usage` (streams `usage/<allocation>`, `period/<tenant>`, `price/<offering>`, `budget/<tenant>`). Reads
`allocations`, `environments` and `orders` for the instants that bound an interval, `fleet` for the cards that nobody
holds, and `directory` for zones, offerings and who may see what.

Invariants
- Quantities are integers in card-microseconds; nothing here is a float, so no total depends on the order of a sum.
- The document of an order is a growing set of facts: any interleaving of topics and any duplicate gives the same one.
- Each card and instant between `allocated` and `returned` is in exactly one class; the classes of an order add up to
  what it held.
- A line on the topic is never edited. When a late fact shows that it was wrong, a `usage.corrected` takes it back
  exactly and the right line follows. As the earliest fact counts, an end only moves back in time: a line that was taken
  back never returns.
- The lines of an order follow from its facts, cut where months end and prices change: the order of arrival changes
  which corrections there were, never what counts in the end. A closed month is not touched by either.
- A clock that runs backwards is an anomaly of the document and never a negative quantity.

Not on its log: nothing. Its database can be dropped and is the same after `qm metering replay`.
"""
