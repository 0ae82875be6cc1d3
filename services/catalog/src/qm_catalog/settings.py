"""The settings of the catalog."""

from pydantic import Field, SecretStr

from qm_catalog.notice_senders import Security
from qm_service import settings


class Settings(settings.Settings):
    """Those of every service, who may begin, whom it asks, and how approvers are told."""

    bootstrap_operator: str | None = None
    """The subject that becomes operator of the platform at the first start: it gives all other roles."""
    admission_url: str | None = None
    """Where admission answers, `http://admission:8080`: `POST /v1/orders:simulate` asks it. None = in this process."""
    scheduler_url: str | None = None
    """Where the scheduler answers, likewise."""
    peer_seconds: float = Field(default=2.0, gt=0)
    """How long an answer of these two is waited for; beyond that its part of the simulation is null."""
    notice_smtp_host: str | None = None
    """The mail server; None = no mails are sent, whatever the policies want."""
    notice_smtp_port: int = Field(default=587, ge=1, le=65_535)
    notice_smtp_security: Security = "starttls"
    """`tls` from the first byte, `starttls`, or `none` for a relay on the same machine."""
    notice_smtp_user: str | None = None
    notice_smtp_password: SecretStr | None = None
    notice_from: str = "quartermaster@localhost"
    """The sender of all mails."""
    notice_link: str = ""
    """What a mail links to, with `/<approval>` behind it: the approvals page of a console; empty = no link."""
    notice_webhook_url: str | None = None
    """Where notices are posted; None = nowhere."""
    notice_webhook_secret: SecretStr | None = None
    """Signs what is posted; without one nothing is."""
