"""Personal fields can be read with their key, and by nobody once it is gone."""

from collections.abc import AsyncIterator

import pytest
from pydantic import TypeAdapter

from qm_events.sealed import REDACTED, Sealed
from qm_service.database import Database
from qm_service.sealed import SubjectKeys, seal, unseal

KEY = bytes(range(32))


def test_what_is_sealed_has_the_form_of_the_vocabulary_and_reads_as_it_was() -> None:
    sealed = TypeAdapter(Sealed).validate_python(seal(KEY, "dora", "Dora Ähre"))
    assert "Dora" not in sealed
    assert unseal(KEY, "dora", sealed) == "Dora Ähre"


def test_the_same_text_is_never_sealed_alike() -> None:
    assert seal(KEY, "dora", "x") != seal(KEY, "dora", "x")


@pytest.mark.parametrize("sealed", ["", "sealed:v1:AA:AA", "sealed:v1:!:!", "plain", "a:b:c:d:e"])
def test_what_cannot_be_opened_reads_as_redacted(sealed: str) -> None:
    assert unseal(KEY, "dora", sealed) == REDACTED


def test_a_field_of_another_subject_or_key_reads_as_redacted() -> None:
    sealed = seal(KEY, "dora", "x")
    assert unseal(KEY, "eve", sealed) == REDACTED
    assert unseal(bytes(32), "dora", sealed) == REDACTED
    assert unseal(None, "dora", sealed) == REDACTED


@pytest.fixture
async def keys() -> AsyncIterator[SubjectKeys]:
    """Keys in a database of their own."""
    database = Database("sqlite+aiosqlite://")
    yield SubjectKeys(database)
    await database.close()


async def test_a_subject_keeps_its_key_until_it_is_erased(keys: SubjectKeys) -> None:
    first = await keys.ensure("dora")
    assert await keys.ensure("dora") == first
    assert await keys.ensure("eve") != first
    await keys.erase("dora")
    await keys.erase("dora")
    assert (await keys.of("dora", "eve")).keys() == {"eve"}
    assert await keys.ensure("dora") != first
