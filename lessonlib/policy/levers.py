"""Levers: named changes of a case, and what each buys. They go through `steady_state`: nothing is estimated here."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lessonlib.base.checks import REFUSED, Checked, Rule, checked, choice, count, fraction, rate, text, wrong
from lessonlib.base.elementwise import ratio
from lessonlib.base.errors import UnknownNameError
from lessonlib.model.attention import GroupedQueryAttention, MultiHeadLatentAttention
from lessonlib.model.block import Block
from lessonlib.model.precision import Precision
from lessonlib.model.sparse import SparseLatentAttention
from lessonlib.policy.full_server import full_batch, steady_state
from lessonlib.request.cost import prefill_phase
from lessonlib.request.request import REQUESTS, Case, Request
from lessonlib.time.deployment import DEPLOYMENT, Deployment, Speculation
from lessonlib.work.layouts import EXPERT, TENSOR


@dataclass(frozen=True)
class Lever(Checked):
    """A named change of a case. Call it with (deployment, request, batch); it returns the case as changed."""

    name: str
    change: Callable[[Case], Case]

    rules: ClassVar = {
        "name": text("'twice the memory'"),
        "change": Rule("a function that returns a Case", lambda value: value if callable(value) else REFUSED),
    }

    def __call__(self, deployment: Deployment, request: Request, batch: int = 1) -> Case:
        return self.change(Case(deployment, request, batch))

    def speedup(self, deployment: Deployment, request: Request, batch: int = 1) -> float:
        """GPU seconds of one request in steady state before over after, at the batch that the lever leaves."""
        case = Case(deployment, request, batch)
        return _seconds_each(case) / _seconds_each(self.change(case))

    def speedup_at_limit(self, deployment: Deployment, request: Request) -> float:
        """The same on a full server: with the memory batch before, and the memory batch after."""
        before = _at_limit(Case(deployment, request))
        return _seconds_each(before) / _seconds_each(_at_limit(self.change(before)))


def _seconds_each(case: Case) -> float:
    return steady_state(*case).seconds_per_request


def _at_limit(case: Case) -> Case:
    """The case at its memory batch; DoesNotFitError when not even one such request fits."""
    return replace(case, batch=full_batch(case.deployment, case.request))


TIMES = rate("times")


def scaled(deployment: Deployment, name: str, k: float) -> Deployment:
    """The deployment with one rate of its accelerator, or one wait of its efficiency, times k."""
    if name == "link" and deployment.link is not None:
        return replace(deployment, link=k * deployment.link)
    part = "efficiency" if name in ("overhead", "all_reduce_latency", "all_to_all_latency") else "accelerator"
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
    return _on_deployment(f"tensor parallel {devices}", lambda d: replace(d, devices=devices, layout=TENSOR))


@checked(devices=count())
def expert_parallel(devices: int) -> Lever:
    """The same model over `devices` devices, attention data-parallel and routed experts shared out among them."""
    return _on_deployment(f"expert parallel {devices}", lambda d: replace(d, devices=devices, layout=EXPERT))


@checked(top_k=count(), index_heads=count(), index_dim=count())
def sparse_attention(top_k: int = 2048, index_heads: int = 64, index_dim: int = 128) -> Lever:
    """MLA whose queries attend to the `top_k` tokens that an indexer picks, as in DeepSeek-V3.2. Another model."""

    def sparse(block: Block) -> Block:
        old = block.mixer
        if type(old) is not MultiHeadLatentAttention or old.query_rank is None or old.window is not None:
            return block
        sizes = {field.name: getattr(old, field.name) for field in fields(old) if field.init}
        index = {"top_k": top_k, "index_heads": index_heads, "index_dim": index_dim}
        return replace(block, mixer=SparseLatentAttention(**(sizes | index)))

    def change(deployment: Deployment) -> Deployment:
        model = deployment.model
        blocks = tuple((layers, sparse(block)) for layers, block in model.blocks)
        return replace(deployment, model=replace(model, name=f"{model.name} with sparse attention", blocks=blocks))

    return _on_deployment(f"sparse attention, top {top_k:,}", change)


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
    """Prefill in passes of at most `tokens` tokens. `steady_state` says what it saves to mix them into steps."""
    return _on_deployment(f"prefill chunks of {tokens:,}", lambda d: replace(d, prefill_chunk=tokens))


def speculative_decoding(draft_tokens: int, acceptance: float, draft: Any) -> Lever:
    """`draft_tokens` proposed a round by `draft`, each accepted with probability `acceptance`; see Speculation."""
    speculation = Speculation(draft_tokens, acceptance, draft)
    drafts = "free drafts" if speculation.drafter is None else f"draft {speculation.drafter.name}"
    name = f"speculation, {speculation.draft_tokens} {drafts}, acceptance {speculation.acceptance:g}"
    return _on_deployment(name, lambda d: replace(d, speculation=speculation))


@checked(draft_tokens=count(), tokens_per_round=rate("tokens a round"))
def drafts_that_yield(draft_tokens: int, tokens_per_round: float, draft: Any) -> Lever:
    """Speculation with a published yield: `tokens_per_round`, the bonus token among them, from `draft_tokens` drafts.

    The acceptance that gives this yield is found by halving: E = 1 + a + ... + a**g rises with a from 1 to g + 1.
    """
    if not 1 <= tokens_per_round <= draft_tokens + 1:
        limits = f"a number from 1 to {draft_tokens + 1}, what {draft_tokens} drafts and the bonus token can yield"
        raise wrong("drafts_that_yield", "tokens_per_round", tokens_per_round, limits)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        enough = Speculation(draft_tokens, middle, draft).tokens_per_round >= tokens_per_round
        low, high = (low, middle) if enough else (middle, high)
    return speculative_decoding(draft_tokens, high, draft)


@checked(window=count(), every=count(2))
def windowed_layers(window: int = 1024, every: int = 6) -> Lever:
    """All grouped-query layers but one of each `every` get a sliding window. Another model: quality is not asked."""

    def change(deployment: Deployment) -> Deployment:
        model = deployment.model
        blocks: list[tuple[int, Block]] = []
        for layers, block in model.blocks:
            mixer = block.mixer
            full = -(-layers // every) if isinstance(mixer, GroupedQueryAttention) else layers
            blocks.append((full, block))
            if isinstance(mixer, GroupedQueryAttention) and full < layers:
                blocks.append((layers - full, replace(block, mixer=replace(mixer, window=window))))
        name = f"{model.name} with windows of {window:,}"
        return replace(deployment, model=replace(model, name=name, blocks=tuple(blocks)))

    return _on_deployment(f"window {window:,} in all but 1 of {every} layers", change)


RELOAD_RATES = {"PCIe 5.0 x16": 63e9, "NVLink-C2C": 450e9}  # byte/s one way, from a CPU's memory to its GPU


class PrefixReload(NamedTuple):
    """A cached prefix that lies outside the GPU: fetched, or computed again. Numbers, or arrays of them.

    `bytes`: its cache and state. `reload`: seconds over the link, while nothing else waits for it. `recompute`: seconds
    by which the prefill is longer without it. `even_rate`: byte/s at which the two are equal.
    """

    bytes: Any
    reload: Any
    recompute: Any
    even_rate: Any


@checked(deployment=DEPLOYMENT, request=REQUESTS, rate=rate("byte/s"))
def prefix_reload(deployment: Deployment, request: Request, rate: float) -> PrefixReload:
    """The cached tokens of a request, fetched over a link of `rate` byte/s one way, against computed again."""
    numbers = (request.prompt, request.cached)
    prompt, cached = (value if isinstance(value, np.ndarray) else float(value) for value in numbers)
    moved = deployment.sequence_bytes(cached) * (np.asarray(cached) > 0)
    without = prefill_phase(deployment, prompt, 0.0 * cached, 1.0).seconds
    again = without - prefill_phase(deployment, prompt, cached, 1.0).seconds
    even = ratio(moved, again)
    found = (moved, moved / rate, again, even)
    return PrefixReload(*(float(value) if np.ndim(value) == 0 else value for value in found))


def batch_to_limit() -> Lever:
    """The memory batch."""
    return Lever("batch to the memory limit", _at_limit)


@checked(share=fraction())
def shorter_answer(share: float) -> Lever:
    """The answer cut to `share` of its tokens, rounded up."""

    def change(case: Case) -> Case:
        return replace(case, request=replace(case.request, output=np.ceil(share * np.asarray(case.request.output))))

    return Lever(f"answer x {share:g}", change)
