"""Personal fields, sealed with a key of their subject: erasing the key erases them from logs that are kept for ever.

The format is `qm_events.sealed.Sealed`: `sealed:v1:<nonce>:<ciphertext>`, AES-256-GCM, the subject as associated data.
The keys are in the table `sealed_keys` of the catalog's database and nowhere else; they are not on the log, so that
table is backed up apart, and no longer than erasure may take.
"""

import os
from base64 import urlsafe_b64decode, urlsafe_b64encode

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Column, LargeBinary, MetaData, String, Table, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from qm_events.sealed import REDACTED
from qm_service.database import Database
from qm_service.ddl import exclusively

METADATA = MetaData()
KEYS = Table(
    "sealed_keys",
    METADATA,
    Column("subject", String, primary_key=True),
    Column("key", LargeBinary, nullable=False),
)
_NONCE_BYTES = 12


def seal(key: bytes, subject: str, text: str) -> str:
    """Return `text` sealed for `subject`. Each call differs, so seal once and keep the result."""
    nonce = os.urandom(_NONCE_BYTES)
    ciphertext = AESGCM(key).encrypt(nonce, text.encode(), subject.encode())
    return f"sealed:v1:{_encoded(nonce)}:{_encoded(ciphertext)}"


def unseal(key: bytes | None, subject: str, sealed: str) -> str:
    """Return what was sealed; REDACTED where there is no key or it is not that of the field. Never raises."""
    if key is None:
        return REDACTED
    try:
        _, _, nonce, ciphertext = sealed.split(":")
        return AESGCM(key).decrypt(_decoded(nonce), _decoded(ciphertext), subject.encode()).decode()
    except (ValueError, InvalidTag):
        return REDACTED


class SubjectKeys:
    """The keys of subjects. All methods raise DatabaseUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._created = False

    async def ensure(self, subject: str) -> bytes:
        """Return the key of a subject, made now if there is none."""
        await self._create()
        insert = sqlite.insert(KEYS) if self._database.sqlite else postgresql.insert(KEYS)
        fresh = AESGCM.generate_key(256)
        async with self._database.write() as tx:
            await tx.execute(insert.values(subject=subject, key=fresh).on_conflict_do_nothing())
            return bytes((await tx.execute(select(KEYS.c.key).where(KEYS.c.subject == subject))).scalar_one())

    async def of(self, *subjects: str) -> dict[str, bytes]:
        """Return the keys that there are."""
        await self._create()
        async with self._database.read() as tx:
            rows = await tx.execute(select(KEYS.c.subject, KEYS.c.key).where(KEYS.c.subject.in_(subjects)))
            return {subject: bytes(key) for subject, key in rows}

    async def erase(self, subject: str) -> None:
        """Forget the key: all that it sealed reads as REDACTED from now on, in every copy of the log. Idempotent."""
        await self._create()
        async with self._database.write() as tx:
            await tx.execute(delete(KEYS).where(KEYS.c.subject == subject))

    async def _create(self) -> None:
        if not self._created:
            async with self._database.write() as tx:
                await exclusively(self._database, tx)
                await tx.run_sync(METADATA.create_all)
            self._created = True


def _encoded(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
