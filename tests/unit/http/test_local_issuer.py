"""The issuer that gives a token to anyone on this machine, and to nobody else."""

import stat
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from qm_service.http import create_app
from qm_service.local_issuer import BindRefused, LocalIssuer, is_loopback
from qm_service.service import Service
from qm_service.tokens import KeyRing, TokenVerifier
from tests.unit.http.sample import ISSUER, Stage


def test_the_key_is_private_and_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "issuer.pem"
    first = LocalIssuer(path, ISSUER).jwks()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert LocalIssuer(path, ISSUER).jwks() == first
    assert list(tmp_path.iterdir()) == [path]


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "issuer.pem"
    LocalIssuer(path, ISSUER)
    path.chmod(0o644)
    with pytest.raises(ValueError, match="read by others"):
        LocalIssuer(path, ISSUER)


def test_the_key_set_holds_no_secret(tmp_path: Path) -> None:
    (key,) = LocalIssuer(tmp_path / "issuer.pem", ISSUER).jwks()["keys"]
    assert "d" not in key


async def test_its_tokens_hold_where_its_keys_are_known(tmp_path: Path) -> None:
    issuer = LocalIssuer(tmp_path / "issuer.pem", ISSUER)
    verifier = TokenVerifier(ISSUER, "quartermaster", KeyRing(issuer.fetch))
    verified = await verifier.verify(issuer.mint("dora", timedelta(minutes=1)))
    assert verified.subject == "dora"
    assert verified.token_id


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_is_served(host: str) -> None:
    LocalIssuer.check_bind(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org", "", "localhost.evil.test"])
def test_any_other_address_is_refused(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(BindRefused, match="OIDC issuer"):
        LocalIssuer.check_bind(host)


class TestTheRoutes:
    def client(self, stage: Stage, host: str = "127.0.0.1:8080") -> httpx.AsyncClient:
        runtime = stage.world.runtimes["catalog"]
        route = stage.issuer.token_route(lambda subject: subject == "dora")
        app = create_app([Service("sim", runtime, route)], stage.app.state.tokens, title="Sim")
        app.include_router(stage.issuer.well_known())
        return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://{host}")

    async def test_a_known_subject_gets_a_token_without_one(self, stage: Stage) -> None:
        async with self.client(stage) as client:
            reply = await client.post("/v1/sim/token", json={"subject": "dora"})
            assert reply.json()["token_type"] == "Bearer"
            headers = {"Authorization": f"Bearer {reply.json()['access_token']}"}
        assert (await stage.client.get("/v1/orders", headers=headers)).status_code == 200

    async def test_an_unknown_subject_gets_none(self, stage: Stage) -> None:
        async with self.client(stage) as client:
            assert (await client.post("/v1/sim/token", json={"subject": "eve"})).status_code == 404

    async def test_a_call_under_another_host_name_gets_none(self, stage: Stage) -> None:
        async with self.client(stage, "evil.test") as client:
            assert (await client.post("/v1/sim/token", json={"subject": "dora"})).status_code == 403

    async def test_discovery_leads_to_the_keys(self, stage: Stage) -> None:
        async with self.client(stage) as client:
            document = (await client.get("/.well-known/openid-configuration")).json()
            assert document["issuer"] == ISSUER
            keys = await client.get(document["jwks_uri"].removeprefix(ISSUER))
        assert keys.json() == stage.issuer.jwks()
