"""Work of one forward pass: FLOPs and bytes. It knows no hardware.

A pass takes n new tokens in each of b sequences, on c cached tokens each. New token i attends to a span of
min(c + i, window) keys, itself included.

    linear FLOPs     2 b n P_block + 2 V d for each position whose logits are needed
    weight bytes     every parameter once, tables that are looked up apart; of E routed experts E (1 - (1 - k/E)**(b n))
    attention FLOPs  FLOP of a pair times the sum of the spans (GQA: 4 h d_h a pair)
    cache bytes      kappa (min(c, window - 1) read + n written), kappa the bytes of a token in that layer
    constant state   the whole state read and written once, whatever n

Left out: unfused activations, embedding look-ups, norms, softmax, sampling. Every function takes floats or arrays; `xp`
is the namespace of the few functions needed, plain Python's or NumPy's.
"""

from typing import Any, NamedTuple

from lessonlib.work.sizes import FoldedModel, LayerKind, ScalarNamespace


class LinearWork(NamedTuple):
    flops: Any
    bytes: Any


class AttentionWork(NamedTuple):
    """Of all layers of one kind, all sequences of the batch."""

    flops: Any
    cache_read: Any
    cache_write: Any
    state: Any  # bytes of constant state, read and written


Terms = tuple[Any, Any, Any, Any]  # FLOPs, cache read, cache written, state moved


def span_sum(cached: Any, new: Any, window: int | None, xp: Any = ScalarNamespace) -> Any:
    """Sum of the spans of `new` tokens after `cached` ones: sum over i = 1 .. new of min(cached + i, window).

    The first m = clip(window - cached, 0, new) tokens see all before them; the rest see a full window.
    """
    if window is None:
        return new * cached + new * (new + 1) / 2
    growing = xp.minimum(xp.maximum(xp.floor(window - cached), 0.0), new)
    return growing * cached + growing * (growing + 1) / 2 + (new - growing) * window


def linear_work(model: FoldedModel, tokens: Any, logits: Any, xp: Any = ScalarNamespace) -> LinearWork:
    """Linear layers of one pass over `tokens` = b n tokens in all, with logits for `logits` positions in all."""
    streamed = model.dense_bytes
    for experts in model.experts:
        streamed = streamed - experts.bytes * xp.expm1(tokens * experts.log_idle)
    return LinearWork(model.token_flops * tokens + model.logit_flops * logits, streamed)


def pair_work(kind: LayerKind, cached: Any, pairs: Any, xp: Any = ScalarNamespace) -> Any:
    """FLOPs of `pairs` (query, key) pairs of one sequence with `cached` tokens.

    MLA with nothing cached is expanded; on a cached prefix it takes the cheaper of absorbed and re-projected.
    """
    if not kind.expand_flops:
        return kind.pair_flops * pairs
    expanded = kind.fresh_pair_flops * pairs + kind.expand_flops * cached
    return xp.where(cached > 0, xp.minimum(kind.pair_flops * pairs, expanded), expanded)


def attention_work(kind: LayerKind, new: Any, cached: Any, batch: Any, xp: Any = ScalarNamespace) -> AttentionWork:
    """Attention, or the state update, of all layers of one kind in one pass."""
    return AttentionWork(*attention_terms(kind, new, cached, batch, xp))


def attention_terms(kind: LayerKind, new: Any, cached: Any, batch: Any, xp: Any = ScalarNamespace) -> Terms:
    """The four terms of `attention_work` as a plain tuple, which costs less to make: a request makes many."""
    if kind.state_bytes or kind.token_flops:
        return batch * new * kind.token_flops, 0.0, 0.0, 2 * batch * kind.state_bytes
    pairs = span_sum(cached, new, kind.window, xp)
    read = cached if kind.window is None else xp.minimum(cached, kind.window - 1.0)
    flops = batch * pair_work(kind, cached, pairs, xp)
    cache = batch * kind.cache_bytes
    return flops, cache * read, cache * new, 0.0


def attention_terms_of_steps(kind: LayerKind, prompt: Any, steps: Any, batch: Any, xp: Any = ScalarNamespace) -> Terms:
    """Attention of all layers of one kind in `steps` decode steps after a prompt: the sum of their passes, closed.

    Step k has c = prompt + k - 1 and a span of min(prompt + k, window), and reads span - 1 tokens.
    """
    if kind.state_bytes or kind.token_flops:
        return batch * steps * kind.token_flops, 0.0, 0.0, 2 * batch * steps * kind.state_bytes
    spans = span_sum(prompt, steps, kind.window, xp)
    cache = batch * kind.cache_bytes
    return batch * kind.pair_flops * spans, cache * (spans - steps), cache * steps, 0.0
