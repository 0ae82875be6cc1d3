"""The ways out of a refusal or a wait, one by one, the easiest first. Pure: tried on the ledger as it is."""

from collections.abc import Iterator, Sequence
from fractions import Fraction

from qm_admission import claims, hours, precedence, quota, remedies
from qm_admission.claims import Verdict
from qm_admission.lines import Place
from qm_admission.quota import Answer
from qm_admission.shares import CARD_SHARES, CARDS, SHARES
from qm_events.envelope import utc_text
from qm_events.specs import Amounts, OrderRequest, Remedy, Role, Specification, Violation
from qm_events.units import MICROSECONDS_PER_HOUR
from qm_service.model import Context

TRIED = 50
"""Projects and specifications that are tried, in alphabetical order: nobody waits for a longer search."""
_MAY_ORDER = (Role.DEVELOPER, Role.PROJECT_OWNER, Role.TENANT_ADMIN)


def out_of(request: OrderRequest, verdict: Verdict, place: Place, ctx: Context) -> tuple[Remedy, ...]:
    """Return what helps. Nothing is promised: others may take it first."""
    found = verdict.violations
    return (
        *_order_less(request, verdict, place, ctx),
        *_smaller(request, place, ctx),
        *_elsewhere(request, place, ctx),
        *_when_hours_renew(request, found, ctx),
        *_ask(request, verdict, ctx),
        *_wait(verdict),
    )


def fits(request: OrderRequest, place: Place, ctx: Context) -> bool:
    """Whether the request would be admitted now."""
    path, amounts = quota.path_of(request.tenant, request.project), quota.amounts_of(request)
    verdict = claims.weigh(path, amounts, hours.life_of(request), place, request.priority, ctx)
    return verdict.answer is Answer.FITS


def _order_less(request: OrderRequest, verdict: Verdict, place: Place, ctx: Context) -> Iterator[Remedy]:
    never = verdict.answer is Answer.NEVER_FITS
    for now in (True, False) if never else (True,):
        count = remedies.fitting_count(request, verdict.violations, now=now)
        if 0 < count < request.count:
            smaller = request.model_copy(update={"count": count})
            if not now or fits(smaller, place, ctx):
                text = f"Order a count of at most {count}" + ("" if now else ", which may have to wait") + "."
                yield Remedy(kind="order_less", text=text, count=count)
                return


def _smaller(request: OrderRequest, place: Place, ctx: Context) -> Iterator[Remedy]:
    asked = request.specification
    known: Sequence[Specification] = ctx.index.specifications.serving(asked.accelerators)
    smaller = [one for one in known if _size(one) < _size(asked)][:TRIED]
    for one in sorted(smaller, key=lambda one: (-_size(one), one.name)):
        if fits(request.model_copy(update={"specification": one}), place, ctx):
            yield Remedy(
                kind="smaller_specification", text=f"Order {one.name} instead: it fits now.", specification=one.name
            )
            return


def _size(one: Specification) -> Fraction:
    """The cards of a unit."""
    return one.cards_per_unit * one.share


def _elsewhere(request: OrderRequest, place: Place, ctx: Context) -> Iterator[Remedy]:
    subject, tenant = (
        ctx.docs.get("subjects", request.requester),
        ctx.docs.resident("tenants").get(request.tenant),
    )
    roles = [(it.project, it.role) for it in (subject.grants if subject else ()) if it.tenant == request.tenant]
    names: set[str] = {project for project, role in roles if project and role in _MAY_ORDER}
    if tenant and any(project is None and role in _MAY_ORDER for project, role in roles):
        names |= set(tenant.projects)
    for project in sorted(names - {request.project})[:TRIED]:
        if fits(request.model_copy(update={"project": project}), place, ctx):
            yield Remedy(kind="other_project", text=f"Order in the project {project}: it has room.", project=project)
            return


def _when_hours_renew(request: OrderRequest, found: Sequence[Violation], ctx: Context) -> Iterator[Remedy]:
    dates = [it.renews_at for it in found if it.renews_at]
    if not dates:
        return
    at, path = min(dates), quota.path_of(request.tenant, request.project)
    zone, life = claims.zone_of(request.tenant, ctx), hours.life_of(request)
    end = life.end(at) or at + hours.LEAST
    later = hours.held(life.portion, at, end, zone)
    if not quota.never_fits(path, ctx.docs.resident("scopes"), {**quota.amounts_of(request), **later}):
        yield Remedy(kind="wait_until", text=f"Wait until the hours renew at {utc_text(at)}.", at=at)


def _ask(request: OrderRequest, verdict: Verdict, ctx: Context) -> Iterator[Remedy]:
    scopes = ctx.docs.resident("scopes")
    for name in verdict.path:
        here = (it for it in verdict.violations if it.scope == name and it.dimension != precedence.DIMENSION)
        short = [it for it in here if it.short_by]
        limits = dict(scopes[name].limits) if short else {}
        for it in short:
            dimension = it.dimension.partition("@")[0]
            if dimension.startswith(CARD_SHARES):
                dimension, by = CARDS + dimension.removeprefix(CARD_SHARES), -(-it.short_by // SHARES)
            else:
                by = -(-it.short_by // MICROSECONDS_PER_HOUR) if it.unit else it.short_by
            limits[dimension] = max(limits[dimension], scopes[name].limits[dimension] + by)
        wanted = {
            dimension: limits[dimension] for dimension in limits if limits[dimension] != scopes[name].limits[dimension]
        }
        if wanted:
            text = "Ask for a higher limit with POST /v1/quota-requests: " + ", ".join(
                f"{dimension} {limit}" for dimension, limit in wanted.items()
            )
            project = None if name == request.tenant else name.partition("/")[2]
            yield Remedy(
                kind="ask_for_quota",
                text=f"{text} at {name}.",
                project=project,
                limits=Amounts(values=wanted),
            )


def _wait(verdict: Verdict) -> Iterator[Remedy]:
    if verdict.answer is Answer.HELD:
        behind = all(it.short_by == 0 for it in verdict.violations)
        text = "Wait: an older order goes first." if behind else "Wait: it is admitted when enough is given back."
        yield Remedy(kind="wait", text=text)
