"""New credentials, one function a kind. The `proof` in them is all that a backend is told."""

import hashlib
import secrets

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from qm_provisioner.ports import Secret, Site

_TOKEN_BYTES = 32


def ssh_key(site: Site) -> Secret:
    """Return an Ed25519 key pair of the order; the user's own keys are authorised beside it."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return Secret("ssh_key", f"{public} qm-{site.order}", {"private_key": private})


def bearer_token(_: Site) -> Secret:
    """Return a token; the backend knows it by its SHA-256."""
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    return Secret("bearer_token", hashlib.sha256(token.encode()).hexdigest(), {"token": token})
