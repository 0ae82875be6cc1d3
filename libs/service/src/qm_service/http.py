"""The HTTP side of a process: one app over one or more services, with the same rules for all of their routes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic import BaseModel

from qm_service import openapi
from qm_service.access import ACCESS
from qm_service.caller import Bound, permit
from qm_service.edge import Edge
from qm_service.faults import FAULTS, answer
from qm_service.health import health_routes
from qm_service.metrics import Metrics
from qm_service.problem import VersionConflict, problems
from qm_service.service import Service
from qm_service.tokens import TokenVerifier

PREFIX = "/v1"


class UnlistedRoute(Exception):
    """A route has no line in `access.ACCESS`, or does not ask for the permit that its line needs."""


def create_app(services: Sequence[Service], tokens: TokenVerifier, *, title: str) -> FastAPI:
    """Return the app that serves all `services`; its lifespan starts and stops them. Raises UnlistedRoute."""
    app = FastAPI(
        title=title,
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan(services),
        generate_unique_id_function=_operation_id,
        exception_handlers=dict.fromkeys(FAULTS, answer),
    )
    for service in services:
        app.include_router(service.router, prefix=PREFIX, tags=[service.name], responses=problems())
    bound = {id(route): line for service in services for route, line in _bind(service)}
    metrics = Metrics(services, bound)
    app.state.bound = bound
    app.state.tokens = tokens
    app.include_router(health_routes(services, metrics))
    app.add_middleware(Edge, measure=metrics.measure)
    _document(app)
    return app


def _bind(service: Service) -> Iterator[tuple[APIRoute, Bound]]:
    """Yield each route of a service with its line in the table."""
    for context in iter_route_contexts(service.router.routes):
        route = context.original_route
        if not isinstance(route, APIRoute) or len(route.methods or ()) != 1:
            raise UnlistedRoute(f"{service.name}: {context.path} is no route of one method")
        template, method = f"{PREFIX}{context.path_format}", min(route.methods or ())
        rule = ACCESS.get((method, template))
        if rule is None:
            raise UnlistedRoute(f"{service.name}: {method} {template} is not in access.ACCESS")
        if rule.scope != "public" and not _asks_for_permit(route.dependant):
            raise UnlistedRoute(f"{service.name}: {method} {template} does not depend on Access")
        yield (
            route,
            Bound(
                action=f"{method} {template}",
                rule=rule,
                runtime=service.runtime,
                query=_query_names(route.dependant),
                bodied=route.body_field is not None,
                versioned=openapi.declares(route.responses, VersionConflict),
            ),
        )


def _asks_for_permit(dependant: Dependant) -> bool:
    return any(inner.call is permit or _asks_for_permit(inner) for inner in dependant.dependencies)


def _query_names(dependant: Dependant) -> frozenset[str]:
    names: set[str] = set()
    for param in get_flat_params(dependant):
        if isinstance(param.field_info, Query):
            model = param.field_info.annotation
            fields = model.model_fields if isinstance(model, type) and issubclass(model, BaseModel) else None
            names |= {param.alias} if fields is None else {field.alias or name for name, field in fields.items()}
    return frozenset(names)


def _operation_id(route: APIRoute) -> str:
    return f"{route.tags[0]}_{route.name}" if route.tags else route.name


def _lifespan(services: Sequence[Service]) -> Callable[[FastAPI], Any]:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # By id: services may share a runtime. All at once: each may take seconds while its database or log is down.
        runtimes = {id(service.runtime): service.runtime for service in services}.values()
        workers = [worker for service in services for worker in service.workers]
        try:
            await asyncio.gather(*(runtime.start() for runtime in runtimes))
            await asyncio.gather(*(worker.start() for worker in workers))
            yield
        finally:
            # Workers end before what they write to.
            await asyncio.gather(*(worker.stop() for worker in workers))
            await asyncio.gather(*(runtime.stop() for runtime in runtimes))

    return lifespan


def _document(app: FastAPI) -> None:
    generate = app.openapi
    complete: dict[str, Any] = {}

    def document() -> dict[str, Any]:
        if not complete:
            complete.update(openapi.complete(generate()))
        return complete

    app.openapi = document  # type: ignore[method-assign]  # FastAPI's documented way to extend the document
