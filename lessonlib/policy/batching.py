"""What a batch pays for, and what it cannot: limits, throughput, mixed passes, prices. All in closed form.

    memory batch   the largest batch whose weights and caches fit, reserved at the end or at the mean of an answer
    steady state   b sequences, each at a place of its own, so every step has the mean span; one ends, one begins
    mixed pass     b decode tokens and b new / (n_out - 1) prompt tokens under one linear roof, weights read once;
                   attention for each sequence, so prompts and decode steps keep roofs of their own

Batching divides the weights' bytes among more tokens. It never divides a cache's: each sequence reads its own.
Sources: Yu et al., Orca, OSDI 2022; Agrawal et al., Sarathi-Serve, 2403.02310 (mixed passes).
"""

from dataclasses import dataclass
from typing import Any

from lessonlib.base.checks import checked, count, flag, numbers, rate
from lessonlib.base.elementwise import ratio
from lessonlib.base.errors import MOST_TOKENS, InvalidInputError
from lessonlib.policy.cache import shared_step_seconds, steady_attention_seconds
from lessonlib.request.cost import prefill_phase, request_cost
from lessonlib.request.request import BATCH, REQUEST, Request, require_chunks
from lessonlib.time.deployment import DEPLOYMENT, PLAIN, Deployment
from lessonlib.time.roofline import Phase
from lessonlib.work.passes import Passes, attention_work, equal_passes, linear_work


@checked(deployment=DEPLOYMENT, request=REQUEST, steady=flag(), block=count())
def memory_batch(deployment: Deployment, request: Request, steady: bool = False, block: int = 1) -> int:
    """The largest batch of one request that fits, with memory in blocks of `block` tokens; 0 when not even one does.

    Each sequence is reserved at its end (prompt + output tokens), or if `steady` holds the mean over its answer, as on
    a server with paging. `Deployment.largest_batch` takes any number of held tokens, `mix.concurrency` a mix.
    """
    held = request.prompt + ((request.output + 1) // 2 if steady else request.output)
    return deployment.largest_batch(-(-held // block) * block)


@dataclass(frozen=True)
class SteadyState:
    """A server that always holds `batch` requests of one kind. Seconds are of the GPU clock.

    `step`: one decode step, or one mixed pass. `prefill`: prefill seconds for one request that are not inside a step (0
    when mixed). `period`: GPU seconds in which `batch` requests are served from end to end. `tokens_per_second`: output
    tokens of the whole server. `tpot`: seconds between a user's tokens on average, the stops for other users' prefills
    included; NaN for one output token.
    """

    batch: int
    step: float
    prefill: float
    steps: int
    output: int
    period = property(lambda self: self.batch * self.prefill + self.steps * self.step)
    seconds_per_request = property(lambda self: self.period / self.batch)
    tokens_per_second = property(lambda self: self.batch * self.output / self.period)
    tpot = property(lambda self: ratio(self.period, self.steps))


@checked(deployment=PLAIN, request=REQUEST, batch=BATCH, mixed=flag())
def steady_state(deployment: Deployment, request: Request, batch: int, mixed: bool = False) -> SteadyState:
    """`batch` requests in steady state; prompts prefilled alone between steps, or `mixed` into the steps.

    Raises DoesNotFitError when the batch does not fit reserved at its end, InvalidInputError for one output token when
    mixed (there is no step to ride on).
    """
    deployment.require_fit(request.prompt + request.output, batch)
    steps = request.output - 1
    if mixed:
        return SteadyState(batch, mixed_pass(deployment, request, batch), 0.0, steps, request.output)
    linear, other = shared_step_seconds(deployment, batch)
    step = linear + batch * steady_attention_seconds(deployment, request) + other
    return SteadyState(batch, step, request_cost(deployment, request).ttft, steps, request.output)


@checked(deployment=PLAIN, request=REQUEST, batch=BATCH)
def mixed_pass(deployment: Deployment, request: Request, batch: int) -> float:
    """Seconds of one steady-state pass that carries `batch` decode tokens and the prompt tokens that arrive meanwhile.

    Each step ends b / (n_out - 1) requests, so as many begin: their prompt tokens share the linear roof with the decode
    tokens and the weights are read once. Prompt attention and decode attention are kernels of their own.
    """
    steps = request.output - 1
    if not steps:
        raise InvalidInputError("mixed_pass: the request has one output token; it has no decode step to ride on.")
    begun, new = batch / steps, float(request.prompt - request.cached)
    tokens = batch + begun * new
    sizes = deployment.sizes
    works = linear_work(sizes, tokens, batch + begun)
    works += [attention_work(kind, new, float(request.cached), 1.0, begun) for kind in sizes.kinds]
    together = Phase(deployment, [Passes(sizes, works, tokens, 1.0)])
    return together.seconds + batch * steady_attention_seconds(deployment, request)


def prefill_share(deployment: Deployment, request: Request, batch: int, mixed: bool = False) -> float:
    """Share of the GPU clock that prefill adds in steady state: alone, or what riding on decode steps adds to them."""
    state = steady_state(deployment, request, batch, mixed)
    decode_only = steady_state(deployment, request, batch).step
    return 1 - state.steps * decode_only / state.period


@checked(deployment=DEPLOYMENT, request=REQUEST, thoughts=BATCH)
def parallel_thoughts(deployment: Deployment, request: Request, thoughts: int) -> float:
    """GPU seconds of `thoughts` answers to one prompt over those of one. The prompt is prefilled once for all."""
    together = request_cost(deployment, request, thoughts)
    one = request_cost(deployment, request)
    return (one.prefill.seconds + together.decode.seconds) / one.seconds


@checked(deployment=DEPLOYMENT, request=REQUEST, batch=BATCH, prompt=count(1, MOST_TOKENS))
def output_token_in_prompt_tokens(deployment: Deployment, request: Request, batch: int, prompt: int = 1024) -> float:
    """GPU seconds of an output token at `batch` over those of a prompt token in a prefill of `prompt` tokens alone."""
    cost = request_cost(deployment, request, batch)
    require_chunks("output_token_in_prompt_tokens", deployment, prompt)
    alone = prefill_phase(deployment, float(prompt), 0.0, 1.0)
    return cost.tpot / batch / (alone.seconds / prompt)


@checked(deployment=DEPLOYMENT, request=REQUEST, batch=BATCH, price_per_hour=rate("currency an hour"))
def price_of_request(deployment: Deployment, request: Request, batch: int, price_per_hour: float) -> float:
    """Price of one request in the currency of `price_per_hour`, what one device costs for an hour when busy."""
    seconds = request_cost(deployment, request, batch).seconds / batch
    return seconds * deployment.devices * price_per_hour / 3600


@checked(deployment=DEPLOYMENT, context=count(1, MOST_TOKENS), batch=numbers(1, MOST_TOKENS, whole=True))
def intensities(deployment: Deployment, context: int, batch: Any) -> dict[str, Any]:
    """FLOP/byte of a decode step by batch (an array): the linear layers, and each kind of attention or state.

    `context`: tokens cached. Linear layers rise with the batch; attention does not, whatever the batch.
    """
    step = Phase(deployment, [equal_passes(deployment.sizes, 1.0, float(context), batch, 1.0)])
    kinds = {kind.part: kind.label for kind in deployment.sizes.kinds}
    return {kinds.get(part, part): roof.intensity for part, roof in step.roofs.items()}
