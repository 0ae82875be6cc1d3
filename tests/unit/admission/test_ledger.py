"""The ledger against a model that recomputes everything and rescans everybody, over random histories."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from qm_admission.book import SetLimits
from qm_events.admission import OrderHeld, QuotaClaimed, QuotaCommitted, QuotaLimitSet, QuotaRefunded
from tests.unit.admission.desk import TENANT, Desk
from tests.unit.admission.model import Known, Model, Step, history

HISTORIES = st.tuples(st.integers(0, 2**32), st.integers(1, 80))


def follow(desk: Desk, step: Step, *, settle: bool = True) -> None:
    match step.said:
        case None:
            desk.restart()
        case SetLimits():
            desk.command(step.stream, step.said, settle=False)
        case _:
            desk.tell(step.said, step.stream, settle=False)
    if settle:
        desk.settle()


def orders_of(desk: Desk) -> Iterator[tuple[str, Any]]:
    for stream, state in desk.states.items():
        if stream.startswith("admission/"):
            yield stream.removeprefix("admission/"), state


def known(state: Any) -> Known:
    held = state.blocked if state.phase == "held" else ()
    return Known(state.phase, Counter(state.claim), frozenset((it.scope, it.dimension, it.limit) for it in held))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(HISTORIES, st.integers(1, 5))
def test_every_order_stands_where_a_full_rescan_would_put_it(seed: tuple[int, int], batch: int) -> None:
    desk, model = Desk(), Model()
    for number, step in enumerate(history(*seed)):
        settle = number % batch == 0
        follow(desk, step, settle=settle)
        step.follow(model)
        if settle:
            model.settle()
        assert {order: known(state) for order, state in orders_of(desk)} == model.known
        for scope, doc in desk.docs.resident("scopes").items():
            assert doc.used == {name: used for name in sorted(doc.used) if (used := model.used(scope, name))}
    check_the_log(desk)


@dataclass
class Audit:
    """The laws, read from the facts alone."""

    used: dict[str, Counter[str]] = field(default_factory=dict)
    limits: dict[str, dict[str, int]] = field(default_factory=dict)
    lines: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    refunded: set[str] = field(default_factory=set)

    def read(self, data: Any) -> None:
        match data:
            case QuotaLimitSet():
                self.limits[TENANT if data.project is None else f"{TENANT}/{data.project}"] = data.limits.values
            case OrderHeld():
                self.lines[data.order] = {(it.scope, it.dimension) for it in data.violations}
            case QuotaClaimed():
                self._post(data.scopes, data.amounts.values, 1)
                self._claimed(data)
            case QuotaCommitted():
                self._post(data.scopes, data.returned.values, -1)
            case QuotaRefunded():
                self._post(data.scopes, data.amounts.values, -1)
                assert data.order not in self.refunded, "refunded twice"
                self.refunded.add(data.order)
            case _:
                self.lines.pop(data.order, None)

    def _claimed(self, data: QuotaClaimed) -> None:
        self.lines.pop(data.order, None)
        taken = {
            (scope, name)
            for scope in data.scopes
            for name in self.limits.get(scope, {})
            if data.amounts.values.get(name)
        }
        assert all(self.used[scope][name] <= self.limits[scope][name] for scope, name in taken), "a limit was passed"
        assert not any(taken & spots for other, spots in self.lines.items() if other < data.order), (
            "somebody was passed"
        )

    def _post(self, scopes: tuple[str, ...], values: dict[str, int], sign: int) -> None:
        for scope in scopes:
            for name, value in values.items():
                self.used.setdefault(scope, Counter())[name] += sign * value


def check_the_log(desk: Desk) -> None:
    audit = Audit()
    for event in desk.facts:
        audit.read(event.data)
    for scope, doc in desk.docs.resident("scopes").items():
        assert +audit.used.get(scope, Counter()) == doc.used


@settings(max_examples=60, deadline=None, derandomize=True)
@given(HISTORIES)
def test_a_restart_anywhere_changes_nothing(seed: tuple[int, int]) -> None:
    steady, shaky = Desk(), Desk()
    for step in history(*seed):
        follow(steady, step)
        follow(shaky, step)
        shaky.restart()
        shaky.settle()
    assert [event.data for event in steady.facts] == [event.data for event in shaky.facts]
