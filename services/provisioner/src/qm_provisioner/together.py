"""Many small requests as a few large ones: what is asked for while one is under way goes into the next."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Together(Generic[Asked, Answer]):
    """Hands keys and values to `work`, as many as have come together, and each caller the answer for his key."""

    def __init__(self, work: Callable[[Mapping[str, Asked]], Awaitable[Mapping[str, Answer]]]) -> None:
        self._work = work
        self._turn = asyncio.Lock()
        self._next: tuple[dict[str, Asked], asyncio.Task[Mapping[str, Answer]]] | None = None

    async def ask(self, key: str, value: Asked) -> Answer | None:
        """Return the answer for `key`, None where there is none. Raises what `work` raises."""
        if self._next is None:
            asked: dict[str, Asked] = {}
            self._next = (asked, asyncio.ensure_future(self._run(asked)))
        asked, answers = self._next
        asked[key] = value
        # A caller who is broken off must not break off the others.
        return (await asyncio.shield(answers)).get(key)

    async def _run(self, asked: Mapping[str, Asked]) -> Mapping[str, Answer]:
        async with self._turn:
            self._next = None
            return await self._work(asked)
