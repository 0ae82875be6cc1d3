"""The access table itself, and the sweep over an app that is known to be right and one that is known to be wrong."""

import re
from pathlib import Path

import pytest

from qm_events.catalog import MemberGranted
from qm_events.specs import Role
from qm_service.access import ACCESS
from qm_service.caller import Permit
from qm_service.model import Act
from tests.contract.access_sweep import Ask, Site, cast, sweep
from tests.unit.http.sample import Stage, staged

PARAMETERS = {
    "order",
    "tenant",
    "project",
    "name",
    "subject",
    "group",
    "approval",
    "quota_request",
    "node",
    "card",
    "service_model",
    "period",
}


def test_every_line_is_a_plain_template_with_known_parameters() -> None:
    for method, template in ACCESS:
        assert method in {"GET", "POST", "PUT", "DELETE"}
        assert template.startswith("/v1/")
        assert set(re.findall(r"{(\w+)}", template)) <= PARAMETERS, template


def test_auditors_read_and_change_nothing() -> None:
    for (method, template), rule in ACCESS.items():
        changes = method != "GET" and not template.endswith(":simulate")
        if changes:
            assert Role.AUDITOR not in rule.roles, template
        elif rule.scope != "public" and not template.endswith("/credentials"):
            assert Role.AUDITOR in rule.roles, template


def test_viewers_change_nothing() -> None:
    for (method, template), rule in ACCESS.items():
        assert method == "GET" or template.endswith(":simulate") or Role.VIEWER not in rule.roles, template


def test_whoever_runs_the_platform_cannot_enter_an_environment() -> None:
    assert ACCESS["GET", "/v1/orders/{order}/credentials"].roles == {Role.DEVELOPER, Role.PROJECT_OWNER}


def test_only_the_token_of_the_embedded_product_is_public() -> None:
    assert [line for line, rule in ACCESS.items() if rule.scope == "public"] == [("POST", "/v1/sim/token")]


async def site(stage: Stage) -> Site:
    """Return the sample with the cast in its directory and one order."""
    runtime = stage.world.runtimes["catalog"]
    for subject, grant in cast().items():
        if grant is not None:
            fact = MemberGranted(tenant=grant.tenant, project=grant.project, subject=subject, role=grant.role)
            await runtime.execute(Act(f"tenant/{grant.tenant}", fact))
    await stage.submit("secret-order")
    # The sample's /tenants fails on purpose.
    lines = [line for line in stage.app.state.bound.values() if not line.action.endswith("/tenants")]
    return Site(
        client=stage.client,
        lines=lines,
        header=stage.token,
        values={"order": "secret-order"},
        asks={"POST /v1/orders": Ask({"order": "another"})},
        secrets=["secret-order"],
    )


async def test_the_sample_keeps_every_promise(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        assert await sweep(await site(stage)) == []


async def test_a_route_that_forgets_to_check_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Permit, "check", lambda *_: None)
    async with staged(tmp_path) as stage:
        faults = await sweep(await site(stage))
    assert any(fault.startswith("GET /v1/orders/{order} by abroad-developer: 200, not 404") for fault in faults)
    assert any("GET /v1/orders/{order} shows abroad-viewer what is not his" in fault for fault in faults)
