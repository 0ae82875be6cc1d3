"""Whose token holds, and what happens while the issuer is away."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from qm_service.clock import ManualClock
from qm_service.problem import ServiceUnavailable, Unauthenticated
from qm_service.tokens import KeyRing, KeysUnavailable, TokenVerifier, keys_over_http

NOW = datetime(2026, 6, 1, 8, 0, tzinfo=UTC)
ISSUER = "https://issuer.test"
KEYS: Mapping[str, Any] = {
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "RS256": rsa.generate_private_key(public_exponent=65_537, key_size=2_048),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
ALGORITHMS: Mapping[str, Any] = {"ES256": ECAlgorithm, "RS256": RSAAlgorithm, "EdDSA": OKPAlgorithm}


def jwk(name: str, **members: Any) -> dict[str, Any]:
    """Return the public half of a key, with its name as kid."""
    return {**ALGORITHMS[name].to_jwk(KEYS[name].public_key(), as_dict=True), "kid": name, **members}


def token(name: str = "ES256", key: Any = None, headers: Mapping[str, Any] | None = None, **changes: Any) -> str:
    """Return a token that holds, but for `changes`; None takes a claim away."""
    at = int(NOW.timestamp())
    claims = {"iss": ISSUER, "aud": "quartermaster", "sub": "dora", "exp": at + 600, "jti": "t1"} | changes
    claims = {claim: value for claim, value in claims.items() if value is not None}
    return jwt.encode(claims, key or KEYS[name], algorithm=name, headers={"kid": name} | dict(headers or {}))


class Issuer:
    """An issuer that can be away, change its keys and count who asks."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.keys = list(keys) or [jwk(name) for name in KEYS]
        self.away = False
        self.asked = 0
        self.seconds = 0.0

    async def fetch(self) -> Mapping[str, Any]:
        """Answer, or be away."""
        self.asked += 1
        if self.away:
            raise KeysUnavailable("away")
        return {"keys": list(self.keys)}

    def verifier(self, clock: ManualClock | None = None) -> TokenVerifier:
        """Return a verifier that asks here."""
        ring = KeyRing(self.fetch, lambda: self.seconds)
        return TokenVerifier(ISSUER, "quartermaster", ring, clock or ManualClock(NOW))


@pytest.mark.parametrize("name", KEYS)
async def test_a_token_of_the_issuer_holds(name: str) -> None:
    verified = await Issuer().verifier().verify(token(name))
    assert (verified.subject, verified.token_id) == ("dora", "t1")


@pytest.mark.parametrize("name", KEYS)
async def test_a_key_without_name_or_algorithm_serves_too(name: str) -> None:
    key = {member: value for member, value in jwk(name).items() if member not in ("kid", "alg")}
    assert (await Issuer(key).verifier().verify(token(name))).subject == "dora"


async def test_a_token_without_a_kid_is_tried_with_every_key() -> None:
    other = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key(), as_dict=True)
    bare = jwt.encode(jwt.decode(token(), options={"verify_signature": False}), KEYS["ES256"], algorithm="ES256")
    assert (await Issuer({**other, "kid": "other"}, jwk("ES256")).verifier().verify(bare)).subject == "dora"


AT = int(NOW.timestamp())


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "another"},
        {"aud": None},
        {"iss": "https://evil.test"},
        {"iss": None},
        {"sub": None},
        {"sub": ""},
        {"sub": "a\nb"},
        {"sub": "x" * 501},
        {"exp": None},
        {"exp": AT - 60},
        {"exp": True},
        {"exp": float("nan")},
        {"exp": "soon"},
        {"nbf": AT + 61},
        {"nbf": "later"},
    ],
)
async def test_a_token_that_says_something_else_does_not_hold(changes: dict[str, Any]) -> None:
    with pytest.raises(Unauthenticated) as error:
        await Issuer().verifier().verify(token(**changes))
    assert 'error="invalid_token"' in error.value.headers["WWW-Authenticate"]


@pytest.mark.parametrize("changes", [{"exp": AT - 59}, {"nbf": AT + 60}, {"aud": ["other", "quartermaster"]}])
async def test_clocks_may_differ_by_a_minute(changes: dict[str, Any]) -> None:
    assert (await Issuer().verifier().verify(token(**changes))).subject == "dora"


@pytest.mark.parametrize("raw", ["", "x", "a.b.c", "..", "a" * 100_000, "é.é.é"])
async def test_what_is_no_token_does_not_hold(raw: str) -> None:
    with pytest.raises(Unauthenticated):
        await Issuer().verifier().verify(raw)


async def test_the_signature_must_be_of_the_issuer() -> None:
    forged = token(key=ec.generate_private_key(ec.SECP256R1()))
    with pytest.raises(Unauthenticated):
        await Issuer().verifier().verify(forged)


async def test_no_signature_and_a_shared_secret_never_hold() -> None:
    shared = {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "HS256"}
    claims = jwt.decode(token(), options={"verify_signature": False})
    unsigned = jwt.encode(claims, None, algorithm="none", headers={"kid": "ES256"})
    hashed = jwt.encode(claims, b"secretsecretsecretsecretsecret" * 2, algorithm="HS256", headers={"kid": "HS256"})
    for raw in (unsigned, hashed):
        with pytest.raises(Unauthenticated):
            await Issuer(shared, jwk("ES256")).verifier().verify(raw)


async def test_an_encryption_key_verifies_nothing() -> None:
    with pytest.raises(Unauthenticated):
        await Issuer(jwk("ES256", use="enc")).verifier().verify(token())


async def test_a_broken_key_does_not_spoil_the_others() -> None:
    broken = {"kty": "EC", "crv": "P-256", "x": "!", "y": "!", "kid": "ES256"}
    assert (await Issuer(broken, jwk("ES256")).verifier().verify(token())).subject == "dora"


async def test_a_verified_token_is_remembered_until_it_expires() -> None:
    issuer, clock = Issuer(), ManualClock(NOW)
    verifier, raw = issuer.verifier(clock), token()
    await verifier.verify(raw)
    issuer.away, issuer.seconds = True, 10_000.0
    await verifier.verify(raw)
    assert issuer.asked == 1
    clock.advance(timedelta(seconds=660))
    with pytest.raises(Unauthenticated, match="expired"):
        await verifier.verify(raw)


async def test_a_new_key_is_fetched_when_it_is_first_used() -> None:
    issuer = Issuer(jwk("RS256"))
    verifier = issuer.verifier()
    await verifier.verify(token("RS256"))
    issuer.keys.append(jwk("ES256"))
    issuer.seconds = 11.0
    assert (await verifier.verify(token("ES256"))).subject == "dora"
    assert issuer.asked == 2


async def test_made_up_keys_do_not_make_us_ask_again_and_again() -> None:
    issuer = Issuer()
    verifier = issuer.verifier()
    for number in range(20):
        with pytest.raises(Unauthenticated):
            await verifier.verify(token(headers={"kid": f"made-up-{number}"}))
    assert issuer.asked == 1


async def test_a_key_that_was_withdrawn_ends_what_it_signed() -> None:
    issuer = Issuer(jwk("ES256"), jwk("RS256"))
    verifier, old = issuer.verifier(), token("ES256")
    await verifier.verify(old)
    issuer.keys = [jwk("RS256")]
    issuer.seconds = 601.0
    await verifier.verify(token("RS256"))
    with pytest.raises(Unauthenticated):
        await verifier.verify(old)


class TestWhileTheIssuerIsAway:
    async def test_a_token_that_needs_its_keys_is_nobodys_fault(self) -> None:
        issuer = Issuer()
        issuer.away = True
        verifier = issuer.verifier()
        for _ in range(3):
            with pytest.raises(ServiceUnavailable) as error:
                await verifier.verify(token())
        assert error.value.headers["Retry-After"]
        assert issuer.asked == 1

    async def test_known_keys_go_on_serving(self) -> None:
        issuer = Issuer()
        verifier = issuer.verifier()
        await verifier.verify(token())
        issuer.away, issuer.seconds = True, 10_000.0
        assert (await verifier.verify(token(jti="t2"))).token_id == "t2"

    async def test_it_is_asked_again_after_a_while(self) -> None:
        issuer = Issuer()
        issuer.away = True
        verifier = issuer.verifier()
        with pytest.raises(ServiceUnavailable):
            await verifier.verify(token())
        issuer.away, issuer.seconds = False, 11.0
        assert (await verifier.verify(token())).subject == "dora"


class TestOverHttp:
    def transport(self, pages: Mapping[str, Any]) -> httpx.MockTransport:
        def answer(request: httpx.Request) -> httpx.Response:
            page = pages.get(str(request.url))
            return httpx.Response(404) if page is None else httpx.Response(200, json=page)

        return httpx.MockTransport(answer)

    async def test_the_keys_are_found_by_discovery(self) -> None:
        keys = {"keys": [jwk("ES256")]}
        pages = {
            f"{ISSUER}/.well-known/openid-configuration": {"issuer": ISSUER, "jwks_uri": "https://keys.test/"},
            "https://keys.test/": keys,
        }
        assert await keys_over_http(ISSUER, transport=self.transport(pages))() == keys

    async def test_or_where_the_settings_say(self) -> None:
        pages = {"https://keys.test/": {"keys": []}}
        assert await keys_over_http(ISSUER, "https://keys.test/", self.transport(pages))() == {"keys": []}

    @pytest.mark.parametrize(
        "document", [None, [], {"issuer": "https://evil.test", "jwks_uri": "https://keys.test/"}, {"issuer": ISSUER}]
    )
    async def test_what_is_no_discovery_document_gives_no_keys(self, document: Any) -> None:
        pages = {f"{ISSUER}/.well-known/openid-configuration": document}
        with pytest.raises(KeysUnavailable):
            await keys_over_http(ISSUER, transport=self.transport(pages))()
