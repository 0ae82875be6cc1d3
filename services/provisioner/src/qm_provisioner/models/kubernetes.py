"""Kubernetes: a namespace of the order's own with a quota for exactly its cards, entered with a bearer token."""

from typing import Any

from qm_provisioner.mint import bearer_token
from qm_provisioner.ports import SHOWN, Check, Ref, Site
from qm_provisioner.steps import LOGIN, Model, Step, cleaned, each, held, issued, once, revoked

KUBERNETES = Model(
    name="kubernetes",
    steps=(
        Step("devices", each(held), undo=cleaned),
        Step("namespace", once(lambda site: {"labels": dict(site.request.labels)}), proof="wiped"),
        Step("quota", once(lambda site: _quota(site)), deadline_seconds=120),
        Step("access", once(lambda site: _entry(site)), do=issued, undo=revoked, proof="revoked"),
    ),
    checks=(
        Check("reachable", ("namespace",)),
        LOGIN,
        Check("dns", ("namespace",)),
        Check("storage_rw", ("namespace",)),
        Check("accelerator_visible", ("devices", "quota"), of_cards=True),
        Check("kernel", ("devices",), of_cards=True),
        Check("runtime", ("devices",)),
    ),
    mint=bearer_token,
)


def _quota(site: Site) -> dict[str, Any]:
    wanted, count = site.request.specification, site.request.count
    part = {"slice": wanted.slice.profile or f"{wanted.slice.milli}m"} if wanted.slice else {}
    named = {"resource": wanted.slice.resource} if wanted.slice and wanted.slice.resource else {}
    return {
        "cards": site.request.cards,
        **part,
        **named,
        "cpu_milli": wanted.cpu_milli * count,
        "memory_mib": wanted.memory_mib * count,
    }


def _entry(site: Site) -> dict[str, Any]:
    nodes = sorted({unit.node for unit in site.units})
    return {SHOWN: {"namespace": Ref(site.order, "namespace").name, "nodes": nodes}}
