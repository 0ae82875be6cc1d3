"""What Ironic says of a node, and what that means for us: one table.

Seen on Ironic 39. The states are those of https://docs.openstack.org/ironic/latest/user/states.html.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from qm_provisioner.ports import ThingState

MARK = "quartermaster"
"""The entry of `extra` that says whose a claim or a node is."""
POWER_ON, POWER_OFF = "power on", "power off"


@dataclass(frozen=True, slots=True)
class Node:
    """A node as Ironic shows it."""

    id: str
    name: str
    state: str
    maintenance: bool = False
    fault: str | None = None
    power: str | None = None
    """None: its BMC has never answered, or not since it fell silent."""
    locked: bool = False
    instance: str | None = None
    error: str = ""
    resource_class: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def mark(self) -> Mapping[str, Any]:
        """Return our note on it, empty where there is none."""
        return self.extra.get(MARK) or {}

    @property
    def address(self) -> str:
        """Return where its machine answers: `extra.address`, or else its name."""
        return str(self.extra.get("address") or self.name)


class Back(StrEnum):
    """The next move on the way back to the pool."""

    NONE = "none"
    """It is there."""
    UNDEPLOY = "deleted"
    """Ask for it; Ironic's word for it is the value."""
    WAIT = "wait"
    """It is on its way, or is busy with what cannot be broken off."""
    REFUSE = "refuse"
    """Only an operator gets it out of there."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """A row: `None` in `maintenance` or `fault` fits all."""

    state: str
    maintenance: bool | None
    fault: str | None
    thing: ThingState | None
    """What that makes of a machine of ours; None = there is none."""
    back: Back
    text: str


_B, _A, _E, _D = ThingState.BUILDING, ThingState.ACTIVE, ThingState.ERROR, ThingState.DELETING
MEANINGS = (
    Meaning("available", False, None, None, Back.NONE, "free, or claimed and not deployed yet"),
    Meaning("available", True, None, None, Back.NONE, "wiped, but out of use: in maintenance"),
    Meaning("enroll", None, None, None, Back.NONE, "not brought in yet: its BMC was never asked"),
    Meaning("verifying", None, None, None, Back.WAIT, "its BMC is being asked"),
    Meaning("manageable", None, None, None, Back.NONE, "its BMC answers; not cleaned yet"),
    Meaning("deploying", False, None, _B, Back.WAIT, "being deployed: holds its lock, nothing breaks it off"),
    Meaning("wait call-back", False, None, _B, Back.UNDEPLOY, "its agent is awaited, until Ironic's own time-out"),
    Meaning("deploying", True, None, _E, Back.WAIT, "held in maintenance while it was deployed"),
    Meaning("wait call-back", True, None, _E, Back.UNDEPLOY, "held in maintenance while it was deployed"),
    Meaning("active", False, None, _A, Back.UNDEPLOY, "deployed"),
    Meaning("active", True, "power failure", _E, Back.UNDEPLOY, "deployed, but its BMC has fallen silent"),
    Meaning("active", True, None, _E, Back.UNDEPLOY, "deployed, but an operator holds it in maintenance"),
    Meaning(
        "deploy failed", None, None, _E, Back.UNDEPLOY, "not deployed; claim and disk are as the failure left them"
    ),
    Meaning("deleting", None, None, _D, Back.WAIT, "being torn down"),
    Meaning("error", None, None, _E, Back.UNDEPLOY, "the tear-down failed; it may be asked for again"),
    Meaning("cleaning", False, None, _D, Back.WAIT, "torn down, being wiped"),
    Meaning("clean wait", False, None, _D, Back.WAIT, "torn down, the agent that wipes it is awaited"),
    Meaning("cleaning", True, None, _E, Back.REFUSE, "held in maintenance before it was wiped"),
    Meaning("clean wait", True, None, _E, Back.REFUSE, "held in maintenance before it was wiped"),
    Meaning("clean failed", True, "clean failure", _E, Back.REFUSE, "not wiped: a clean step failed"),
    Meaning("clean failed", None, None, _E, Back.REFUSE, "not wiped: the cleaning timed out, was aborted or lost"),
    Meaning("rescue", None, None, _E, Back.UNDEPLOY, "an operator has it in rescue"),
)
_UNKNOWN = Meaning("", None, None, _E, Back.REFUSE, "in the hands of an operator")
_UNSETTLED = {"deploy failed": "deploying", "clean failed": "cleaning", "error": "deleting"}
"""A failure is told a moment before its reason is, and before the lock is free: until then it has not happened."""


def meaning(node: Node) -> Meaning:
    """Return the row of a node; the first that fits."""
    state = _UNSETTLED.get(node.state, node.state) if node.locked else node.state
    held = node.maintenance and not (node.locked and state != node.state)
    return next((row for row in MEANINGS if _fits(row, state, held, node.fault)), _UNKNOWN)


def _fits(row: Meaning, state: str, maintenance: bool, fault: str | None) -> bool:
    return row.state == state and row.maintenance in (None, maintenance) and row.fault in (None, fault)


def told(node: Node) -> str:
    """Return what to say of a node in a fact: state, meaning, and Ironic's own words."""
    words = f"{node.name or node.id} is {node.state}: {meaning(node).text}"
    return f"{words}; {node.error}" if node.error else words


def ailment(node: Node) -> str:
    """Return why a node may not be given to anybody, empty where it may."""
    if node.maintenance:
        return f"{node.name} is in maintenance{f', {node.fault}' if node.fault else ''}"
    if node.power is None:
        return f"the power of {node.name} is unknown: its BMC does not answer"
    return "" if node.state == "available" and node.instance is None else told(node)
