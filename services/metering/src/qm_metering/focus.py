"""The lines of a month as rows of the FinOps FOCUS specification 1.4, dataset Cost and Usage.

A row is a billable line that has a price. Its quantity has 9 decimal places and its costs are the exact product of that
and the unit price, as the specification asks; the exact use stands beside it (`x_CardMicroseconds`,
`x_CardHoursExact`), and so does the exact amount (`x_CostExact`).
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from io import StringIO

from qm_events.envelope import utc_text
from qm_events.specs import ServiceModel
from qm_events.units import card_hours_ratio
from qm_metering.intervals import instant
from qm_metering.money import cost
from qm_metering.projections import WHOLE, LedgerLine
from qm_metering.quantity import quantity

OPERATOR = "Quartermaster"
SERVICES: Mapping[str, tuple[str, str]] = {
    ServiceModel.BARE_METAL: ("Compute", "Bare metal"),
    ServiceModel.VM: ("Compute", "Virtual machines"),
    ServiceModel.KUBERNETES: ("Compute", "Kubernetes"),
    ServiceModel.MAAS: ("AI and Machine Learning", "Model serving"),
}
"""Service model -> (ServiceCategory, ServiceName)."""
UNIT = "Card-Hours"


def row(line: LedgerLine, bounds_us: tuple[int, int]) -> dict[str, str]:
    """Return a line as a row of the month with these bounds. Every value is text; empty stands for null."""
    card_us = line.used_us
    hours, price = quantity(card_us).card_hours, Decimal(line.price)
    exact = cost(card_us, price)
    billed = _plain(Decimal(hours) * price)
    category, service = SERVICES.get(line.service_model, ("Compute", line.service_model))
    return {
        "BilledCost": billed,
        "BillingAccountId": line.tenant,
        "BillingAccountName": line.tenant,
        "BillingAccountType": "Tenant",
        "BillingCurrency": line.currency,
        "BillingPeriodEnd": _time(bounds_us[1]),
        "BillingPeriodStart": _time(bounds_us[0]),
        "ChargeCategory": "Usage",
        "ChargeClass": "Correction" if line.used_in else "",
        "ChargeDescription": f"{line.specification or line.accelerator}, {service}",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodEnd": _time(line.to_us),
        "ChargePeriodStart": _time(line.from_us),
        "ConsumedQuantity": hours,
        "ConsumedUnit": UNIT,
        "ContractedCost": billed,
        "ContractedUnitPrice": _plain(price),
        "EffectiveCost": billed,
        "HostProviderName": OPERATOR,
        "InvoiceIssuerName": OPERATOR,
        "ListCost": billed,
        "ListUnitPrice": _plain(price),
        "PricingCategory": "Standard",
        "PricingCurrency": line.currency,
        "PricingQuantity": hours,
        "PricingUnit": UNIT,
        "ResourceId": line.allocation,
        "ResourceName": line.order,
        "ResourceType": "Accelerator allocation",
        "ServiceCategory": category,
        "ServiceName": service,
        "ServiceProviderName": OPERATOR,
        "SkuId": line.specification or line.accelerator,
        "SkuMeter": line.meter,
        "SkuPriceId": f"{line.specification or line.accelerator}/{line.price} {line.currency}",
        "SubAccountId": f"{line.tenant}/{line.project}",
        "SubAccountName": line.project,
        "SubAccountType": "Project",
        "x_AcceleratorType": line.accelerator,
        "x_CardHoursExact": card_hours_ratio(card_us),
        "x_CardMicroseconds": str(card_us) if line.share == WHOLE else "",
        "x_CorrectsUsageId": line.reverses or "",
        "x_CostExact": f"{exact.numerator}/{exact.denominator}",
        "x_UsageRecordId": line.record,
        "x_UsedInMonth": line.used_in or "",
    }


def as_csv(rows: Iterable[Mapping[str, str]], *, header: bool) -> str:
    """Return rows as CSV."""
    text, rows = StringIO(), list(rows)
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_json_lines(rows: Iterable[Mapping[str, str]]) -> str:
    """Return rows as one JSON object a line, null where there is nothing."""
    return "".join(json.dumps({name: value or None for name, value in it.items()}) + "\n" for it in rows)


def priced(lines: Iterable[LedgerLine], bounds_us: tuple[int, int]) -> Iterator[dict[str, str]]:
    """Yield the rows of the lines that have a price."""
    return (row(line, bounds_us) for line in lines if line.price)


def _time(us: int) -> str:
    return utc_text(instant(us))


def _plain(amount: Decimal) -> str:
    return f"{amount.normalize():f}" if amount else "0"


_BLANK = LedgerLine(
    **dict.fromkeys(("record", "tenant", "project", "order", "allocation", "accelerator", "service_model"), ""),
    meter="billable",
    cards=1,
    from_us=0,
    to_us=1,
    price="0",
)
COLUMNS = tuple(row(_BLANK, (0, 1)))
"""The names of the columns, in order."""
