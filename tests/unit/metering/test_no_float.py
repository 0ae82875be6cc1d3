"""No quantity of metering is, or passes through, a float: a walk over the source and the types that reach the log."""

import ast
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import BaseModel

import qm_events.metering
import qm_events.units
import qm_metering
from qm_metering import policy, projections

SOURCES = [*Path(qm_metering.__file__).parent.glob("*.py"), Path(qm_events.units.__file__)]
BANNED = {"float", "total_seconds", "timestamp", "fsum", "mean"}


def inexact(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=float()) | ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in BANNED
    return False


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_the_source_has_no_float_and_no_division_that_makes_one(source):
    tree = ast.parse(source.read_text())
    assert [f"{source.name}:{node.lineno}" for node in ast.walk(tree) if inexact(node)] == []


def types_in(annotation: Any, seen: set[Any]) -> set[Any]:
    if annotation in seen:
        return seen
    seen.add(annotation)
    for part in get_args(annotation):
        if not isinstance(part, (str, int)):
            types_in(part, seen)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for hint in get_type_hints(annotation).values():
            types_in(hint, seen)
    return seen


def models(module: ModuleType) -> list[type[BaseModel]]:
    return [item for item in vars(module).values() if isinstance(item, type) and issubclass(item, BaseModel)]


@pytest.mark.parametrize("module", [qm_events.metering, policy, projections], ids=lambda module: module.__name__)
def test_no_type_that_holds_usage_has_a_float_in_it(module):
    for model in models(module):
        assert float not in types_in(model, set()), model
