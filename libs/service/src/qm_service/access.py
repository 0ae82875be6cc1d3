"""Who may do what: one table for all routes of all services. `create_app` refuses a route that is not in it.

Scopes say where a role must be held:
  public    no token is needed
  self      any valid token; the reply holds only what the caller's roles (those listed) let him see
  project   in the project of the thing: granted there, in its tenant or, for operator and auditor, on the platform
  member    anywhere in the tenant, in whichever project
  tenant    in the tenant as a whole, or on the platform
  platform  on the platform

A new route is a new line here; the sweep in tests/contract walks each line with every role, at home and abroad.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from qm_events.specs import Role

Scope = Literal["public", "self", "project", "member", "tenant", "platform"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the table: the roles of which one is needed, and where."""

    scope: Scope
    roles: frozenset[Role] = frozenset()


PLATFORM_ROLES = frozenset({Role.OPERATOR, Role.AUDITOR})
"""Those that count everywhere when they are held on the platform."""

_OPERATE = frozenset({Role.OPERATOR})
_INSPECT = PLATFORM_ROLES
_READ = frozenset(Role)
_ORDER = frozenset({Role.DEVELOPER, Role.PROJECT_OWNER, Role.TENANT_ADMIN})
_END = _ORDER | _OPERATE
_ENTER = frozenset({Role.DEVELOPER, Role.PROJECT_OWNER})
_DECIDE = frozenset({Role.APPROVER, Role.PROJECT_OWNER, Role.TENANT_ADMIN, Role.OPERATOR})
_OWN = frozenset({Role.PROJECT_OWNER, Role.TENANT_ADMIN, Role.OPERATOR})
_ADMINISTER = frozenset({Role.TENANT_ADMIN, Role.OPERATOR})

_OPEN = Rule("public")
_ANYONE = Rule("self", _READ)
_READERS = Rule("project", _READ)
_ENDERS = Rule("project", _END)
_MEMBERS = Rule("member", _READ)
_OWNERS = Rule("project", _OWN)
_DECIDERS = Rule("project", _DECIDE)
_ADMINS = Rule("tenant", _ADMINISTER)
_OPERATORS = Rule("platform", _OPERATE)
_INSPECTORS = Rule("platform", _INSPECT)

ACCESS: Mapping[tuple[str, str], Rule] = {
    # catalog
    ("POST", "/v1/orders"): Rule("project", _ORDER),
    ("POST", "/v1/orders:simulate"): _READERS,
    ("GET", "/v1/orders"): _ANYONE,
    ("GET", "/v1/orders/{order}"): _READERS,
    ("GET", "/v1/orders/{order}/events"): _READERS,
    ("POST", "/v1/orders/{order}/cancel"): _ENDERS,
    ("POST", "/v1/orders/{order}/release"): _ENDERS,
    ("POST", "/v1/orders/{order}/extend"): Rule("project", _ORDER),
    ("POST", "/v1/orders/{order}/replace"): _ENDERS,
    ("GET", "/v1/events"): _ANYONE,
    ("GET", "/v1/tenants"): _ANYONE,
    ("POST", "/v1/tenants"): _OPERATORS,
    ("GET", "/v1/tenants/{tenant}"): _MEMBERS,
    ("GET", "/v1/tenants/{tenant}/members"): Rule("tenant", _READ),
    ("POST", "/v1/tenants/{tenant}/members"): _ADMINS,
    ("DELETE", "/v1/tenants/{tenant}/members"): _ADMINS,
    ("GET", "/v1/projects"): _ANYONE,
    ("POST", "/v1/projects"): _ADMINS,
    ("GET", "/v1/projects/{project}/members"): _READERS,
    ("POST", "/v1/projects/{project}/members"): _OWNERS,
    ("DELETE", "/v1/projects/{project}/members"): _OWNERS,
    ("GET", "/v1/specifications"): _ANYONE,
    ("GET", "/v1/specifications/{name}"): _ANYONE,
    ("POST", "/v1/specifications"): _OPERATORS,
    ("POST", "/v1/specifications/{name}/status"): _OPERATORS,
    ("GET", "/v1/offerings"): _ANYONE,
    ("GET", "/v1/offerings/{name}"): _ANYONE,
    ("POST", "/v1/offerings"): _OPERATORS,
    ("POST", "/v1/offerings/{name}/status"): _OPERATORS,
    ("GET", "/v1/images"): _ANYONE,
    ("GET", "/v1/images/{name}"): _ANYONE,
    ("POST", "/v1/images"): _OPERATORS,
    ("POST", "/v1/images/{name}/status"): _OPERATORS,
    ("GET", "/v1/accelerators"): _ANYONE,
    ("GET", "/v1/accelerators/{name}"): _ANYONE,
    ("POST", "/v1/accelerators"): _OPERATORS,
    ("POST", "/v1/accelerators/{name}/status"): _OPERATORS,
    ("GET", "/v1/models"): _ANYONE,
    ("GET", "/v1/models/{name}"): _ANYONE,
    ("POST", "/v1/models"): _OPERATORS,
    ("POST", "/v1/models/{name}/status"): _OPERATORS,
    ("POST", "/v1/subjects"): _ADMINS,
    ("POST", "/v1/subjects/{subject}/erase"): _ADMINS,
    ("PUT", "/v1/subjects/{subject}/manager"): _ADMINS,
    ("GET", "/v1/tenants/{tenant}/groups/{group}/members"): _MEMBERS,
    ("POST", "/v1/tenants/{tenant}/groups/{group}/members"): _ADMINS,
    ("DELETE", "/v1/tenants/{tenant}/groups/{group}/members"): _ADMINS,
    # admission; a tenant's own limit is set by the platform, or it would limit nothing
    ("GET", "/v1/quotas/{tenant}"): _MEMBERS,
    ("PUT", "/v1/quotas/{tenant}"): _OPERATORS,
    ("GET", "/v1/quotas/{tenant}/{project}"): _READERS,
    ("PUT", "/v1/quotas/{tenant}/{project}"): _ADMINS,
    ("POST", "/v1/quotas/{tenant}/{project}:simulate"): _READERS,
    ("GET", "/v1/quota-requests"): _ANYONE,
    ("POST", "/v1/quota-requests"): Rule("project", _ORDER),
    ("POST", "/v1/quota-requests/{quota_request}/approve"): _ADMINS,
    ("POST", "/v1/quota-requests/{quota_request}/deny"): _ADMINS,
    ("GET", "/v1/approval-policies"): _MEMBERS,
    ("PUT", "/v1/approval-policies"): _ADMINS,
    ("GET", "/v1/approvals"): _ANYONE,
    ("POST", "/v1/approvals/{approval}/approve"): _DECIDERS,
    ("POST", "/v1/approvals/{approval}/deny"): _DECIDERS,
    # … and everybody may say himself when he is away
    ("GET", "/v1/delegations/{subject}"): _MEMBERS,
    ("PUT", "/v1/delegations/{subject}"): _ADMINS,
    # scheduler; capacity is counts by type, it names no order and no tenant
    ("GET", "/v1/queue"): _ANYONE,
    ("POST", "/v1/queue:simulate"): _INSPECTORS,
    ("POST", "/v1/queue/{tenant}/{project}:simulate"): _READERS,
    ("GET", "/v1/shares"): _ANYONE,
    ("PUT", "/v1/shares/{tenant}/{project}"): _OPERATORS,
    ("GET", "/v1/reservations"): _ANYONE,
    ("POST", "/v1/reservations"): _ADMINS,
    ("POST", "/v1/reservations/{reservation}/cancel"): _ADMINS,
    ("GET", "/v1/fleet/capacity"): _ANYONE,
    ("GET", "/v1/fleet/nodes"): _INSPECTORS,
    ("GET", "/v1/fleet/nodes/{node}"): _INSPECTORS,
    ("PUT", "/v1/fleet/nodes/{node}"): _OPERATORS,
    ("POST", "/v1/fleet/nodes/{node}/cordon"): _OPERATORS,
    ("POST", "/v1/fleet/nodes/{node}/uncordon"): _OPERATORS,
    ("GET", "/v1/fleet/nodes/{node}/drain"): _INSPECTORS,
    ("POST", "/v1/fleet/nodes/{node}/drain"): _OPERATORS,
    ("POST", "/v1/fleet/nodes/{node}/retire"): _OPERATORS,
    ("GET", "/v1/fleet/findings"): _INSPECTORS,
    ("POST", "/v1/fleet/claims/{order}/clear"): _OPERATORS,
    ("GET", "/v1/fleet/cards"): _INSPECTORS,
    ("POST", "/v1/fleet/cards/{card}/clear"): _OPERATORS,
    ("POST", "/v1/fleet/health"): _OPERATORS,
    # provisioner; who runs the platform has no business inside an environment
    ("GET", "/v1/orders/{order}/credentials"): Rule("project", _ENTER),
    ("GET", "/v1/environments/{order}"): _READERS,
    # metering
    ("GET", "/v1/usage"): _ANYONE,
    ("GET", "/v1/usage/orders/{order}"): _READERS,
    ("GET", "/v1/usage/fleet"): _INSPECTORS,
    ("GET", "/v1/usage/findings"): _INSPECTORS,
    ("GET", "/v1/exports/focus"): _ANYONE,
    ("GET", "/v1/budgets"): _ANYONE,
    ("POST", "/v1/budgets"): _ADMINS,
    ("GET", "/v1/prices"): _ANYONE,
    ("POST", "/v1/prices"): _OPERATORS,
    ("GET", "/v1/periods"): _ANYONE,
    ("POST", "/v1/periods/{period}/close"): _OPERATORS,
    # embedded
    ("POST", "/v1/sim/clock"): _OPERATORS,
    ("PUT", "/v1/sim/backends/{service_model}"): _OPERATORS,
    ("PUT", "/v1/sim/cards/{card}"): _OPERATORS,
    ("POST", "/v1/sim/token"): _OPEN,
}

_PROJECT_ROLES = frozenset({Role.VIEWER, Role.DEVELOPER, Role.PROJECT_OWNER, Role.APPROVER})
GRANTS: Mapping[Role, frozenset[Role]] = {
    Role.PROJECT_OWNER: _PROJECT_ROLES,
    Role.TENANT_ADMIN: _PROJECT_ROLES | {Role.TENANT_ADMIN},
    Role.OPERATOR: frozenset(Role),
}
"""Which roles the holder of a role may give and take: never more than his own."""


def grantable(roles: frozenset[Role]) -> frozenset[Role]:
    """Return what the holder of `roles` may grant where he holds them."""
    return frozenset[Role]().union(*(GRANTS.get(role, frozenset()) for role in roles))
