"""A database that fails when a test says so."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal

from sqlalchemy.ext.asyncio import AsyncConnection

from qm_service.database import Database, DatabaseUnavailable

Failure = Literal["before", "after"] | None
"""At a commit: instead of it, or after it, where the caller cannot know that it happened."""


class FlakyDatabase(Database):
    """`fail(n)` says how the n-th writing transaction (from 1) ends; `down` refuses every transaction."""

    def __init__(self, url: str, fail: Callable[[int], Failure] = lambda _: None) -> None:
        super().__init__(url, durable=False)
        self.down = False
        self.fail = fail
        self.writes = 0

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction that may write, and that may fail."""
        self._refuse()
        self.writes += 1
        failure = self.fail(self.writes)
        async with super().write() as tx:
            yield tx
            if failure == "before":
                raise DatabaseUnavailable("the commit failed")
        if failure == "after":
            raise DatabaseUnavailable("the answer to the commit was lost")

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """Open a transaction that only reads."""
        self._refuse()
        async with super().read() as tx:
            yield tx

    def _refuse(self) -> None:
        if self.down:
            raise DatabaseUnavailable("the database is down")
