"""Admission on its stage."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.admission.stage import Stage, staged


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """Serve admission."""
    async with staged() as stage:
        yield stage
