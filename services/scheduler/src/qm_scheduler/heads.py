"""A heap of things whose rank changes often: what is out of date is dropped when it comes to the top."""

from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

K = TypeVar("K")
_SLACK = 64


class Heads(Generic[K]):
    """The best ranked of many keys; a change costs O(log n), and so does the best. Ranks must differ between keys."""

    __slots__ = ("_best", "_heap", "_live")

    def __init__(self) -> None:
        self._live: dict[K, Any] = {}
        self._heap: list[tuple[Any, K]] = []
        self._best: tuple[Any, K] | None = None
        """The top as last looked up; None = has to be looked up."""

    def __len__(self) -> int:
        return len(self._live)

    def put(self, key: K, rank: Any | None) -> None:
        """Set the rank of a key; None = it is gone."""
        best = self._best
        if best is not None and (best[1] == key or (rank is not None and rank < best[0])):
            self._best = None
        if rank is None:
            self._live.pop(key, None)
        elif self._live.get(key) != rank:
            self._live[key] = rank
            heappush(self._heap, (rank, key))
            if len(self._heap) > 2 * len(self._live) + _SLACK:
                self._heap = [(rank, key) for key, rank in self._live.items()]
                heapify(self._heap)

    def top(self) -> Any | None:
        """Return the best rank, None where nothing is."""
        if self._best is not None:
            return self._best[0]
        while self._heap:
            rank, key = self._heap[0]
            if self._live.get(key) == rank:
                self._best = self._heap[0]
                return rank
            heappop(self._heap)
        return None
