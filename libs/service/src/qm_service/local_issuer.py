"""The token issuer of the embedded product: anyone who can reach it gets a token for any known subject.

So it serves the loopback interface alone: `check_bind` refuses every other address, and the token route refuses a call
that came under another host name (a page in a browser that points its own name at this machine).
"""

import base64
import json
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from fastapi import APIRouter, Request
from jwt.algorithms import ECAlgorithm
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from qm_service.clock import Clock, WallClock, new_id
from qm_service.problem import Forbidden, NotFound, problems

LIFE = timedelta(hours=12)


class BindRefused(ValueError):
    """The address is not a loopback one."""


class TokenRequest(BaseModel):
    """Whose token is wanted."""

    model_config = ConfigDict(extra="forbid")

    subject: Annotated[str, StringConstraints(min_length=1, max_length=500)]
    seconds: int = Field(default=int(LIFE.total_seconds()), ge=1, le=30 * 86_400, strict=True)


class TokenReply(BaseModel):
    """A token, as an OAuth server gives it."""

    access_token: str
    token_type: str
    expires_in: int


class LocalIssuer:
    """Mints ES256 tokens with a key that is kept in a file of the data directory and made on the first start."""

    def __init__(self, key_file: Path, url: str, audience: str = "quartermaster", clock: Clock | None = None) -> None:
        self._key = _load(key_file)
        self._url = url
        self._audience = audience
        # The outside world's time, as the verifier's: the product's own clock may stand.
        self._clock = clock or WallClock()
        self._jwk = _public(self._key)

    @staticmethod
    def check_bind(host: str) -> None:
        """Raise BindRefused where `host` is not this machine alone."""
        if not is_loopback(host):
            raise BindRefused(
                f"{host} can be reached by others, and the local issuer gives tokens to everyone: "
                "serve on 127.0.0.1, or configure an OIDC issuer"
            )

    def mint(self, subject: str, life: timedelta = LIFE) -> str:
        """Return a token for `subject`."""
        now = int(self._clock.now().timestamp())
        claims = {
            "iss": self._url,
            "aud": self._audience,
            "sub": subject,
            "iat": now,
            "exp": now + int(life.total_seconds()),
            "jti": new_id(),
        }
        return jwt.encode(claims, self._key, algorithm="ES256", headers={"kid": self._jwk["kid"]})

    def jwks(self) -> Mapping[str, Any]:
        """Return the public key as a JWK set."""
        return {"keys": [self._jwk]}

    async def fetch(self) -> Mapping[str, Any]:
        """Return the public key to a `KeyRing` in the same process."""
        return self.jwks()

    def discovery(self) -> Mapping[str, Any]:
        """Return the OIDC discovery document."""
        return {
            "issuer": self._url,
            "jwks_uri": f"{self._url}/.well-known/jwks.json",
            "token_endpoint": f"{self._url}/v1/sim/token",
            "response_types_supported": ["token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }

    def well_known(self) -> APIRouter:
        """Return the routes of discovery and keys, to be mounted at the root."""
        router = APIRouter(include_in_schema=False)
        router.add_api_route("/.well-known/openid-configuration", self.discovery)
        router.add_api_route("/.well-known/jwks.json", self.jwks)
        return router

    def token_route(self, known: Callable[[str], bool]) -> APIRouter:
        """Return the route that gives anyone a token for a subject that is `known`, to be mounted under `/v1`."""
        router = APIRouter()

        @router.post("/sim/token", responses=problems())
        def mint_token(wanted: TokenRequest, request: Request) -> TokenReply:
            """Give a token for a sample user; no proof is asked for, so this is served to this machine alone."""
            if not is_loopback(request.url.hostname or ""):
                raise Forbidden("Tokens are given on this machine only.", remedy="Call 127.0.0.1.")
            if not known(wanted.subject):
                raise NotFound("There is no such subject.", field="subject")
            token = self.mint(wanted.subject, timedelta(seconds=wanted.seconds))
            return TokenReply(access_token=token, token_type="Bearer", expires_in=wanted.seconds)  # noqa: S106 # no password

        return router


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address can only mean this machine."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _load(key_file: Path) -> ec.EllipticCurvePrivateKey:
    if not key_file.exists():
        _create(key_file)
    if key_file.stat().st_mode & 0o077:
        raise ValueError(
            f"{key_file} can be read by others: whoever reads it is any user he likes; set its mode to 600"
        )
    key = load_pem_private_key(key_file.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{key_file} holds no key for ES256")
    return key


def _create(key_file: Path) -> None:
    draft = key_file.with_name(f"{key_file.name}.{os.getpid()}")
    draft.touch(0o600, exist_ok=False)
    draft.write_bytes(_pem(ec.generate_private_key(ec.SECP256R1())))
    try:
        # Whole or not at all, and the first one stays: two processes that start at once use one key.
        key_file.hardlink_to(draft)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _public(key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
    jwk = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    # RFC 7638: the name of a key follows from the key, so that it is the same after a restart.
    members = json.dumps({name: jwk[name] for name in ("crv", "kty", "x", "y")}, separators=(",", ":"))
    kid = base64.urlsafe_b64encode(sha256(members.encode()).digest()).rstrip(b"=").decode()
    return {
        "kty": jwk["kty"],
        "crv": jwk["crv"],
        "x": jwk["x"],
        "y": jwk["y"],
        "kid": kid,
        "alg": "ES256",
        "use": "sig",
    }
