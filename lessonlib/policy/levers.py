"""What-ifs: rho and omega in front, then levers, Amdahl, the break-even line and elasticities.

    ridge      = peak / bandwidth x bytes of a weight / 2     tokens in a pass at which linear layers turn compute bound
    rho        = b n_in / (ridge n_out) x used / read          about prefill time over decode time
    omega      = n_out K ridge / M_free                        above 1 memory is full before the linear layers are busy
    roof batch = ridge / (1 + n_in / n_out)                    batch at which passes that mix prefill in reach the ridge
    Amdahl     = T / (T_prefill / k + T_decode)                what a prefill k times faster buys
    elasticity = d ln T / d ln x                               per cent of time for a per cent of x

K is the cache bytes of a token, M_free the memory left after the weights, used / read the weights that one token uses
over those that a step at this batch reads (1 for a dense model). rho and omega are estimates; where they bend: cache
reads, prompts under the ridge, windows, constant state. The exact numbers are `request_cost`'s; levers go through it.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from lessonlib.base.checks import (
    ABOVE_ZERO,
    between,
    checked,
    choice,
    count,
    fraction,
    numbers,
    rate,
    wrong,
)
from lessonlib.base.errors import MOST_TOKENS, InvalidInputError, UnknownNameError
from lessonlib.model.attention import GroupedQueryAttention, MultiHeadLatentAttention
from lessonlib.model.block import Block
from lessonlib.model.model import Model
from lessonlib.model.precision import Precision
from lessonlib.request.cost import Request, counted, decode_numbers, prefill_numbers, request_cost, require_chunks
from lessonlib.request.rules import BATCH, DEPLOYMENT, ONE_REQUEST, REQUEST
from lessonlib.time.deployment import Deployment, Speculation

RHO_OF_FIVE_PERCENT = 0.05 / 0.95  # where prefill takes 5 % of the time, by the estimate


@checked(deployment=DEPLOYMENT)
def ridge_tokens(deployment: Deployment) -> float:
    """Tokens in one pass at which the linear layers turn from memory bound to compute bound: 295 on an H100 in bf16."""
    return deployment.peak / deployment.bandwidth * deployment.precision.bytes_of("blocks") / 2


@checked(deployment=DEPLOYMENT)
def used_over_read(deployment: Deployment, batch: Any = 1) -> Any:
    """Block weights that one token uses over those that a decode step at `batch` reads; 1 for a dense model."""
    batch = counted("used_over_read", Request(1, 1), batch)[3]
    used = deployment.model.block_matmul_weights
    idle_read: Any = 0.0
    for (layers, ffn), routed in zip(deployment.model.expert_kinds, deployment.folded.experts, strict=True):
        distinct = -ffn.experts * np.expm1(np.asarray(batch, float) * routed.log_idle)
        idle_read = idle_read + layers * ffn.expert_weights * (distinct - ffn.experts_per_token)
    ratio = used / (used + np.asarray(idle_read))
    return float(ratio) if np.ndim(ratio) == 0 else ratio


@checked(deployment=DEPLOYMENT, request=REQUEST)
def rho(deployment: Deployment, request: Request, batch: Any = 1) -> Any:
    """About prefill time over decode time at `batch`. Decode-heavy means rho << 1."""
    prompt, output, cached, batch = counted("rho", request, batch)
    return batch * (prompt - cached) / (ridge_tokens(deployment) * output) * used_over_read(deployment, batch)


@checked(deployment=DEPLOYMENT)
def omega(deployment: Deployment, output: Any) -> Any:
    """Roof batch over memory batch for answers of `output` tokens. Above 1, batching cannot make decode compute bound.

    Raises DoesNotFitError when the weights leave no memory, InvalidInputError for a model without a growing cache.
    """
    if deployment.memory_free <= 0:
        deployment.require_fit(1)
    output = counted("omega", Request(1, output))[1]  # refuses what is no number of tokens
    if not deployment.cache_bytes_per_token:
        raise InvalidInputError(
            f"omega: {deployment.model.name} keeps no growing cache, so omega says nothing about it."
        )
    return output * (deployment.cache_bytes_per_token * ridge_tokens(deployment) / deployment.memory_free)


@checked(deployment=DEPLOYMENT, request=REQUEST)
def roof_batch(deployment: Deployment, request: Request) -> Any:
    """The batch at which passes that mix each request's prefill into its decode steps reach the ridge (an estimate)."""
    prompt, output, cached, _ = counted("roof_batch", request)
    return ridge_tokens(deployment) / (1 + (prompt - cached) / output)


# ---- levers: each maps (deployment, request, batch) to the changed three

Case = tuple[Deployment, Request, int]


@dataclass(frozen=True)
class Lever:
    """A named change of a case. Call it with (deployment, request, batch); it returns the three, changed."""

    name: str
    change: Callable[[Deployment, Request, int], Case]

    @checked(deployment=DEPLOYMENT, request=REQUEST, batch=count())
    def __call__(self, deployment: Deployment, request: Request, batch: int = 1) -> Case:
        return self.change(deployment, request, batch)

    def speedup(self, deployment: Deployment, request: Request, batch: int = 1) -> float:
        """GPU seconds of one request before over after, at the batch that the lever leaves."""
        changed, asked, changed_batch = self(deployment, request, batch)
        before = request_cost(deployment, request, batch).seconds / batch
        return before / (request_cost(changed, asked, changed_batch).seconds / changed_batch)

    def speedup_at_limit(self, deployment: Deployment, request: Request) -> float:
        """The same with the largest batch that fits before, and the largest that fits after."""
        batch = limit_batch(deployment, request)
        changed, asked, _ = self(deployment, request, batch)
        changed_batch = limit_batch(changed, asked)
        before = request_cost(deployment, request, batch).seconds / batch
        return before / (request_cost(changed, asked, changed_batch).seconds / changed_batch)


@checked(deployment=DEPLOYMENT, request=ONE_REQUEST)
def limit_batch(deployment: Deployment, request: Request) -> int:
    """The largest batch of this request that fits in memory; DoesNotFitError when not even one does."""
    deployment.require_fit(request.prompt + request.output)
    return deployment.largest_batch(request.prompt + request.output)


TIMES = rate("times")


def _on_deployment(name: str, change: Callable[[Deployment], Deployment]) -> Lever:
    return Lever(name, lambda deployment, request, batch: (change(deployment), request, batch))


@checked(k=TIMES)
def faster_peak(k: float) -> Lever:
    """Peak FLOP/s of every dtype times k."""

    def change(d: Deployment) -> Deployment:
        peaks = {dtype: k * peak for dtype, peak in d.accelerator.peaks.items()}
        return replace(d, accelerator=replace(d.accelerator, peaks=peaks))

    return _on_deployment(f"peak x {k:g}", change)


@checked(k=TIMES)
def more_bandwidth(k: float) -> Lever:
    """Memory bandwidth times k."""
    return _on_deployment(
        f"bandwidth x {k:g}",
        lambda d: replace(d, accelerator=replace(d.accelerator, bandwidth=k * d.accelerator.bandwidth)),
    )


@checked(k=TIMES)
def more_memory(k: float) -> Lever:
    """Memory of a device times k."""
    return _on_deployment(
        f"memory x {k:g}", lambda d: replace(d, accelerator=replace(d.accelerator, memory=k * d.accelerator.memory))
    )


@checked(k=rate("times", zero=True))
def scaled_overhead(k: float) -> Lever:
    """Overhead of a pass times k (0 removes it)."""
    return _on_deployment(
        f"overhead x {k:g}",
        lambda d: replace(d, efficiency=replace(d.efficiency, overhead=k * d.efficiency.overhead)),
    )


PART = choice((part.name for part in fields(Precision)), "a part", UnknownNameError)


def quantised(**parts: str) -> Lever:
    """Other dtypes for parts: quantised(blocks="int4", experts="int4"), quantised(cache="fp8")."""
    if not parts:
        raise wrong("quantised", "parts", parts, "such as blocks='int4', experts='int4' or cache='fp8'")
    for part in parts:
        PART("quantised", "part", part)
    Precision(**parts)  # refuses a dtype that is not known
    words = ", ".join(f"{part} {dtype}" for part, dtype in parts.items())
    return _on_deployment(words, lambda d: replace(d, precision=replace(d.precision, **parts)))


def _latent(model: Model, rank: int, rope_dim: int) -> Model:
    def changed(block: Block) -> Block:
        old = block.mixer
        if not isinstance(old, GroupedQueryAttention):
            return block
        latent = MultiHeadLatentAttention(
            width=old.width,
            heads=old.heads,
            kv_rank=rank,
            nope_dim=old.head_dim,
            rope_dim=rope_dim,
            value_dim=old.head_dim if old.value_dim is None else old.value_dim,
            other_weights=rank,  # the latent's norm
        )
        return replace(block, mixer=latent)

    blocks = tuple((count, changed(block)) for count, block in model.blocks)
    return replace(model, name=f"{model.name} with a latent cache", blocks=blocks)


@checked(rank=count(), rope_dim=count())
def latent_attention(rank: int = 512, rope_dim: int = 64) -> Lever:
    """Grouped-query attention replaced by MLA of the same heads, with DeepSeek's latent unless given. Another model."""
    return _on_deployment(
        f"MLA, latent {rank} + {rope_dim}", lambda d: replace(d, model=_latent(d.model, rank, rope_dim))
    )


@checked(devices=count())
def tensor_parallel(devices: int) -> Lever:
    """The same model over `devices` devices. GPU seconds are of the group: multiply by devices for device-seconds."""
    return _on_deployment(f"tensor parallel {devices}", lambda d: replace(d, devices=devices))


@checked(hit=fraction(zero=True))
def prefix_cache(hit: float) -> Lever:
    """A share `hit` of the prompt is already cached; at least one prompt token is computed all the same."""

    def change(d: Deployment, request: Request, batch: int) -> Case:
        cached = np.minimum(np.floor(hit * np.asarray(request.prompt)), np.asarray(request.prompt) - 1)
        return d, replace(request, cached=cached if request.is_array else int(cached)), batch

    return Lever(f"prefix cache, {hit:.0%} hit", change)


@checked(tokens=count())
def chunked_prefill(tokens: int) -> Lever:
    """Prefill in passes of at most `tokens` tokens. What mixing them into decode steps saves is batching.mixed_pass."""
    return _on_deployment(f"prefill chunks of {tokens:,}", lambda d: replace(d, prefill_chunk=tokens))


def speculative_decoding(draft_tokens: int, acceptance: float, draft: Model | None = None) -> Lever:
    """`draft_tokens` proposed a round by `draft` (None: free), each accepted with probability `acceptance`."""
    speculation = Speculation(draft_tokens, acceptance, draft)
    drafts = "free drafts" if draft is None else f"draft {draft.name}"
    name = f"speculation, {speculation.draft_tokens} {drafts}, acceptance {speculation.acceptance:g}"
    return _on_deployment(name, lambda d: replace(d, speculation=speculation))


def batch_to_limit() -> Lever:
    """The largest batch that fits in memory."""
    return Lever("batch to the memory limit", lambda d, request, batch: (d, request, limit_batch(d, request)))


@checked(share=fraction())
def shorter_answer(share: float) -> Lever:
    """The answer cut to `share` of its tokens, rounded up."""

    def change(d: Deployment, request: Request, batch: int) -> Case:
        output = np.ceil(share * np.asarray(request.output))
        return d, replace(request, output=output if request.is_array else int(output)), batch

    return Lever(f"answer x {share:g}", change)


# ---- Amdahl and the break-even line


@checked(prefill_seconds=numbers(0, holes=True), decode_seconds=numbers(0, holes=True), k=numbers(ABOVE_ZERO, math.inf))
def faster_prefill(prefill_seconds: Any, decode_seconds: Any, k: Any) -> Any:
    """Amdahl's law: time before over time after a prefill k times faster (k may be infinite). Seconds of one clock.

    Numbers or arrays; NaN cells, which `request_cost` leaves where it refuses, stay NaN.
    """
    given = {"prefill_seconds": prefill_seconds, "decode_seconds": decode_seconds, "k": k}
    try:
        np.broadcast_shapes(*(value.shape for value in given.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {value.shape}" for name, value in given.items())
        raise InvalidInputError(f"faster_prefill: the shapes do not broadcast together: {shapes}.") from None
    with np.errstate(divide="ignore", invalid="ignore"):  # a free prefill and no decode: infinitely faster
        ratio = (prefill_seconds + decode_seconds) / (prefill_seconds / k + decode_seconds)
    if not ratio.ndim and np.isnan(ratio):
        raise wrong("faster_prefill", "prefill_seconds", 0.0, "one time above 0, as decode_seconds is 0 too")
    return ratio if ratio.ndim else float(ratio)


@checked(deployment=DEPLOYMENT, prompt=numbers(1, MOST_TOKENS, whole=True), batch=BATCH, share=fraction())
def break_even_output(deployment: Deployment, prompt: Any, batch: int = 1, share: float = 0.05) -> Any:
    """The least output at which prefill is under `share` of the GPU clock, for each prompt (a number or an array).

    Memory and positions are not looked at: it is where the line lies, not whether a server holds it.
    """
    prompts = np.atleast_1d(prompt)
    require_chunks("break_even_output", deployment, prompts)
    overhead = deployment.efficiency.overhead
    prefill = prefill_numbers(deployment, prompts, 0.0, float(batch), np).seconds(overhead)
    with np.errstate(over="ignore"):
        allowed = prefill * (1 - share) / share  # decode seconds from which on the share is small enough
    low, high = np.ones_like(prompts), np.full_like(prompts, 2.0)
    seconds = lambda output: decode_numbers(deployment, prompts, output, float(batch), np).seconds(overhead)  # noqa: E731
    while np.any(short := seconds(high) <= allowed):
        if np.max(high) > MOST_TOKENS:
            raise InvalidInputError(f"break_even_output: no output up to 2**53 tokens brings prefill under {share:g}.")
        high = np.where(short, 2 * high, high)
    for _ in range(60):  # halving down to a whole token
        middle = np.floor((low + high) / 2)
        short = seconds(middle) <= allowed
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return high if np.ndim(prompt) else int(high[0])


@checked(share=fraction())
def break_even_by_rho(deployment: Deployment, prompt: Any, batch: int = 1, share: float = 0.05) -> Any:
    """rho's estimate of the same line: rho = share / (1 - share), a straight line in the plane of prompt and output."""
    return rho(deployment, Request(prompt, 1), batch) * (1 - share) / share


# ---- elasticities

RATES = ("peak", "bandwidth", "link", "latency", "overhead", "weight bytes", "cache bytes")


def _scaled(deployment: Deployment, name: str, factor: float) -> Deployment:
    """The deployment with one of RATES times `factor`. Bytes are scaled where they are read: nothing else changes."""
    accelerator, efficiency, folded = deployment.accelerator, deployment.efficiency, deployment.folded
    if name == "peak":
        return faster_peak(factor)(deployment, Request(1, 1))[0]
    if name == "bandwidth":
        return more_bandwidth(factor)(deployment, Request(1, 1))[0]
    if name == "overhead":
        return replace(deployment, efficiency=replace(efficiency, overhead=factor * efficiency.overhead))
    if name == "latency":
        latency = factor * efficiency.all_reduce_latency
        return replace(deployment, efficiency=replace(efficiency, all_reduce_latency=latency))
    if name == "link":
        link = accelerator.link
        return replace(deployment, accelerator=replace(accelerator, link=None if link is None else factor * link))
    if name == "weight bytes":
        experts = tuple(e._replace(bytes=factor * e.bytes) for e in folded.experts)
        folded = folded._replace(dense_bytes=factor * folded.dense_bytes, experts=experts)
    else:
        kinds = tuple(
            k._replace(cache_bytes=factor * k.cache_bytes, state_bytes=factor * k.state_bytes) for k in folded.kinds
        )
        folded = folded._replace(kinds=kinds)
    changed = copy.copy(deployment)
    object.__setattr__(changed, "folded", folded)
    return changed


@checked(deployment=DEPLOYMENT, request=ONE_REQUEST, batch=BATCH)
def gpu_seconds(deployment: Deployment, request: Request, batch: int = 1) -> float:
    """GPU seconds of `batch` requests, without asking whether they fit: for derivatives at the very limit."""
    require_chunks("gpu_seconds", deployment, request.prompt - request.cached)
    sizes = (float(request.prompt), float(request.output), float(request.cached), float(batch))
    prefill = prefill_numbers(deployment, sizes[0], sizes[2], sizes[3])
    decode = decode_numbers(deployment, sizes[0], sizes[1], sizes[3])
    return prefill.seconds(deployment.efficiency.overhead) + decode.seconds(deployment.efficiency.overhead)


@checked(deployment=DEPLOYMENT, request=ONE_REQUEST, batch=BATCH, step=between(1e-9, 1e-2, "ln x"))
def elasticities(deployment: Deployment, request: Request, batch: int = 1, step: float = 1e-4) -> dict[str, float]:
    """d ln T / d ln x of the GPU clock for each of RATES, and for prompt and output (one token either way).

    Central differences in ln x of width `step`: below 1e-9 rounding shows, above 1e-2 the curve's bends do.
    peak + bandwidth + link - latency - overhead = -1: double all rates and halve all waits, and the time halves. A
    draft model's own bytes are not scaled.
    """
    found = {}
    for name in RATES:
        up = gpu_seconds(_scaled(deployment, name, math.exp(step)), request, batch)
        down = gpu_seconds(_scaled(deployment, name, math.exp(-step)), request, batch)
        found[name] = math.log(up / down) / (2 * step)
    for name in ("prompt", "output"):
        tokens = getattr(request, name)
        least = request.cached + 1 if name == "prompt" else 1
        fewer, more = max(tokens - 1, least), tokens + 1
        up, down = (gpu_seconds(deployment, replace(request, **{name: n}), batch) for n in (more, fewer))
        found[name] = math.log(up / down) / math.log(more / fewer)
    if not all(map(math.isfinite, found.values())):
        raise InvalidInputError("elasticities: the time is beyond what a float holds; take smaller numbers.")
    return found
