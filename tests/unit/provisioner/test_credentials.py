"""Credentials at rest."""

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from sqlalchemy import select

from qm_provisioner.credentials import CREDENTIALS, CredentialStore, CredentialUnreadable, KeyRing
from qm_provisioner.ports import Secret
from qm_service import migrate
from qm_service.clock import ManualClock
from qm_service.database import Database

SECRET = Secret("bearer_token", "digest", {"token": "t0p-s3cret-value"})


def ring(*names: str) -> KeyRing:
    return KeyRing.parse(" ".join(f"{name}:{urlsafe_b64encode(name.encode().ljust(32)).decode()}" for name in names))


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'db.sqlite'}", durable=False)
    yield database
    await database.close()


def store(database: Database, keys: Callable[[], KeyRing] = lambda: ring("k1")) -> CredentialStore:
    return CredentialStore(database, keys, ManualClock())


def on_disk(folder: Path, text: bytes) -> bool:
    return any(text in file.read_bytes() for file in folder.iterdir())


async def rows(database: Database) -> dict[str, tuple[str, bytes | None]]:
    async with database.read() as tx:
        found = await tx.execute(select(CREDENTIALS))
        return {row.order_id: (row.key_id, row.sealed) for row in found}


async def test_a_credential_survives_the_process_and_is_sealed_at_rest(database: Database, tmp_path: Path) -> None:
    await store(database).put("o1", SECRET)
    assert await store(database).get("o1") == SECRET
    assert not on_disk(tmp_path, b"s3cret")
    assert "s3cret" not in repr(SECRET)


async def test_a_revoked_credential_is_gone_from_the_row(database: Database) -> None:
    vault = store(database)
    await vault.put("o1", SECRET)
    await vault.revoke("o1")
    await vault.revoke("o1")
    await vault.revoke("never")
    assert await vault.get("o1") is None
    assert await store(database).get("o1") is None
    assert (await rows(database))["o1"][1] is None


async def test_a_row_of_another_order_or_key_does_not_open(database: Database) -> None:
    await store(database).put("o1", SECRET)
    async with database.write() as tx:
        key, sealed = (await rows(database))["o1"]
        row = {"order_id": "o2", "key_id": key, "sealed": sealed, "written_at": ManualClock().now()}
        await tx.execute(CREDENTIALS.insert().values(row))
    with pytest.raises(CredentialUnreadable):
        await store(database).get("o2")
    with pytest.raises(CredentialUnreadable):
        await store(database, lambda: ring("k2")).get("o1")


async def test_keys_are_rotated_without_a_gap(database: Database) -> None:
    old = store(database)
    await old.put("o1", SECRET)
    await old.put("o2", SECRET)
    await old.revoke("o2")
    both = store(database, lambda: ring("k2", "k1"))
    assert await both.get("o1") == SECRET
    assert await both.rotate() == 1
    assert await both.rotate() == 0
    assert (await rows(database))["o1"][0] == "k2"
    only = store(database, lambda: ring("k2"))
    assert (await only.get("o1"), await only.get("o2")) == (SECRET, None)


async def test_what_comes_together_is_one_transaction(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:

    vault = store(database)
    await vault.put("first", SECRET)
    begun: list[int] = []
    write = database.write
    monkeypatch.setattr(database, "write", lambda: begun.append(1) or write())  # type: ignore[func-returns-value]  # counts
    await asyncio.gather(*(vault.put(f"o{number}", SECRET) for number in range(100)))
    assert len(begun) <= 2
    assert len(await rows(database)) == 101


async def test_the_table_is_the_migrated_one(database: Database) -> None:
    await migrate.upgrade(database, "qm_provisioner")
    await store(database).put("o1", SECRET)
    await migrate.upgrade(database, "qm_provisioner")
    assert await store(database).get("o1") == SECRET


def test_a_key_file_is_made_once_and_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    first = KeyRing.of_file(path)
    again = KeyRing.of_file(path)
    assert again.open("o1", first.current, first.seal("o1", b"content")) == b"content"
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("text", ["", "k1", "k1:short", "k1:!!!!"])
def test_a_bad_key_ring_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ValueError, match="key ring") as caught:
        KeyRing.parse(text)
    assert "short" not in str(caught.value)
