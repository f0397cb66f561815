"""Rules of Gemma 3n and Gemma 4: layers that share a cache, differ in the size of a head, and take inputs of their own.

Every layer has an input of p numbers of its own, which a table gives by the token and a projection by its embedding;
a gate and a projection add it to the layer's output. Source: the classes of transformers 5.24.
"""

from dataclasses import replace
from typing import Any

from lessonlib.model.attention import GroupedQueryAttention, Mixer, SharedCacheAttention
from lessonlib.model.block import Block
from lessonlib.model.config.keys import Keys
from lessonlib.model.config.mixers import attention, sizes_of
from lessonlib.model.config.spelling import by_layer
from lessonlib.model.feedforward import DenseFeedForward, MixtureOfExperts


def last_share(keys: Keys, kinds: list[str]) -> list[str]:
    """The last num_kv_shared_layers read the cache of the last layer of their kind before them: small letters."""
    number = keys.count("num_kv_shared_layers", 0)
    if number >= keys.layers:
        raise keys.refused("num_kv_shared_layers", number, "no layer is left that keeps a cache: that of another model")
    own = kinds[: keys.layers - number]
    if number and set(own) != set(kinds):
        expected = f"so few of the {keys.layers} layers that one of each kind stands before them"
        raise keys.wrong("num_kv_shared_layers", number, expected)
    return own + [kind.lower() for kind in kinds[len(own) :]]


def sharing(keys: Keys, kind: str, values_are_keys: bool = False) -> Mixer:
    """Attention with a norm of queries and one of keys; kinds in small letters read another layer's cache."""
    mixer = attention(keys, kind)
    assert isinstance(mixer, GroupedQueryAttention)
    keys_outputs = mixer.kv_heads * mixer.head_dim if keys.switch(keys.family.qkv_bias) else 0
    if kind.islower():
        return SharedCacheAttention(
            **sizes_of(mixer) | {"other_weights": mixer.other_weights - mixer.head_dim - 2 * keys_outputs}
        )
    if not values_are_keys:
        return mixer
    return replace(mixer, values_are_keys=True, other_weights=mixer.other_weights - keys_outputs)


def gemma4(keys: Keys, kind: str) -> Mixer:
    """Full layers have heads of global_head_dim; where values are keys, they have KV heads of their own number, too.

    Files of the class itself say so by layer, in per_layer_config.
    """
    if keys.kinds[-1] not in "Ff":
        raise keys.refused("layer_types", keys.kinds[-1], "its class makes the last layer a full one all the same")
    values_are_keys, full = keys.switch("attention_k_eq_v"), kind in "Ff"
    heads = keys.optional("num_global_key_value_heads")
    sizes: dict[str, Any] = {"head_dim": keys.count("global_head_dim")}
    if heads and values_are_keys:
        sizes["num_key_value_heads"] = heads
    if not {"per_layer_config", "global_head_dim"} & keys.config.keys():
        keys.defaults_used.append("per_layer_config")
    if "per_layer_config" in keys.config:
        sizes = by_layer(keys, "per_layer_config", "Ff" if full else "Ss", ("head_dim", "num_key_value_heads"))
    elif not full:
        sizes = {}
    return sharing(keys.where(sizes), kind, full and values_are_keys)


def gemma4_layer(keys: Keys, kind: str, block: Block) -> Block:
    """With the input of its layer; experts beside the dense feed-forward; twice as wide where the cache is shared."""
    if keys.value("use_bidirectional_attention") not in (None, "vision"):
        value = keys.value("use_bidirectional_attention")
        raise keys.refused("use_bidirectional_attention", value, "only attention to what was before is read")
    ffn, more = block.feedforward, 0
    wide = 2 if keys.switch("use_double_wide_mlp") and kind.islower() else 1
    if isinstance(ffn, MixtureOfExperts):  # three norms more, a scale of the router's inputs and of each expert
        ffn, more = replace(ffn, shared_inner=wide * ffn.shared_inner), 4 * keys.width + ffn.experts
    elif isinstance(ffn, DenseFeedForward):
        ffn = replace(ffn, inner=wide * ffn.inner)
    return _with_input(keys, replace(block, feedforward=ffn, norm_weights=block.norm_weights + more))


def gemma3n_layer(keys: Keys, kind: str, block: Block) -> Block:
    """With the input of its layer, LAuReL's low rank beside attention, and AltUp's prediction and correction.

    AltUp (arXiv 2301.13310) keeps n states; it predicts each of them by n x n coefficients and corrects them by n, both
    of which it makes of n numbers that a router gives for a state: once before the layer, once after.
    """
    width, inputs = keys.width, keys.count("altup_num_inputs")
    keys.count("hidden_size_per_layer_input")  # never 0, as in Gemma 4
    return _with_input(keys, replace(
        block,
        norm_weights=block.norm_weights + 3 * width,  # of the router, of the corrected output, of LAuReL
        matrices=2 * width * keys.count("laurel_rank") + width * inputs + inputs**3 + inputs**2,
        again=width * inputs + width * inputs**2,
    ))  # fmt: skip


def _with_input(keys: Keys, block: Block) -> Block:
    size = keys.count("hidden_size_per_layer_input", 0)
    norms = block.norm_weights + (keys.width if size else 0)
    return replace(block, norm_weights=norms, matrices=block.matrices + 3 * keys.width * size)


def layer_tables(keys: Keys) -> dict[str, int]:
    """The tables of the layers' inputs, and the norm of what is projected into them."""
    size = keys.count("hidden_size_per_layer_input", 0)
    return {"layer_tables": keys.count("vocab_size_per_layer_input") * keys.layers * size, "other_weights": size}


def gemma3n_beside(keys: Keys) -> dict[str, int]:
    """AltUp's projections into its other states, and back."""
    return layer_tables(keys) | {"matrices": 2 * (keys.count("altup_num_inputs") - 1) * keys.width**2}


def one_inner(keys: Keys) -> int:
    """Gemma 3n: a number, or a list of the same number for each layer."""
    value = keys.value("intermediate_size")
    if not isinstance(value, list):
        return keys.count("intermediate_size")
    if len(value) != keys.layers or any(type(inner) is not int or inner != value[0] for inner in value):
        raise keys.refused("intermediate_size", value, "only layers of one inner size are read")
    return keys.where({"intermediate_size": value[0]}).count("intermediate_size")
