"""Levers: named changes of a case, and what each buys. They go through `request_cost`, so nothing is estimated here."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from lessonlib.base.checks import checked, choice, count, fraction, rate, wrong
from lessonlib.base.errors import UnknownNameError
from lessonlib.model.attention import GroupedQueryAttention, MultiHeadLatentAttention
from lessonlib.model.block import Block
from lessonlib.model.precision import Precision
from lessonlib.policy.batching import memory_batch
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Case, Request
from lessonlib.time.deployment import Deployment, Speculation


@dataclass(frozen=True)
class Lever:
    """A named change of a case. Call it with (deployment, request, batch); it returns the case as changed."""

    name: str
    change: Callable[[Case], Case]

    def __call__(self, deployment: Deployment, request: Request, batch: int = 1) -> Case:
        return self.change(Case(deployment, request, batch))

    def speedup(self, deployment: Deployment, request: Request, batch: int = 1) -> float:
        """GPU seconds of one request before over after, at the batch that the lever leaves."""
        case = Case(deployment, request, batch)
        return _seconds_each(case) / _seconds_each(self.change(case))

    def speedup_at_limit(self, deployment: Deployment, request: Request) -> float:
        """The same with the largest batch that fits before, and the largest that fits after."""
        before = _at_limit(Case(deployment, request))
        return _seconds_each(before) / _seconds_each(_at_limit(self.change(before)))


def _seconds_each(case: Case) -> float:
    return request_cost(*case).seconds / case.batch


def _at_limit(case: Case) -> Case:
    """The case at its memory batch; DoesNotFitError when not even one such request fits."""
    batch = memory_batch(case.deployment, case.request)
    if not batch:
        case.deployment.require_fit(case.request.prompt + case.request.output)
    return replace(case, batch=batch)


TIMES = rate("times")


def scaled(deployment: Deployment, name: str, k: float) -> Deployment:
    """The deployment with one rate of its accelerator, or one wait of its efficiency, times k."""
    part = "efficiency" if name in ("overhead", "all_reduce_latency") else "accelerator"
    whole: Any = getattr(deployment, part)
    value = getattr(whole, name)
    if name == "peaks":
        value = {dtype: k * peak for dtype, peak in value.items()}
    elif value is not None:  # no link figure is known
        value = k * value
    return replace(deployment, **{part: replace(whole, **{name: value})})


def _on_deployment(name: str, change: Callable[[Deployment], Deployment]) -> Lever:
    return Lever(name, lambda case: replace(case, deployment=change(case.deployment)))


@checked(k=TIMES)
def faster_peak(k: float) -> Lever:
    """Peak FLOP/s of every dtype times k."""
    return _on_deployment(f"peak x {k:g}", lambda deployment: scaled(deployment, "peaks", k))


@checked(k=TIMES)
def more_bandwidth(k: float) -> Lever:
    """Memory bandwidth times k."""
    return _on_deployment(f"bandwidth x {k:g}", lambda deployment: scaled(deployment, "bandwidth", k))


@checked(k=TIMES)
def more_memory(k: float) -> Lever:
    """Memory of a device times k."""
    return _on_deployment(f"memory x {k:g}", lambda deployment: scaled(deployment, "memory", k))


@checked(k=rate("times", zero=True))
def scaled_overhead(k: float) -> Lever:
    """Overhead of a pass times k (0 removes it)."""
    return _on_deployment(f"overhead x {k:g}", lambda deployment: scaled(deployment, "overhead", k))


PART = choice((part.name for part in fields(Precision)), UnknownNameError)


def quantised(**parts: Any) -> Lever:
    """Other dtypes for parts: quantised(blocks="int4", experts="int4"), quantised(cache="fp8")."""
    if not parts:
        raise wrong("quantised", "parts", parts, "such as blocks='int4', experts='int4' or cache='fp8'")
    for part in parts:
        PART("quantised", "part", part)
    Precision(**parts)  # refuses a dtype that is not known
    words = ", ".join(f"{part} {dtype}" for part, dtype in parts.items())
    return _on_deployment(words, lambda d: replace(d, precision=replace(d.precision, **parts)))


@checked(rank=count(), rope_dim=count())
def latent_attention(rank: int = 512, rope_dim: int = 64) -> Lever:
    """Grouped-query attention replaced by MLA of the same heads, with DeepSeek's latent unless given. Another model."""

    def latent(block: Block) -> Block:
        old = block.mixer
        if not isinstance(old, GroupedQueryAttention):
            return block
        mixer = MultiHeadLatentAttention(
            width=old.width,
            heads=old.heads,
            kv_rank=rank,
            nope_dim=old.head_dim,
            rope_dim=rope_dim,
            value_dim=old.head_dim if old.value_dim is None else old.value_dim,
            other_weights=rank,  # the latent's norm
        )
        return replace(block, mixer=mixer)

    def change(deployment: Deployment) -> Deployment:
        model = deployment.model
        blocks = tuple((layers, latent(block)) for layers, block in model.blocks)
        return replace(deployment, model=replace(model, name=f"{model.name} with a latent cache", blocks=blocks))

    return _on_deployment(f"MLA, latent {rank} + {rope_dim}", change)


@checked(devices=count())
def tensor_parallel(devices: int) -> Lever:
    """The same model over `devices` devices. GPU seconds are of the group: multiply by devices for device-seconds."""
    return _on_deployment(f"tensor parallel {devices}", lambda d: replace(d, devices=devices))


@checked(hit=fraction(zero=True))
def prefix_cache(hit: float) -> Lever:
    """A share `hit` of the prompt is already cached; at least one prompt token is computed all the same."""

    def change(case: Case) -> Case:
        prompt = np.asarray(case.request.prompt)
        cached = np.minimum(np.floor(hit * prompt), prompt - 1)
        return replace(case, request=replace(case.request, cached=cached))

    return Lever(f"prefix cache, {hit:.0%} hit", change)


@checked(tokens=count())
def chunked_prefill(tokens: int) -> Lever:
    """Prefill in passes of at most `tokens` tokens. What mixing them into decode steps saves is batching.mixed_pass."""
    return _on_deployment(f"prefill chunks of {tokens:,}", lambda d: replace(d, prefill_chunk=tokens))


def speculative_decoding(draft_tokens: int, acceptance: float, draft: Any) -> Lever:
    """`draft_tokens` proposed a round by `draft`, each accepted with probability `acceptance`; see Speculation."""
    speculation = Speculation(draft_tokens, acceptance, draft)
    drafts = "free drafts" if speculation.drafter is None else f"draft {speculation.drafter.name}"
    name = f"speculation, {speculation.draft_tokens} {drafts}, acceptance {speculation.acceptance:g}"
    return _on_deployment(name, lambda d: replace(d, speculation=speculation))


def batch_to_limit() -> Lever:
    """The largest batch that fits in memory."""
    return Lever("batch to the memory limit", _at_limit)


@checked(share=fraction())
def shorter_answer(share: float) -> Lever:
    """The answer cut to `share` of its tokens, rounded up."""

    def change(case: Case) -> Case:
        return replace(case, request=replace(case.request, output=np.ceil(share * np.asarray(case.request.output))))

    return Lever(f"answer x {share:g}", change)
