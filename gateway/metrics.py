"""What the gateway counts, in a registry of its own, in the Prometheus text format."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The figures of one gateway."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Histogram(
            "callboard_gateway_request_seconds", "Time to answer, without streams and long polls",
            ["method", "route", "status"], registry=self.registry, buckets=_BUCKETS,
        )  # fmt: skip
        self.submitted = Counter(
            "callboard_gateway_submitted_total", "Tasks taken, by outcome (created, duplicate, refused)",
            ["outcome"], registry=self.registry,
        )  # fmt: skip
        self.sse_clients = self._gauge("callboard_gateway_sse_clients", "Connected event streams")
        self.sse_events = Counter(
            "callboard_gateway_sse_events_total", "Events delivered to clients", registry=self.registry
        )
        self.sse_cache = self._gauge(
            "callboard_gateway_sse_cache_bytes", "Memory of encoded history that streams share"
        )
        self.nats_up = self._gauge("callboard_gateway_nats_up", "1 while the connection to NATS stands")
        self.applied = self._gauge(
            "callboard_projection_applied_sequence", "Stream sequence the read model has applied"
        )
        self.lag = self._gauge("callboard_projection_lag", "Messages of the log that the read model has not applied")
        self.runs = Gauge("callboard_runs", "Runs by status, from the read model", ["status"], registry=self.registry)
        self.abandoned = Gauge(
            "callboard_abandoned_threads", "Threads in which abandoned steps go on, by worker",
            ["worker"], registry=self.registry,
        )  # fmt: skip
        self.refused = Gauge(
            "callboard_refused_writes", "Late writes that a living process has seen refused or has refused, by kind",
            ["worker", "kind"], registry=self.registry,
        )  # fmt: skip

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, registry=self.registry)

    def text(self) -> bytes:
        """All figures."""
        return generate_latest(self.registry)
