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
    `ttft`, `time_to_answer`, `latency`: seconds from arrival to the first token, the first after the thought, the last.
    `seconds`: GPU seconds by phase, which sum to `elapsed` = end - start. `tokens_per_second`: output tokens of the
    whole server. `request_seconds`: the integral over time of the number of requests in the system, `mean_in_system`
    their mean L, arrival rate times mean latency (Little's law). `recomputed_tokens`: prefilled again after a
    preemption, whichever phase it was done in.
    """

    deployment: Deployment
    traffic: Traffic
    policy: str  # how prompts were prefilled, in words
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

    ttft = property(lambda self: self.first_token - self.traffic.arrivals)
    time_to_answer = property(lambda self: self.first_answer_token - self.traffic.arrivals)
    latency = property(lambda self: self.finish - self.traffic.arrivals)
    elapsed = property(lambda self: self.end - self.start)
    tokens_per_second = property(lambda self: self.output_tokens / self.elapsed)
    mean_in_system = property(lambda self: self.request_seconds / self.elapsed)

    @property
    def tpot(self) -> Any:
        """Seconds per output token after the first, stops for others' prefills and for preemptions included."""
        return (self.finish - self.first_token) / np.where(self.traffic.output > 1, self.traffic.output - 1.0, np.nan)

    @property
    def finished(self) -> int:
        return int(np.isfinite(self.finish).sum())

    @property
    def unfinished(self) -> Any:
        """Indices of the requests without an end: waiting, running, or not yet arrived when the run ended."""
        return np.flatnonzero(np.isnan(self.finish))

    @property
    def utilisation(self) -> float:
        """Share of the run in which the GPU was not idle. At 1 a server may still have room: a batch can grow."""
        busy = math.fsum(seconds for phase, seconds in self.seconds.items() if phase != "idle")
        return min(1.0, busy / self.elapsed)  # rounding apart, it cannot be more

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

    def __repr__(self) -> str:
        title, rows = _in_words(self)
        width = max(len(name) for name, _ in rows)
        return "\n".join([title, *(f"{name.ljust(width)}  {value}" for name, value in rows)])

    def _repr_html_(self) -> str:
        title, rows = _in_words(self)
        return html_table(rows, "ll", caption=title)


def _in_words(run: ServingRun) -> tuple[str, list[tuple[str, str]]]:
    """A title, and what was found, each by its name."""
    where = f"{run.deployment.devices} x {run.deployment.accelerator.name}"
    phases = [f"{phase} {format_percent(s / run.elapsed)}" for phase, s in run.seconds.items() if s > 0]
    rows = [
        ("requests", f"{len(run.traffic):,}; {run.finished:,} finished, {len(run.unfinished):,} unfinished"),
        ("run", f"{format_seconds(run.elapsed)} in {run.events:,} events; {run.ended}"),
        ("output", f"{run.output_tokens:,} tokens, {run.tokens_per_second:,.1f} tokens/s"),
        ("GPU time", ", ".join(phases)),
        ("running", f"{run.mean_running:,.1f} on average, {run.peak_running:,} at most"),
        ("cache", f"at most {format_bytes(run.peak_cache_bytes)} of {format_bytes(run.cache_bytes_available)}"),
        ("preemptions", f"{run.preemptions.sum():,}; {run.recomputed_tokens:,} tokens prefilled again"),
    ]
    for name, words in TIMES.items():
        values = " / ".join(format_seconds(value, 3) for value in run.percentiles(name))
        rows.append((f"{words}, 50 / 90 / 99 %", values))
    return f"Continuous batching: {run.deployment.model.name} on {where}; {run.policy}", rows
