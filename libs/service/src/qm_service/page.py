"""Pages of lists: opaque keyset cursors, so that a page neither skips nor repeats a row while others are written.

A cursor holds the sort values of the last row, bound to its list by a checksum: one that was changed, or that belongs
to another list, is a 422. It is no secret and no permission.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BadBase64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Generic, TypeVar

import orjson
from pydantic import BaseModel

from qm_service.problem import ValidationFailed

T = TypeVar("T")
R = TypeVar("R")
Scalar = str | int | bool | datetime | None

LIMIT_DEFAULT = 50
LIMIT_MAX = 500
CURSOR_MAX_CHARS = 2_000
_CHECKSUM_BYTES = 9


class Paged(BaseModel, Generic[T]):
    """A page. `next` is the cursor for `after`, null on the last page."""

    items: list[T]
    next: str | None


def page(items: Sequence[T], next: str | None) -> Paged[T]:
    """Return the body of a list; build `next` with `Window.cut` or `Window.cursor`."""
    return Paged.model_construct(items=list(items), next=next)


@dataclass(frozen=True, slots=True)
class Window:
    """Which part of a list is asked for."""

    mark: tuple[Scalar, ...] | None
    """What the cursor holds, whoever wrote it; `start` is what a list may trust."""
    limit: int
    route: str
    """The list that cursors are bound to."""

    @property
    def fetch(self) -> int:
        """How many rows to read: one more than the limit tells whether there is a next page."""
        return self.limit + 1

    def start(self, *kinds: type[Scalar]) -> tuple[Any, ...] | None:
        """Return the sort values of the last row that the caller has seen, known to be of these types; None = none yet.

        Raises ValidationFailed for others: a checksum is no signature, so a cursor may be anybody's work.
        """
        if self.mark is None:
            return None
        if list(map(type, self.mark)) != list(kinds) or not all(map(_storable, self.mark)):
            raise not_a_cursor()
        return self.mark

    def cut(self, rows: Sequence[R], values: Callable[[R], Sequence[Scalar]]) -> tuple[Sequence[R], str | None]:
        """Return the rows of this page and its `next`, from up to `fetch` rows; `values` are the sort values of one."""
        if len(rows) <= self.limit:
            return rows, None
        shown = rows[: self.limit]
        return shown, self.cursor(values(shown[-1]))

    def cursor(self, values: Sequence[Scalar]) -> str:
        """Return the cursor of the row with these sort values."""
        payload = orjson.dumps([_tagged(value) for value in values])
        return urlsafe_b64encode(_checksum(self.route, payload) + payload).rstrip(b"=").decode()


def window(route: str, after: str | None, limit: int) -> Window:
    """Return the window of a request. Raises ValidationFailed where `after` is no cursor of this list."""
    return Window(None if after is None else _decode(route, after), limit, route)


def _decode(route: str, cursor: str) -> tuple[Scalar, ...]:
    try:
        raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        checksum, payload = raw[:_CHECKSUM_BYTES], raw[_CHECKSUM_BYTES:]
        if checksum == _checksum(route, payload):
            return tuple(_untagged(value) for value in orjson.loads(payload))
    except (BadBase64, ValueError, TypeError, IndexError):
        pass
    raise not_a_cursor()


def not_a_cursor() -> ValidationFailed:
    """Return the problem of a cursor that no page of the list has given."""
    remedy = "Pass the `next` of an earlier page of this list unchanged, or leave `after` out."
    return ValidationFailed("`after` is not a cursor of this list.", field="after", remedy=remedy)


def _storable(value: Scalar) -> bool:
    """Tell whether every database can compare with it."""
    if isinstance(value, str):
        return "\0" not in value
    if isinstance(value, datetime):
        return value.tzinfo is not None
    return value is None or -(2**63) <= value < 2**63


def _checksum(route: str, payload: bytes) -> bytes:
    return sha256(route.encode() + b"\0" + payload).digest()[:_CHECKSUM_BYTES]


def _tagged(value: Scalar) -> Any:
    # JSON has no times; a list cannot be a sort value, so it marks one.
    return [value.isoformat()] if isinstance(value, datetime) else value


def _untagged(value: Any) -> Scalar:
    return datetime.fromisoformat(value[0]) if isinstance(value, list) else value
