"""`python -m bench [NAME ...] [--quick] [--out FILE]`: figures, ratios and budgets, as a table and as JSON."""

import argparse
import json
import os
import platform
import sqlite3
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.blocked import blocked, blocked_distributed
from bench.claims import claims, claims_postgres, held
from bench.figures import Figure, table
from bench.idle import idle
from bench.log import appends, delivery, replay
from bench.metering import metered_facts, month
from bench.orders import orders_distributed, orders_embedded, rebuild
from bench.peer import peer, ratios
from bench.placing import placing, placing_distributed
from bench.projection import aggregate, projection
from bench.scheduling import decisions
from bench.sharing import shared_cards
from bench.size import memory, replayed

BENCHES: Mapping[str, Callable[[bool], list[Figure]]] = {
    "appends": appends,
    "replay": replay,
    "delivery": delivery,
    "projection": projection,
    "aggregate": aggregate,
    "peer": peer,
    "claims": claims,
    "claims-postgres": claims_postgres,
    "held": held,
    "decisions": decisions,
    "metered": metered_facts,
    "month": month,
    "shared-cards": shared_cards,
    "placing": placing,
    "placing-distributed": placing_distributed,
    "blocked": blocked,
    "blocked-distributed": blocked_distributed,
    "memory": memory,
    "replayed": replayed,
    "idle": idle,
    "orders": orders_embedded,
    "rebuild": rebuild,
    "distributed": orders_distributed,
}
_LIBRARIES = ("pydantic", "sqlalchemy", "fastapi", "uvloop", "asyncpg", "aiokafka", "eventsourcing")


def main() -> None:
    """Run the named benchmarks (default: all), print them and write JSON. A missed budget is told, no failure."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHES, []], metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: to see that all runs")
    parser.add_argument("--out", type=Path, default=Path("var/bench.json"))
    asked = parser.parse_args()
    machine, figures = _machine(), list[Figure]()
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    for name in asked.names or BENCHES:
        print(f"{name}: {(BENCHES[name].__doc__ or '').splitlines()[0]}")
        figures += (found := BENCHES[name](asked.quick))
        print(table(found), flush=True)
    compared = ratios(figures)
    print(f"ratios:\n{table(compared)}" if compared else "")
    missed = [figure.name for figure in figures if figure.verdict == "FAIL"]
    print(f"budgets missed: {'; '.join(missed) or 'none'}")
    report = {"machine": machine, "quick": asked.quick, "figures": [one.as_json() for one in (*figures, *compared)]}
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(report, indent=2))


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{name: version(name) for name in _LIBRARIES},
    }


if __name__ == "__main__":
    main()
