"""Cost of one request: the accounting identity, in closed form.

    T(n_in, n_out) = T_prefill(n_in) + sum over k = 1 .. n_out - 1 of T_decode(n_in + k)

The prefill emits output token 1; n_out - 1 decode steps emit the rest. For a fixed batch the linear term of a step does
not depend on k and each kind's attention term is proportional to its span: the sum over k is a closed form
(work/passes.py). Everything broadcasts: numbers give plain floats, arrays give arrays.

Two clocks: of the GPU, busy seconds for all b requests, prefilled in one pass and decoded in lockstep; and of a request
that no other disturbs, its prompt prefilled alone, then steps at batch b. The wait on a full server, with the prefills
of others between the steps, is policy.steady_state's.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from lessonlib.base.checks import checked
from lessonlib.base.elementwise import floor, maximum, minimum, ratio
from lessonlib.base.errors import InvalidInputError, shown
from lessonlib.request.explain import assumptions, equations, html_view, text_table
from lessonlib.request.request import BATCHES, REFUSALS, REQUESTS, Request, broadcast_shape, first_wrong, require_chunks
from lessonlib.time.deployment import DEPLOYMENT, Deployment
from lessonlib.time.roofline import Phase, Roof, sums_of
from lessonlib.work.passes import Passes, decode_steps, equal_passes
from lessonlib.work.sizes import ModelSizes

BLOCK = 2**15  # cells of arrays that are priced at a time: what is worked out for them stays in the processor's cache


def prefill_passes(deployment: Deployment, prompt: Any, cached: Any, batch: Any) -> Iterable[Passes]:
    """The prompt's pass, or its chunks; a draft that takes time prefills the prompt likewise.

    Where each device serves sequences of its own, a pass has one prompt for each: as many passes as that takes.
    """
    if (most := deployment.sizes.replicas) == 1:
        return _prefill(deployment, prompt - cached, cached, batch, 1.0)
    full = floor(batch / most) * 1.0
    rest = batch - full * most
    last = _prefill(deployment, prompt - cached, cached, maximum(rest, 1.0), minimum(rest, 1.0))
    return [*_prefill(deployment, prompt - cached, cached, float(most), full), *last]


def _prefill(deployment: Deployment, new: Any, cached: Any, batch: Any, times: Any) -> Iterable[Passes]:
    """`times` passes of `batch` prompts, or their chunks."""
    size, draft = deployment.prefill_chunk, deployment.draft_sizes
    if size is not None:
        own = _chunks(deployment.sizes, float(size), new, cached, batch, times)
        drafted = () if draft is None else _chunks(draft, float(size), new, cached, batch, times)
        return chain(own, (_named("drafting", run) for run in drafted))
    runs = [equal_passes(deployment.sizes, new, cached, batch, 1.0, times)]
    if draft is not None:
        runs.append(_named("drafting", equal_passes(draft, new, cached, batch, 1.0, times)))
    return runs


def _chunks(sizes: ModelSizes, size: float, new: Any, cached: Any, batch: Any, times: Any) -> Iterator[Passes]:
    """Only the last chunk needs logits, one position a sequence."""
    inner = floor((new - 1) / size)  # chunks before the last, which has 1 .. size tokens
    yield equal_passes(sizes, new - inner * size, cached + inner * size, batch, 1.0, times)
    several = isinstance(inner, np.ndarray)
    for i in range(int(np.max(inner, initial=0))):
        yield equal_passes(sizes, size, cached + i * size, batch, 0.0, times * (inner > i) if several else times)


def decode_passes(deployment: Deployment, prompt: Any, output: Any, batch: Any) -> list[Passes]:
    """The n_out - 1 steps after the prefill, or the speculative rounds that stand in for them.

    (n_out - 1) / E rounds of g draft passes and one verifying pass of g + 1 tokens, each at the answer's mean context.
    """
    speculation = deployment.speculation
    if speculation is None:
        return [decode_steps(deployment.sizes, prompt, output - 1.0, batch)]
    drafts, rounds = float(speculation.draft_tokens), (output - 1.0) / speculation.tokens_per_round
    context = prompt + (output - 2.0) / 2
    runs = [_named("verifying", equal_passes(deployment.sizes, drafts + 1, context, batch, drafts + 1, rounds))]
    if deployment.draft_sizes is not None:
        runs.append(_named("drafting", equal_passes(deployment.draft_sizes, 1.0, context, batch, 1.0, rounds * drafts)))
    return runs


def _named(what: str, run: Passes) -> Passes:
    return run._replace(works=[work._replace(part=f"{what}: {work.part}") for work in run.works])


def prefill_phase(deployment: Deployment, prompt: Any, cached: Any, batch: Any, blank: Any = None) -> Phase:
    """The prefill of `batch` prompts in one pass, or chunk by chunk. Floats, or arrays of one shape."""
    return _phase(deployment, "prefill", prefill_passes, (prompt, cached, batch), blank)


def decode_phase(deployment: Deployment, prompt: Any, output: Any, batch: Any, blank: Any = None) -> Phase:
    """All decode steps of `batch` answers in lockstep. Floats, or arrays of one shape."""
    return _phase(deployment, "decode", decode_passes, (prompt, output, batch), blank)


def _phase(deployment: Deployment, name: str, passes: Any, numbers: tuple[Any, ...], blank: Any) -> Phase:
    """The phase of `passes(deployment, *numbers)`: of many cells block by block, its roofs when they are asked for."""
    if blank is None or blank.size <= BLOCK:
        return Phase(deployment, passes(deployment, *numbers), name, blank)
    shape, arrays = blank.shape, (*numbers, blank)
    flat = [np.broadcast_to(value, shape).ravel() if isinstance(value, np.ndarray) else value for value in arrays]
    sums = np.empty((3, blank.size))
    for start in range(0, blank.size, BLOCK):
        end = start + BLOCK
        *some, cells = (value[start:end] if isinstance(value, np.ndarray) else value for value in flat)
        for kept, value in zip(sums, sums_of(deployment, passes(deployment, *some)), strict=True):
            kept[start:end] = value * cells
    return Phase(deployment, partial(passes, deployment, *numbers), name, blank, sums.reshape(3, *shape))


class RequestCost:
    """What `batch` identical requests cost on a deployment. Floats, or arrays of the broadcast shape.

    `prefill`, `decode`: Phase. `seconds`: the GPU clock, busy seconds for all `batch` requests; one request's share is
    seconds / batch, and `decode_share` the share that is decode. `undisturbed`: the request clock, what one user waits
    if no other user's prefill runs: `ttft` (the prompt prefilled alone) and then the steps at this batch. `tpot`:
    decode seconds / (n_out - 1); NaN, not zero, for one output token. `flops`, `bytes`: of both phases. `refused`: None
    for plain numbers; for arrays the code in REFUSALS of each NaN cell, 0 elsewhere.
    """

    __slots__ = ("_ttft", "batch", "decode", "deployment", "prefill", "refused", "request")

    def __init__(self, deployment: Deployment, request: Request, batch: Any, numbers: Any, refused: Any = None):
        prompt, output, cached, b = numbers
        blank = None if refused is None else np.where(refused > 0, np.nan, 1.0)  # it has the shape of the results
        self.deployment, self.request, self.batch, self.refused = deployment, request, batch, refused
        self.prefill = prefill_phase(deployment, prompt, cached, b, blank)
        self.decode = decode_phase(deployment, prompt, output, b, blank)
        alone = type(b) is float and b == 1
        self._ttft = self.prefill if alone else partial(prefill_phase, deployment, prompt, cached, 1.0, blank)

    @property
    def ttft(self) -> Any:
        """Seconds to the first token, the prompt prefilled alone; worked out when it is first asked for."""
        if callable(self._ttft):
            self._ttft = self._ttft()
        return self._ttft.seconds

    seconds = property(lambda self: self.prefill.seconds + self.decode.seconds)
    undisturbed = property(lambda self: self.ttft + self.decode.seconds)
    tpot = property(lambda self: ratio(self.decode.seconds, self.request.output - 1))
    flops = property(lambda self: self.prefill.flops + self.decode.flops)
    bytes = property(lambda self: self.prefill.bytes + self.decode.bytes)
    decode_share = property(lambda self: self.decode.seconds / self.seconds)

    def why_refused(self, *index: int) -> str:
        """Why the cell at `index` is NaN, in words; "" when it was computed."""
        if self.refused is None:
            return ""
        shape = self.refused.shape
        whole = all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in index)
        inside = len(index) == len(shape) and all(i in range(size) for i, size in zip(index, shape, strict=True))
        if not whole or not inside:
            raise InvalidInputError(f"why_refused: {shown(index)} is not a cell; the results have the shape {shape}.")
        return REFUSALS.get(int(self.refused[index]), "")

    def roofs(self) -> tuple[Roof, ...]:
        """One row for each roof: its FLOPs, bytes, both times and which of the two binds. For plain numbers."""
        if self.refused is not None:
            raise InvalidInputError(
                "roofs, equations and tables describe one request; ask for them with plain numbers."
            )
        return tuple(self.prefill.roofs.values()) + tuple(self.decode.roofs.values())

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


@checked(deployment=DEPLOYMENT, request=REQUESTS, batch=BATCHES)
def request_cost(deployment: Deployment, request: Request, batch: Any = 1) -> RequestCost:
    """Cost of `batch` identical requests, prefilled in one pass and decoded in lockstep.

    `request` and `batch` are numbers or arrays that broadcast. With numbers, raises InvalidInputError for an impossible
    value or one beyond the model's positions, DoesNotFitError when weights and cache of `batch` sequences of
    prompt + output tokens do not fit. With arrays such cells become NaN, and `.refused` says why.
    """
    if request.is_array or type(batch) is not int:
        return _array_cost(deployment, request, batch)
    b = float(batch)
    prompt, output, cached = float(request.prompt), float(request.output), float(request.cached)
    limit = deployment.max_positions
    if limit is not None and prompt + output > limit:
        raise InvalidInputError(
            f"Request: prompt {request.prompt:,} + output {request.output:,} is {request.prompt + request.output:,} "
            f"tokens, but {deployment.limited_by} has {limit:,} positions; shorten one of them."
        )
    if deployment.memory_needed(prompt + output, b) > deployment.memory_available:
        deployment.require_fit(request.prompt + request.output, batch)
    if deployment.prefill_chunk is not None:
        require_chunks("request_cost", deployment, prompt - cached)
    return RequestCost(deployment, request, batch, (prompt, output, cached, b))


def _array_cost(deployment: Deployment, request: Request, batch: Any) -> RequestCost:
    """`request_cost` for arrays: a refused cell is computed as 1 -> 1 tokens, then blanked."""
    broadcast_shape(request, batch)
    columns = (request.prompt, request.output, request.cached, batch)
    numbers = [value if isinstance(value, np.ndarray) else float(value) for value in columns]
    with np.errstate(invalid="ignore"):
        refused = first_wrong(*numbers, deployment=deployment)
    if refused.any():
        numbers = [
            np.where(refused > 0, harmless, value) for harmless, value in zip((1, 1, 0, 1), numbers, strict=True)
        ]
    return RequestCost(deployment, request, batch, numbers, refused)
