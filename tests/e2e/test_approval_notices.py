"""The embedded product tells approvers and requesters by mail when it is set up to, by its settings alone."""

from pathlib import Path

import httpx
import pytest

from qm_client.embedded.clock import StoredClock
from qm_client.embedded.product import build, opened
from qm_client.embedded.scenario import load_scenario
from qm_client.embedded.settle import settled
from qm_client.embedded.up import SAMPLE, ensure_loaded
from tests.unit.catalog.post import post_office

URL = "http://127.0.0.1:8080"
POLICY = {
    "name": "told",
    "levels": [{"approvers": {"subjects": ["ada"]}, "remind_every_seconds": 3_600}],
    "notices": {"channels": ["mail"]},
}


async def test_an_approver_gets_mails_and_the_requester_the_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with post_office() as office:
        monkeypatch.setenv("QM_NOTICE_SMTP_HOST", "127.0.0.1")
        monkeypatch.setenv("QM_NOTICE_SMTP_PORT", str(office.port))
        monkeypatch.setenv("QM_NOTICE_SMTP_SECURITY", "none")
        async with (
            opened(build(tmp_path, StoredClock(tmp_path / "clock"))) as product,
            product.app.router.lifespan_context(product.app),
            httpx.AsyncClient(transport=httpx.ASGITransport(product.app), base_url=URL, timeout=60) as client,
        ):
            await ensure_loaded(product, URL, load_scenario(SAMPLE))

            async def call(who: str, method: str, path: str, body: object) -> httpx.Response:
                headers = {"Authorization": f"Bearer {product.issuer.mint(who)}"}
                reply = await client.request(method, f"/v1{path}", json=body, headers=headers)
                assert reply.is_success, reply.text
                await settled(product.services, product.log)
                return reply

            await call("ada", "PUT", "/approval-policies?tenant=acme", {"policies": [POLICY]})
            order = {"project": "acme/vision", "specification": "a100-1", "service_model": "vm"}
            record = (await call("alice", "POST", "/orders", order)).json()
            ((to, mail),) = office.mails
            assert to == ["ada@acme.invalid"]
            assert record["order"] in mail["subject"]
            await call("operator", "POST", "/sim/clock", {"advance": "PT1H"})
            assert [mail["subject"].partition(":")[0].strip() for _, mail in office.mails] == [
                "Approval needed in acme/vision",
                "Reminder",
            ]
            (approval,) = (await call("alice", "GET", f"/orders/{record['order']}", None)).json()["approvals"]
            await call("ada", "POST", f"/approvals/{approval['approval']}/deny", {"comment": "Too much."})
            (to, mail) = office.mails[-1]
            assert to == ["alice@acme.invalid"]
            assert mail["subject"].strip().startswith("Your order in acme/vision was refused")
            assert "ada decided. Too much." in mail.get_payload()
