"""Work of a forward pass: FLOPs and bytes, part by part. It knows no hardware.

A pass takes n new tokens in each of b sequences, on c cached tokens each. How many keys a token attends to (its span),
how many cached tokens a pass reads and how many a sequence holds is the law of the layer's mixer.

    linear FLOPs     2 b n P_block + 2 V d for each position whose logits are needed
    weight bytes     every parameter once, tables that are looked up apart; of E routed experts E (1 - (1 - k/E)**(b n))
    attention FLOPs  FLOP of a pair times the sum of the spans (GQA: 4 h d_h a pair)
    cache bytes      kappa (read + n written), kappa the bytes of a token in that layer
    constant state   the whole state read and written once, whatever n

Kernels run one after another, so each has a roof of its own: dense linear layers (shared experts, routers and norms
among them), routed experts, the LM head, each kind of attention or state.

Left out: unfused activations, embedding look-ups, norms, softmax, sampling. All numbers are floats or arrays of them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from lessonlib.base.elementwise import expm1, floor, minimum, where
from lessonlib.model.precision import ATTENTION, BLOCKS, EXPERTS, HEAD
from lessonlib.work.sizes import LayerKind, ModelSizes


class Work(NamedTuple):
    """What one part of a pass does under one roof. Attention is of all layers of one kind, all sequences together."""

    part: str  # in words, such as "32 x GQA"
    kernel: str  # "blocks", "experts", "head" or "attention": it decides the dtype that is multiplied in
    flops: Any
    weights: Any = 0.0  # bytes of weights
    cache_read: Any = 0.0
    cache_write: Any = 0.0
    state: Any = 0.0  # bytes of constant state, read and written
    times: Any = 1.0  # how many such works run one after another, each under a roof of its own


class Passes(NamedTuple):
    """Forward passes of one model: their works, and the counts that all-reduces and overhead go by."""

    sizes: ModelSizes
    works: list[Work]
    tokens: Any  # of all passes together, those of the device that has the most
    count: Any
    done: Any = 1.0  # the share of works, routed experts apart, that is done: devices less full than the fullest wait


# What makes a Work, or Passes, of a tuple of its fields, in half the time of calling it: a request makes a dozen.
work_of: Callable[[tuple[Any, ...]], Work] = partial(tuple.__new__, Work)
passes_of: Callable[[tuple[Any, ...]], Passes] = partial(tuple.__new__, Passes)


def linear_work(sizes: ModelSizes, tokens: Any, logits: Any, times: Any = 1.0, fullest: Any = 1.0) -> list[Work]:
    """Linear layers of one pass over `tokens` = b n tokens in all, with logits for `logits` positions in all.

    Up to three works: the dense ones, the routed experts where there are any, the LM head. `fullest`: tokens of the
    fullest device over their mean, where each serves sequences of its own.
    """
    flops, head = sizes.token_flops * tokens * fullest, sizes.logit_flops * logits * fullest
    found = [work_of(("linear layers", BLOCKS, flops, sizes.block_bytes, 0.0, 0.0, 0.0, times))]
    if sizes.experts:
        streamed: Any = 0.0
        for experts in sizes.experts:
            streamed = streamed - experts.bytes * expm1(tokens * experts.log_idle)
        found.append(work_of(("routed experts", EXPERTS, sizes.expert_flops * tokens, streamed, 0.0, 0.0, 0.0, times)))
    found.append(work_of(("LM head", HEAD, head, sizes.head_bytes, 0.0, 0.0, 0.0, times)))
    return found


def pair_work(kind: LayerKind, read: Any, pairs: Any) -> Any:
    """FLOPs of `pairs` (query, key) pairs of one sequence that reads `read` cached tokens.

    MLA with nothing cached is expanded; on a cached prefix it takes the cheaper of absorbed and re-projected.
    """
    if not kind.expand_flops:
        return kind.pair_flops * pairs
    expanded = kind.fresh_pair_flops * pairs + kind.expand_flops * read
    return where(read > 0, minimum(kind.pair_flops * pairs, expanded), expanded)


def attention_work(kind: LayerKind, new: Any, cached: Any, batch: Any, times: Any = 1.0) -> Work:
    """Attention, or the update of a constant state, of all layers of one kind in one pass."""
    if not kind.cache_bytes:
        state = 2 * batch * kind.state_bytes
        return Work(kind.part, ATTENTION, batch * new * kind.token_flops, 0.0, 0.0, 0.0, state, times)
    cache, mixer = batch * kind.cache_bytes, kind.mixer
    read = mixer.read(cached, new)
    flops = batch * pair_work(kind, read, mixer.span_sum(cached, new))
    return work_of((kind.part, ATTENTION, flops, 0.0, cache * read, cache * new, 0.0, times))


def attention_of_steps(kind: LayerKind, prompt: Any, steps: Any, batch: Any) -> list[Work]:
    """The same in `steps` decode steps after a prompt: the sum of their passes, closed.

    Step k finds prompt + k - 1 tokens cached. FLOPs and bytes both follow the span, so one roof binds in every step;
    where a mixer's law has another proportion from some step on, the steps before and after are two works of one part.
    """
    if not kind.cache_bytes:
        state = 2 * batch * steps * kind.state_bytes
        return [Work(kind.part, ATTENTION, batch * steps * kind.token_flops, 0.0, 0.0, 0.0, state)]
    cache, mixer = batch * kind.cache_bytes, kind.mixer
    works = []
    for first, count in mixer.stretches(prompt, steps):
        spans = mixer.span_sum(first, count)
        read = cache * mixer.read_sum(first, count, spans)
        works.append(
            work_of((kind.part, ATTENTION, batch * kind.pair_flops * spans, 0.0, read, cache * count, 0.0, 1.0))
        )
    return works


def seats(sizes: ModelSizes, batch: Any) -> Any:
    """Sequences that there would be if each device that serves its own had as many as the fullest, ceil(b / N)."""
    return -floor(-batch / sizes.replicas) * float(sizes.replicas)


def equal_passes(sizes: ModelSizes, new: Any, cached: Any, batch: Any, logits: Any, count: Any = 1.0) -> Passes:
    """`count` equal passes, one after another; `logits` positions of each sequence need logits."""
    full, tokens = batch if sizes.replicas == 1 else seats(sizes, batch), batch * new
    works = [attention_work(kind, new, cached, full, count) for kind in sizes.kinds]
    if full is not batch:
        return _uneven(sizes, works, tokens, batch * logits, count, full / batch)
    works += linear_work(sizes, tokens, batch * logits, count)
    return passes_of((sizes, works, count * tokens, count, 1.0))


def decode_steps(sizes: ModelSizes, prompt: Any, count: Any, batch: Any) -> Passes:
    """`count` decode steps of `batch` sequences after a prompt, in closed form."""
    full = batch if sizes.replicas == 1 else seats(sizes, batch)
    works = [work for kind in sizes.kinds for work in attention_of_steps(kind, prompt, count, full)]
    if full is not batch:
        return _uneven(sizes, works, batch, batch, count, full / batch)
    works += linear_work(sizes, batch, batch, count)
    return passes_of((sizes, works, batch * count, count, 1.0))


def _uneven(sizes: ModelSizes, works: list[Work], tokens: Any, logits: Any, count: Any, fullest: Any) -> Passes:
    """Passes whose attention is `works`, those of the fullest device for each: `fullest` times their mean."""
    works += linear_work(sizes, tokens, logits, count, fullest)
    return Passes(sizes, works, count * tokens * fullest / sizes.replicas, count, 1 / fullest)
