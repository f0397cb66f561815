"""Cost of one request: the accounting identity, in closed form.

    T(n_in, n_out) = T_prefill(n_in) + sum over k = 1 .. n_out - 1 of T_decode(n_in + k)

The prefill emits output token 1; n_out - 1 decode steps emit the rest. For a fixed batch the linear term of a step does
not depend on k and each kind's attention term is proportional to its span: the sum over k is a closed form (work.py).
Everything broadcasts: numbers give plain floats, arrays give arrays.

Two clocks. `.seconds` is the GPU clock: busy seconds of the device for all b requests, prefilled in one pass and
decoded in lockstep. `.elapsed` is the request clock in a running server: the prompt prefilled alone, then steps at
batch b.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lessonlib.base.errors import (
    MOST_TOKENS,
    InvalidInputError,
    as_numbers,
    is_number,
    require_count,
    require_instance,
    shown,
)
from lessonlib.request.explain import Roof, assumptions, equations, html_view, text_table
from lessonlib.time.deployment import Deployment, require_deployment
from lessonlib.time.roofline import (
    Phase,
    PhaseNumbers,
    Trace,
    attention_numbers,
    communication_seconds,
    linear_seconds,
    pass_numbers,
)
from lessonlib.work.passes import attention_terms_of_steps, linear_work
from lessonlib.work.sizes import ScalarNamespace

MOST_CHUNKS = 100_000
BLOCK = 8192  # rows computed at a time: the intermediate arrays then stay in the processor's cache

REFUSALS = {
    1: "prompt is not a whole number of at least 1",
    2: "output is not a whole number of at least 1",
    3: "cached is not a whole number from 0 to prompt - 1",
    4: "batch is not a whole number of at least 1",
    5: "prompt + output is beyond the model's positions",
    6: "weights and cache of the batch do not fit in memory",
    7: f"the prompt needs more than {MOST_CHUNKS:,} prefill chunks",
}


def _as_input(name: str, value: Any, least: int, owner: str = "Request") -> Any:
    """A number as an int, an array-like as an array of float64; InvalidInputError for anything else."""
    if type(value) is int and least <= value <= MOST_TOKENS:  # the usual case, and the fast one
        return value
    if is_number(value):
        count = require_count(owner, name, value, least)
        if count > MOST_TOKENS:
            raise InvalidInputError(f"{owner}: {name} is {shown(value)}; expected at most 2**53, to count exactly.")
        return count
    array = as_numbers(value) if isinstance(value, list | tuple | np.ndarray) else None
    if array is None:
        what = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else shown(value)
        raise InvalidInputError(
            f"{owner}: {name} is {what}; expected a whole number of at least {least}, or an array of them."
        )
    return _as_input(name, array.item(), least, owner) if array.ndim == 0 else array


@dataclass(frozen=True, eq=False)
class Request:
    """Prompt tokens, output tokens, and how many of the prompt's tokens a prefix cache already holds.

    Each is a whole number, or an array of them (they broadcast). A number that cannot be meant raises
    InvalidInputError; in an array its cell becomes NaN in the results, and `RequestCost.refused` says why.
    """

    prompt: Any
    output: Any
    cached: Any = 0
    is_array: bool = field(init=False, repr=False, default=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "prompt", _as_input("prompt", self.prompt, 1))
        put(self, "output", _as_input("output", self.output, 1))
        put(self, "cached", _as_input("cached", self.cached, 0))
        put(self, "is_array", any(type(v) is not int for v in (self.prompt, self.output, self.cached)))
        if self.is_array:
            _broadcast_shape(self, 1)
        elif self.cached >= self.prompt:
            raise InvalidInputError(
                f"Request: cached is {self.cached:,} but the prompt has {self.prompt:,} tokens; at least one prompt "
                "token must be computed, so expected at most prompt - 1."
            )


def require_case(owner: str, deployment: Any, request: Any, arrays: bool = False) -> None:
    """InvalidInputError unless these are a Deployment and a Request, one of plain numbers unless `arrays`."""
    require_deployment(owner, deployment)
    require_instance(owner, "request", request, Request, "Request(prompt=128, output=12_800)")
    if request.is_array and not arrays:
        raise InvalidInputError(f"{owner}: the request has arrays; give one request.")


def require_batch(owner: str, batch: Any) -> Any:
    """A batch as an int, or an array of them as it is; InvalidInputError for what is neither."""
    return _as_input("batch", batch, 1, owner)


def require_chunks(owner: str, deployment: Deployment, new: Any) -> None:
    """InvalidInputError where `new` prompt tokens, or the most of an array, take more than MOST_CHUNKS passes."""
    if deployment.prefill_chunk is not None and np.any(np.asarray(new) / deployment.prefill_chunk > MOST_CHUNKS):
        raise InvalidInputError(f"{owner}: {REFUSALS[7]}; take a larger prefill_chunk.")


def counted(owner: str, request: Request, batch: Any = 1) -> tuple[Any, Any, Any, Any]:
    """(prompt, output, cached, batch): numbers as they are; arrays of one shape, NaN in each cell that is refused."""
    batch = require_batch(owner, batch)
    values = (request.prompt, request.output, request.cached, batch)
    if not request.is_array and type(batch) is int:
        return values
    _broadcast_shape(request, batch)
    bad = first_wrong(*values) > 0
    prompt, output, cached, batch = (np.where(bad, np.nan, value) for value in values)
    return prompt, output, cached, batch


def require_rows(owner: str, deployment: Any, request: Any) -> tuple[Any, Any, Any]:
    """(prompt, output, cached) of one request or several, arrays of one dimension in float64.

    InvalidInputError for more dimensions, for none at all, and for the first request that cannot be meant.
    """
    require_case(owner, deployment, request, arrays=True)
    columns = [np.atleast_1d(np.asarray(v, np.float64)) for v in (request.prompt, request.output, request.cached)]
    prompt, output, cached = np.broadcast_arrays(*columns)
    if prompt.ndim > 1 or not prompt.size:
        raise InvalidInputError(
            f"{owner}: the request's arrays have the shape {prompt.shape}; expected one dimension, with one request or "
            "more."
        )
    codes = first_wrong(prompt, output, cached, 1.0)
    if codes.any():
        row = int(np.argmax(codes > 0))
        raise InvalidInputError(
            f"{owner}: request {row} has prompt {prompt[row]:,.10g}, output {output[row]:,.10g}, cached "
            f"{cached[row]:,.10g}: {REFUSALS[int(codes[row])]}; mend it or leave it out."
        )
    return prompt, output, cached


def fits(deployment: Deployment, request: Request) -> dict[str, Any]:
    """Which requests (arrays) a server cannot take at all: reason to a mask. A request has the first that is true."""
    prompt, output, _ = require_rows("fits", deployment, request)
    tokens = prompt + output
    limit = deployment.max_positions
    long = np.zeros(tokens.shape, bool) if limit is None else tokens > limit
    large = ~long & (deployment.memory_needed(tokens, 1, np) > deployment.memory_available)
    positions = "" if limit is None else f" of {limit:,}"
    return {f"beyond the model's positions{positions}": long, "more than the memory holds beside the weights": large}


def _broadcast_shape(request: Request, batch: Any) -> tuple[int, ...]:
    shapes = {name: np.shape(getattr(request, name)) for name in ("prompt", "output", "cached")}
    shapes["batch"] = np.shape(batch)
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError:
        words = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise InvalidInputError(f"Request: the shapes do not broadcast together: {words}.") from None


class RequestCost:
    """What `batch` identical requests cost on a deployment. Floats, or arrays of the broadcast shape.

    `prefill`, `decode`: Phase. `ttft`: seconds to the first token, the prompt prefilled alone. `refused`: None for
    plain numbers; for arrays the code in REFUSALS of each NaN cell, 0 elsewhere.
    """

    __slots__ = ("batch", "decode", "deployment", "prefill", "refused", "request", "ttft")

    def __init__(
        self,
        deployment: Deployment,
        request: Request,
        batch: Any,
        prefill: PhaseNumbers,
        decode: PhaseNumbers,
        ttft: Any,
        refused: Any = None,
    ):
        overhead = deployment.efficiency.overhead
        self.deployment = deployment
        self.request = request
        self.batch = batch
        self.prefill = Phase(prefill, overhead)
        self.decode = Phase(decode, overhead)
        self.ttft = ttft
        self.refused = refused

    @property
    def seconds(self) -> Any:
        """GPU clock: busy seconds for all `batch` requests. One request's share is seconds / batch."""
        return self.prefill.seconds + self.decode.seconds

    @property
    def elapsed(self) -> Any:
        """Request clock: what one user waits in a running server, TTFT and then the steps at this batch."""
        return self.ttft + self.decode.seconds

    @property
    def tpot(self) -> Any:
        """Seconds per output token, decode time / (n_out - 1). NaN, not zero, for one output token: it is undefined."""
        steps = np.asarray(self.request.output, dtype=float) - 1
        seconds = np.asarray(self.decode.seconds)
        quotient = np.divide(seconds, steps, out=np.full(np.broadcast(seconds, steps).shape, np.nan), where=steps > 0)
        return float(quotient) if quotient.ndim == 0 else quotient

    @property
    def flops(self) -> Any:
        return self.prefill.flops + self.decode.flops

    @property
    def bytes(self) -> Any:
        return self.prefill.bytes + self.decode.bytes

    @property
    def decode_share(self) -> Any:
        """Share of the GPU clock that is decode."""
        return self.decode.seconds / self.seconds

    def why_refused(self, *index: int) -> str:
        """Why the cell at `index` is NaN, in words; "" when it was computed."""
        if self.refused is None:
            return ""
        shape = self.refused.shape
        whole = all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in index)
        inside = len(index) == len(shape) and all(i in range(size) for i, size in zip(index, shape, strict=True))
        if not whole or not inside:
            raise InvalidInputError(f"why_refused: {shown(index)} is no cell; the results have the shape {shape}.")
        return REFUSALS.get(int(self.refused[index]), "")

    def roofs(self) -> tuple[Roof, ...]:
        """One row for each roof: its FLOPs, bytes, both times and which of the two binds. For plain numbers."""
        return _roofs(self)

    def equations(self) -> str:
        """The equations with this request's numbers put in, as Markdown. For plain numbers."""
        return equations(self)

    def assumptions(self) -> tuple[str, ...]:
        """What the numbers take for granted, a sentence each."""
        return assumptions(self)

    def _repr_html_(self) -> str:
        return html_view(self)

    def __repr__(self) -> str:
        return text_table(self)


def _roofs(cost: RequestCost) -> tuple[Roof, ...]:
    if cost.refused is not None:
        raise InvalidInputError("roofs, equations and tables describe one request; ask for them with plain numbers.")
    deployment, request = cost.deployment, cost.request
    prompt, output, cached, batch = map(float, (request.prompt, request.output, request.cached, cost.batch))
    found: dict[tuple[str, str], list[Any]] = {}

    def tracer(phase: str) -> Any:
        def trace(part: str, flops: float, moved: float, count: float) -> None:
            compute, memory = flops / deployment.peak, moved / deployment.bandwidth
            row = found.setdefault((phase, part), [0.0, 0.0, 0.0, 0.0, 0.0, set()])
            for i, value in enumerate((flops, moved, compute, memory, max(compute, memory))):
                row[i] += count * value
            if count and (flops or moved):
                row[5].add("compute" if compute > memory else "memory")

        return trace

    prefill_numbers(deployment, prompt, cached, batch, ScalarNamespace, tracer("prefill"))
    decode_numbers(deployment, prompt, output, batch, ScalarNamespace, tracer("decode"))
    rows = []
    for (phase, part), (flops, moved, compute, memory, seconds, bounds) in found.items():
        bound = "both" if len(bounds) > 1 else "".join(bounds) or "nothing"
        rows.append(Roof(phase, part, flops, moved, compute, memory, seconds, bound))
    return tuple(rows)


def prefill_numbers(
    deployment: Deployment, prompt: Any, cached: Any, batch: Any, xp: Any = ScalarNamespace, trace: Trace | None = None
) -> PhaseNumbers:
    """The prompt's pass, or its chunks in turn. Only the last chunk needs logits, one position a sequence."""
    model = deployment.folded
    new = prompt - cached
    if deployment.prefill_chunk is None:
        return pass_numbers(deployment, model, new, cached, batch, 1.0, xp, trace)
    size = float(deployment.prefill_chunk)
    inner = xp.floor((new - 1) / size)  # chunks before the last, which has 1 .. size tokens
    total = pass_numbers(deployment, model, new - inner * size, cached + inner * size, batch, 1.0, xp, trace)
    most = 0 if np.all(np.isnan(inner)) else int(np.nanmax(inner))
    for i in range(most):
        chunk = pass_numbers(deployment, model, size, cached + i * size, batch, 0.0, xp, trace)
        total = total.plus(chunk if xp is ScalarNamespace else chunk.times(inner > i))
    return total


def decode_numbers(
    deployment: Deployment, prompt: Any, output: Any, batch: Any, xp: Any = ScalarNamespace, trace: Trace | None = None
) -> PhaseNumbers:
    """The n_out - 1 steps after the prefill, or the speculative rounds that stand in for them."""
    if deployment.speculation is not None:
        return _speculative_numbers(deployment, prompt, output, batch, xp, trace)
    model = deployment.folded
    steps = output - 1.0
    step = linear_work(model, batch, batch, xp)
    flops, seconds, read, write, state = attention_numbers(
        deployment, model, lambda kind: attention_terms_of_steps(kind, prompt, steps, batch, xp), xp, trace
    )
    return PhaseNumbers(
        steps * step.flops,
        steps * step.bytes,
        steps * linear_seconds(deployment, step, xp, trace, steps),
        flops,
        seconds,
        read,
        write,
        state,
        communication_seconds(deployment, model, batch * steps, steps),
        steps,
    )


def _speculative_numbers(
    deployment: Deployment, prompt: Any, output: Any, batch: Any, xp: Any, trace: Trace | None
) -> PhaseNumbers:
    """(n_out - 1) / E rounds of g draft passes and one verifying pass of g + 1 tokens, at the answer's mean context."""
    speculation = deployment.speculation
    assert speculation is not None
    drafts = float(speculation.draft_tokens)
    rounds = (output - 1.0) / speculation.tokens_per_round
    context = prompt + (output - 2.0) / 2

    def counted(prefix: str, count: Any) -> Trace | None:
        if trace is None:
            return None
        return lambda part, flops, moved, each: trace(prefix + part, flops, moved, count * each)

    verifying = counted("verifying: ", rounds)
    verify = pass_numbers(deployment, deployment.folded, drafts + 1, context, batch, drafts + 1, xp, verifying)
    total = verify.times(rounds)
    if deployment.folded_draft is not None:
        drafting = counted("drafting: ", rounds * drafts)
        draft = pass_numbers(deployment, deployment.folded_draft, 1.0, context, batch, 1.0, xp, drafting)
        total = total.plus(draft.times(rounds * drafts))
    return total


def _ttft(deployment: Deployment, prompt: Any, cached: Any, batch: Any, prefill: PhaseNumbers, xp: Any) -> Any:
    alone = prefill if isinstance(batch, float) and batch == 1 else prefill_numbers(deployment, prompt, cached, 1.0, xp)
    return alone.seconds(deployment.efficiency.overhead)


def request_cost(deployment: Deployment, request: Request, batch: Any = 1) -> RequestCost:
    """Cost of `batch` identical requests, prefilled in one pass and decoded in lockstep.

    `request` and `batch` are numbers or arrays that broadcast. With numbers, raises InvalidInputError for a value that
    cannot be meant or is beyond the model's positions, DoesNotFitError when weights and cache of `batch` sequences of
    prompt + output tokens do not fit. With arrays such cells become NaN, and `.refused` says why.
    """
    if not isinstance(deployment, Deployment) or not isinstance(request, Request):
        require_case("request_cost", deployment, request)
    if type(batch) is not int or not 1 <= batch <= MOST_TOKENS:
        batch = _as_input("batch", batch, 1, "request_cost")
    if request.is_array or type(batch) is not int:
        return _array_cost(deployment, request, batch)
    b = float(batch)
    prompt, output, cached = float(request.prompt), float(request.output), float(request.cached)
    limit = deployment.max_positions
    if limit is not None and prompt + output > limit:
        raise InvalidInputError(
            f"Request: prompt {request.prompt:,} + output {request.output:,} is {request.prompt + request.output:,} "
            f"tokens, but {deployment.model.name} has {limit:,} positions; shorten one of them."
        )
    if deployment.memory_needed(prompt + output, b) > deployment.memory_available:
        deployment.require_fit(request.prompt + request.output, batch)
    if deployment.prefill_chunk is not None:
        require_chunks("request_cost", deployment, prompt - cached)
    prefill = prefill_numbers(deployment, prompt, cached, b)
    decode = decode_numbers(deployment, prompt, output, b)
    ttft = _ttft(deployment, prompt, cached, b, prefill, ScalarNamespace)
    return RequestCost(deployment, request, batch, prefill, decode, ttft)


def _not_whole(value: Any, least: int) -> Any:
    return ~((value >= least) & (value <= MOST_TOKENS) & (np.floor(value) == value))


def first_wrong(prompt: Any, output: Any, cached: Any, batch: Any, *, deployment: Deployment | None = None) -> Any:
    """The code in REFUSALS of the first thing wrong with each cell, 0 where nothing is: an array.

    Without a deployment, only what no deployment could take. Numbers or arrays in.
    """
    checks = [
        (1, _not_whole(prompt, 1)),
        (2, _not_whole(output, 1)),
        (3, _not_whole(cached, 0) | np.logical_not(cached < prompt)),
        (4, _not_whole(batch, 1)),
    ]
    if deployment is not None:
        limit, chunk = deployment.max_positions, deployment.prefill_chunk
        checks += [
            (5, False if limit is None else prompt + output > limit),
            (6, deployment.memory_needed(prompt + output, batch, np) > deployment.memory_available),
            (7, False if chunk is None else (prompt - cached) / chunk > MOST_CHUNKS),
        ]
    codes = np.zeros(np.broadcast_shapes(*(np.shape(v) for v in (prompt, output, cached, batch))), dtype=np.uint8)
    for code, wrong in reversed(checks):  # the first one wrong is written last, and so stays
        if np.any(wrong):
            codes[np.broadcast_to(wrong, codes.shape)] = code
    return codes


def _array_cost(deployment: Deployment, request: Request, batch: Any) -> RequestCost:
    """`request_cost` for arrays, a block of rows at a time, into arrays that are allocated once."""
    shape = _broadcast_shape(request, batch)
    size = math.prod(shape)
    inputs = [
        np.broadcast_to(value, shape).reshape(-1) if isinstance(value, np.ndarray) else float(value)
        for value in (request.prompt, request.output, request.cached, batch)
    ]
    refused = np.empty(size, dtype=np.uint8)
    columns: list[Any] = [np.nan] * (2 * len(PhaseNumbers._fields) + 1)
    for start in range(0, size, BLOCK):
        rows = slice(start, start + BLOCK)
        block = [value[rows] if isinstance(value, np.ndarray) else value for value in inputs]
        with np.errstate(invalid="ignore"):
            codes = first_wrong(*block, deployment=deployment)
        refused[rows] = codes
        bad = codes > 0
        if bad.any():  # computed as 1 -> 1, then blanked
            block = [np.where(bad, harmless, value) for harmless, value in zip((1, 1, 0, 1), block, strict=True)]
        prompt, output, cached, b = block
        prefill = prefill_numbers(deployment, prompt, cached, b, np)
        decode = decode_numbers(deployment, prompt, output, b, np)
        results = (*prefill, *decode, _ttft(deployment, prompt, cached, b, prefill, np))
        for i, result in enumerate(results):
            if isinstance(columns[i], np.ndarray) or isinstance(result, np.ndarray) or bad.any():
                if not isinstance(columns[i], np.ndarray):
                    columns[i] = np.full(size, columns[i]) if start else np.empty(size)
                columns[i][rows] = result
                columns[i][rows][bad] = np.nan
            else:
                columns[i] = result
    columns = [
        column.reshape(shape) if isinstance(column, np.ndarray) else np.broadcast_to(np.float64(column), shape)
        for column in columns
    ]
    fields = len(PhaseNumbers._fields)
    prefill, decode = PhaseNumbers(*columns[:fields]), PhaseNumbers(*columns[fields : 2 * fields])
    return RequestCost(deployment, request, batch, prefill, decode, columns[-1], refused.reshape(shape))
