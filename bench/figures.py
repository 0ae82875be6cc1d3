"""What a benchmark says: figures, each with its unit and, where the product promises something, its budget."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. `budget` is what it must reach (`sense` `>=`) or stay within (`<=`)."""

    name: str
    value: float
    unit: str
    budget: float | None = None
    sense: Literal[">=", "<="] = ">="

    @property
    def verdict(self) -> str:
        """Return `pass` or `FAIL`, or nothing where nothing was promised."""
        if self.budget is None:
            return ""
        kept = self.value >= self.budget if self.sense == ">=" else self.value <= self.budget
        return "pass" if kept else "FAIL"

    def as_json(self) -> dict[str, Any]:
        """Return the figure with its verdict."""
        return asdict(self) | {"verdict": self.verdict}


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def latencies(name: str, seconds: Sequence[float], budget_p99_ms: float | None = None) -> list[Figure]:
    """Return p50, p95 and p99 of a list of seconds, in milliseconds."""
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return [
        Figure(f"{name} {label}", quantile(seconds, at) * 1e3, "ms", budget_p99_ms if label == "p99" else None, "<=")
        for label, at in shares.items()
    ]


def table(figures: Iterable[Figure]) -> str:
    """Return the figures as lines of text."""
    lines = []
    for figure in figures:
        promise = "" if figure.budget is None else f"{figure.sense} {figure.budget:,.6g}"
        lines.append(f"  {figure.name:<52} {figure.value:>14,.2f} {figure.unit:<10} {promise:<12} {figure.verdict}")
    return "\n".join(lines)
