"""Parts of a card in the ledger: exact, together with whole ones, against the limit on cards."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from qm_admission import quota
from qm_admission.lending import borrowed, lendable
from qm_admission.quota import Scope
from qm_admission.shares import SHARES, shares_of
from tests.unit.admission.test_quota import PATH, nobody_ahead


def share_of(numerator: int, denominator: int) -> int:
    return shares_of(Fraction(numerator, denominator))


PARTS = st.sampled_from([(n, d) for d in (*range(1, 11), 12, 14, 15, 16, 100) for n in range(1, d + 1)])


def test_parts_of_every_geometry_and_thousandths_are_told_exactly() -> None:
    assert share_of(1, 7) * 7 == share_of(377, 1_000) + share_of(623, 1_000) == SHARES


@settings(derandomize=True)
@given(st.lists(PARTS, max_size=40), st.integers(0, 4), st.integers(0, 6), st.sampled_from(["cards", "cards/a100"]))
def test_parts_fit_exactly_as_long_as_their_sum_is_within_the_limit(
    parts: list[tuple[int, int]], cards: int, limit: int, name: str
) -> None:
    shares = name.replace("cards", "card_shares")
    scope, total = Scope(limits={name: limit}, used={name: cards} if cards else {}), Fraction(cards)
    for numerator, denominator in parts:
        amounts = {shares: share_of(numerator, denominator)}
        total += Fraction(numerator, denominator)
        found = quota.in_the_way(PATH, {"acme": scope}, amounts, nobody_ahead)
        assert bool(found) == (total > limit)
        if found:
            assert Fraction(found[0].short_by, SHARES) == total - limit
            assert found[0].unit == "card/126000"
            total -= Fraction(numerator, denominator)
        else:
            scope = quota.post(scope, amounts, 1)
    whole = quota.in_the_way(PATH, {"acme": scope}, {name: 1}, nobody_ahead)
    assert bool(whole) == (total + 1 > limit)


def test_a_part_of_a_card_is_lent_and_borrowed_as_a_card() -> None:
    lender = Scope(limits={"cards": 4}, lend={"cards": 4}, used={"card_shares": share_of(1, 7)})
    assert lendable(lender, "cards") == 3
    borrower = Scope(limits={"cards": 1}, borrow={"cards": 2}, used={"cards": 1})
    part = {"card_shares": share_of(1, 2)}
    scopes = {"acme/vision": borrower}
    assert quota.in_the_way(PATH, scopes, part, nobody_ahead)[0].why == "lent_out"
    assert quota.in_the_way(PATH, scopes, part, nobody_ahead, lambda *_: 1) == ()
    assert borrowed(quota.post(borrower, part, 1), "cards") == 1
