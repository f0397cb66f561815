"""The KV cache over an answer: how it grows, what growth does to a step, and what paging can and cannot save.

    bytes at a position  = sum over kinds of layer of kappa held(tokens) + constant state
    step at position     = linear layers + the neighbours' caches + the own cache + all-reduces + overhead
    cache passes weights = the first span s with b (sum of kappa (read(s - 1) + 1) + state traffic) > weight bytes of a
    step traffic of an answer = sum over steps of the span: a triangle, not a rectangle of the final height

In a batch started together all sequences have the same context. In a steady state each neighbour is at a place of its
own, so their caches are priced at the mean over an answer. Paging (Kwon et al., 2309.06180) reserves blocks as they
fill; it removes what was reserved and never used, and does not change the bytes that are read by one.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lessonlib.base.errors import MOST_TOKENS, InvalidInputError, require_count, require_flag, require_numbers, shown
from lessonlib.request.cost import RequestCost, request_cost
from lessonlib.request.request import Request, require_case
from lessonlib.time.deployment import Deployment, require_deployment
from lessonlib.time.roofline import Phase, pass_cost
from lessonlib.work.passes import attention_work, decode_steps, equal_passes, linear_work


def _one_request(owner: str, deployment: Deployment, request: Request, batch: Any = 1) -> RequestCost:
    """The cost of one request whose steps emit a token each; refuses arrays, speculation, and what does not fit."""
    require_case(owner, deployment, request, arrays=True)
    cost = request_cost(deployment, request, batch)
    if cost.refused is not None:
        raise InvalidInputError(f"{owner}: the request or the batch has arrays; give one request and one batch.")
    if deployment.speculation is not None:
        raise InvalidInputError(
            f"{owner}: the deployment has speculation; expected None, as a step here emits one token."
        )
    return cost


@dataclass(frozen=True)
class KindBytes:
    """Bytes that one sequence holds in all layers of one kind, at each of some token counts."""

    label: str
    layers: int
    bytes: Any


def cache_by_kind(deployment: Deployment, tokens: Any) -> tuple[KindBytes, ...]:
    """Bytes of cache and constant state of one sequence by kind of layer, at `tokens` held (a number or an array).

    All devices together. The sum over kinds is `deployment.sequence_bytes(tokens)`, a draft model's share apart.
    Positions are not looked at: what a layer would hold, whether or not the model was trained that far.
    """
    require_deployment("cache_by_kind", deployment)
    held = require_numbers("cache_by_kind", "tokens", tokens)
    if not np.all((held >= 0) & (held <= MOST_TOKENS)):
        raise InvalidInputError(f"cache_by_kind: tokens is {shown(tokens)}; expected numbers from 0 to 2**53.")
    found = []
    for kind in deployment.sizes.kinds:
        total = kind.sequence_bytes(held) + 0 * held
        found.append(KindBytes(kind.label, kind.layers, float(total) if total.ndim == 0 else total))
    return tuple(found)


@dataclass(frozen=True)
class StepParts:
    """Seconds of one decode step, apart. `linear` is the weights' share as long as they are memory bound."""

    linear: Any
    neighbours: Any
    own: Any
    other: Any  # all-reduces and overhead

    @property
    def seconds(self) -> Any:
        return self.linear + self.neighbours + self.own + self.other


def steady_attention_seconds(deployment: Deployment, request: Request) -> float:
    """Seconds that one sequence's attention adds to a decode step, on average over its answer. 0 without a step."""
    require_case("steady_attention_seconds", deployment, request)
    count = float(request.output - 1)
    if not count:
        return 0.0
    return float(
        Phase(deployment, [decode_steps(deployment.sizes, float(request.prompt), count, 1.0)]).attention.seconds / count
    )


def linear_step_seconds(deployment: Deployment, batch: int) -> float:
    """Seconds of the linear layers of one decode step: streaming the weights, until the batch reaches the ridge."""
    return float(pass_cost(deployment, 1, batch=require_count("linear_step_seconds", "batch", batch)).linear.seconds)


def other_step_seconds(deployment: Deployment, batch: int) -> float:
    """Seconds of a decode step that are neither linear layers nor attention: all-reduces and overhead."""
    step = pass_cost(deployment, 1, batch=require_count("other_step_seconds", "batch", batch))
    return float(step.communication + step.overhead)


def step_parts(
    deployment: Deployment, request: Request, position: Any, batch: int = 1, together: bool = False
) -> StepParts:
    """The step that emits output token `position` + 1, for position = 1 .. n_out - 1 (a number or an array).

    `together`: all sequences of the batch started at once. Otherwise a steady state: the neighbours are spread evenly
    over the answer, and cost their mean. Raises InvalidInputError for a position outside the answer, DoesNotFitError
    for a batch that does not fit: each at its end if `together`, at the mean of its answer otherwise.
    """
    _one_request("step_parts", deployment, request)
    batch, together = require_count("step_parts", "batch", batch), require_flag("step_parts", "together", together)
    deployment.require_fit(request.prompt + (request.output if together else (request.output + 1) // 2), batch)
    steps = request.output - 1
    k = require_numbers("step_parts", "position", position)
    if not np.all((k >= 1) & (k <= steps) & (k == np.floor(k))):
        raise InvalidInputError(
            f"step_parts: position is {shown(position)}; expected whole numbers from 1 to {steps:,}, its steps."
        )
    own = Phase(deployment, [equal_passes(deployment.sizes, 1.0, request.prompt + k - 1, 1.0, 1.0)]).attention.seconds
    neighbour = own if together else steady_attention_seconds(deployment, request) + 0 * own
    linear = linear_step_seconds(deployment, batch) + 0 * own
    parts = (linear, (batch - 1) * neighbour, own, other_step_seconds(deployment, batch) + 0 * own)
    return StepParts(*(float(part) if np.ndim(part) == 0 else part for part in parts))


def span_where_cache_passes_weights(deployment: Deployment, batch: int = 1) -> int | None:
    """The first span at which a step moves more bytes of cache and state than of weights; None when it never does.

    3,579 tokens for Llama-3.1-8B at batch 32; 114,517 at batch 1. A span counts the step's own token.
    """
    require_deployment("span_where_cache_passes_weights", deployment)
    batch = require_count("span_where_cache_passes_weights", "batch", batch)
    weights = linear_work(deployment.sizes, float(batch), float(batch)).weights

    def moved(span: int) -> float:
        works = (attention_work(kind, 1.0, span - 1.0, float(batch)) for kind in deployment.sizes.kinds)
        return sum(work.cache_read + work.cache_write + work.state for work in works)

    if moved(MOST_TOKENS) <= weights:
        return None
    low, high = 0, MOST_TOKENS  # moved() never falls as the span grows, so halving finds the first span above
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if moved(middle) <= weights else (low, middle)
    return high


@dataclass(frozen=True)
class AnswerTraffic:
    """Bytes of cache read over an answer: as it is, as if the cache never grew, or had its final size all along."""

    triangle: float
    flat: float
    end: float


def answer_traffic(deployment: Deployment, request: Request, batch: int = 1) -> AnswerTraffic:
    """Cache reads of all decode steps. `flat` and `end` are the two wrong sums that the triangle is taken for."""
    cost = _one_request("answer_traffic", deployment, request, batch)
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
    """

    used: int
    contiguous: int
    paged: int
    shared: int

    @property
    def contiguous_waste(self) -> float:
        """Share of the contiguous reservation that no token ever fills."""
        return 1 - self.used / self.contiguous

    @property
    def paged_waste(self) -> float:
        """Share of the blocks that no token ever fills: the empty ends of last blocks."""
        return 1 - self.used / self.paged


def paging(lengths: Sequence[int], maximum: int, block: int = 16, prefix: int = 0) -> Paging:
    """Memory of sequences of `lengths` tokens, exactly: one slot of `maximum` tokens each, against blocks of `block`.

    `prefix`: tokens that all sequences begin with; only its full blocks can be shared. Raises InvalidInputError for a
    length beyond the maximum or below the prefix. Multiply tokens by `deployment.cache_bytes_per_token` for bytes.
    """
    maximum, block = require_count("paging", "maximum", maximum), require_count("paging", "block", block)
    prefix = require_count("paging", "prefix", prefix, 0)
    if not isinstance(lengths, Iterable):
        raise InvalidInputError(f"paging: lengths is {shown(lengths)}; expected the lengths of all sequences, a list.")
    flat = lengths.ndim == 1 if isinstance(lengths, np.ndarray) else isinstance(lengths, list | tuple | range)
    if not flat:
        raise InvalidInputError(f"paging: lengths is {shown(lengths)}; expected a list of whole numbers.")
    counts = [require_count("paging", f"length {i}", length) for i, length in enumerate(lengths)]
    if not counts:
        raise InvalidInputError("paging: lengths is empty; expected at least one sequence.")
    for i, length in enumerate(counts):
        if not prefix <= length <= maximum:
            raise InvalidInputError(
                f"paging: length {i} is {length:,}; expected from {prefix:,} (the prefix) to {maximum:,} (the maximum)."
            )
    blocks = sum(math.ceil(length / block) for length in counts)
    shared_blocks = (prefix // block) * (len(counts) - 1)
    return Paging(sum(counts), len(counts) * maximum, blocks * block, shared_blocks * block)
