"""What a process counts of its HTTP calls, for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from prometheus_client import Counter, Histogram

CALLS = Counter("hub_http_requests", "HTTP calls under /api by method and status", ["method", "status"])
SECONDS = Histogram(
    "hub_http_request_seconds",
    "Duration of HTTP calls under /api (waits for a response included)",
    buckets=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
CLIENT_GONE = 499
"""The status of a call whose client went before its answer began. A stream has begun: it keeps the status it began with."""
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})


@dataclass(slots=True)
class Seen:
    status: int = 0


def count(method: str, status: int, seconds: float) -> None:
    CALLS.labels(method if method in METHODS else "other", str(status)).inc()
    SECONDS.observe(seconds)


@contextmanager
def observe(request: Any) -> Iterator[Seen]:
    """Count one call."""
    seen = Seen()
    begun = time.perf_counter()
    try:
        yield seen
    finally:
        count(request.method or "", seen.status or CLIENT_GONE, time.perf_counter() - begun)
