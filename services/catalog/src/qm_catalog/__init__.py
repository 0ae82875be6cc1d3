"""The catalog: who and what there is, what was ordered, and the one record of each order.

Owns the topics `directory` (streams `tenant/<tenant>`; the catalogue of all tenants is in `tenant/platform`) and
`orders` (streams `order/<order>`). Reads `admissions`, `allocations`, `environments` and `usage` to keep the record.

Invariants
- An order is asked for once and ended once: the first cancel, release or expiry is its end, a later one adds no fact.
- The record is one section a topic, and everything shown is derived from the sections: any interleaving of the topics
  gives the same record, and a fact after the end of its stream is an anomaly that changes nothing else.
- `closed`, `failed`, `cancelled`, `expired` and `rejected` are reached only when no card is held.
- An order expires at the promised instant, READY + duration or `expires_at`, however late that is noticed.
- What is ordered is the catalogue as it was: the specification is copied into the order, an item never changes its
  meaning under its name, and a new version does not touch old orders.
- The catalog decides from its own facts and the record; its facts about an order never wait for another service.

Not on its log: the keys of personal fields (table `sealed_keys`). They are what makes erasure possible, so they are
backed up apart, and for no longer than erasure may take. A rebuild leaves the table alone; without it the log is whole
and names read as redacted. Nor are notices that wait to be sent (table `notices`): without that
table what waited in it is not sent, and nothing is sent again.
"""
