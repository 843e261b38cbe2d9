"""Numbers about the service itself, in the words of Prometheus. No text of a client is in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_TENTHS = tuple(n / 10 for n in range(1, 11))


class Metrics:
    """One set of numbers for one service."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "divtok_requests",
            "Requests that were answered.",
            ["route", "status"],
            registry=self._registry,
        )
        self.seconds = Histogram(
            "divtok_request_seconds",
            "From a request's headers to the end of its answer.",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.responses = Counter(
            "divtok_responses",
            "Responses that were to be scored, by what came of it.",
            ["status"],
            registry=self._registry,
        )
        self.confidences = Histogram(
            "divtok_confidence",
            "The confidences that were given.",
            buckets=_TENTHS,
            registry=self._registry,
        )
        self.batches = Histogram(
            "divtok_batch_rows",
            "Responses that were read together.",
            buckets=_ROWS,
            registry=self._registry,
        )
        self.upstream = Counter(
            "divtok_upstream_failures",
            "Answers that the server behind the proxy did not give.",
            registry=self._registry,
        )
        self._waiting = Gauge(
            "divtok_waiting_rows", "Responses that wait now.", registry=self._registry
        )

    def watch(self, waiting: Callable[[], int]) -> None:
        """Where the number of those that wait is known."""
        self._waiting.set_function(waiting)

    def scored(self, told: Mapping[str, Any]) -> None:
        """One object that a client was told."""
        self.responses.labels(told["status"]).inc()
        if told["confidence"] is not None:
            self.confidences.observe(told["confidence"])

    def text(self) -> bytes:
        return generate_latest(self._registry)
