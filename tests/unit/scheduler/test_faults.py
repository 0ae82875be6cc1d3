"""What users of such schedulers file, row by row (58 rows): the test that we own for it, or why it cannot occur here.

A name is a test of this folder; `ORACLE` is the walk in which brute force agrees at every step on who is placed, who
waits and why, and a restarted index has nothing to add. What is open says so.
"""

import re
from pathlib import Path

import pytest

ORACLE = "test_every_step_leaves_the_queue_as_brute_force_says"
PROMISE = "test_a_promise_is_kept_when_leases_end_as_promised"
TURNS = "test_projects_take_turns_and_each_is_served_first_come_first_served"
LEDGER = "Quota is a ledger of claims in admission (tests/unit/admission), no counter of the scheduler."

FAULTS: dict[int, str] = {
    1: "test_4b_thousands_behind_one_blocked_order_know_their_positions",
    2: "test_2c_an_order_for_a_free_type_starts_at_once_behind_one_for_a_busy_type",
    3: "test_a_blocked_order_does_not_block_one_for_other_cards",
    4: ORACLE,
    5: "test_freed_cards_go_to_nobody_else_and_victims_do_not_come_back_before",
    6: "test_a_borrower_stays_out_longer_each_time_and_says_so",
    7: "test_a_place_that_is_kept_does_not_bind_a_higher_priority",
    8: "test_the_cheapest_victims_are_chosen",
    9: "test_a_borrower_stays_out_longer_each_time_and_says_so",
    10: ORACLE,
    11: ORACLE,
    12: LEDGER,
    13: "test_an_owner_gets_back_what_it_lent_whatever_the_priority_of_the_borrower",
    14: "test_the_largest_borrower_gives_back_first",
    15: "test_no_more_is_taken_back_than_is_owed_but_for_the_last_who_leaves_as_a_whole",
    16: "Integers of Python do not overflow; bounds are checked at the door (tests/unit/admission/test_quota).",
    17: LEDGER,
    18: LEDGER,
    19: "test_clean_cards_return_to_the_pool_once_and_suspect_ones_are_isolated",
    20: "test_a_return_that_takes_too_long_is_found",
    21: "test_unknown_is_no_relapse_and_old_relapses_do_not_count",
    22: "test_nothing_is_sent_to_a_node_that_fell_sick_until_it_is_well",
    23: "test_a_card_is_never_held_twice",
    24: "test_nobody_leaves_for_a_place_that_would_not_be_there",
    25: "test_single_cards_fill_one_node_before_they_open_another",
    26: "test_an_observation_that_is_older_or_says_nothing_new_changes_nothing",
    27: ORACLE,
    28: "test_a_reason_is_told_when_its_code_changes_and_at_no_other_time",
    29: "test_all_reasons_that_hold_are_given_by_rank_with_their_figures",
    30: ORACLE,
    31: "Measured, not tested: `python -m bench memory`.",
    32: "One scheduler decides for its fleet; an order holds nothing in a second one while it waits.",
    33: "Nothing is copied for a decision; the index is kept in step: `python -m bench decisions`.",
    34: "test_a_card_is_never_held_twice",
    35: "Open: shared cards and slices are not part of this release.",
    36: "test_a_stream_of_small_orders_does_not_starve_a_large_one",
    37: "Open: proposals to defragment are not part of this release.",
    38: "test_a_higher_priority_goes_before_every_share",
    39: PROMISE,
    40: "test_nobody_leaves_in_vain_or_in_a_circle",
    41: "test_nobody_leaves_in_vain_or_in_a_circle",
    42: "test_a_node_that_comes_back_with_other_cards_is_reconciled_card_by_card",
    43: "test_a_node_that_comes_back_with_fewer_cards_loses_them_and_a_held_one_when_it_is_returned",
    44: "test_a_sick_card_in_use_keeps_no_free_node_from_serving",
    45: "test_what_waits_was_withdrawn_or_was_given_back_counts_for_nothing",
    46: "test_a_heap_of_heads_always_knows_its_best_and_does_not_grow",
    47: "Open: shared cards are not part of this release; a whole card: test_a_card_is_never_held_twice.",
    48: "There is no lock on a node: one writer decides.",
    49: "test_when_the_last_node_of_a_type_goes_all_are_told_at_once_and_when_it_comes_the_best_is_placed",
    50: "test_the_worst_of_all_sources_is_the_health_and_each_source_takes_back_only_its_own",
    51: "test_a_cancelled_preemptor_gives_its_place_up_and_who_was_told_goes",
    52: ORACLE,
    53: "test_6b_free_cards_without_cpu_say_that_cpu_is_short",
    54: "Open: slices are not part of this release.",
    55: "test_a_card_that_nobody_holds_and_somebody_is_on_is_isolated",
    56: "test_an_order_that_no_end_of_a_lease_can_serve_holds_nobody_back",
    57: TURNS,
    58: "test_one_change_explains_a_queue_of_thousands_without_a_fact_for_each",
}
_NAMES = {
    name for path in Path(__file__).parent.glob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
}


def test_every_row_has_an_answer() -> None:
    assert sorted(FAULTS) == list(range(1, 59))


@pytest.mark.parametrize("row", FAULTS)
def test_a_row_names_a_test_that_exists_or_gives_a_reason(row: int) -> None:
    answer = FAULTS[row]
    assert answer in _NAMES if answer.startswith("test_") else answer.endswith(".")
