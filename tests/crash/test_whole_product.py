"""A storm over each product, as long as a test may last; `tests.crash.soak` is the long one."""

from contextlib import closing

import pytest

from tests.crash.soak import KINDS
from tests.crash.storm import Storm

pytestmark = pytest.mark.crash

KILLS = {"embedded": 25, "distributed": 25}
SEED = 20_260_601


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_no_law_breaks_however_the_product_is_killed(kind: str) -> None:
    with KINDS[kind](manual=False) as product, closing(Storm(product, SEED)) as storm:
        report = storm.blow(KILLS[kind])
    assert report.faults == [], report
    assert report.figures["accepted"] > 0
