"""What a run of continuous batching found: times of each request, GPU time by phase, occupancy, goodput.

Two identities hold on every run and catch a lost request or second: the phases sum to the run's length, and (Little's
law) the integral of the number of requests in the system is the sum of the times that they spent in it.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lessonlib.base.checks import between, checked, choice, items, rate
from lessonlib.base.text import html_table
from lessonlib.base.units import format_bytes, format_percent, format_seconds
from lessonlib.policy.serving.traffic import Traffic
from lessonlib.time.deployment import Deployment

TIMES = {"ttft": "TTFT", "time_to_answer": "time to answer", "tpot": "TPOT", "latency": "latency"}


class Occupancy(NamedTuple):
    """The server at the start of each event and at the end of the run: arrays of one length."""

    time: Any  # seconds
    running: Any  # requests that hold memory, those in prefill included
    waiting: Any  # requests in the queue
    cache_bytes: Any  # bytes of the blocks taken, over all devices


@dataclass(frozen=True, eq=False, repr=False)
class ServingRun:
    """What `simulate` found. Times are seconds on the clock of the arrivals; arrays have one entry for each request.

    NaN: not reached before the run ended, or no such token (TPOT of one token, an answer where all is thought).
    `seconds`: GPU seconds by phase, which sum to end - start. `request_seconds`: the integral over time of the number
    of requests in the system. `recomputed_tokens`: prefilled again after a preemption, whichever phase it was done in.
    """

    deployment: Deployment
    traffic: Traffic
    policy: str
    first_token: Any
    first_answer_token: Any
    finish: Any
    preemptions: Any
    seconds: dict[str, float]
    occupancy: Occupancy
    start: float
    end: float
    ended: str
    events: int
    output_tokens: int
    recomputed_tokens: int
    request_seconds: float
    peak_running: int
    peak_cache_bytes: int
    cache_bytes_available: int

    @property
    def ttft(self) -> Any:
        """Seconds from arrival to the first output token."""
        return self.first_token - self.traffic.arrivals

    @property
    def time_to_answer(self) -> Any:
        """Seconds from arrival to the first token after the thought."""
        return self.first_answer_token - self.traffic.arrivals

    @property
    def tpot(self) -> Any:
        """Seconds per output token after the first, stops for others' prefills and for preemptions included."""
        return (self.finish - self.first_token) / np.where(self.traffic.output > 1, self.traffic.output - 1.0, np.nan)

    @property
    def latency(self) -> Any:
        """Seconds from arrival to the last output token."""
        return self.finish - self.traffic.arrivals

    @property
    def finished(self) -> int:
        return int(np.isfinite(self.finish).sum())

    @property
    def unfinished(self) -> Any:
        """Indices of the requests without an end: waiting, running, or not yet arrived when the run ended."""
        return np.flatnonzero(np.isnan(self.finish))

    @property
    def elapsed(self) -> float:
        return self.end - self.start

    @property
    def utilisation(self) -> float:
        """Share of the run in which the GPU was not idle. At 1 a server may still have room: a batch can grow."""
        busy = math.fsum(seconds for phase, seconds in self.seconds.items() if phase != "idle")
        return min(1.0, busy / self.elapsed)  # rounding apart, it cannot be more

    @property
    def tokens_per_second(self) -> float:
        """Output tokens a second of the whole server."""
        return self.output_tokens / self.elapsed

    @property
    def mean_in_system(self) -> float:
        """L, the requests waiting or running on average over time: arrival rate times mean latency (Little's law)."""
        return self.request_seconds / self.elapsed

    @property
    def mean_running(self) -> float:
        """Requests that hold memory, on average over time."""
        return float(np.sum(self.occupancy.running[:-1] * np.diff(self.occupancy.time)) / self.elapsed)

    @checked(name=choice(TIMES), at=items(between(0, 100, "per cent")))
    def percentiles(self, name: str, at: tuple[float, ...] = (50, 90, 99)) -> tuple[float, ...]:
        """Percentiles of "ttft", "time_to_answer", "tpot" or "latency" over the requests that have one, or NaN.

        In a run that ended early these are the lucky requests: see `unfinished`.
        """
        shares = np.array(at) / 100
        values = getattr(self, name)
        values = values[np.isfinite(values)]
        return tuple(np.quantile(values, shares).tolist()) if len(values) else (math.nan,) * len(shares)

    @checked(ttft=rate("seconds", infinite=True), tpot=rate("seconds", infinite=True))
    def goodput(self, ttft: float = math.inf, tpot: float = math.inf) -> tuple[float, float]:
        """(share of all requests, requests a second) that finished within both limits, in seconds.

        A request of one output token has no TPOT to miss.
        """
        good = np.isfinite(self.finish) & (self.ttft <= ttft) & ~(self.tpot > tpot)
        return float(good.mean()), float(good.sum() / self.elapsed)

    def _rows(self) -> list[tuple[str, str]]:
        phases = [f"{phase} {format_percent(s / self.elapsed)}" for phase, s in self.seconds.items() if s > 0]
        rows = [
            ("requests", f"{len(self.traffic):,}; {self.finished:,} finished, {len(self.unfinished):,} unfinished"),
            ("run", f"{format_seconds(self.elapsed)} in {self.events:,} events; {self.ended}"),
            ("output", f"{self.output_tokens:,} tokens, {self.tokens_per_second:,.1f} tokens/s"),
            ("GPU time", ", ".join(phases)),
            ("running", f"{self.mean_running:,.1f} on average, {self.peak_running:,} at most"),
            ("cache", f"at most {format_bytes(self.peak_cache_bytes)} of {format_bytes(self.cache_bytes_available)}"),
            ("preemptions", f"{self.preemptions.sum():,}; {self.recomputed_tokens:,} tokens prefilled again"),
        ]
        for name, words in TIMES.items():
            values = " / ".join(format_seconds(value, 3) for value in self.percentiles(name))
            rows.append((f"{words}, 50 / 90 / 99 %", values))
        return rows

    def _title(self) -> str:
        where = f"{self.deployment.devices} x {self.deployment.accelerator.name}"
        return f"Continuous batching: {self.deployment.model.name} on {where}; {self.policy}"

    def __repr__(self) -> str:
        rows = self._rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join([self._title(), *(f"{name.ljust(width)}  {value}" for name, value in rows)])

    def _repr_html_(self) -> str:
        return html_table(self._rows(), "ll", caption=self._title())
