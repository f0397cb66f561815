"""A full server: a steady state of requests that come and go, each at its own place in its answer.

    memory batch    M_free / (bytes of the pages of n_in + (n_out + 1) // 2 tokens)          memory full on average
    GPU seconds     T_prefill, alone, + (n_out - 1) steps at the mean span / b               of one request
    wait            b x GPU seconds of one request                                           Little's law
    TPOT            (wait - own prefill) / (n_out - 1)                                       others' prefills included
    mixed pass      b decode tokens and b new / (n_out - 1) prompt tokens under the same linear roofs, weights read
                    once; attention of each sequence's own, so prompts and decode steps keep roofs of their own

Memory is handed out in pages as answers grow, so a request holds on average what it holds in the middle of its answer.
Identical requests are a simplification; `mix.price` takes many, each with its own lengths.
Sources: Yu et al., Orca, OSDI 2022; Kwon et al., 2309.06180 (pages); Agrawal et al., 2403.02310 (mixed passes).
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lessonlib.base.checks import checked, count, flag, optional, rate, wrong
from lessonlib.base.elementwise import ratio
from lessonlib.base.errors import MOST_TOKENS, InvalidInputError
from lessonlib.policy.mix import TrafficCost, price
from lessonlib.request.cost import decode_phase, prefill_phase, request_cost
from lessonlib.request.request import BATCH, REQUEST, REQUESTS, Request, columns_of
from lessonlib.time.deployment import DEPLOYMENT, Deployment
from lessonlib.time.roofline import Phase
from lessonlib.work.passes import Passes, attention_work, linear_work

PAGE = count(1, 2**20)
SECONDS_A_TOKEN = rate("seconds a token")


def pages(prompt: Any, output: Any, page: int) -> Any:
    """Tokens of the pages that a request holds in the middle of its answer: n_in + (n_out + 1) // 2, rounded up."""
    return -(-(prompt + (output + 1) // 2) // page) * page


@checked(deployment=DEPLOYMENT, request=REQUESTS, page=PAGE)
def mean_slot_bytes(deployment: Deployment, request: Request, page: int = 1) -> float:
    """Bytes that a request holds, on average over the requests under way at a time.

    A long answer is under way longer, so each request (of arrays) is weighted by its output tokens.
    """
    prompt, output, _ = columns_of("mean_slot_bytes", request)
    held = deployment.sequence_bytes(pages(prompt, output, page)) + 0 * output
    return float(np.sum(held * output) / np.sum(output))


@checked(deployment=DEPLOYMENT, request=REQUESTS, page=PAGE)
def memory_batch(deployment: Deployment, request: Request, page: int = 1) -> int:
    """How many requests are under way at a time when memory is full on average; 0 when not even one fits.

    `request`: one, of which all are alike, or arrays: a mix. `page`: tokens of a page. Started together, identical
    requests need their ends reserved: `deployment.largest_batch(prompt + output)`.
    """
    if not request.is_array:
        return deployment.largest_batch(pages(request.prompt, request.output, page))
    columns_of("memory_batch", request)
    each = mean_slot_bytes(deployment, request, page)
    if not each:
        raise InvalidInputError(f"memory_batch: {deployment.model.name} keeps neither cache nor state; any number fits")
    return max(0, math.floor(min(deployment.memory_free / each, MOST_TOKENS)))


def full_batch(deployment: Deployment, request: Request, page: int = 1) -> int:
    """The memory batch, at least 1; DoesNotFitError where not even one request fits."""
    found = memory_batch(deployment, request, page)
    if not found:
        deployment.require_fit(int(np.max(request.prompt + request.output)))
    return max(1, found)


@dataclass(frozen=True)
class SteadyState:
    """A server that always has `batch` identical requests under way. Seconds of the GPU clock.

    `parts`: GPU seconds of one request: "prefill" (its own pass; when `mixed`, what riding on decode steps adds to
    them), "linear" (its share of the steps' linear layers, all-reduces and overhead) and "attention" (its own, over its
    answer; constant state included). `ttft`: seconds of the prompt's pass, without the time in a queue; where devices
    serve sequences of their own, each prefills one prompt in it.
    """

    request: Request
    batch: int
    mixed: bool
    ttft: float
    parts: dict[str, float]
    steps = property(lambda self: self.request.output - 1)

    @property
    def seconds_per_request(self) -> float:
        """GPU seconds of one request; the server finishes one each time that they have passed."""
        return sum(self.parts.values())

    @property
    def wait(self) -> float:
        """Seconds from admission to the last token, others' prefills included: batch x GPU seconds (Little)."""
        return self.batch * self.seconds_per_request

    @property
    def tpot(self) -> float:
        """Seconds from one token of a user to the next on average; NaN for one output token.

        (wait - own prefill) / (n_out - 1). Mixed, no pass is a prefill's alone, and nothing is taken off.
        """
        return ratio(self.wait - (0.0 if self.mixed else self.ttft), self.steps)

    @property
    def tokens_per_second(self) -> float:
        """Output tokens a second of all users together."""
        return self.request.output / self.seconds_per_request

    @property
    def step(self) -> float:
        """Seconds of one decode step at this batch, no prefill in it; NaN for one output token."""
        return ratio(self.batch * (self.parts["linear"] + self.parts["attention"]), self.steps)

    @property
    def shares(self) -> dict[str, float]:
        """The share of the GPU clock that each of `parts` takes."""
        return {part: seconds / self.seconds_per_request for part, seconds in self.parts.items()}


@checked(deployment=DEPLOYMENT, request=REQUEST, batch=optional(BATCH), mixed=flag(), page=PAGE)
def steady_state(
    deployment: Deployment, request: Request, batch: int | None = None, mixed: bool = False, page: int = 1
) -> SteadyState:
    """A steady state of `batch` identical requests; None takes the memory batch.

    Each prompt is prefilled by itself between steps, or `mixed` into decode steps. `page`: tokens of a page of memory.
    Raises DoesNotFitError for a batch above the memory batch, with that number; InvalidInputError for a request beyond
    the model's positions, and when mixed for one output token (there is no step to ride on) and for speculation.
    """
    alone = request_cost(deployment, request)  # refuses what no server could take
    if batch is None:
        batch = full_batch(deployment, request, page)
    elif batch > 1:
        deployment.require_fit(pages(request.prompt, request.output, page), batch)
    decode = decode_phase(deployment, float(request.prompt), float(request.output), float(batch))
    attention = float(decode.attention.seconds) / batch
    linear = float(decode.seconds) / batch - attention
    ttft, prompts = float(alone.prefill.seconds), min(batch, deployment.sizes.replicas)
    if prompts > 1:  # one on each device that serves sequences of its own
        numbers = (float(request.prompt), float(request.cached), float(prompts))
        ttft = float(prefill_phase(deployment, *numbers).seconds)
    parts = {"prefill": ttft / prompts, "linear": linear, "attention": attention}
    if mixed:
        steps = request.output - 1
        parts["prefill"] = max(0.0, mixed_pass(deployment, request, batch) * steps / batch - linear - attention)
    return SteadyState(request, batch, mixed, ttft, parts)


@checked(deployment=DEPLOYMENT, request=REQUEST, batch=BATCH)
def mixed_pass(deployment: Deployment, request: Request, batch: int) -> float:
    """Seconds of one steady-state pass that carries `batch` decode tokens and the prompt tokens that arrive meanwhile.

    Each step ends b / (n_out - 1) requests, so as many begin: their prompt tokens share the linear roofs with the
    decode tokens and the weights are read once. Prompt attention and decode attention are kernels of their own.
    """
    steps = request.output - 1
    if not steps:
        raise InvalidInputError("mixed_pass: the request has one output token; it has no decode step to ride on.")
    if deployment.speculation is not None:
        remedy = "a mixed pass has one token a sequence"
        raise wrong("mixed_pass", "speculation", deployment.speculation, "None", remedy)
    begun, new = batch / steps, float(request.prompt - request.cached)
    tokens = batch + begun * new
    sizes = deployment.sizes
    works = linear_work(sizes, tokens, batch + begun)
    works += [attention_work(kind, new, float(request.cached), 1.0, begun) for kind in sizes.kinds]
    together = Phase(deployment, [Passes(sizes, works, tokens / sizes.replicas, 1.0)])
    decode = decode_phase(deployment, float(request.prompt), float(request.output), float(batch))
    return float(together.seconds + decode.attention.seconds / steps)


class AtLatency(NamedTuple):
    """The largest batch that keeps a latency target, and its steady state.

    `binds`: "target" where one request more would miss it, "memory" where one more would not fit. `state`: of a mix its
    cost at that batch.
    """

    batch: int
    binds: str
    state: SteadyState | TrafficCost


@checked(deployment=DEPLOYMENT, request=REQUESTS, tpot=SECONDS_A_TOKEN, mixed=flag(), page=PAGE)
def at_latency(
    deployment: Deployment, request: Request, tpot: float = 0.03, mixed: bool = False, page: int = 1
) -> AtLatency:
    """The largest batch of identical requests in steady state whose TPOT is at most `tpot` seconds.

    Arrays are a mix of requests, each with its own lengths; its prompts have passes of their own. Raises
    InvalidInputError when even one request alone misses the target, and for one output token, which has no TPOT.
    """
    columns_of("at_latency", request)
    if np.max(request.output) < 2:
        raise wrong("at_latency", "output", request.output, "2 or more", "one output token has no TPOT")
    if request.is_array and mixed:
        raise wrong("at_latency", "mixed", mixed, "False for a mix", "take one request of its mean lengths")

    def state_of(batch: int) -> SteadyState | TrafficCost:
        if request.is_array:
            return price(deployment, request, batch)
        return steady_state(deployment, request, batch, mixed, page)

    full = state_of(full_batch(deployment, request, page))
    if full.tpot <= tpot:
        return AtLatency(full.batch, "memory", full)
    low, high, found = 1, full.batch, state_of(1)
    if found.tpot > tpot:
        least = f"at least {found.tpot:.4g} s, the TPOT of one request at a time on this deployment"
        raise wrong("at_latency", "tpot", tpot, least, "take a longer target, a faster deployment or a smaller model")
    while high - low > 1:  # a batch more never takes less time: halving finds the last one that keeps the target
        middle = (low + high) // 2
        state = state_of(middle)
        if state.tpot <= tpot:
            low, found = middle, state
        else:
            high = middle
    return AtLatency(low, "target", found)
