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

from lessonlib.base.errors import (
    MOST_TOKENS,
    InvalidInputError,
    UnknownNameError,
    require_count,
    require_fraction,
    require_numbers,
    require_rate,
    shown,
)
from lessonlib.model.attention import GroupedQueryAttention, MultiHeadLatentAttention
from lessonlib.model.block import Block
from lessonlib.model.model import Model
from lessonlib.model.precision import Precision
from lessonlib.request.cost import decode_phase, prefill_phase, request_cost
from lessonlib.request.request import Request, counted, require_case, require_chunks
from lessonlib.time.deployment import Deployment, Speculation, require_deployment

RHO_OF_FIVE_PERCENT = 0.05 / 0.95  # where prefill takes 5 % of the time, by the estimate


def ridge_tokens(deployment: Deployment) -> float:
    """Tokens in one pass at which the linear layers turn from memory bound to compute bound: 295 on an H100 in bf16."""
    require_deployment("ridge_tokens", deployment)
    return deployment.peak / deployment.bandwidth * deployment.precision.bytes_of("blocks") / 2


def used_over_read(deployment: Deployment, batch: Any = 1) -> Any:
    """Block weights that one token uses over those that a decode step at `batch` reads; 1 for a dense model."""
    require_deployment("used_over_read", deployment)
    batch = counted("used_over_read", Request(1, 1), batch)[3]
    used = deployment.model.block_matmul_weights
    idle_read: Any = 0.0
    for (layers, ffn), routed in zip(deployment.model.expert_kinds, deployment.sizes.experts, strict=True):
        distinct = -ffn.experts * np.expm1(np.asarray(batch, float) * routed.log_idle)
        idle_read = idle_read + layers * ffn.expert_weights * (distinct - ffn.experts_per_token)
    ratio = used / (used + np.asarray(idle_read))
    return float(ratio) if np.ndim(ratio) == 0 else ratio


def rho(deployment: Deployment, request: Request, batch: Any = 1) -> Any:
    """About prefill time over decode time at `batch`. Decode-heavy means rho << 1."""
    require_case("rho", deployment, request, arrays=True)
    prompt, output, cached, batch = counted("rho", request, batch)
    return batch * (prompt - cached) / (ridge_tokens(deployment) * output) * used_over_read(deployment, batch)


def omega(deployment: Deployment, output: Any) -> Any:
    """Roof batch over memory batch for answers of `output` tokens. Above 1, batching cannot make decode compute bound.

    Raises DoesNotFitError when the weights leave no memory, InvalidInputError for a model without a growing cache.
    """
    require_deployment("omega", deployment)
    if deployment.memory_free <= 0:
        deployment.require_fit(1)
    output = counted("omega", Request(1, output))[1]  # refuses what is no number of tokens
    if not deployment.cache_bytes_per_token:
        raise InvalidInputError(
            f"omega: {deployment.model.name} keeps no growing cache, so omega says nothing about it."
        )
    return output * (deployment.cache_bytes_per_token * ridge_tokens(deployment) / deployment.memory_free)


def roof_batch(deployment: Deployment, request: Request) -> Any:
    """The batch at which passes that mix each request's prefill into its decode steps reach the ridge (an estimate)."""
    require_case("roof_batch", deployment, request, arrays=True)
    prompt, output, cached, _ = counted("roof_batch", request)
    return ridge_tokens(deployment) / (1 + (prompt - cached) / output)


# ---- levers: each maps (deployment, request, batch) to the changed three

Case = tuple[Deployment, Request, int]


@dataclass(frozen=True)
class Lever:
    """A named change of a case. Call it with (deployment, request, batch); it returns the three, changed."""

    name: str
    change: Callable[[Deployment, Request, int], Case]

    def __call__(self, deployment: Deployment, request: Request, batch: int = 1) -> Case:
        owner = f"lever {self.name!r}"
        require_case(owner, deployment, request, arrays=True)
        return self.change(deployment, request, require_count(owner, "batch", batch))

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


def limit_batch(deployment: Deployment, request: Request) -> int:
    """The largest batch of this request that fits in memory; DoesNotFitError when not even one does."""
    require_case("limit_batch", deployment, request)
    deployment.require_fit(request.prompt + request.output)
    return deployment.largest_batch(request.prompt + request.output)


def _on_deployment(name: str, change: Callable[[Deployment], Deployment]) -> Lever:
    return Lever(name, lambda deployment, request, batch: (change(deployment), request, batch))


def faster_peak(k: float) -> Lever:
    """Peak FLOP/s of every dtype times k."""
    k = require_rate("faster_peak", "k", k, "times")

    def change(d: Deployment) -> Deployment:
        peaks = {dtype: k * peak for dtype, peak in d.accelerator.peaks.items()}
        return replace(d, accelerator=replace(d.accelerator, peaks=peaks))

    return _on_deployment(f"peak x {k:g}", change)


def more_bandwidth(k: float) -> Lever:
    """Memory bandwidth times k."""
    k = require_rate("more_bandwidth", "k", k, "times")
    return _on_deployment(
        f"bandwidth x {k:g}",
        lambda d: replace(d, accelerator=replace(d.accelerator, bandwidth=k * d.accelerator.bandwidth)),
    )


def more_memory(k: float) -> Lever:
    """Memory of a device times k."""
    k = require_rate("more_memory", "k", k, "times")
    return _on_deployment(
        f"memory x {k:g}", lambda d: replace(d, accelerator=replace(d.accelerator, memory=k * d.accelerator.memory))
    )


def scaled_overhead(k: float) -> Lever:
    """Overhead of a pass times k (0 removes it)."""
    k = require_rate("scaled_overhead", "k", k, "times", zero=True)
    return _on_deployment(
        f"overhead x {k:g}",
        lambda d: replace(d, efficiency=replace(d.efficiency, overhead=k * d.efficiency.overhead)),
    )


def quantised(**parts: str) -> Lever:
    """Other dtypes for parts: quantised(blocks="int4", experts="int4"), quantised(cache="fp8")."""
    if not parts:
        raise InvalidInputError(
            "quantised: no part given; expected such as blocks='int4', experts='int4' or cache='fp8'."
        )
    known = [part.name for part in fields(Precision)]
    for part in parts:
        if part not in known:
            raise UnknownNameError(f"quantised: {shown(part)} is no part; expected one of {', '.join(known)}.")
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


def latent_attention(rank: int = 512, rope_dim: int = 64) -> Lever:
    """Grouped-query attention replaced by MLA of the same heads, with DeepSeek's latent unless given. Another model."""
    rank, rope_dim = (
        require_count("latent_attention", "rank", rank),
        require_count("latent_attention", "rope_dim", rope_dim),
    )
    return _on_deployment(
        f"MLA, latent {rank} + {rope_dim}", lambda d: replace(d, model=_latent(d.model, rank, rope_dim))
    )


def tensor_parallel(devices: int) -> Lever:
    """The same model over `devices` devices. GPU seconds are of the group: multiply by devices for device-seconds."""
    devices = require_count("tensor_parallel", "devices", devices)
    return _on_deployment(f"tensor parallel {devices}", lambda d: replace(d, devices=devices))


def prefix_cache(hit: float) -> Lever:
    """A share `hit` of the prompt is already cached; at least one prompt token is computed all the same."""
    hit = require_fraction("prefix_cache", "hit", hit, zero=True)

    def change(d: Deployment, request: Request, batch: int) -> Case:
        cached = np.minimum(np.floor(hit * np.asarray(request.prompt)), np.asarray(request.prompt) - 1)
        return d, replace(request, cached=cached if request.is_array else int(cached)), batch

    return Lever(f"prefix cache, {hit:.0%} hit", change)


def chunked_prefill(tokens: int) -> Lever:
    """Prefill in passes of at most `tokens` tokens. What mixing them into decode steps saves is batching.mixed_pass."""
    tokens = require_count("chunked_prefill", "tokens", tokens)
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


def shorter_answer(share: float) -> Lever:
    """The answer cut to `share` of its tokens, rounded up."""
    share = require_fraction("shorter_answer", "share", share)

    def change(d: Deployment, request: Request, batch: int) -> Case:
        output = np.ceil(share * np.asarray(request.output))
        return d, replace(request, output=output if request.is_array else int(output)), batch

    return Lever(f"answer x {share:g}", change)


# ---- Amdahl and the break-even line


def faster_prefill(prefill_seconds: Any, decode_seconds: Any, k: Any) -> Any:
    """Amdahl's law: time before over time after a prefill k times faster (k may be infinite). Seconds of one clock.

    Numbers or arrays; NaN cells, which `request_cost` leaves where it refuses, stay NaN.
    """
    given = {"prefill_seconds": prefill_seconds, "decode_seconds": decode_seconds, "k": k}
    prefill, decode, factor = (require_numbers("faster_prefill", name, value) for name, value in given.items())
    for name, seconds in (("prefill_seconds", prefill), ("decode_seconds", decode)):
        if np.any(seconds < 0) or np.any(np.isinf(seconds)) or (not seconds.ndim and np.isnan(seconds)):
            raise InvalidInputError(f"faster_prefill: {name} is {shown(given[name])}; expected finite seconds from 0.")
    if not np.all(factor > 0):
        raise InvalidInputError(
            f"faster_prefill: k is {shown(k)}; expected numbers above 0 (math.inf for a free prefill)."
        )
    try:
        np.broadcast_shapes(prefill.shape, decode.shape, factor.shape)
    except ValueError:
        shapes = ", ".join(f"{name} {np.shape(value)}" for name, value in given.items())
        raise InvalidInputError(f"faster_prefill: the shapes do not broadcast together: {shapes}.") from None
    with np.errstate(divide="ignore", invalid="ignore"):  # a free prefill and no decode: infinitely faster
        ratio = (prefill + decode) / (prefill / factor + decode)
    if not ratio.ndim and np.isnan(ratio):
        raise InvalidInputError("faster_prefill: both times are 0; expected at least one above 0.")
    return ratio if ratio.ndim else float(ratio)


def break_even_output(deployment: Deployment, prompt: Any, batch: int = 1, share: float = 0.05) -> Any:
    """The least output at which prefill is under `share` of the GPU clock, for each prompt (a number or an array).

    Memory and positions are not looked at: it is where the line lies, not whether a server holds it.
    """
    require_deployment("break_even_output", deployment)
    batch = require_count("break_even_output", "batch", batch, 1, MOST_TOKENS)
    share = require_fraction("break_even_output", "share", share)
    prompts = np.atleast_1d(np.asarray(Request(prompt, 1).prompt, dtype=np.float64))
    if not np.all((prompts >= 1) & (np.floor(prompts) == prompts) & (prompts <= MOST_TOKENS)):
        raise InvalidInputError(
            "break_even_output: prompt holds a number that is not whole, below 1 or above 2**53; leave it out."
        )
    require_chunks("break_even_output", deployment, prompts)
    with np.errstate(over="ignore"):
        prefill = prefill_phase(deployment, prompts, 0.0, float(batch)).seconds
        allowed = prefill * (1 - share) / share  # decode seconds from which on the share is small enough
    low, high = np.ones_like(prompts), np.full_like(prompts, 2.0)

    def short_of(output: Any) -> Any:
        return decode_phase(deployment, prompts, output, float(batch)).seconds <= allowed

    while np.any(short := short_of(high)):
        if np.max(high) > MOST_TOKENS:
            raise InvalidInputError(f"break_even_output: no output up to 2**53 tokens brings prefill under {share:g}.")
        high = np.where(short, 2 * high, high)
    for _ in range(60):  # halving down to a whole token
        middle = np.floor((low + high) / 2)
        short = short_of(middle)
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return high if np.ndim(prompt) else int(high[0])


def break_even_by_rho(deployment: Deployment, prompt: Any, batch: int = 1, share: float = 0.05) -> Any:
    """rho's estimate of the same line: rho = share / (1 - share), a straight line in the plane of prompt and output."""
    share = require_fraction("break_even_by_rho", "share", share)
    return rho(deployment, Request(prompt, 1), batch) * (1 - share) / share


# ---- elasticities

RATES = ("peak", "bandwidth", "link", "latency", "overhead", "weight bytes", "cache bytes")
SMALLEST_STEP, LARGEST_STEP = 1e-9, 1e-2


def _scaled(deployment: Deployment, name: str, factor: float) -> Deployment:
    """The deployment with one of RATES times `factor`. Bytes are scaled where they are read: nothing else changes."""
    accelerator, efficiency, sizes = deployment.accelerator, deployment.efficiency, deployment.sizes
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
        experts = tuple(e._replace(bytes=factor * e.bytes) for e in sizes.experts)
        sizes = sizes._replace(dense_bytes=factor * sizes.dense_bytes, experts=experts)
    else:
        kinds = tuple(
            k._replace(cache_bytes=factor * k.cache_bytes, state_bytes=factor * k.state_bytes) for k in sizes.kinds
        )
        sizes = sizes._replace(kinds=kinds)
    changed = copy.copy(deployment)
    object.__setattr__(changed, "sizes", sizes)
    return changed


def gpu_seconds(deployment: Deployment, request: Request, batch: int = 1) -> float:
    """GPU seconds of `batch` requests, without asking whether they fit: for derivatives at the very limit."""
    require_case("gpu_seconds", deployment, request)
    batch = require_count("gpu_seconds", "batch", batch, 1, MOST_TOKENS)
    require_chunks("gpu_seconds", deployment, request.prompt - request.cached)
    sizes = (float(request.prompt), float(request.output), float(request.cached), float(batch))
    prompt, output, cached, b = sizes
    return prefill_phase(deployment, prompt, cached, b).seconds + decode_phase(deployment, prompt, output, b).seconds


def elasticities(deployment: Deployment, request: Request, batch: int = 1, step: float = 1e-4) -> dict[str, float]:
    """d ln T / d ln x of the GPU clock for each of RATES, and for prompt and output (one token either way).

    Central differences in ln x of width `step`, 1e-9 to 1e-2. peak + bandwidth + link - latency - overhead = -1: double
    all rates and halve all waits, and the time halves. A draft model's own bytes are not scaled.
    """
    require_case("elasticities", deployment, request)
    step = require_rate("elasticities", "step", step, "ln x")
    if not SMALLEST_STEP <= step <= LARGEST_STEP:  # below it rounding shows, above it the curve's bends do
        raise InvalidInputError(
            f"elasticities: step is {step:g}; expected {SMALLEST_STEP:g} to {LARGEST_STEP:g} of ln x."
        )
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
