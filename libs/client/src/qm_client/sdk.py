"""The Python SDK: one class over the HTTP API. What the API refuses is raised as `ApiError`, with code and remedy."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Self

import httpx

Json = dict[str, Any]

ENDED = frozenset({"closed", "rejected", "cancelled", "expired", "failed"})
"""Phases that nothing follows."""


class ApiError(Exception):
    """The answer was a problem (RFC 9457). `problem` is its body."""

    def __init__(self, status: int, problem: Json) -> None:
        self.status = status
        self.problem = problem
        self.code = str(problem.get("code", status))
        super().__init__(f"{self.code}: {problem.get('detail') or problem.get('title', '')}")


class Client:
    """A connection to one Quartermaster. `transport` lets tests stay inside one process."""

    def __init__(
        self, url: str, token: str | None = None, *, timeout: float = 30.0, transport: httpx.BaseTransport | None = None
    ) -> None:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Json:
        """Send one request under `/v1` and return its JSON; raises ApiError or httpx.TransportError."""
        params = {name: value for name, value in (query or {}).items() if value is not None}
        answer = self._http.request(
            method, f"/v1{path}", json=body, params=params, headers={k: v for k, v in (headers or {}).items() if v}
        )
        if answer.is_success:
            return dict(answer.json()) if answer.content else {}
        try:
            problem = dict(answer.json())
        except ValueError:
            problem = {"title": answer.reason_phrase, "detail": answer.text[:200]}
        raise ApiError(answer.status_code, problem)

    def pages(self, path: str, **query: Any) -> Iterator[Json]:
        """Yield the items of a list, page after page."""
        after = None
        while True:
            page = self.call("GET", path, query={**query, "after": after})
            yield from page["items"]
            after = page.get("next")
            if not after:
                return

    def quote(self, order: Json) -> Json:
        """Return what would become of an order, what it would cost and when it may start; place nothing."""
        return self.call("POST", "/orders:simulate", order)

    def submit(self, order: Json, *, idempotency_key: str | None = None) -> Json:
        """Place an order and return its record."""
        return self.call("POST", "/orders", order, headers={"idempotency-key": idempotency_key or ""})

    def order(self, order: str) -> Json:
        """Return the record of an order."""
        return self.call("GET", f"/orders/{order}")

    def watch(self, order: str, *, limit_seconds: float, every_seconds: float = 0.2) -> Iterator[Json]:
        """Yield the record each time its phase or reason changed, until it is active, ended or the limit is over."""
        end, seen = time.monotonic() + limit_seconds, None
        while time.monotonic() < end:
            record = self.order(order)
            state = (record["phase"], (record.get("reason") or {}).get("code"))
            if state != seen:
                seen = state
                yield record
            if record["phase"] == "active" or record["phase"] in ENDED:
                return
            time.sleep(every_seconds)
