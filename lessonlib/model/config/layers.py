"""The layers of a model from its family's row: of which kind each is, which have experts, and the blocks they make."""

from collections import Counter

from lessonlib.model.block import Block
from lessonlib.model.config.keys import Keys
from lessonlib.model.config.rules import ONE_LETTER
from lessonlib.model.feedforward import DenseFeedForward, FeedForward, MixtureOfExperts


def read_blocks(keys: Keys) -> tuple[tuple[int, Block], ...]:
    """((count, Block), ...), equal layers taken together."""
    family = keys.family
    norms = family.norms(keys) if callable(family.norms) else family.norms
    keys.kinds, sparse = _kinds(keys), _sparse(keys)
    kinds = keys.kinds
    mixers = {kind: family.mixers[kind](keys, kind) for kind in dict.fromkeys(kinds)}
    feedforwards = {has_experts: _feedforward(keys, has_experts) for has_experts in dict.fromkeys(sparse)}
    for kind in family.mixers.keys() - mixers.keys():
        keys.mark_read(family.mixers[kind], kind)
    for has_experts in {True, False} - feedforwards.keys():
        keys.mark_read(_feedforward, has_experts)
    norm, one_more = family.norm * keys.width, family.experts is not None and family.experts.norm
    blocks = []
    for (kind, has_experts), count in Counter(zip(kinds, sparse, strict=True)).items():
        feedforward = None if kind in family.no_feedforward else feedforwards[has_experts]
        number = (norms if isinstance(norms, int) else norms[kind]) + (one_more and has_experts)
        borrowed = family.borrowed(kind, mixers[kind], feedforward) if family.borrowed else 0
        block = Block(mixers[kind], feedforward, number * norm, borrowed_weights=borrowed)
        blocks.append((count, family.amended(keys, kind, block) if family.amended else block))
    return tuple(blocks)


def _kinds(keys: Keys) -> list[str]:
    """The letter of each layer's kind; it is one for which the row has a mixer."""
    family = keys.family
    words = keys.listed("layer_types", keys.layers, ONE_LETTER) if family.layer_types else None
    if family.window:
        on, window = keys.switch(family.window_switch), keys.value(family.window)
        keys.window = keys.count(family.window) if on and window is not None else None
    if words is not None:
        kinds = [ONE_LETTER[word] for word in words]
        keys.read.update(dict.fromkeys((family.period or "").split("|")))  # the list wins over it
    else:
        kinds = family.kinds(keys)
    kinds = [("F" if keys.window is None else "S") if kind == "W" else kind for kind in kinds]
    if family.marked:
        kinds = family.marked(keys, kinds)
    for kind in dict.fromkeys(kinds):
        if kind not in family.mixers:
            key = "layer_types" if family.layer_types else family.layers
            raise keys.refused(key, words, "some layers are of a kind that its row has no mixer for")
        if kind in "SsZ" and keys.window is None:
            key = family.window or family.layers
            why = "some layers are sliding, and their window is off or not stated"
            raise keys.refused(key, keys.config.get(key), why)
    return kinds


def _sparse(keys: Keys) -> list[bool]:
    """For each layer whether it has experts."""
    moe, layers = keys.family.experts, range(keys.layers)
    if moe is None or not keys.switch(moe.on):
        return [False for _ in layers]
    if keys.family.inner:
        keys.read[keys.family.inner] = keys.config.get(keys.family.inner)  # of dense layers, of which there may be none
    words = keys.listed("mlp_layer_types", keys.layers, ("dense", "sparse")) if moe.listed else None
    number = keys.optional(moe.experts, 0)
    if number is None:
        raise keys.refused(moe.experts, None, "the number of experts is not stated")
    if number == 0 and not moe.none_is_dense:
        raise keys.refused(moe.experts, 0, "without experts its class does not become a dense model")
    if words is not None:
        if isinstance(moe.first_dense, str):
            keys.read[moe.first_dense] = keys.config.get(moe.first_dense)
        sparse = [word == "sparse" for word in words]
    elif moe.placement:
        sparse = moe.placement(keys)
    else:
        first = keys.count(moe.first_dense, 0) if isinstance(moe.first_dense, str) else moe.first_dense
        sparse = [i >= first for i in layers]
    return [has_experts and number > 0 for has_experts in sparse]


def _feedforward(keys: Keys, has_experts: bool) -> FeedForward | None:
    family, moe = keys.family, keys.family.experts
    if family.dense_inner is None:
        return None
    bias = keys.switch(family.mlp_bias)
    if not has_experts or moe is None:
        inner = family.dense_inner(keys)
        biases = (2 if family.gated else 1) * inner + keys.width if bias else 0
        activation = family.activation_weights
        other = biases + (activation(keys) if callable(activation) else activation)
        extra = family.extra_inner(keys) if family.extra_inner else 0
        return DenseFeedForward(
            width=keys.width, inner=inner, gated=family.gated, extra_matrix_weights=extra, other_weights=other
        )
    if bias:
        raise keys.refused(str(family.mlp_bias), True, "biases of experts are not read for this family")
    experts, top_k, inner = keys.count(moe.experts), keys.count(moe.top_k), keys.count(moe.expert_inner)
    if top_k > experts:
        raise keys.wrong(moe.top_k, top_k, f"at most the {experts} experts that there are")
    said, shared = moe.shared_inner or moe.shared_experts, 0
    if said:
        number = keys.optional(said, 0)
        if number is None:
            raise keys.refused(said, None, "its class has no rule for that, and 0 says that there are none")
        if moe.never_unshared and not number:
            raise keys.refused(said, number, "its class has a shared expert all the same")
        shared = number if moe.shared_inner else number * inner
    return MixtureOfExperts(
        width=keys.width,
        experts=experts,
        experts_per_token=top_k,
        expert_inner=inner,
        shared_inner=shared,
        gated=family.gated,
        shared_gate=moe.shared_gate,
        latent=keys.optional(moe.latent) if moe.latent else None,
        expert_other_weights=2 * inner + keys.width if moe.bias else 0,
        other_weights=(experts if moe.bias else 0) + (experts if moe.correction else 0),
    )
