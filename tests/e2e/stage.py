"""A tenant with its people and its fleet: each story has one of its own on a product that all share."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from qm_client.embedded.scenario import Scenario
from qm_client.sdk import Json
from tests.support.product import Product

IMAGES = {"bare_metal": "ubuntu", "vm": "ubuntu", "kubernetes": "pytorch"}
MODELS = ("bare_metal", "vm", "kubernetes", "maas")
MEMORY_MIB = 81_920


def world(
    name: str,
    *,
    nodes: int = 1,
    cards: int = 8,
    limits: Mapping[str, int] | None = None,
    priority_at_most: int | None = None,
    approve_from: int | None = None,
    sick: Sequence[str] = (),
    slices: bool = False,
) -> Scenario:
    """Return a world whose every name begins with `name`: `nodes` servers of `cards` cards, sold in 1, 4 and 8."""
    specifications = [_specification(name, count) for count in (1, 4, 8)]
    specifications += _sliced(name) if slices else []
    policy = {"name": "large", "cards_at_least": approve_from, "approver_role": "approver"}
    return Scenario.model_validate(
        {
            "tenants": [{"name": name, "projects": ["lab"]}],
            "users": [
                _user(name, "dev", "developer"),
                _user(name, "boss", "approver", "project_owner"),
                _user(name, "ada", "tenant_admin", project=None),
            ],
            "accelerators": [_accelerator(name)] if slices else [],
            "specifications": specifications,
            "offerings": [_offering(spec["name"], model) for spec in specifications for model in MODELS],
            "images": [
                {"name": f"{name}-{kind}", "service_models": models, "reference": kind} for kind, models in _SERVE
            ],
            "models": [{"name": f"{name}-llama", "reference": "oci:llama"}],
            "quotas": [{"tenant": name, "limits": limits, "priority_at_most": priority_at_most}] if limits else [],
            "approval_policies": [{"tenant": name, "policies": [policy]}] if approve_from else [],
            "nodes": [_nodes(name, nodes, cards)],
            "sick_cards": [{"card": card, "status": "failed", "code": "XID-79"} for card in sick],
        }
    )


_SERVE = (("ubuntu", ["bare_metal", "vm"]), ("pytorch", ["kubernetes"]))


def _specification(name: str, cards: int) -> Json:
    size = {"accelerator_memory_mib": MEMORY_MIB, "cpu_milli": 1_000 * cards, "memory_mib": 1_024 * cards}
    return {"name": f"{name}-{cards}", "accelerators": [name], "cards_per_unit": cards, **size}


def _sliced(name: str) -> list[Json]:
    size = {"accelerators": [name], "cpu_milli": 1_000, "memory_mib": 1_024}
    return [
        {"name": f"{name}-seventh", "slice": {"profile": "1g.10gb"}, **size},
        {"name": f"{name}-milli", "slice": {"share_milli": 333}, **size},
    ]


def _accelerator(name: str) -> Json:
    profile = {"profile": "1g.10gb", "size": 1, "starts": [6, 5, 4, 3, 2, 1, 0], "memory_mib": 10_240, "share": "1/7"}
    geometry = {"positions": 8, "profiles": [profile | {"resource": "nvidia.com/mig-1g.10gb"}], "shared": True}
    return {"name": name, "vendor": "NVIDIA", "memory_mib": MEMORY_MIB, **geometry}


def _offering(specification: str, model: str) -> Json:
    price = {"price_per_card_hour": "2.00", "currency": "EUR"}
    return {
        "name": f"{specification}-{model.replace('_', '-')}",
        "specification": specification,
        "service_model": model,
        **price,
    }


def _user(tenant: str, who: str, *roles: str, project: str | None = "lab") -> Json:
    grants = [{"tenant": tenant, "project": project, "role": role} for role in roles]
    # No personal fields: their keys are in the catalog's database alone, and end with it.
    return {"subject": f"{tenant}-{who}", "tenant": tenant, "grants": grants}


def _nodes(name: str, count: int, cards: int) -> Json:
    size = {"card_memory_mib": MEMORY_MIB, "cpu_milli": 64_000, "memory_mib": 262_144}
    return {"name": name, "count": count, "accelerator": name, "cards": cards, **size}


class Stage:
    """One world in a product, its people, and what they do most."""

    def __init__(self, product: Product, name: str, **wanted: Any) -> None:
        self.product = product
        self.name = name
        product.load(world(name, **wanted))
        product.settled()
        self.dev, self.boss = product.client(f"{name}-dev"), product.client(f"{name}-boss")
        self.operator = product.client()

    def body(self, model: str = "vm", cards: int = 1, **more: Any) -> Json:
        """Return an order."""
        order: Json = {"project": f"{self.name}/lab", "service_model": model, "specification": f"{self.name}-{cards}"}
        if model in IMAGES:
            order["image"] = f"{self.name}-{IMAGES[model]}"
        return order | ({"model": f"{self.name}-llama"} if model == "maas" else {}) | more

    def order(self, model: str = "vm", cards: int = 1, **more: Any) -> str:
        """Place an order, let follow what follows, and return its id."""
        order = str(self.dev.submit(self.body(model, cards, **more))["order"])
        self.product.settled()
        return order

    def end(self, *orders: str, how: str = "release") -> None:
        """Release or cancel orders, and let follow what follows."""
        for order in orders:
            self.dev.call("POST", f"/orders/{order}/{how}", {})
        self.product.settled()

    def pass_by(self, **span: float) -> int:
        """Let time pass; return how many microseconds."""
        by = timedelta(**span)
        self.product.advance(by)
        self.product.settled()
        return by // timedelta(microseconds=1)

    def phases(self, *orders: str) -> list[str]:
        """Return the phases of orders."""
        return [self.dev.order(order)["phase"] for order in orders]

    def reason(self, order: str) -> str | None:
        """Return why an order is not further."""
        reason = self.dev.order(order)["reason"]
        return reason and str(reason["code"])

    def used(self, order: str) -> tuple[int, int]:
        """Return what was recorded of an order: held and billable card-microseconds; metering and record agree."""
        usage = self.dev.order(order)["usage"]
        report = self.dev.call("GET", f"/usage/orders/{order}")
        told = [(meter["held"]["card_us"], meter["billable"]["card_us"]) for meter in (usage, report)]
        assert told[0] == told[1], told
        return told[0]

    def free(self) -> tuple[int, int]:
        """Return free and held cards of the fleet."""
        items = self.operator.call("GET", "/fleet/capacity")["items"]
        mine = next(item for item in items if item["accelerator"] == self.name)
        return mine["free"], mine["held"]

    def quota(self) -> dict[str, int]:
        """Return what the tenant uses, by dimension."""
        quota = self.operator.call("GET", f"/quotas/{self.name}")
        return {name: line["used"] for name, line in quota["dimensions"].items() if line["used"]}

    @contextmanager
    def clouds_behave(self, model: str, **steps: Json) -> Iterator[None]:
        """Let the simulated cloud of a service model misbehave: `undo_access` means the step `undo:access`."""
        told = {
            name.replace("undo_", "undo:").replace("probe_", "probe:"): behaviour for name, behaviour in steps.items()
        }
        self.operator.call("PUT", f"/sim/backends/{model}", {"steps": told})
        try:
            yield
        finally:
            self.operator.call("PUT", f"/sim/backends/{model}", {"steps": {}})

    def close(self) -> None:
        """Let go of the connections."""
        for client in (self.dev, self.boss, self.operator):
            client.__exit__()
