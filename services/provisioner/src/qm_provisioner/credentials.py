"""The credentials of the orders: encrypted, in a table of the service's own, and nowhere else.

AES-256-GCM with the order as associated data, so that a row cannot be passed off as another order's. The keys come from
the settings: the first of the ring encrypts, all of it decrypts. To rotate, put a new key first, run `rotate` and drop
the old one. The table is not on the log: back it up with the database; without its row an order's credential is lost.
"""

import json
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Column, LargeBinary, MetaData, String, Table, select

from qm_provisioner.ports import Secret
from qm_provisioner.together import Together
from qm_service.clock import Clock
from qm_service.database import Database
from qm_service.ddl import exclusively
from qm_service.schema import Instant, upsert
from qm_service.store import chunks

METADATA = MetaData()
CREDENTIALS = Table(
    "credentials",
    METADATA,
    Column("order_id", String, primary_key=True),
    Column("key_id", String, nullable=False),
    Column("sealed", LargeBinary),
    Column("written_at", Instant, nullable=False),
)
"""`sealed` is nonce and ciphertext; NULL once the credential was revoked."""

_NONCE_BYTES = 12
_KEY_BYTES = 32


class CredentialUnreadable(Exception):
    """No key of the ring opens it: the key is gone, or the row was tampered with."""


class KeyRing:
    """The keys by id; the first encrypts."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        if not keys or any(len(key) != _KEY_BYTES for key in keys.values()):
            raise ValueError(f"the key ring needs keys of {_KEY_BYTES} bytes, at least one")
        self.current = next(iter(keys))
        self._ciphers = {name: AESGCM(key) for name, key in keys.items()}

    @classmethod
    def parse(cls, text: str) -> "KeyRing":
        """Read `<id>:<base64url of 32 bytes>`, separated by blanks. Raises ValueError without showing a key."""
        try:
            pairs = [entry.split(":", 1) for entry in text.split()]
            return cls({name: urlsafe_b64decode(key + "=" * (-len(key) % 4)) for name, key in pairs})
        except ValueError:
            raise ValueError("a key ring reads `<id>:<base64url of 32 bytes>`, several separated by blanks") from None

    @classmethod
    def of_file(cls, path: Path) -> "KeyRing":
        """Read a ring from a file; make one with a new key, for the owner's eyes only, where there is none."""
        if not path.exists():
            key = urlsafe_b64encode(AESGCM.generate_key(bit_length=_KEY_BYTES * 8)).decode()
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(f"k1:{key}\n")
        return cls.parse(path.read_text())

    def seal(self, order: str, content: bytes) -> bytes:
        """Return nonce and ciphertext under the current key."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._ciphers[self.current].encrypt(nonce, content, order.encode())

    def open(self, order: str, key_id: str, sealed: bytes) -> bytes:
        """Return the content. Raises CredentialUnreadable."""
        try:
            return self._ciphers[key_id].decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], order.encode())
        except (KeyError, InvalidTag):
            raise CredentialUnreadable(f"the credential of order {order} cannot be opened") from None


Row = tuple[str, bytes | None]
"""Key and sealed content."""


class CredentialStore:
    """The table (`Vault`). What many flows want at once is one transaction. Every call raises DatabaseUnavailable."""

    def __init__(self, database: Database, keys: Callable[[], KeyRing], clock: Clock) -> None:
        self._database = database
        self._read_keys = keys
        self._clock = clock
        self._reads: Together[None, Row] = Together(self._read)
        self._writes: Together[Row, None] = Together(self._write)
        self._live: dict[str, Row] = {}
        """The sealed rows that this process wrote and nobody has revoked."""
        self._created = False

    @cached_property
    def _keys(self) -> KeyRing:
        return self._read_keys()

    async def get(self, order: str) -> Secret | None:
        """See `Vault.get`. Raises CredentialUnreadable."""
        row = self._live.get(order) or await self._reads.ask(order, None)
        if row is None or row[1] is None:
            return None
        kind, proof, values = json.loads(self._keys.open(order, row[0], row[1]))
        return Secret(kind, proof, values)

    async def put(self, order: str, secret: Secret) -> None:
        """See `Vault.put`."""
        content = json.dumps([secret.kind, secret.proof, dict(secret.values)]).encode()
        row = (self._keys.current, self._keys.seal(order, content))
        await self._writes.ask(order, row)
        self._live[order] = row

    async def revoke(self, order: str) -> None:
        """See `Vault.revoke`. What was sealed is overwritten."""
        self._live.pop(order, None)
        await self._writes.ask(order, (self._keys.current, None))

    async def rotate(self) -> int:
        """Seal everything anew that is not under the current key; return how many rows that were."""
        await self._create()
        table = CREDENTIALS.c
        async with self._database.write() as tx:
            old = (table.key_id != self._keys.current) & table.sealed.is_not(None)
            rows = (await tx.execute(select(table.order_id, table.key_id, table.sealed).where(old))).all()
            for order, key_id, sealed in rows:
                anew = self._keys.seal(order, self._keys.open(order, key_id, sealed))
                # A credential that is revoked meanwhile must not come back.
                same = (table.order_id == order) & (table.key_id == key_id) & table.sealed.is_not(None)
                await tx.execute(CREDENTIALS.update().where(same).values(key_id=self._keys.current, sealed=anew))
        self._live.clear()
        return len(rows)

    async def _read(self, orders: Mapping[str, None]) -> Mapping[str, Row]:
        await self._create()
        table = CREDENTIALS.c
        found: dict[str, Row] = {}
        async with self._database.read() as tx:
            for some in chunks(list(orders)):
                query = select(table.order_id, table.key_id, table.sealed).where(table.order_id.in_(some))
                found |= {order: (key_id, sealed) for order, key_id, sealed in await tx.execute(query)}
        return found

    async def _write(self, rows: Mapping[str, Row]) -> Mapping[str, None]:
        await self._create()
        now = self._clock.now()
        values = [
            {"order_id": order, "key_id": key, "sealed": sealed, "written_at": now}
            for order, (key, sealed) in rows.items()
        ]
        async with self._database.write() as tx:
            await tx.execute(upsert(self._database, CREDENTIALS), values)
        return {}

    async def _create(self) -> None:
        if not self._created:
            async with self._database.write() as tx:
                await exclusively(self._database, tx)
                await tx.run_sync(METADATA.create_all)
            self._created = True
