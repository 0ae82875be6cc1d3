"""Models as a service: an approved model served on the cards behind the gateway, entered with a bearer token."""

from typing import Any

from qm_provisioner.mint import bearer_token
from qm_provisioner.ports import SHOWN, Check, Ref, Site
from qm_provisioner.steps import LOGIN, Model, Step, cleaned, each, held, issued, once, revoked

MAAS = Model(
    name="maas",
    steps=(
        Step("devices", each(held), undo=cleaned),
        Step("serving", once(lambda site: _serving(site)), deadline_seconds=1_800, proof="wiped"),
        Step("route", once(lambda site: {"path": _path(site)}), deadline_seconds=120),
        Step("access", once(lambda site: _entry(site)), do=issued, undo=revoked, proof="revoked"),
    ),
    checks=(
        Check("reachable", ("route",)),
        LOGIN,
        Check("accelerator_visible", ("devices",), of_cards=True),
        Check("model_answers", ("serving", "route")),
        Check("runtime", ("serving",)),
    ),
    mint=bearer_token,
)


def _serving(site: Site) -> dict[str, Any]:
    return {"model": site.request.model, "replicas": site.request.count, "parameters": dict(site.request.parameters)}


def _path(site: Site) -> str:
    return f"/{Ref(site.order, 'route').name}/v1"


def _entry(site: Site) -> dict[str, Any]:
    return {SHOWN: {"path": _path(site), "model": site.request.model}}
