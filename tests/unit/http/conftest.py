"""The sample on its stage."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.http.sample import Stage, staged


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """Serve the sample."""
    async with staged(tmp_path) as stage:
        yield stage
