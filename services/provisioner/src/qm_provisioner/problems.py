"""What the provisioner refuses, by code."""

from qm_service.problem import ProblemError


class EnvironmentNotReady(ProblemError):
    """There is no credential before the environment was proven usable."""

    code, status, title = "environment-not-ready", 409, "The environment is not ready"
    remedy = "Wait until the order is active; `GET /v1/orders/{order}` says how far it is."


class CredentialsRevoked(ProblemError):
    """The order has ended."""

    code, status, title = "credentials-revoked", 410, "The credentials were revoked"
    remedy = "Place a new order; revoked credentials never come back."


class CredentialsLost(ProblemError):
    """The environment lives, but its credential is not in the store or its key is not in the ring."""

    code, status, title = "credentials-lost", 409, "The credentials cannot be read"
    remedy = "Ask the operator to restore the credential table and its keys, or release the order and place a new one."
