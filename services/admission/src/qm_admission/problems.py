"""The problems that only admission raises."""

from qm_service.problem import ProblemError


class QuotaDimensionUnknown(ProblemError):
    """A limit on something that is not counted."""

    code, status, title = "quota-dimension-unknown", 422, "There is no such quota dimension"
    field = "limits"
    remedy = "Use the dimensions that the detail names; each has its unit in its name."


class QuotaReportOnlyUnknown(ProblemError):
    """A limit that is to report only, and is not set."""

    code, status, title = "quota-report-only-unknown", 422, "What is to report only has no limit"
    field = "report_only"
    remedy = "Name dimensions of limits only."


class QuotaLendingInvalid(ProblemError):
    """Something is borrowed or lent that cannot be."""

    code, status, title = "quota-lending-invalid", 422, "This cannot be borrowed or lent"
    field = "borrow"
    remedy = "Borrow and lend what the project has a limit on; a tenant does neither."


class QuotaRequestPointless(ProblemError):
    """A request that would change nothing."""

    code, status, title = "quota-request-pointless", 409, "The request asks for nothing more"
    field = "limits"
    remedy = "Ask for more than the limit that holds now."


class QuotaRequestsTooMany(ProblemError):
    """Too many requests of one scope are open."""

    code, status, title = "quota-requests-too-many", 409, "Too many requests are open"
    remedy = "Wait until some of them are decided."


class QuotaRequestNotOpen(ProblemError):
    """There is no such request."""

    code, status, title = "quota-request-not-open", 409, "This request is not open"
    remedy = "Read the list of requests again."


class QuotaRequestOwn(ProblemError):
    """The caller asked himself."""

    code, status, title = "quota-request-own", 403, "Nobody decides on a request of his own"
    remedy = "Ask another administrator."


class QuotaRequestDecided(ProblemError):
    """It was decided before."""

    code, status, title = "quota-request-decided", 409, "The request was decided before"
    remedy = "The decision stands; to change the outcome, ask anew."


class QuotaLimitOutOfRange(ProblemError):
    """A limit that is negative or beyond what every reader of JSON can hold."""

    code, status, title = "quota-limit-out-of-range", 422, "A limit is out of range"
    field = "limits"
    remedy = "Send a whole number in the range that the detail names."


class ApprovalPolicyInvalid(ProblemError):
    """A policy that would never ask, or that nobody could answer."""

    code, status, title = "approval-policy-invalid", 422, "An approval policy cannot work"
    field = "policies"
    remedy = "Correct the policy that the detail names."


class ApprovalNotYours(ProblemError):
    """The caller is no approver of this order now."""

    code, status, title = "approval-not-yours", 403, "You are not an approver of this order"
    remedy = "Ask one of its approvers."


class ApprovalOwnOrder(ProblemError):
    """The caller submitted the order, and its policy does not allow self-approval."""

    code, status, title = "approval-own-order", 403, "Nobody decides on an order of his own"
    remedy = "Ask another approver."


class ApprovalNotOpen(ProblemError):
    """The order does not ask this question."""

    code, status, title = "approval-not-open", 409, "This approval is not asked for"
    remedy = "Read the list of approvals again."


class ApprovalDigestMismatch(ProblemError):
    """The vote was meant for other parameters than the order has."""

    code, status, title = "approval-digest-mismatch", 409, "The vote is for other parameters"
    field = "digest"
    remedy = "Read the approval again and decide on what it shows."


class ApprovalAlreadyDecided(ProblemError):
    """The same was decided before."""

    code, status, title = "approval-already-decided", 409, "It was decided before, in the same sense"
    remedy = "Nothing to do: the decision stands."


class ApprovalAlreadyVoted(ProblemError):
    """One word a person, and one an approver."""

    code, status, title = "approval-already-voted", 409, "This word was said before"
    remedy = "Nothing to do: the vote stands."


class DelegationInvalid(ProblemError):
    """An absence that cannot be, or a delegate who could not decide."""

    code, status, title = "delegation-invalid", 422, "A delegation cannot work"
    field = "absences"
    remedy = "Correct the absence that the detail names."


class ApprovalConflict(ProblemError):
    """The contrary was decided before."""

    code, status, title = "approval-conflict", 409, "It was decided before, in the other sense"
    remedy = "The decision stands; to change the outcome, cancel the order or submit a new one."


class ApprovalLapsed(ProblemError):
    """The time to decide is over."""

    code, status, title = "approval-lapsed", 409, "The time to decide is over"
    remedy = "The order has to be submitted again."


class ApprovalVoid(ProblemError):
    """The order ended before anybody decided."""

    code, status, title = "approval-void", 409, "The order ended before anybody decided"
    remedy = "Nothing to do."


VOTE_PROBLEMS = (
    ApprovalNotYours,
    ApprovalOwnOrder,
    ApprovalNotOpen,
    ApprovalDigestMismatch,
    ApprovalAlreadyDecided,
    ApprovalAlreadyVoted,
    ApprovalConflict,
    ApprovalLapsed,
    ApprovalVoid,
)
LIMIT_PROBLEMS = (QuotaDimensionUnknown, QuotaReportOnlyUnknown, QuotaLendingInvalid, QuotaLimitOutOfRange)
REQUEST_PROBLEMS = (
    QuotaDimensionUnknown,
    QuotaLimitOutOfRange,
    QuotaRequestPointless,
    QuotaRequestsTooMany,
    QuotaRequestNotOpen,
    QuotaRequestOwn,
    QuotaRequestDecided,
)
