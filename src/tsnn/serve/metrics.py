"""What the service measures of itself: Prometheus counters, and the last minute for the page."""

from __future__ import annotations

import time
from collections import deque
from threading import Lock
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)
_KEPT = 1000  # latest requests that a percentile is taken of
_SECONDS = 10  # latest seconds that a rate is taken of


class Metrics:
    """One registry per service, so that two in a process do not mix."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        named: dict[str, Any] = {"registry": self._registry, "namespace": "tsnn"}
        self.events = Counter("events_applied", "Events written to the log and applied.", **named)
        self.duplicates = Counter("events_duplicate", "Events that the log held already.", **named)
        self.commits = Counter("commits", "Transactions of the event log.", **named)
        self.commit_errors = Counter("commit_errors", "Transactions that failed; nothing of them was kept.", **named)
        self.snapshots = Counter("snapshots", "Snapshots written.", **named)
        self.snapshot_errors = Counter("snapshot_errors", "Snapshots that failed.", **named)
        self.requests = Counter("requests", "Requests by path and status.", ["path", "status"], **named)
        self.seconds = Histogram("request_seconds", "Time to answer.", ["path"], buckets=_BUCKETS, **named)
        self.clock = Gauge("clock", "Time of the latest event; dates in microseconds since 1970.", **named)
        self.nodes = Gauge("nodes", "Nodes known.", **named)
        self.position = Gauge("log_position", "Events in the log.", **named)
        self.queue = Gauge("queue_length", "Requests that wait to be written.", **named)
        self._lock = Lock()
        self._latest: dict[str, deque[float]] = {}
        self._counts: deque[tuple[float, int]] = deque()
        self._began = time.monotonic()

    def saw_request(self, path: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        self.requests.labels(path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)
        with self._lock:
            self._latest.setdefault(path, deque(maxlen=_KEPT)).append(seconds)

    def saw_events(self, applied: int, duplicates: int) -> None:
        """Count what one transaction brought."""
        self.commits.inc()
        self.events.inc(applied)
        self.duplicates.inc(duplicates)
        now = time.monotonic()
        with self._lock:
            self._counts.append((now, applied))
            self._forget(now)

    def _forget(self, now: float) -> None:
        while self._counts and self._counts[0][0] < now - _SECONDS:
            self._counts.popleft()

    def events_per_second(self) -> float:
        """Over the last seconds, or since the start where that is shorter."""
        now = time.monotonic()
        with self._lock:
            self._forget(now)
            return sum(n for _, n in self._counts) / max(min(now - self._began, _SECONDS), 1.0)

    def latency_ms(self) -> dict[str, dict[str, float]]:
        """Median and 99th percentile of the latest requests of each path."""
        with self._lock:
            latest = {path: np.array(values) * 1e3 for path, values in self._latest.items()}
        percentiles = {path: np.percentile(values, [50, 99]).tolist() for path, values in latest.items()}
        return {path: {"p50": p50, "p99": p99} for path, (p50, p99) in percentiles.items()}

    def text(self) -> bytes:
        """Everything in the Prometheus text format."""
        return generate_latest(self._registry)
