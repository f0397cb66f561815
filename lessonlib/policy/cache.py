"""The KV cache over an answer: how it grows, what growth does to a step, and what paging can and cannot save.

    bytes at a position  = sum over kinds of layer of kappa held(tokens) + constant state
    step at a position   = linear layers + the neighbours' caches + its own cache + all-reduces + overhead
    cache passes weights = first span s with b (sum of kappa (read(s - 1) + 1) + state traffic) > weight bytes of a step
    traffic of an answer = sum over steps of the span: a triangle, not a rectangle of the final height

In a batch started together all sequences have the same context. In a steady state each neighbour is at its own place,
so their caches are priced at the mean over an answer. Paging reserves blocks as they fill: it removes what was reserved
and never used, and leaves the bytes that a step reads as they are. Source: Kwon et al., 2309.06180 (paging).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lessonlib.base.checks import checked, count, flag, items, numbers, wrong
from lessonlib.base.errors import MOST_TOKENS
from lessonlib.request.cost import request_cost
from lessonlib.request.request import BATCH, REQUEST, Request
from lessonlib.time.deployment import DEPLOYMENT, PLAIN, Deployment
from lessonlib.time.roofline import Phase, pass_cost
from lessonlib.work.passes import attention_work, decode_steps, equal_passes, linear_work


class KindBytes(NamedTuple):
    """Bytes that one sequence holds in all layers of one kind, at each of some token counts."""

    label: str
    layers: int
    bytes: Any


@checked(deployment=DEPLOYMENT, tokens=numbers(0, MOST_TOKENS))
def cache_by_kind(deployment: Deployment, tokens: Any) -> tuple[KindBytes, ...]:
    """Bytes of cache and constant state of one sequence by kind of layer, at `tokens` held (a number or an array).

    All devices together. The sum over kinds is `deployment.sequence_bytes(tokens)`, a draft model's share apart.
    Positions are not looked at: what a layer would hold, whether or not the model was trained that far.
    """
    found = []
    for kind in deployment.sizes.kinds:
        total = kind.sequence_bytes(tokens) + 0 * tokens
        found.append(KindBytes(kind.label, kind.layers, float(total) if total.ndim == 0 else total))
    return tuple(found)


@dataclass(frozen=True)
class StepParts:
    """Seconds of one decode step, apart. `linear` is the weights' share as long as they are memory bound."""

    linear: Any
    neighbours: Any
    own: Any
    other: Any  # all-reduces and overhead
    seconds = property(lambda self: self.linear + self.neighbours + self.own + self.other)


@checked(deployment=DEPLOYMENT, request=REQUEST)
def steady_attention_seconds(deployment: Deployment, request: Request) -> float:
    """Seconds that one sequence's attention adds to a decode step, on average over its answer. 0 without a step."""
    count = float(request.output - 1)
    if not count:
        return 0.0
    steps = decode_steps(deployment.sizes, float(request.prompt), count, 1.0)
    return float(Phase(deployment, [steps]).attention.seconds / count)


def shared_step_seconds(deployment: Deployment, batch: int) -> tuple[float, float]:
    """Seconds of a decode step whatever the spans: its linear layers, and its all-reduces and overhead."""
    step = pass_cost(deployment, 1, batch=batch)
    return float(step.linear.seconds), float(step.communication + step.overhead)


@checked(deployment=PLAIN, request=REQUEST, position=numbers(1, MOST_TOKENS, whole=True), batch=BATCH, together=flag())
def step_parts(
    deployment: Deployment, request: Request, position: Any, batch: int = 1, together: bool = False
) -> StepParts:
    """The step that emits output token `position` + 1, for position = 1 .. n_out - 1 (a number or an array).

    `together`: all sequences of the batch started at once. Otherwise a steady state: the neighbours are spread evenly
    over the answer, and cost their mean. Raises InvalidInputError for a position outside the answer, DoesNotFitError
    for a batch that does not fit: each at its end if `together`, at the mean of its answer otherwise.
    """
    request_cost(deployment, request)  # refuses one that is beyond the model's positions, or does not fit alone
    deployment.require_fit(request.prompt + (request.output if together else (request.output + 1) // 2), batch)
    steps = request.output - 1
    if np.any(position > steps):
        raise wrong("step_parts", "position", position.max(), f"whole numbers from 1 to {steps:,}, its steps")
    step = equal_passes(deployment.sizes, 1.0, request.prompt + position - 1, 1.0, 1.0)
    own = Phase(deployment, [step]).attention.seconds + 0 * position  # of constant state alone it is one number
    neighbour = own if together else steady_attention_seconds(deployment, request) + 0 * own
    linear, other = shared_step_seconds(deployment, batch)
    beside = math.ceil(batch / deployment.sizes.replicas) - 1  # on the same device, where each serves its own
    parts = (part + 0 * own for part in (linear, beside * neighbour, own, other))
    return StepParts(*(float(part) if np.ndim(part) == 0 else part for part in parts))


@checked(deployment=DEPLOYMENT, batch=BATCH)
def span_where_cache_passes_weights(deployment: Deployment, batch: int = 1) -> int | None:
    """The first span at which a step moves more bytes of cache and state than of weights; None when it never does.

    3,579 tokens for Llama-3.1-8B at batch 32; 114,517 at batch 1. A span counts the step's own token.
    """
    weights = sum(work.weights for work in linear_work(deployment.sizes, float(batch), float(batch)))

    def moved(span: int) -> float:
        works = (attention_work(kind, 1.0, span - 1.0, float(batch)) for kind in deployment.sizes.kinds)
        return sum(work.cache_read + work.cache_write + work.state for work in works)

    def first_above(low: int, high: int, unit: int = 1) -> int:
        """The first multiple of `unit` in (low, high] that moves more, by halving: between them it never moves less."""
        while high - low > unit:
            middle = (low + high) // 2 // unit * unit
            low, high = (middle, high) if moved(middle) <= weights else (low, middle)
        return high

    periods = {kind.mixer.period for kind in deployment.sizes.kinds if kind.mixer.period}
    anew = math.lcm(*periods)  # where all laws that begin anew are at their most
    last = MOST_TOKENS // anew * anew
    if moved(last) <= weights:
        return None
    end = first_above(0, last, anew)
    peaks = sorted({end, *(at for period in periods for at in range(end - anew + period, end, period))})
    peak = next(at for at in peaks if moved(at) > weights)
    return first_above(max((at for at in peaks if at < peak), default=end - anew), peak)


@dataclass(frozen=True)
class AnswerTraffic:
    """Bytes of cache read over an answer: as it is, as if the cache never grew, or had its final size all along."""

    triangle: float
    flat: float
    end: float


@checked(deployment=PLAIN, request=REQUEST, batch=BATCH)
def answer_traffic(deployment: Deployment, request: Request, batch: int = 1) -> AnswerTraffic:
    """Cache reads of all decode steps. `flat` and `end` are the two wrong sums that are taken for the triangle."""
    cost = request_cost(deployment, request, batch)
    count = request.output - 1

    def rectangle(context: float) -> float:
        works = (attention_work(kind, 1.0, context, float(cost.batch)) for kind in deployment.sizes.kinds)
        return count * sum(work.cache_read for work in works)

    last = float(request.prompt + count - 1)  # tokens that the last step finds cached
    return AnswerTraffic(cost.decode.cache_read, rectangle(float(request.prompt)), rectangle(last) if count else 0.0)


@dataclass(frozen=True)
class Paging:
    """Tokens of memory for a set of sequences: used, reserved contiguously to a maximum, reserved in blocks.

    `shared` is what prefix sharing saves of `paged`: the prefix's full blocks, stored once instead of once each.
    `contiguous_waste`, `paged_waste`: the share of each reservation that no token ever fills.
    """

    used: int
    contiguous: int
    paged: int
    shared: int
    contiguous_waste = property(lambda self: 1 - self.used / self.contiguous)
    paged_waste = property(lambda self: 1 - self.used / self.paged)


@checked(lengths=items(count(), least=1), maximum=count(), block=count(), prefix=count(0))
def paging(lengths: Sequence[int], maximum: int, block: int = 16, prefix: int = 0) -> Paging:
    """Memory of sequences of `lengths` tokens, exactly: one slot of `maximum` tokens each, against blocks of `block`.

    `prefix`: tokens that all sequences begin with; only its full blocks can be shared. Raises InvalidInputError for a
    length beyond the maximum or below the prefix. Multiply tokens by `deployment.cache_bytes_per_token` for bytes.
    """
    for i, length in enumerate(lengths):
        if not prefix <= length <= maximum:
            limits = f"a length from {prefix:,} (the prefix) to {maximum:,} (the maximum)"
            raise wrong("paging", f"lengths[{i}]", length, limits)
    blocks = sum(math.ceil(length / block) for length in lengths)
    shared_blocks = (prefix // block) * (len(lengths) - 1)
    return Paging(sum(lengths), len(lengths) * maximum, blocks * block, shared_blocks * block)
