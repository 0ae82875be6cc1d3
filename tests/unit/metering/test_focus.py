"""The FOCUS export: valid for a public validator, equal to the ledger to the last digit; and the bill of an order."""

import csv
from decimal import Decimal
from fractions import Fraction
from io import StringIO

import pytest
from focus_data_toolkit.cli import main as focus_toolkit

from qm_events.provisioner import EnvironmentFailed
from tests.unit.metering.test_periods import JULY, call, running, world  # noqa: F401 - a fixture
from tests.unit.metering.test_prices import priced  # noqa: F401 - a fixture
from tests.unit.metering.test_service import Story, minute


@pytest.fixture
async def billed(priced):  # noqa: F811
    """June is closed; a failure of June was learnt of in July."""
    story = await running(priced)
    priced.clock.set(JULY)
    assert (await call(priced, "olga", "POST", "/periods/acme.2026-06/close")).status_code == 200
    failure = EnvironmentFailed(order="o-2", allocation="a-o-2", step="run", error="no", failed_at=minute(40))
    await story.tell("environment/o-2", failure)
    return priced


async def exported(world, month, who="ada", **more):  # noqa: F811
    query = "&".join(f"{name}={value}" for name, value in {"tenant": "acme", "month": month, **more}.items())
    reply = await call(world, who, "GET", f"/exports/focus?{query}")
    assert reply.status_code == 200
    return reply.text


def valid(text, tmp_path, capsys):
    """Whether the validator finds nothing, and what it says."""
    (file := tmp_path / "focus.csv").write_text(text)
    code = focus_toolkit(["validate", "--dataset", "cost-and-usage", str(file)])
    return code == 0, capsys.readouterr().out


@pytest.mark.parametrize("month", ["2026-06", "2026-07"])
async def test_a_month_is_valid_focus(billed, month, tmp_path, capsys):
    text = await exported(billed, month)
    assert len(text.splitlines()) == 3
    passed, said = valid(text, tmp_path, capsys)
    assert passed, said


SPOILS = {
    "a cost that is not price x quantity": lambda it: it.update(ListCost="1"),
    "no account": lambda it: it.update(BillingAccountId=""),
    "a time that is none": lambda it: it.update(ChargePeriodEnd="30 June"),
    "a category that does not exist": lambda it: it.update(ChargeCategory="Gift"),
    "a fraction for a decimal": lambda it: it.update(PricingQuantity="2/7"),
}


@pytest.mark.parametrize("spoil", SPOILS)
async def test_the_validator_sees_faults(billed, spoil, tmp_path, capsys):
    rows = list(csv.DictReader(StringIO(await exported(billed, "2026-06"))))
    SPOILS[spoil](rows[0])
    text = StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    assert not valid(text.getvalue(), tmp_path, capsys)[0]


async def test_the_rows_add_up_to_the_months_to_the_microsecond(billed):
    months = {it["month"]: it for it in (await call(billed, "ada", "GET", "/periods")).json()["items"]}
    for month in ("2026-06", "2026-07"):
        rows = list(csv.DictReader(StringIO(await exported(billed, month))))
        assert sum(int(it["x_CardMicroseconds"]) for it in rows) == months[month]["billable"]["card_us"]
        for it in rows:
            assert Fraction(it["x_CostExact"]) == Fraction(it["x_CardHoursExact"]) * Fraction(it["ListUnitPrice"])
            assert abs(Fraction(it["x_CostExact"]) - Fraction(Decimal(it["BilledCost"]))) < Fraction(1, 10**8)


async def test_a_correction_of_a_closed_month_says_so_and_what_it_corrects(billed):
    june = list(csv.DictReader(StringIO(await exported(billed, "2026-06"))))
    july = list(csv.DictReader(StringIO(await exported(billed, "2026-07"))))
    assert {it["ChargeClass"] for it in june} == {""}
    assert {(it["ChargeClass"], it["x_UsedInMonth"]) for it in july} == {("Correction", "2026-06")}
    corrected = {it["x_CorrectsUsageId"] for it in july} - {""}
    assert corrected <= {it["x_UsageRecordId"] for it in june}
    assert {it["BillingPeriodStart"] for it in july} == {"2026-07-01T00:00:00Z"}


async def test_nobody_exports_what_he_has_no_role_for(billed):
    assert len((await exported(billed, "2026-06", who="nobody")).splitlines()) == 1
    lines = (await exported(billed, "2026-06", format="jsonl")).splitlines()
    assert len(lines) == 2
    reply = await call(billed, "ada", "GET", "/exports/focus?tenant=acme&month=2026-13")
    assert (reply.status_code, reply.json()["code"]) == (422, "validation-failed")


async def test_each_line_of_a_bill_names_the_facts_that_made_it(billed):
    report = (await call(billed, "ada", "GET", "/usage/orders/o-2")).json()
    first, reversal, right = sorted(report["bill"]["lines"], key=lambda it: (it["month"], it["takes_back"] is None))
    assert (reversal["takes_back"], reversal["used_in"], right["used_in"]) == (first["record"], "2026-06", "2026-06")
    stretches = {it["counts_as"]: it for it in report["stretches"]}
    assert (right["began_by"], right["ended_by"]) == (
        stretches["billable"]["began"]["fact"],
        stretches["billable"]["ended"]["fact"],
    )
    amounts = [Decimal(it["amount"]) for it in report["bill"]["lines"]]
    # Two cards for half an hour at 1.5.
    assert (sum(amounts), report["bill"]["totals"][0]["ratio"]) == (Decimal("1.50"), "3/2")


async def test_a_bill_before_anything_is_recorded_is_empty(world):  # noqa: F811
    await Story(world).run("o-9", ready=10)
    assert (await call(world, "ada", "GET", "/usage/orders/o-9")).json()["bill"] == {"lines": [], "totals": []}
