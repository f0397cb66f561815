"""What a run of continuous batching found: times of each request, GPU time by phase, occupancy, goodput.

Two identities hold on every run and catch a lost request or second: the phases sum to the run's length, and (Little's
law) the integral of the number of requests in the system is the sum of the times that they spent in it.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from lessonlib.base.checks import between, checked, choice, items, rate
from lessonlib.base.elementwise import ratio
from lessonlib.base.errors import printable
from lessonlib.base.text import html_table
from lessonlib.base.units import format_bytes, format_percent, format_seconds
from lessonlib.policy.full_server import full_batch
from lessonlib.policy.mix import price
from lessonlib.policy.serving.traffic import Traffic
from lessonlib.time.deployment import Deployment

MOST_SMALL = 30  # requests that are too few to have a rate
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
    their mean L, arrival rate times mean latency (Little's law). `wait`: seconds from admission to the last token, and
    `seconds_per_request` the GPU's for each that finished: on a run that is long beside it, and keeps the GPU busy, the
    mean number running times `seconds_per_request` is the mean `wait`. `recomputed_tokens`: prefilled again after a
    preemption, whichever phase it was done in.
    """

    deployment: Deployment
    traffic: Traffic
    policy: str  # how prompts were prefilled, in words
    block: int  # tokens of a block of memory
    max_batch: float  # requests that may hold memory at a time, apart from what fits
    admitted: Any  # when each request first got memory
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
    wait = property(lambda self: self.finish - self.admitted)
    elapsed = property(lambda self: self.end - self.start)
    busy = property(lambda self: math.fsum(s for phase, s in self.seconds.items() if phase != "idle"))
    seconds_per_request = property(lambda self: ratio(self.busy, float(self.finished)))
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
        return min(1.0, self.busy / self.elapsed)  # rounding apart, it cannot be more

    @property
    def mean_running(self) -> float:
        """Requests that hold memory, on average over time."""
        return float(np.sum(self.occupancy.running[:-1] * np.diff(self.occupancy.time)) / self.elapsed)

    @property
    def capacity(self) -> float:
        """Requests a second that this server can take of such traffic for ever: those of its full batch, by `price`.

        With prompts in chunks that ride on decode steps it is a little more: prompts are priced by themselves.
        """
        whole, mix = replace(self.deployment, prefill_chunk=None), self.traffic.request
        batch = min(full_batch(whole, mix, self.block), self.max_batch)
        return len(self.traffic) / price(whole, mix, int(batch)).seconds

    @property
    def growth(self) -> float:
        """Requests a second by which the queue grows, as offered less capacity; 0 where the server keeps up.

        Up to MOST_SMALL arrivals have no rate, and none is asked of them. NaN where all arrive at once.
        """
        offered = self.traffic.requests_per_second
        if math.isnan(offered):
            return math.nan
        return max(0.0, offered - self.capacity) if len(self.traffic) > MOST_SMALL else 0.0

    @checked(name=choice(TIMES), at=items(between(0, 100, "per cent")))
    def percentiles(self, name: str, at: tuple[float, ...] = (50, 90, 99)) -> tuple[float, ...]:
        """Percentiles of "ttft", "time_to_answer", "tpot" or "latency" over the requests that have one, or NaN.

        In a run that ended early these are the lucky requests: see `unfinished`. Past capacity (`growth` above 0) a
        percentile says how long was watched, and nothing about the rate.
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
        return "\n".join([printable(title), *(f"{name.ljust(width)}  {value}" for name, value in rows)])

    def _repr_html_(self) -> str:
        title, rows = _in_words(self)
        return html_table(rows, "ll", caption=title)


def _offered(run: ServingRun) -> str:
    offered = run.traffic.tokens_per_second
    return "" if math.isnan(offered) else f"offered {offered:,.1f}, "


def _in_words(run: ServingRun) -> tuple[str, list[tuple[str, str]]]:
    """A title, and what was found, each by its name."""
    where = f"{run.deployment.devices} x {run.deployment.accelerator.name}"
    phases = [f"{phase} {format_percent(s / run.elapsed)}" for phase, s in run.seconds.items() if s > 0]
    rows = [
        ("requests", f"{len(run.traffic):,}; {run.finished:,} finished, {len(run.unfinished):,} unfinished"),
        ("run", f"{format_seconds(run.elapsed)} in {run.events:,} events; {run.ended}"),
        ("output", f"{run.output_tokens:,} tokens; {_offered(run)}served {run.tokens_per_second:,.1f} tokens/s"),
        ("GPU time", ", ".join(phases)),
        ("running", f"{run.mean_running:,.1f} on average, {run.peak_running:,} at most"),
        ("cache", f"at most {format_bytes(run.peak_cache_bytes)} of {format_bytes(run.cache_bytes_available)}"),
        ("preemptions", f"{run.preemptions.sum():,}; {run.recomputed_tokens:,} tokens prefilled again"),
    ]
    growth = run.growth
    if growth > 0:
        words = f"no percentile exists; the queue grows by {growth:.2g} requests a second"
        rows.append(("past capacity", f"{run.capacity:.3g} requests a second: {words}"))
    for name, words in () if growth > 0 else TIMES.items():
        values = " / ".join(format_seconds(value, 3) for value in run.percentiles(name))
        rows.append((f"{words}, 50 / 90 / 99 %", values))
    return f"Continuous batching: {run.deployment.model.name} on {where}; {run.policy}", rows
