"""Prometheus metrics of one app: its own registry, so that two apps in a process do not mix."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.types import Scope

from qm_service.caller import Bound
from qm_service.service import Service
from qm_service.status import Status

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """What /metrics shows."""

    def __init__(self, services: Sequence[Service], bound: Mapping[int, Bound]) -> None:
        self._bound = bound
        self._registry = CollectorRegistry()
        self._requests = Histogram(
            "qm_http_request_seconds",
            "Time from the first byte of a call to the last of its answer",
            ("route", "status"),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._registry.register(_Statuses(services))

    def measure(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a call under its route's template: the paths themselves would be without number."""
        line = self._bound.get(id(scope.get("route")))
        self._requests.labels(line.action if line else "other", str(status)).observe(seconds)

    def text(self) -> bytes:
        """Return the exposition format."""
        return generate_latest(self._registry)


class _Statuses(Collector):
    """The status of each service, asked for when it is scraped."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = services

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        # By name: services may share a runtime.
        statuses = {status.service: status for status in (service.runtime.status() for service in self._services)}
        yield from _gauges(statuses.values())


def _gauges(statuses: Iterable[Status]) -> Iterator[Metric]:
    ready = GaugeMetricFamily("qm_ready", "Whether the service does its part now", labels=["service"])
    leader = GaugeMetricFamily("qm_leader", "Whether this process is the service's writer", labels=["service"])
    progress = GaugeMetricFamily(
        "qm_progress_age_seconds", "Since the writer last finished a batch", labels=["service"]
    )
    parked = GaugeMetricFamily("qm_parked_streams", "Streams that wait for an operator", labels=["service"])
    halted = GaugeMetricFamily("qm_halted_partitions", "Partitions that are not read", labels=["service"])
    lag = GaugeMetricFamily("qm_lag_events", "Records not handled yet", labels=["service", "topic"])
    age = GaugeMetricFamily("qm_lag_age_seconds", "How long the next record waits", labels=["service", "topic"])
    for status in statuses:
        at = [status.service]
        ready.add_metric(at, status.ready)
        leader.add_metric(at, status.leader)
        progress.add_metric(at, status.progress_age_seconds)
        parked.add_metric(at, status.parked)
        halted.add_metric(at, len(status.halted))
        for topic, behind in status.lag.items():
            lag.add_metric([status.service, topic], behind.events)
            age.add_metric([status.service, topic], behind.age_seconds)
    yield from (ready, leader, progress, parked, halted, lag, age)
