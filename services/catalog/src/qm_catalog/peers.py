"""The other services, asked over HTTP with the caller's own token, for what they alone can answer.

A peer that is served by the same process is asked there, past the network, through the same routes and checks.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import httpx
from fastapi import FastAPI, Request
from pydantic import BaseModel, Field, ValidationError

from qm_events.specs import OrderRequest
from qm_service.http import PREFIX
from qm_service.simulation import ADMISSION, QUEUE, Admissibility, SimulateBody, Standing
from qm_service.trace import TRACEPARENT

A = TypeVar("A", bound=BaseModel)
Code = Literal["not-configured", "unreachable", "too-slow", "refused", "not-understood"]


class Silence(BaseModel):
    """A part of the answer that is missing, and why."""

    part: str = Field(description="The member of the answer that is null")
    code: Code = Field(
        description="`not-configured`: this catalog was not told where the service is. `unreachable`: nobody answers "
        "there. `too-slow`: no answer in time. `refused`: it answered with a problem. `not-understood`: it answered "
        "something else than was agreed, as one of another release may."
    )
    detail: str = Field(description="In words")


@dataclass(frozen=True, slots=True)
class Question(Generic[A]):
    """What one peer is asked about an order that might come."""

    part: str
    """Of the answer of `POST /v1/orders:simulate`."""
    peer: str
    route: str
    answer: type[A]


MAY_IT = Question("admission", "admission", ADMISSION, Admissibility)
WHERE = Question("queue", "scheduler", QUEUE, Standing)


class _Missing(Exception):
    """There is no answer, for a known reason."""

    def __init__(self, code: Code, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class Peers:
    """Where the peers are; None = in this process, if anywhere. A `Worker`, as it holds connections."""

    def __init__(self, urls: Mapping[str, str | None], limit_seconds: float) -> None:
        self._urls = urls
        self._limit = limit_seconds
        self._clients: dict[FastAPI | None, httpx.AsyncClient] = {}
        """By the app that answers; None = over the network."""

    async def start(self) -> None:
        """Nothing is opened before it is needed."""

    async def stop(self) -> None:
        """Close the connections."""
        while self._clients:
            await self._clients.popitem()[1].aclose()

    def idle(self) -> bool:
        """Tell that nothing is ever due here."""
        return True

    async def ask(self, call: Request, question: Question[A], wanted: OrderRequest) -> A | Silence:
        """Return what a peer says to who made this `call`, or what is in the way; within the limit, without raising."""
        try:
            async with asyncio.timeout(self._limit):
                return question.answer.model_validate_json(await self._post(call, question, wanted))
        except _Missing as missing:
            code, detail = missing.code, missing.detail
        except TimeoutError:
            code, detail = "too-slow", f"The {question.peer} did not answer within {self._limit:g} s."
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            code, detail = "unreachable", f"The {question.peer} cannot be reached: {type(error).__name__}."
        except ValidationError:
            code, detail = "not-understood", f"The {question.peer} answered something else than was agreed."
        return Silence(part=question.part, code=code, detail=detail)

    async def _post(self, call: Request, question: Question[A], wanted: OrderRequest) -> bytes:
        client, base = self._place(call.app, question)
        path = question.route.format(tenant=wanted.tenant, project=wanted.project)
        headers = {"authorization": call.headers["authorization"], "content-type": "application/json"}
        headers |= {"traceparent": call.scope[TRACEPARENT]}
        body = SimulateBody(request=wanted).model_dump_json()
        reply = await client.post(f"{base}{PREFIX}{path}", content=body, headers=headers, timeout=self._limit)
        if reply.status_code != httpx.codes.OK:
            raise _Missing("refused", f"The {question.peer} answered {reply.status_code}{_code_of(reply)}.")
        return reply.content

    def _place(self, app: FastAPI, question: Question[A]) -> tuple[httpx.AsyncClient, str]:
        """Return who carries the call, and to which origin. Raises _Missing."""
        if url := self._urls[question.peer]:
            if None not in self._clients:
                self._clients[None] = httpx.AsyncClient()
            return self._clients[None], url.rstrip("/")
        if f"POST {PREFIX}{question.route}" not in {line.action for line in app.state.bound.values()}:
            raise _Missing("not-configured", f"The catalog was not told where the {question.peer} is.")
        if app not in self._clients:
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            self._clients[app] = httpx.AsyncClient(transport=transport)
        return self._clients[app], "http://in-process"


def _code_of(reply: httpx.Response) -> str:
    try:
        return f" {reply.json()['code']}"
    except (ValueError, KeyError, TypeError):
        return ""
