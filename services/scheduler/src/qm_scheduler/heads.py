"""A heap of things whose rank changes often: what is out of date is dropped when it comes to the top."""

from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

K = TypeVar("K")
_SLACK = 64


class Heads(Generic[K]):
    """The best ranked of many keys; a change costs O(log n), and so does the best. Ranks must differ between keys."""

    __slots__ = ("_heap", "_live")

    def __init__(self) -> None:
        self._live: dict[K, Any] = {}
        self._heap: list[tuple[Any, K]] = []

    def __len__(self) -> int:
        return len(self._live)

    def put(self, key: K, rank: Any | None) -> None:
        """Set the rank of a key; None = it is gone."""
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
        while self._heap:
            rank, key = self._heap[0]
            if self._live.get(key) == rank:
                return rank
            heappop(self._heap)
        return None
