"""Observations of cards, from agents and from Alertmanager, brought into one form."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from qm_events.envelope import UtcTime
from qm_events.specs import Health
from qm_scheduler.fleet import Node, Observation
from qm_scheduler.inventory import Observe, Seen, is_news, says_more

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$")]
"""Of a node, rack, domain or card."""
Line = Annotated[str, StringConstraints(max_length=500)]


class _Target(BaseModel):
    """One card or, where only a node is named, all its cards."""

    card: Name | None = None
    node: Name | None = None

    @model_validator(mode="after")
    def _is_something(self) -> "_Target":
        if self.card is None and self.node is None:
            raise ValueError("name a card or a node")
        return self


class Observed(_Target):
    """What an agent saw."""

    model_config = ConfigDict(extra="forbid")

    source: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    status: Health
    code: Line = ""
    message: Line = ""
    occupied: Annotated[bool, Field(strict=True)] | None = None
    """Whether somebody is on the card; null = the agent does not say. On a card that nobody holds, it is isolated."""
    observed_at: UtcTime

    def seen(self) -> Seen:
        """Return it as the inventory takes it."""
        told = Observation(self.status, self.code, self.message, self.observed_at)
        return Seen(self.card, self.source, told, self.occupied)


class AlertLabels(_Target):
    """The labels that are read; rules may add others."""

    alertname: Annotated[str, StringConstraints(min_length=1, max_length=80)]
    status: Literal[Health.SUSPECT, Health.FAILED, Health.UNKNOWN] = Health.SUSPECT


class Alert(BaseModel):
    """An alert of Alertmanager. Each alert name is a source of its own: one that is resolved takes back only itself."""

    status: Literal["firing", "resolved"]
    labels: AlertLabels
    annotations: dict[str, str] = Field(default_factory=dict)
    starts_at: UtcTime = Field(alias="startsAt")
    ends_at: UtcTime | None = Field(default=None, alias="endsAt")

    @model_validator(mode="after")
    def _has_an_end(self) -> "Alert":
        if self.status == "resolved" and (self.ends_at is None or self.ends_at < self.starts_at):
            raise ValueError("a resolved alert ends after it started")
        return self

    @property
    def card(self) -> str | None:
        """The card that it is about."""
        return self.labels.card

    @property
    def node(self) -> str | None:
        """The node that it is about."""
        return self.labels.node

    def seen(self) -> Seen:
        """Return it as the inventory takes it."""
        firing = self.status == "firing"
        health = self.labels.status if firing else Health.HEALTHY
        at = self.starts_at if firing or self.ends_at is None else self.ends_at
        message = self.annotations.get("summary") or self.annotations.get("description") or ""
        told = Observation(health, self.labels.alertname, message[:500], at)
        return Seen(self.labels.card, f"alertmanager/{self.labels.alertname}", told)


class AlertmanagerWebhook(BaseModel):
    """The body of an Alertmanager webhook; what is not read here is let pass, for it is not our contract."""

    alerts: Annotated[list[Alert], Field(max_length=10_000)]


Observations = Annotated[list[Observed], Field(max_length=10_000)]


class HealthReceipt(BaseModel):
    """What became of the observations."""

    accepted: int
    changed: int
    """Cards about which something new was said."""


@dataclass(slots=True)
class Newest:
    """When each source last spoke about each card, repetitions included: what is older is late and changes nothing."""

    at: dict[tuple[str, str], datetime] = field(default_factory=dict)

    def take(self, node: Node, seen: Iterable[Seen]) -> Observe | None:
        """Return the command for what is news on a node, None where nothing is."""
        return Observe(news) if (news := tuple(self._news(node, seen))) else None

    def _news(self, node: Node, seen: Iterable[Seen]) -> Iterator[Seen]:
        for each in seen:
            for card in node.cards if each.card is None else (each.card,):
                told, last = each.observation, node.cards[card].seen.get(each.source)
                news = is_news(last, told) or says_more(node.cards[card], each)
                if told.observed_at >= self.at.get((card, each.source), told.observed_at) and news:
                    yield Seen(card, each.source, told, each.occupied)

    def note(self, node: Node, seen: Iterable[Seen]) -> None:
        """Remember these; call it once they are durable."""
        for each in seen:
            for card in node.cards if each.card is None else (each.card,):
                key, at = (card, each.source), each.observation.observed_at
                self.at[key] = max(at, self.at.get(key, at))


def by_node(told: Sequence[Observed | Alert], home: Callable[[str], str]) -> dict[str, list[Seen]]:
    """Return the observations by node, in order of their times; `home` finds the node of a card."""
    found: dict[str, list[Seen]] = {}
    for each in sorted(told, key=lambda each: each.seen().observation.observed_at):
        node = str(each.node) if each.card is None else home(each.card)
        found.setdefault(node, []).append(each.seen())
    return found
