"""The provisioner on its stage."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.provisioner.stage import Stage, staged


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """Serve the provisioner."""
    async with staged(tmp_path) as stage:
        yield stage
