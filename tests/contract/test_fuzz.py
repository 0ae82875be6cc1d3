"""The whole product under schemathesis: what its OpenAPI allows and forbids, sent to every route, in process.

No reply may be a fault of ours, and each must be one that the document declares. `make test` runs a bounded share that
is the same every time; `python -m tests.contract.test_fuzz SECONDS [SEED]` goes on with other input until it is over.
"""

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.inside import Inside, inside

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
SUBJECTS = ("operator", "ada", "alice")
EXAMPLES = 3
"""Of each route, kind of input and subject, in `make test`."""
STANDS = ("POST", "/v1/sim/clock")
"""Moved by the test itself: a century ahead everything has expired, and nothing is left to ask for."""


@dataclass
class Fuzz:
    """The product, what there is in it to ask for, and what was found."""

    loop: asyncio.Runner
    site: Inside
    known: dict[str, list[str]]
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)

    def send(self, case: Any, subject: str) -> httpx.Response:
        """Send a case as a subject."""
        sent = case.as_transport_kwargs(base_url="http://127.0.0.1:8080")
        headers = {**sent["headers"], "Authorization": f"Bearer {self.site.token(subject)}"}
        body = {name: sent[name] for name in ("json", "data") if sent.get(name) is not None}
        if "data" in body:
            body["content"] = body.pop("data")
        request = self.site.client.build_request(
            sent["method"], sent["url"], headers=headers, params=sent.get("params"), **body
        )
        reply: httpx.Response = self.loop.run(self._reply(request))
        self.statuses[f"{case.operation.method.upper()} {case.operation.path}", reply.status_code] += 1
        return reply

    async def _reply(self, request: httpx.Request) -> httpx.Response:
        return await asyncio.wait_for(self.site.client.send(request), 30)


@contextmanager
def fuzzing(folder: Path) -> Iterator[Fuzz]:
    """Run the product with one order of each service model, one that awaits approval, and one that has ended."""
    edge = logging.getLogger("qm_service.edge")
    edge.setLevel(logging.CRITICAL)  # what failed is told by the faults
    with asyncio.Runner() as loop:
        world = inside(folder)
        site = loop.run(world.__aenter__())
        try:
            yield Fuzz(loop, site, loop.run(_known(site)))
        finally:
            edge.setLevel(logging.NOTSET)
            loop.run(world.__aexit__(None, None, None))


async def _known(site: Inside) -> dict[str, list[str]]:
    orders = [
        await site.order(),
        await site.order(service_model="kubernetes"),
        await site.order(specification="npu-1", service_model="maas", model="llama-small"),
        await site.order(specification="a100-8", service_model="bare_metal"),
        await site.order("gina", project="globex/agents"),
        await site.order(),
    ]
    await site.done("alice", "POST", f"/orders/{orders[-1]}/release", {})
    await site.settle()
    approvals = (await site.done("bob", "GET", "/approvals"))["items"]
    return {
        "order": orders,
        "approval": [one["approval"] for one in approvals],
        "tenant": ["acme", "globex", "platform"],
        "project": ["acme.vision", "vision", "speech"],
        "name": ["a100-1", "pytorch", "llama-small", "vm-1"],
        "subject": ["victor"],
        "node": ["gpu-1", "npu-2"],
        "card": ["gpu-1-c0", "npu-1-c3"],
        "service_model": ["vm", "maas"],
        "group": ["board"],
        "period": ["acme.2025-12"],
    }


def _told(reply: httpx.Response) -> str | None:
    """Return what is wrong with a problem, if the reply is one."""
    if reply.is_success:
        return None
    if reply.headers.get("content-type") != "application/problem+json":
        return f"not a problem but {reply.headers.get('content-type')}"
    body = reply.json()
    missing = [name for name in ("code", "title", "detail", "remedy", "instance") if not body.get(name)]
    return f"a problem without {', '.join(missing)}" if missing else None


def fuzz(run: Fuzz, examples: int, number: int) -> list[str]:
    """Send `examples` of each kind to each route as each subject; return the faults, each route's first ones."""
    faults: list[str] = []
    schema = schemathesis.openapi.from_dict(run.site.product.app.openapi())
    for found in schema.get_all_operations():
        operation = found.ok()
        if (operation.method.upper(), operation.path) == STANDS:
            continue
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            faults += _fuzz_route(run, operation, mode, examples, number)
    return faults


def _fuzz_route(run: Fuzz, operation: Any, mode: GenerationMode, examples: int, number: int) -> list[str]:
    @seed(number)
    @settings(
        max_examples=examples * len(SUBJECTS),
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), subject=st.sampled_from(SUBJECTS), pick=st.integers(0, 99))
    def one(case: Any, subject: str, pick: int) -> None:
        for name in case.path_parameters or {}:
            if name in run.known and pick % 4:
                case.path_parameters[name] = run.known[name][pick % len(run.known[name])]
        reply = run.send(case, subject)
        try:
            case.validate_response(reply, checks=CHECKS)
        except (FailureGroup, AssertionError) as error:
            raise AssertionError(f"{reply.status_code} as {subject}: {error}") from None
        assert not (wrong := _told(reply)), f"{reply.status_code} as {subject}: {wrong}"

    try:
        one()
    except Exception as error:
        return [f"{operation.method.upper()} {operation.path} ({mode.value}): {type(error).__name__} {error}"]
    return []


def test_no_route_fails_whatever_is_sent(tmp_path: Path) -> None:
    with fuzzing(tmp_path) as run:
        faults = fuzz(run, EXAMPLES, 1)
        assert not faults, "\n\n".join(faults)
        assert run.loop.run(run.site.client.get("/readyz")).json()["ready"]


def main(seconds: float, number: int) -> int:
    """Fuzz with ever other input until the time is over or something was found; return how much was found."""
    end, random = monotonic() + seconds, Random(number)
    statuses: Counter[tuple[str, int]] = Counter()
    while monotonic() < end:
        number = random.getrandbits(32)
        with TemporaryDirectory() as folder, fuzzing(Path(folder)) as run:
            faults = fuzz(run, EXAMPLES * 4, number)
            statuses += run.statuses
        if faults:
            print(f"seed {number}", *faults, sep="\n\n")
            return len(faults)
    print(f"{statuses.total()} calls, no fault;", dict(sorted(Counter(s for _, s in statuses.elements()).items())))
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
