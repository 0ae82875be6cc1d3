"""/healthz, /readyz and /metrics: for whoever runs the process, without a token."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import orjson
from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from qm_service.metrics import Metrics
from qm_service.service import Service


def health_routes(services: Sequence[Service], metrics: Metrics) -> APIRouter:
    """Return the routes, to be mounted at the root; they are not part of the contract of `/v1`."""
    router = APIRouter(include_in_schema=False)

    @router.get("/healthz")
    async def alive() -> dict[str, str]:
        """Answer as long as the process can: a database that is down is no reason to restart it."""
        return {"status": "alive"}

    @router.get("/readyz")
    async def ready() -> Response:
        """Tell whether calls belong here: 503 from a stand-by too, so that they go to the writer."""
        statuses = {status.service: status for status in (service.runtime.status() for service in services)}
        able = all(status.ready and status.leader for status in statuses.values())
        shown = {name: asdict(one) | {"at_rest": _at_rest(services, name)} for name, one in statuses.items()}
        body: dict[str, Any] = {"ready": able, "services": shown}
        return Response(orjson.dumps(body), 200 if able else 503, media_type="application/json")

    @router.get("/metrics")
    async def exposition() -> Response:
        """Return the metrics for Prometheus."""
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return router


def _at_rest(services: Sequence[Service], name: str) -> bool:
    """Tell whether a service has nothing to do but to read on: with `read` equal to the ends, nothing will follow."""
    mine = [service for service in services if service.runtime.definition.name == name]
    return all(one.runtime.at_rest({}) and all(worker.idle() for worker in one.workers) for one in mine)
