"""The product in both its ways to run, started once for all stories."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stage import Stage
from tests.support import laws
from tests.support.product import Product
from tests.support.product_distributed import Distributed
from tests.support.product_embedded import Embedded

KINDS: dict[str, type[Embedded] | type[Distributed]] = {"embedded": Embedded, "distributed": Distributed}
SetUp = Callable[..., Stage]
"""Takes the name of a stage and the wishes of `world`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session", params=KINDS)
def product(request: pytest.FixtureRequest) -> Iterator[Product]:
    """A running product with a manual clock. Whatever the stories did to it: at the end the laws hold."""
    with KINDS[request.param]() as running:
        yield running
        running.settled()
        assert laws.at_rest(running.facts()) == []


@pytest.fixture
def stage(product: Product) -> Iterator[SetUp]:
    """Set up a stage on the product."""
    opened: list[Stage] = []

    def set_up(name: str, **wanted: Any) -> Stage:
        opened.append(Stage(product, name, **wanted))
        return opened[-1]

    yield set_up
    for one in opened:
        one.close()
