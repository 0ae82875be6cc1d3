"""Bearer tokens: JWTs of one OIDC issuer, verified with the issuer's public keys.

Both halves are cached: keys for minutes, verified tokens until they expire, so that a call costs microseconds. While
the issuer is down, known keys go on serving; a token that would need an unknown key is answered 503, never 401: the
caller did nothing wrong.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import httpx
import jwt

from qm_service.clock import Clock, WallClock
from qm_service.problem import ServiceUnavailable, Unauthenticated

SKEW_SECONDS = 60
"""How far the clocks of issuer and service may differ."""
TOKEN_MAX_CHARS = 16_384
_CACHED_TOKENS = 10_000
_KEYS_FRESH_SECONDS = 600.0
_FETCH_EVERY_SECONDS = 10.0
_FETCH_LIMIT_SECONDS = 5.0

_BY_KEY_TYPE: Mapping[tuple[str, str | None], Sequence[str]] = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""The algorithms for each type of public key; a shared secret is no key here."""


class KeysUnavailable(Exception):
    """The issuer's keys cannot be fetched now."""


FetchKeys = Callable[[], Awaitable[Mapping[str, Any]]]
"""Returns a JWK set. Raises KeysUnavailable."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What a valid token says."""

    subject: str
    token_id: str | None
    """`jti`, where the issuer gives one."""
    expires_at: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class _Key:
    kid: str | None
    algorithm: str
    key: jwt.PyJWK


class KeyRing:
    """The issuer's public keys, fetched when a token needs one that is not here, and at most every ten seconds."""

    def __init__(self, fetch: FetchKeys, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._monotonic = monotonic
        self._keys: tuple[_Key, ...] = ()
        self._raw: Mapping[str, Any] = {}
        self._fetched_at = self._tried_at = -math.inf
        self._failed = False
        self._fetching = asyncio.Lock()
        self.generation = 0
        """Grows when the set changed: what was verified with an old set is to be looked at again."""

    async def candidates(self, kid: str | None, algorithm: str) -> list[jwt.PyJWK]:
        """Return the keys that may have signed; none = none has. Raises KeysUnavailable where that is not known."""
        found = self._matching(kid, algorithm)
        if not found or self._monotonic() - self._fetched_at > _KEYS_FRESH_SECONDS:
            await self._refresh()
            found = self._matching(kid, algorithm)
        if not found and self._failed:
            raise KeysUnavailable("the keys of the issuer cannot be fetched")
        return found

    def _matching(self, kid: str | None, algorithm: str) -> list[jwt.PyJWK]:
        # A token without a kid may be signed with any key; a key without one may have signed any token.
        fits = (key for key in self._keys if key.algorithm == algorithm)
        return [key.key for key in fits if kid is None or key.kid is None or key.kid == kid]

    async def _refresh(self) -> None:
        async with self._fetching:
            # Who waited for another's fetch finds it done: one flight, however many callers.
            if self._monotonic() - self._tried_at < _FETCH_EVERY_SECONDS:
                return
            self._tried_at = self._monotonic()
            try:
                self._use(await self._fetch())
            except KeysUnavailable:
                self._failed = True

    def _use(self, raw: Mapping[str, Any]) -> None:
        if raw != self._raw:
            self._keys = tuple(key for jwk in raw.get("keys", ()) for key in _keys_of(jwk))
            self._raw = raw
            self.generation += 1
        self._fetched_at, self._failed = self._monotonic(), False


def _keys_of(jwk: Mapping[str, Any]) -> list[_Key]:
    known = _BY_KEY_TYPE.get((jwk.get("kty", ""), jwk.get("crv")), ())
    algorithms = [name for name in known if jwk.get("alg") in (None, name)] if jwk.get("use") != "enc" else []
    try:
        return [_Key(jwk.get("kid"), name, jwt.PyJWK(dict(jwk), name)) for name in algorithms]
    except jwt.PyJWTError:
        return []  # a key that cannot be read verifies nothing; the others do


class TokenVerifier:
    """Tells whose token it is."""

    def __init__(self, issuer: str, audience: str, keys: KeyRing, clock: Clock | None = None) -> None:
        self._issuer = issuer
        self._audience = audience
        self._keys = keys
        # Always the outside world's time, also where the product's own clock stands: the issuer lives out there.
        self._clock = clock or WallClock()
        self._verified: OrderedDict[bytes, Verified] = OrderedDict()
        self._generation = 0

    async def verify(self, token: str) -> Verified:
        """Return what the token says. Raises Unauthenticated, or ServiceUnavailable where its key cannot be had now."""
        now = self._clock.now().timestamp()
        digest = sha256(token.encode()).digest()
        known = self._verified.get(digest)
        if known and self._generation == self._keys.generation and now < known.expires_at + SKEW_SECONDS:
            self._verified.move_to_end(digest)
            return known
        verified = await self._check(token, now)
        self._remember(digest, verified)
        return verified

    def _remember(self, digest: bytes, verified: Verified) -> None:
        if self._generation != self._keys.generation:
            self._verified.clear()
            self._generation = self._keys.generation
        self._verified[digest] = verified
        if len(self._verified) > _CACHED_TOKENS:
            self._verified.popitem(last=False)

    async def _check(self, token: str, now: float) -> Verified:
        try:
            header = jwt.get_unverified_header(token[:TOKEN_MAX_CHARS])
            keys = await self._keys.candidates(header.get("kid"), str(header.get("alg")))
        except jwt.PyJWTError as error:
            raise _invalid("It is not a JSON Web Token") from error
        except KeysUnavailable as error:
            raise ServiceUnavailable(
                "The keys of the token issuer cannot be fetched.", retry_after_seconds=10
            ) from error
        for key in keys:
            try:
                return _verified(self._claims(token, key), now)
            except jwt.InvalidSignatureError:
                continue
            except jwt.PyJWTError as error:
                raise _invalid(str(error)) from error
        raise _invalid("No key of the issuer has signed it")

    def _claims(self, token: str, key: jwt.PyJWK) -> dict[str, Any]:
        return jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name],
            audience=self._audience,
            issuer=self._issuer,
            # Times are checked below, with our clock and skew.
            options={
                "require": ["exp", "sub", "iss", "aud"],
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
                "enforce_minimum_key_length": True,
            },
        )


def _verified(claims: Mapping[str, Any], now: float) -> Verified:
    expires_at, not_before = claims["exp"], claims.get("nbf", -math.inf)
    if not _number(expires_at) or now >= expires_at + SKEW_SECONDS:
        raise _invalid("It has expired")
    if not _number(not_before) or now < not_before - SKEW_SECONDS:
        raise _invalid("It is not valid yet")
    subject, token_id = claims["sub"], claims.get("jti")
    if not (isinstance(subject, str) and 0 < len(subject) <= 500 and subject.isprintable()):
        raise _invalid("Its subject is not a name")
    return Verified(subject, token_id if isinstance(token_id, str) and len(token_id) <= 200 else None, expires_at)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _invalid(why: str) -> Unauthenticated:
    return Unauthenticated(f"The token does not hold: {why}.", error="invalid_token")


def keys_over_http(
    issuer: str, jwks_url: str | None = None, transport: httpx.AsyncBaseTransport | None = None
) -> FetchKeys:
    """Return the fetch of the keys at `jwks_url`, or where the discovery document of `issuer` says they are."""

    async def fetch() -> Mapping[str, Any]:
        try:
            async with httpx.AsyncClient(timeout=_FETCH_LIMIT_SECONDS, transport=transport) as client:
                return await _get(client, jwks_url or await _discover(client, issuer))
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError) as error:
            raise KeysUnavailable(f"{issuer}: {error}") from error

    return fetch


async def _discover(client: httpx.AsyncClient, issuer: str) -> str:
    document = await _get(client, issuer.rstrip("/") + "/.well-known/openid-configuration")
    if document["issuer"] != issuer:
        raise ValueError(f"the discovery document is of {document['issuer']}")
    return str(document["jwks_uri"])


async def _get(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    response = await client.get(url)
    response.raise_for_status()
    body = response.json()
    if not isinstance(body, dict):
        raise ValueError(f"{url} is not a JSON object")
    return body
