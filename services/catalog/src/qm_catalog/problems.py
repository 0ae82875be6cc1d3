"""The problems that only the catalog has; the common ones are in `qm_service.problem`."""

from qm_service.problem import ProblemError


class AmbiguousProject(ProblemError):
    """Several tenants in which the caller has a role have a project of this name."""

    code, status, title = "ambiguous-project", 422, "The project is not named uniquely"
    field = "project"
    remedy = "Write the project as `tenant/name`, in a path as `tenant.name`."


class UnknownReference(ProblemError):
    """A field names something that is not in the catalogue, or is retired."""

    code, status, title = "unknown-reference", 422, "A field names something that cannot be ordered"
    remedy = "Choose one of the names in `choices`."


class NotOffered(ProblemError):
    """Both parts exist, but not together."""

    code, status, title = "not-offered", 422, "This combination is not on offer"
    remedy = "Choose one of the combinations in `choices`."


class NotAnExtension(ProblemError):
    """The end that is asked for is past, or before the end that is promised."""

    code, status, title = "not-an-extension", 422, "The end cannot be moved there"
    field = "expires_at"
    remedy = "Name a later end; to end the order sooner, release it."


class OrderWaiting(ProblemError):
    """The order is not admitted yet: its end is part of what is being decided on."""

    code, status, title = "order-waiting", 409, "The order is not admitted yet"
    remedy = "Move its end once it is admitted; or cancel it and order again with the later end."


class OrderEnded(ProblemError):
    """The order is at its end, or on the way there."""

    code, status, title = "order-ended", 409, "The order has ended"
    remedy = "Place a new order."


class NothingToReplace(ProblemError):
    """The order has no cards now, or none that is known to be at fault."""

    code, status, title = "nothing-to-replace", 409, "There is no card to replace"
    remedy = "Name the card that is at fault, and say what is wrong with it."


class AlreadyExists(ProblemError):
    """The name is taken by something else."""

    code, status, title = "already-exists", 409, "The name is taken"
    remedy = "Choose another name."


class OwnManager(ProblemError):
    """A subject that reports to itself."""

    code, status, title = "own-manager", 422, "Nobody is his own manager"
    field = "manager"
    remedy = "Name somebody else, or nobody."


class UnknownName(ProblemError):
    """What the request builds on does not exist."""

    code, status, title = "unknown-name", 422, "The request builds on something that does not exist"
    remedy = "Register or publish it first."


class RoleOutOfPlace(ProblemError):
    """The role has no meaning where it was to be granted."""

    code, status, title = "role-out-of-place", 422, "The role cannot be granted there"
    field = "role"
    remedy = "Operators and auditors belong to the tenant platform, all other roles to the other tenants."


class PlatformHasNoProjects(ProblemError):
    """The tenant of the operators places no orders."""

    code, status, title = "platform-has-no-projects", 422, "The tenant platform has no projects"
    field = "tenant"
    remedy = "Register the project in the tenant that will use it."
