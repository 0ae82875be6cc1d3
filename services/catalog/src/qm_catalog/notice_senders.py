"""How notices leave: by SMTP and by a signed webhook. Both carry the id of the notice, so that a repetition is seen."""

import asyncio
import hmac
import json
import smtplib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from typing import Any, Literal, Protocol

import httpx

from qm_catalog.notice_box import Parcel
from qm_catalog.notice_words import subject_of, text_of

_SECONDS = 10.0
Security = Literal["none", "starttls", "tls"]


class Undeliverable(Exception):
    """It will not be taken, however often it is tried."""


class Sender(Protocol):
    """One way out."""

    async def send(self, parcel: Parcel, address: str, at: datetime) -> str:
        """Hand a parcel over and return what was answered. Raises Undeliverable, or anything else to be tried again."""


@dataclass(frozen=True, slots=True)
class Mail:
    """SMTP, one connection a mail; certificates are checked."""

    host: str
    port: int
    security: Security
    user: str | None
    password: str | None
    sender: str
    link: str = ""

    async def send(self, parcel: Parcel, address: str, at: datetime) -> str:
        """See `Sender.send`."""
        message = EmailMessage()
        try:
            message["From"], message["To"] = self.sender, address
        except (ValueError, IndexError) as error:
            raise Undeliverable("the address is none") from error
        message["Subject"] = subject_of(parcel.notices)
        message["Date"] = at
        message["Message-ID"] = f"<{parcel.id}@quartermaster>"
        message["Quartermaster-Notice"] = parcel.id
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(text_of(parcel.notices, self.link))
        try:
            await asyncio.to_thread(self._deliver, message)
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            if codes and min(codes) >= 500:
                raise Undeliverable(f"the server refuses the address: {codes[0]}") from None
            raise
        return "sent"

    def _deliver(self, message: EmailMessage) -> None:
        context = ssl.create_default_context()
        if self.security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(self.host, self.port, timeout=_SECONDS, context=context)
        else:
            server = smtplib.SMTP(self.host, self.port, timeout=_SECONDS)
        with server:
            if self.security == "starttls":
                server.starttls(context=context)
            if self.user is not None:
                server.login(self.user, self.password or "")
            server.send_message(message)


@dataclass(frozen=True, slots=True)
class Webhook:
    """One POST for each parcel; redirects are not followed."""

    url: str
    secret: str

    async def send(self, parcel: Parcel, address: str, at: datetime) -> str:  # noqa: ARG002 - of the port
        """See `Sender.send`."""
        body = json.dumps(
            {"id": parcel.id, "notices": [{"id": it.id, **it.body} for it in parcel.notices]}, sort_keys=True
        ).encode()
        async with httpx.AsyncClient(timeout=_SECONDS) as client:
            answer = await client.post(self.url, content=body, headers=signed(self.secret, parcel.id, at, body))
        if answer.is_success:
            return f"answered {answer.status_code}"
        if answer.status_code in (410, 413, 422):
            raise Undeliverable(f"answered {answer.status_code}")
        raise ConnectionError(f"answered {answer.status_code}")


def signed(secret: str, id_: str, at: datetime, body: bytes) -> Mapping[str, Any]:
    """Return the headers of a webhook. The signature is HMAC-SHA256 over `<id>.<timestamp>.<body>`, in hex."""
    timestamp = str(int(at.timestamp()))
    digest = hmac.new(secret.encode(), b".".join((id_.encode(), timestamp.encode(), body)), "sha256").hexdigest()
    return {
        "content-type": "application/json",
        "quartermaster-notice": id_,
        "quartermaster-timestamp": timestamp,
        "quartermaster-signature": f"v1={digest}",
    }
