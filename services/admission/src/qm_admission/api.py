"""All routes of admission: parse, check the permit, hand a command over, show what came of it."""

from fastapi import APIRouter

from qm_admission import approval_api, delegation_api, policy_api, quota_api, request_api, simulate_api
from qm_service.runtime import Runtime


def routes(runtime: Runtime) -> APIRouter:
    """Return the router of the service; its paths are without `/v1`."""
    router = APIRouter()
    for part in (quota_api, request_api, simulate_api, policy_api, approval_api, delegation_api):
        router.include_router(part.routes(runtime))
    return router
