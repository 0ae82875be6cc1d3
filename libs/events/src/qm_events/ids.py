"""Names of things. An id is a string everywhere; the NewTypes stop one kind from passing as another."""

from hashlib import sha1
from typing import NewType
from uuid import UUID

OrderId = NewType("OrderId", str)
TenantName = NewType("TenantName", str)
ProjectName = NewType("ProjectName", str)
SubjectId = NewType("SubjectId", str)
NodeId = NewType("NodeId", str)
CardId = NewType("CardId", str)
AllocationId = NewType("AllocationId", str)

PLATFORM = TenantName("platform")
"""The tenant of operators and auditors; no order can be placed in it."""

_NAMESPACE = UUID("6f1c2a54-0f0c-5c7e-9a51-6b5d2f6a9d10")
_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))


def event_id(stream: str, version: int) -> str:
    """Return the id of the `version`-th fact of `stream`: the same on every run, so a duplicate is recognised."""
    # What `str(uuid5(…))` gives, in a quarter of the time: this is made for every fact, by writers and by the relay.
    return _uuid5(f"{stream}@{version}")


def _uuid5(name: str) -> str:
    h = sha1(_NAMESPACE.bytes + name.encode(), usedforsecurity=False).hexdigest()
    return f"{h[:8]}-{h[8:12]}-5{h[13:16]}-{_VARIANT[h[16]]}{h[17:20]}-{h[20:32]}"


def derived_id(*parts: str | int) -> str:
    """Return an id that follows from its parts, for things that a decision creates."""
    return _uuid5("/".join(str(part) for part in parts))


def stream_name(kind: str, key: str) -> str:
    """Return the name of the stream of `kind` about `key`, as in `order/<id>`."""
    return f"{kind}/{key}"


def stream_key(stream: str) -> str:
    """Return the key of a stream: it selects the partition, so all streams of one order share one number."""
    return stream.partition("/")[2]
