"""Cost of a mix of requests, each with its own lengths, on a server that always has as many of them under way.

    held        = sum(output x bytes of prompt + output) / sum(output)    of a slot, on average over time
    concurrency = M_free / held                                           reserved for prompt + output tokens each
    GPU seconds = sum over requests of T_prefill, alone, + sum over its steps of (linear part at batch b) / b
                  + its own attention
    TPOT        = b x sum of decode's GPU seconds / sum of steps          a step has the mean of all spans

A request stays as many steps as it has output tokens, so a slot is weighted by these. For requests that are all alike,
`price` is request_cost with the prompts prefilled one by one. The sum is over all requests, none is drawn.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lessonlib.base.checks import checked, flag
from lessonlib.base.elementwise import ratio
from lessonlib.base.errors import InvalidInputError
from lessonlib.model.precision import ATTENTION
from lessonlib.policy.estimates import ridge_tokens
from lessonlib.policy.levers import (
    Lever,
    faster_peak,
    more_bandwidth,
    more_memory,
    prefix_cache,
    quantised,
    shorter_answer,
    speculative_decoding,
)
from lessonlib.request.cost import decode_phase, prefill_phase
from lessonlib.request.request import BATCH, REQUESTS, Case, Request, columns_of
from lessonlib.time.deployment import DEPLOYMENT, Deployment
from lessonlib.time.roofline import Phase


class PartSeconds(NamedTuple):
    """A part of a phase: its GPU seconds where compute binds and where memory does, its FLOPs and its bytes.

    `bound`: "compute" or "memory", whichever binds for more of its seconds.
    """

    compute: float
    memory: float
    flops: float
    bytes: float

    @property
    def seconds(self) -> float:
        return self.compute + self.memory

    @property
    def bound(self) -> str:
        return "compute" if self.compute > self.memory else "memory"


@dataclass(frozen=True)
class PhaseSeconds:
    """GPU seconds of one phase of all requests, each one's share of its batch: `linear`, `attention`, and the rest."""

    linear: PartSeconds
    attention: PartSeconds
    communication: float
    overhead: float
    seconds = property(lambda self: self.linear.seconds + self.attention.seconds + self.communication + self.overhead)
    flops = property(lambda self: self.linear.flops + self.attention.flops)


@dataclass(frozen=True, eq=False)
class TrafficCost:
    """What all requests cost together when `batch` of them are always under way.

    `steps`: decode steps of all requests. `ttft`: seconds of each request's prefill alone, an array. `seconds`: the GPU
    clock, and `decode_share` the share of it that is decode. `tpot`: seconds per output token after the first, without
    stops for others' prefills, and `tpot_with_stops` with them; NaN where no request has a second token.
    """

    batch: int
    steps: float
    prefill: PhaseSeconds
    decode: PhaseSeconds
    ttft: Any
    seconds = property(lambda self: self.prefill.seconds + self.decode.seconds)
    decode_share = property(lambda self: self.decode.seconds / self.seconds)
    tpot = property(lambda self: ratio(self.batch * self.decode.seconds, self.steps))
    tpot_with_stops = property(lambda self: ratio(self.batch * self.seconds, self.steps))

    @property
    def request_clock_decode_share(self) -> float:
        """Share of all waiting, each request's TTFT and then its steps at this batch, that is decode."""
        waiting = self.batch * self.decode.seconds
        return waiting / (self.prefill.seconds + waiting)


@checked(deployment=DEPLOYMENT, request=REQUESTS, paged=flag())
def mean_slot_bytes(deployment: Deployment, request: Request, paged: bool = False) -> float:
    """Bytes that a slot holds on average over time: reserved at prompt + output, or `paged`, what is filled so far."""
    prompt, output, _ = columns_of("mean_slot_bytes", request)
    held = deployment.sequence_bytes(prompt + (output / 2 if paged else output))
    return float(np.sum(held * output) / np.sum(output))


@checked(deployment=DEPLOYMENT, request=REQUESTS, paged=flag())
def concurrency(deployment: Deployment, request: Request, paged: bool = False) -> int:
    """How many requests of a mix memory holds at a time, on average; of requests all alike it is the memory batch.

    Raises DoesNotFitError when memory does not hold even one of them.
    """
    prompt, output, _ = columns_of("concurrency", request)
    each = mean_slot_bytes(deployment, request, paged)
    if not each:
        raise InvalidInputError(f"concurrency: {deployment.model.name} keeps neither cache nor state; any number fits.")
    found = math.floor(deployment.memory_free / each)
    if found < 1:
        deployment.require_fit(int(np.max(prompt + output)))
    return max(1, found)


@checked(deployment=DEPLOYMENT, request=REQUESTS)
def traffic_omega(deployment: Deployment, request: Request) -> float:
    """omega of a mix: its roof batch over its memory batch; of requests all alike, n_out K ridge / M_free.

    Raises DoesNotFitError when the weights leave no memory.
    """
    prompt, output, cached = columns_of("traffic_omega", request)
    if deployment.memory_free <= 0:
        deployment.require_fit(1)
    roof = ridge_tokens(deployment) / (1 + float(np.sum(prompt - cached)) / float(np.sum(output)))
    return roof * mean_slot_bytes(deployment, request) / deployment.memory_free


@checked(deployment=DEPLOYMENT, request=REQUESTS, batch=BATCH)
def price(deployment: Deployment, request: Request, batch: int) -> TrafficCost:
    """GPU seconds of all requests (arrays of one dimension) when `batch` of them are always under way.

    Whether they fit is not asked: see `fits` and `concurrency`. Raises InvalidInputError for a deployment with prefill
    chunks, which belong to engines that mix them into decode steps.
    """
    prompt, output, cached = columns_of("price", request)
    if not request.is_array:
        raise InvalidInputError("price: the request has no array; expected a Request of arrays.")
    if deployment.prefill_chunk is not None:
        raise InvalidInputError("price: the deployment has a prefill_chunk; take one without: prompts are taken whole.")
    prefill = prefill_phase(deployment, prompt, cached, 1.0)
    decode = decode_phase(deployment, prompt, output, float(batch))
    phases = (_summed(prefill, len(prompt), 1.0), _summed(decode, len(prompt), 1.0 / batch))
    return TrafficCost(batch, float(np.sum(output - 1)), *phases, prefill.seconds + np.zeros(len(prompt)))


def _summed(phase: Phase, rows: int, share: float) -> PhaseSeconds:
    """A phase of many requests, each its `share` of a batch, added up."""

    def total(value: Any) -> float:
        return share * float(np.sum(np.broadcast_to(value, (rows,))))

    parts = {part: [0.0, 0.0, 0.0, 0.0] for part in (True, False)}
    for roof in phase.roofs.values():
        busy, row = roof.compute_seconds > roof.memory_seconds, parts[roof.kernel != ATTENTION]
        sums = (np.where(busy, roof.seconds, 0.0), np.where(busy, 0.0, roof.seconds), roof.flops, roof.bytes)
        row[:] = (before + total(value) for before, value in zip(row, sums, strict=True))
    linear, attention = PartSeconds(*parts[True]), PartSeconds(*parts[False])
    return PhaseSeconds(linear, attention, total(phase.communication), total(phase.overhead))


class Ranked(NamedTuple):
    """A lever: GPU seconds before over after, at one batch, and with each at its own memory limit."""

    name: str
    held: float
    at_limit: float


@checked(deployment=DEPLOYMENT, request=REQUESTS)
def usual_levers(deployment: Deployment, request: Request) -> dict[str, Lever]:
    """What one may do, in words to a lever. Left out is what the deployment or the requests have already."""
    columns_of("usual_levers", request)
    found = {
        "twice the FLOP/s": faster_peak(2),
        "twice the bandwidth": more_bandwidth(2),
        "twice the memory": more_memory(2),
        "answers half as long": shorter_answer(0.5),
    }
    bits = {part: deployment.precision.bytes_of(part) for part in ("blocks", "experts", "cache")}
    if min(bits["blocks"], bits["experts"]) > 1:
        found["4-bit weights (head stays)"] = quantised(blocks="int4", experts="int4")
    if bits["cache"] > 1:
        found["fp8 cache"] = quantised(cache="fp8")
    if deployment.speculation is None:
        found["speculation (4 free drafts, 70 % accepted)"] = speculative_decoding(4, 0.7, "free")
    if not np.any(request.cached):
        found["half of each prompt in a prefix cache"] = prefix_cache(0.5)
    return found


@checked(deployment=DEPLOYMENT, request=REQUESTS, batch=BATCH)
def rank_levers(deployment: Deployment, request: Request, batch: int) -> list[Ranked]:
    """The usual levers and a prefill that takes no time, best first at the memory limit."""

    def both(case: Case) -> tuple[TrafficCost, TrafficCost]:
        """At its batch, and at its own memory limit: one price where these are one."""
        held, limit = price(*case), concurrency(case.deployment, case.request)
        return held, held if limit == case.batch else price(case.deployment, case.request, limit)

    columns_of("rank_levers", request)
    before = both(Case(deployment, request, batch))
    free = (cost.seconds / cost.decode.seconds if cost.decode.seconds else math.inf for cost in before)
    found = [Ranked("a prefill that takes no time", *free)]
    for name, lever in usual_levers(deployment, request).items():
        after = both(lever(deployment, request, batch))
        found.append(Ranked(name, *(old.seconds / new.seconds for old, new in zip(before, after, strict=True))))
    return sorted(found, key=lambda ranked: (-ranked.at_limit, -ranked.held, ranked.name))
