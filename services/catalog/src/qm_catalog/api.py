"""The routes of orders. The other routes are in the other `api_…` files."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from qm_catalog import api_catalogue, api_directory, api_events, api_organisation, api_simulate
from qm_catalog.domain import RECORDS, Cancel, Command, Extend, Release, Submit, act
from qm_catalog.forms import CancelForm, ExtendForm, OrderForm, ProjectName, ReleaseForm
from qm_catalog.lookup import everything, project_named, readable
from qm_catalog.ordering import ORDERING, resolve
from qm_catalog.peers import Peers
from qm_catalog.problems import AmbiguousProject, NotAnExtension, OrderEnded, UnknownReference
from qm_catalog.record_phase import Phase
from qm_catalog.record_view import RecordView, view
from qm_catalog.request_record import Record
from qm_service import problem
from qm_service.caller import Access, Page, etag
from qm_service.clock import new_id
from qm_service.page import Paged
from qm_service.problem import problems
from qm_service.runtime import Runtime
from qm_service.sealed import SubjectKeys

_ENDING = (problem.VersionConflict, problem.IdempotencyKeyReused)


def routes(runtime: Runtime, keys: SubjectKeys, peers: Peers) -> APIRouter:
    """Return all routes of the catalog."""
    router = APIRouter()
    router.include_router(_orders(runtime))
    router.include_router(api_simulate.routes(runtime, peers))
    router.include_router(_commands(runtime))
    router.include_router(api_events.routes(runtime))
    router.include_router(api_directory.routes(runtime, keys))
    router.include_router(api_organisation.routes(runtime))
    router.include_router(api_catalogue.routes(runtime))
    return router


def _orders(runtime: Runtime) -> APIRouter:
    router = APIRouter()

    @router.post(
        "/orders",
        status_code=202,
        responses=problems(*ORDERING, problem.IdempotencyKeyReused),
        response_model=RecordView,
    )
    async def submit_order(form: OrderForm, access: Access) -> Response:
        """Take an order. The reply is its record as far as it is known; `Location` is where to follow it."""
        tenant, project = await project_named(runtime, access, form.project)
        ctx = runtime.context()
        request = resolve(form, tenant, project, access.caller.subject, ctx.docs, ctx.now)
        order = new_id()
        outcome = await runtime.execute(
            act(Submit(order, request), tenant, project), access.cause(tenant, project, order)
        )
        return await _record(runtime, outcome.stream.partition("/")[2], 202)

    @router.get("/orders", responses=problems(AmbiguousProject))
    async def list_orders(
        access: Access,
        page: Page,
        project: Annotated[ProjectName | None, Query(description="`name` or `tenant/name`")] = None,
        phase: Annotated[list[Phase] | None, Query(description="One or more phases")] = None,
    ) -> Paged[RecordView]:
        """List the orders of the projects in which the caller has a role, the newest first."""
        where: dict[str, Any] = {"phase": [one.value for one in phase]} if phase else {}
        scopes = access.scopes()
        if project is not None:
            tenant, name = await project_named(runtime, access, project)
            where["scope"] = f"{tenant}/{name}"
        elif scopes is not None:
            where["scope"] = scopes
        rows = await runtime.docs.page(RECORDS, where, descending=True, after=page.start(str), limit=page.fetch)
        shown, following = page.cut(rows, lambda row: (row[0],))
        offerings = await everything(runtime, "offerings")
        items = [view(record, offerings.values()) for _, record in shown if record.tenant is not None]
        return Paged[RecordView].model_construct(items=items, next=following)

    @router.get("/orders/{order}", responses=problems(), response_model=RecordView)
    async def read_order(order: str, access: Access) -> Response:
        """Return the record of an order."""
        return await _reply(runtime, await readable(runtime, access, order), 200)

    return router


def _commands(runtime: Runtime) -> APIRouter:
    router = APIRouter()

    async def command(access: Access, order: str, wanted: Command) -> Response:
        record = await readable(runtime, access, order)
        _check_report(record, wanted)
        cause = access.cause(record.tenant, record.project, order)
        await runtime.execute(act(wanted, record.tenant, record.project), cause, expected_version=access.if_match)
        return await _record(runtime, order, 202)

    @router.post("/orders/{order}/cancel", status_code=202, responses=problems(*_ENDING), response_model=RecordView)
    async def cancel_order(order: str, access: Access, form: CancelForm | None = None) -> Response:
        """End an order that is wanted no more; lawful in every phase, and once ended nothing happens."""
        return await command(access, order, Cancel(order, form.reason if form else ""))

    @router.post(
        "/orders/{order}/release",
        status_code=202,
        responses=problems(*_ENDING, UnknownReference),
        response_model=RecordView,
    )
    async def release_order(order: str, access: Access, form: ReleaseForm | None = None) -> Response:
        """Give an environment back, with a report where a card was at fault; billing stops now."""
        return await command(access, order, Release(order, form.fault if form else None))

    @router.post(
        "/orders/{order}/extend",
        status_code=202,
        responses=problems(*_ENDING, NotAnExtension, OrderEnded),
        response_model=RecordView,
    )
    async def extend_order(order: str, access: Access, form: ExtendForm) -> Response:
        """Move the end of an order to a later instant."""
        return await command(access, order, Extend(order, form.expires_at))

    return router


def _check_report(record: Record, wanted: Command) -> None:
    """Refuse a report on a card that the order does not have: it would speak against all the others."""
    if isinstance(wanted, Release) and wanted.fault is not None and wanted.fault.card is not None:
        cards = [card for unit in record.placed.units for card in unit.cards]
        if wanted.fault.card not in cards:
            detail = f"The order does not have the card {wanted.fault.card}."
            raise UnknownReference(detail, field="fault.card", choices=cards)


async def _record(runtime: Runtime, order: str, status: int) -> Response:
    """Answer with a record just written: it is in memory, unless it has ended."""
    record: Record | None = runtime.context().docs.resident(RECORDS).get(order)
    return await _reply(runtime, record or await runtime.docs.get(RECORDS, order), status)


async def _reply(runtime: Runtime, record: Any, status: int) -> Response:
    shown = view(record, (await everything(runtime, "offerings")).values())
    headers = {"ETag": etag(shown.version)}
    if status != 200:
        headers["Location"] = f"/v1/orders/{shown.id}"
    return Response(shown.__pydantic_serializer__.to_json(shown), status, headers, "application/json")
