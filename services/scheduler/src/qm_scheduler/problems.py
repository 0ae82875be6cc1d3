"""The problems that only the scheduler raises; `Rejected.code` names them."""

from qm_service.problem import ProblemError


class NodeUnknown(ProblemError):
    """A command for a node that is not in the fleet."""

    code, status, title = "node-unknown", 404, "There is no such node"
    remedy = "Register it with PUT /v1/fleet/nodes/{node}."


class CardUnknown(ProblemError):
    """A command for a card that is not in the fleet."""

    code, status, title = "card-unknown", 404, "There is no such card"
    remedy = "Describe its node anew with PUT /v1/fleet/nodes/{node}."


class CardElsewhere(ProblemError):
    """A card id is unique in the fleet, and the other node has it or somebody still holds it there."""

    code, status, title = "card-elsewhere", 409, "The card is on another node"
    remedy = "Describe the other node without the card first; a card in use leaves it when it is returned."


class ClaimUnknown(ProblemError):
    """An order that holds no cards has no claim to clear."""

    code, status, title = "claim-unknown", 404, "The order holds no cards"
    remedy = "See GET /v1/fleet/findings for claims that something is wrong with."


class ClaimInUse(ProblemError):
    """The claim of an order that is not over: its user may be on the cards, and they would be billed on."""

    code, status, title = "claim-in-use", 409, "The order is not over"
    remedy = "Release it first with POST /v1/orders/{order}/release, and clear the claim if its cards do not come back."


class NodeInUse(ProblemError):
    """A node on which cards are held cannot leave the fleet."""

    code, status, title = "node-in-use", 409, "Cards of the node are in use"
    remedy = "Drain it with POST /v1/fleet/nodes/{node}/drain and retire it when it is empty."


class OrderKnown(ProblemError):
    """A simulated order has the name of one that exists."""

    code, status, title = "order-known", 409, "There is such an order already"
    remedy = "Give the simulated order a name of its own."


class ProjectUnknown(ProblemError):
    """A weight for a project that the directory does not have."""

    code, status, title = "project-unknown", 404, "There is no such project"
    remedy = "Register the project first; GET /v1/projects lists them."
