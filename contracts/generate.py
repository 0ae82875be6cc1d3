"""Writes the contracts from the code: `python -m contracts.generate`.

(nothing)    write what the code says into contracts/, and a golden sample of each new fact
--check      change nothing; fail where a document is not what the code says, or a released fact is broken
--release    take the facts as they are now for the released ones, unless they break those
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from qm_client.embedded.product import Product, build
from qm_events import all_facts, encode
from qm_events.codec import current
from qm_service.clock import ManualClock
from qm_service.contracts.asyncapi import render_asyncapi3
from qm_service.contracts.compat import Breaking, diff_schemas
from qm_service.contracts.jsonschema import fact_schema
from qm_service.contracts.samples import sample_event
from qm_service.contracts.tables import facts_table, problems_table, reasons_table
from qm_service.http import create_app
from qm_service.problem import PROBLEMS

VERSION = "0.1.0"
ROOT = Path(__file__).parent
GOLDEN = ROOT.parent / "tests" / "contract" / "golden"
RELEASED = ROOT / "released" / "facts.json"


def product_documents(product: Product) -> Iterator[tuple[str, str]]:
    """Yield every document as (path below contracts/, text)."""
    yield from vocabulary()
    yield "facts.md", facts_table(all_facts(), [service.runtime.definition for service in product.services])
    for service in product.services:
        app = create_app([service], product.app.state.tokens, title=f"Quartermaster {service.name}")
        yield f"openapi/{service.name}.json", _json(app.openapi())
    yield "openapi/embedded.json", _json(product.app.openapi())
    # The classes of test apps register in the same process.
    own = {code: cls for code, cls in PROBLEMS.items() if not cls.__module__.startswith("tests.")}
    yield "problems.md", problems_table(own)


def documents() -> dict[str, str]:
    """Return what the code says: text by path below contracts/."""
    with TemporaryDirectory() as folder:
        return dict(product_documents(build(Path(folder), ManualClock())))


def vocabulary() -> Iterator[tuple[str, str]]:
    """Yield the documents that follow from `qm_events` alone."""
    for wire, schema in schemas().items():
        yield f"events/{wire}.schema.json", _json(schema)
    yield "asyncapi.json", _json(render_asyncapi3(all_facts(), VERSION))
    yield "reasons.md", reasons_table()


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schema of every fact by wire name."""
    return {cls.wire_type: fact_schema(cls) for cls in all_facts()}


def samples() -> dict[str, bytes]:
    """Return a sample of every fact by wire name."""
    return {cls.wire_type: encode(sample_event(cls)) for cls in all_facts()}


def drift(wanted: Mapping[str, str]) -> list[str]:
    """Return the documents that are not what the code says, or that nothing writes any more."""
    there = {str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.suffix in (".json", ".md")}
    extra = there - set(wanted) - {str(RELEASED.relative_to(ROOT))}
    changed = [name for name, text in wanted.items() if name not in there or (ROOT / name).read_text() != text]
    return sorted({*extra, *changed})


def broken() -> list[Breaking]:
    """Return what the code breaks of the released facts. One with an upcaster may be gone: it is still read."""
    released = json.loads(RELEASED.read_text()) if RELEASED.exists() else {}
    return diff_schemas({wire: it for wire, it in released.items() if current(wire) == wire}, schemas())


def write(wanted: Mapping[str, str]) -> None:
    """Write the documents, remove those that nothing writes any more, and add the samples of new facts."""
    for name in drift(wanted):
        if name not in wanted:
            (ROOT / name).unlink()
    for name, text in wanted.items():
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(text)
    GOLDEN.mkdir(exist_ok=True)
    for wire, raw in samples().items():
        # A sample is what some release wrote: it is never written again.
        if not (path := GOLDEN / f"{wire}.json").exists():
            path.write_bytes(raw)


def release() -> None:
    """Note the facts as released."""
    RELEASED.parent.mkdir(exist_ok=True)
    RELEASED.write_text(_json(schemas()))


def _json(document: Any) -> str:
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0, or 1 where `--check` found something."""
    parser = argparse.ArgumentParser(prog="contracts.generate", description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--release", action="store_true")
    options = parser.parse_args(arguments)
    wanted = documents()
    if not options.check:
        write(wanted)
    if options.release and not broken():
        release()
    found = [f"contracts/{name} is not what the code says: make contracts" for name in drift(wanted)]
    found += [f"breaks a released fact: {change}" for change in broken()]
    sys.stderr.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
