"""A shadow of the scheduler: it hears from a tape what the first one heard, and decides all anew.

A replay applies placements; a shadow makes them again, and must make the same. `python -m tests.unit.scheduler.shadow
FILE` prints the digest of what it decided.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

from qm_events import Event, decode, encode
from qm_events.scheduler import CardsHeld, CardsReturned
from tests.unit.scheduler.yard import DECIDERS, Yard


@dataclass
class Taped(Yard):
    """A yard that keeps all facts, own and foreign, as they came."""

    tape: list[Event[Any]] = field(default_factory=list)

    def fold(self, event: Event[Any]) -> None:
        self.tape.append(event)
        super().fold(event)


def digest(facts: Iterable[Event[Any]]) -> str:
    """Return a digest of facts, in their order."""
    return sha256(b"\n".join(encode(event) for event in facts)).hexdigest()


def heard(event: Event[Any]) -> str:
    """Tell a fact of another service, what an operator or an agent said of a node, and what follows from these."""
    if not event.source.endswith("/scheduler"):
        return "foreign"
    told = event.subject.startswith("node/") and not isinstance(event.data, CardsHeld | CardsReturned)
    return "told" if told else "decided"


def shadow(tape: Sequence[Event[Any]]) -> Yard:
    """Return a yard that heard the tape, and decided for itself."""
    yard = Yard()
    for kind, some in groupby(tape, heard):
        for event in some if kind != "decided" else ():
            yard.now = event.time
            if kind == "foreign":
                yard.hear(event.subject, event.data)
            else:
                _told(yard, event)
        if kind == "told":
            # One answer of an operator may be many facts: nothing is decided in between.
            yard.settle()
    return yard


def _told(yard: Yard, event: Event[Any]) -> None:
    stream = event.subject
    decider = DECIDERS[stream.partition("/")[0]]
    yard.states[stream] = decider.evolve(yard.states.get(stream, decider.initial), event.data)
    yard.versions[stream] = event.version
    yard.facts.append(event)
    yard.fold(event)


def main() -> None:
    """Decide anew what is on the tape."""
    lines = Path(sys.argv[1]).read_bytes().splitlines()
    print(digest(shadow([decode(line) for line in lines]).facts))


if __name__ == "__main__":
    main()
