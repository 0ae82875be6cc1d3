"""A heap of things whose rank changes often: what is out of date is dropped when it comes to the top."""

from collections.abc import ItemsView
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

K = TypeVar("K")
_SLACK = 64


class Heads(Generic[K]):
    """The best ranked of many keys; a change costs O(log n), and so does the best. Ranks must differ between keys."""

    __slots__ = ("_best", "_heap", "_live", "_pushed")

    def __init__(self) -> None:
        self._live: dict[K, Any] = {}
        self._heap: list[tuple[Any, int, K]] = []
        self._best: tuple[Any, K] | None = None
        """The top as last looked up; None = has to be looked up."""
        self._pushed = 0
        """A key that comes back with the rank that it had is in the heap twice: this tells the two apart."""

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, key: K) -> bool:
        return key in self._live

    def items(self) -> ItemsView[K, Any]:
        """Return all keys with their ranks, in no order."""
        return self._live.items()

    def put(self, key: K, rank: Any | None) -> bool:
        """Set the rank of a key; None = it is gone. Return whether the best may be another one than it was."""
        best = self._best
        if moved := best is None or best[1] == key or (rank is not None and rank < best[0]):
            self._best = None
        if rank is None:
            self._live.pop(key, None)
        elif self._live.get(key) != rank:
            self._live[key] = rank
            self._pushed += 1
            heappush(self._heap, (rank, self._pushed, key))
            if len(self._heap) > 2 * len(self._live) + _SLACK:
                self._heap = [(rank, number, key) for number, (key, rank) in enumerate(self._live.items())]
                heapify(self._heap)
        return moved

    def best(self) -> tuple[Any, K] | None:
        """Return the best rank and whose it is, None where nothing is."""
        while self._best is None and self._heap:
            rank, _, key = self._heap[0]
            if self._live.get(key) == rank:
                self._best = (rank, key)
            else:
                heappop(self._heap)
        return self._best

    def top(self) -> Any | None:
        """Return the best rank, None where nothing is."""
        best = self.best()
        return None if best is None else best[0]
