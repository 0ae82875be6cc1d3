"""Who reports to whom and who is in which group: a projection of the topic `directory`, wholly in memory.

A group or a manager gives no role; approval policies name them. Key: `tenant/subject`.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from qm_events import Event
from qm_events.catalog import GroupJoined, GroupLeft, SubjectErased, SubjectManagerSet
from qm_service.model import Fold, Projection

ORGANISATION = "organisation"


class Position(BaseModel):
    """Where a subject stands in a tenant. Without manager and group there is no document."""

    model_config = ConfigDict(frozen=True)

    manager: str | None = None
    groups: tuple[str, ...] = ()


NOWHERE = Position()


def position_key(tenant: str, subject: str) -> str:
    """Return the key of a position."""
    return f"{tenant}/{subject}"


def _moved(doc: Position | None, **changes: Any) -> Position | None:
    old = doc or NOWHERE
    new = old.model_copy(update=changes)
    if new == old:
        return doc
    return None if new == NOWHERE else new


def _managed(doc: Position | None, event: Event[SubjectManagerSet]) -> Position | None:
    return _moved(doc, manager=event.data.manager)


def _joined(doc: Position | None, event: Event[GroupJoined]) -> Position | None:
    return _moved(doc, groups=tuple(sorted({*(doc or NOWHERE).groups, event.data.group})))


def _left(doc: Position | None, event: Event[GroupLeft]) -> Position | None:
    return _moved(doc, groups=tuple(group for group in (doc or NOWHERE).groups if group != event.data.group))


def _erased(_: Position | None, __: Event[SubjectErased]) -> None:
    return None


def _key(event: Event[Any]) -> Sequence[str]:
    return (position_key(event.data.tenant, event.data.subject),)


POSITIONS: Projection[Position] = Projection(
    name=ORGANISATION,
    version=1,
    model=Position,
    folds={
        SubjectManagerSet: Fold(_managed, _key),
        GroupJoined: Fold(_joined, _key),
        GroupLeft: Fold(_left, _key),
        SubjectErased: Fold(_erased, _key),
    },
    resident=lambda _: True,
)
