"""Rules that read the mixer of one kind of layer. A row names one for each of its kinds."""

from dataclasses import fields
from typing import Any

from lessonlib.model.attention import ChunkedAttention, GroupedQueryAttention, Mixer, MultiHeadLatentAttention
from lessonlib.model.config.family import Switch
from lessonlib.model.config.keys import Keys
from lessonlib.model.sparse import SparseLatentAttention
from lessonlib.model.state import GatedDeltaNet, KimiDeltaAttention, Mamba1, Mamba2, ShortConvolution


def attention(
    keys: Keys, kind: str, kv_heads: int | None = None, extra_per_head: int | None = None
) -> GroupedQueryAttention:
    """Grouped-query attention as the row describes it; the arguments are for rows whose layers differ."""
    family, heads, head_dim = keys.family, keys.count(keys.family.heads), head_dim_of(keys)
    if kv_heads is None:
        kv_heads = keys.derived(family.kv_heads, heads)
    if heads % kv_heads:
        raise keys.wrong(family.kv_heads or family.heads, kv_heads, f"a divisor of the {heads} heads")
    value_dim = keys.count(family.value_dim) if family.value_dim else head_dim
    other = heads * (family.extra_per_head if extra_per_head is None else extra_per_head)
    gate = heads * (1 if family.gate_per_head else value_dim) if keys.switch(family.gate) else 0
    if keys.switch(family.qkv_bias):
        other += heads * head_dim + kv_heads * (head_dim + value_dim) + (gate if family.gate_in_query else 0)
    if keys.switch(family.out_bias):
        other += keys.width
    if keys.switch(family.qk_norm):
        copies = heads + kv_heads if family.qk_norm_over_all else 2
        other += copies * head_dim * (2 if family.qk_norm_bias else 1)
    return GroupedQueryAttention(
        width=keys.width,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=None if value_dim == head_dim else value_dim,
        window=keys.window if kind in "Ss" else None,
        gate_outputs=gate,
        other_weights=other,
    )


def head_dim_of(keys: Keys) -> int:
    """The stated size of a head, or the width divided by their number."""
    family, heads = keys.family, keys.count(keys.family.heads)
    head_dim = keys.derived(family.head_dim, 0)
    if not head_dim:
        if family.floors_head_dim and "head_dim" in keys.config:  # of these an absent key is divided, a null is not
            raise keys.refused("head_dim", None, "its class has no rule for that")
        head_dim = keys.width // heads
        if head_dim * heads != keys.width and not family.floors_head_dim:
            raise keys.wrong(family.heads, heads, f"a divisor of the width {keys.width}, as no head_dim is stated")
    if not family.head_dim and "head_dim" in keys.config and keys.value("head_dim") not in (None, head_dim):
        raise keys.refused("head_dim", keys.value("head_dim"), "this family takes the width over the heads")
    return head_dim


def sizes_of(mixer: Mixer) -> dict[str, Any]:
    """The fields of a mixer by name, for one of another class that has them, too."""
    return {field.name: getattr(mixer, field.name) for field in fields(mixer)}  # type: ignore[arg-type]


def chunked(keys: Keys, kind: str) -> Mixer:
    return ChunkedAttention(**sizes_of(attention(keys, kind)), chunk=keys.count("attention_chunk_size"))


def falcon(keys: Keys, kind: str) -> Mixer:
    """Only the new layout groups its heads; the old one has one KV head for all, or one for each."""
    stated, heads = keys.optional("num_kv_heads"), keys.count(keys.family.heads)
    if keys.switch("new_decoder_architecture"):
        keys.switch("multi_query")  # of the old layout, and kept in files of the new one
        return attention(keys, kind, kv_heads=stated)
    if keys.switch("multi_query"):
        return attention(keys, kind, kv_heads=1)
    if stated not in (None, heads):
        raise keys.refused("num_kv_heads", stated, f"without the new layout each of the {heads} heads has its own")
    return attention(keys, kind, kv_heads=heads)


def latent(keys: Keys, kind: str, query_ranked: bool = False) -> MultiHeadLatentAttention:
    """Multi-head latent attention. `query_ranked`: its class has no rule for queries without a rank."""
    heads = keys.count(keys.family.heads)
    query_rank = keys.count("q_lora_rank") if query_ranked else keys.optional("q_lora_rank")
    kv_rank, rope_dim = keys.count("kv_lora_rank"), keys.count("qk_rope_head_dim")
    value_dim = keys.derived("v_head_dim", keys.width // heads)
    other = kv_rank + (query_rank or 0)
    if keys.switch("attention_bias"):
        other += kv_rank + rope_dim + (query_rank or 0) + keys.width
    return MultiHeadLatentAttention(
        width=keys.width,
        heads=heads,
        kv_rank=kv_rank,
        nope_dim=keys.count("qk_nope_head_dim"),
        rope_dim=rope_dim,
        value_dim=value_dim,
        query_rank=query_rank,
        other_weights=other,
    )


def sparse_latent(keys: Keys, kind: str) -> Mixer:
    """Latent attention to the tokens that an indexer picks: its own, or (kind H) that of a layer before."""
    sizes = sizes_of(latent(keys, kind, query_ranked=True))
    top_k, heads, dim = (keys.count(key) for key in ("index_topk", "index_n_heads", "index_head_dim"))
    own = {"index_heads": heads, "index_dim": dim} if kind == "I" else {}
    return SparseLatentAttention(**sizes, top_k=top_k, **own)


def state_dtype(keys: Keys) -> str | None:
    """The dtype of a constant state, where config or class says it; a key that says nothing leaves it to the engine."""
    names = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
    some = ("mamba_ssm_dtype", "mamba_ssm_cache_dtype", "inference_state_dtype")
    keys.read.update((name, keys.config[name]) for name in some if name in keys.config)
    stated = [name for name in some if keys.config.get(name) not in (None, "auto")]
    stated = stated or [name for name in some if name in keys.family.defaults and name not in keys.config]
    if not stated:
        return None
    value = keys.value("|".join(stated))
    if not isinstance(value, str) or value not in names:
        raise keys.wrong(stated[0], value, f"one of {', '.join(names)}")
    return names[value]


def gated_delta(keys: Keys, kind: str) -> Mixer:
    """Sizes under linear_*; where null, as OLMo hybrid has it: the heads of attention, and keys of 3/4 their share."""
    key_heads = keys.derived("linear_num_key_heads", keys.count(keys.family.heads))
    value_heads = keys.derived("linear_num_value_heads", keys.count(keys.family.heads))
    if value_heads % key_heads:
        raise keys.wrong("linear_num_value_heads", value_heads, f"a multiple of the {key_heads} key heads")
    key_dim = keys.derived("linear_key_head_dim", int(0.75 * keys.width / key_heads))
    return GatedDeltaNet(
        width=keys.width,
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=key_dim,
        value_dim=keys.derived("linear_value_head_dim", 2 * key_dim),
        conv_kernel=keys.count("linear_conv_kernel_dim"),
        state_dtype=state_dtype(keys),
    )


def kimi_delta(keys: Keys, kind: str) -> Mixer:
    """Sizes in linear_attn_config; a file made by the class itself has them under linear_*."""
    nested, names = keys.inside("linear_attn_config"), ("num_heads", "head_dim", "short_conv_kernel_size")
    outside = ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    heads, head_dim, conv_kernel = (
        nested.count(name) if name in nested.config else keys.count(other)
        for name, other in zip(names, outside, strict=True)
    )
    if set(outside) & set(keys.defaults_used) and "linear_attn_config" not in keys.defaults_used:
        keys.defaults_used.append("linear_attn_config")
    return KimiDeltaAttention(
        width=keys.width,
        heads=heads,
        head_dim=head_dim,
        conv_kernel=conv_kernel,
        state_dtype=state_dtype(keys),
    )


def mamba2(
    keys: Keys,
    kind: str,
    *,
    heads: str,
    head_dim: str | None,
    groups: str,
    state_size: str,
    conv_kernel: str,
    expand: str | None = None,
    inner_width: str | None = None,
    gated_norm: Switch = True,
) -> Mixer:
    """Mamba-2; the arguments are the config keys of its sizes, so a row gives them with functools.partial.

    Its inner width is the stated one, else `expand` times the model's, else that of its heads.
    """
    number, inner = keys.count(heads), keys.count(expand) * keys.width if expand else None
    inner = (inner_width and keys.optional(inner_width)) or inner or number * keys.count(str(head_dim))
    size = keys.count(head_dim) if head_dim and keys.value(head_dim) != "auto" else inner // number
    if number * size != inner:
        raise keys.wrong(heads, number, f"heads of {size} that make up the inner width {inner}")
    return Mamba2(
        width=keys.width,
        heads=number,
        head_dim=size,
        groups=keys.count(groups),
        state_size=keys.count(state_size),
        conv_kernel=keys.count(conv_kernel),
        gated_norm=keys.switch(gated_norm),
        state_dtype=state_dtype(keys),
    )


def mamba1(keys: Keys, kind: str) -> Mixer:
    inner = keys.count("expand") * keys.width
    if "intermediate_size" in keys.config and keys.count("intermediate_size") != inner:
        raise keys.wrong("intermediate_size", keys.value("intermediate_size"), f"expand times the width, {inner}")
    return mamba1_of(keys, "expand", "state_size", "time_step_rank", "conv_kernel")


def mamba1_of(
    keys: Keys, expand: str, state_size: str, step_rank: str, conv_kernel: str, normed: bool = False
) -> Mixer:
    """Mamba-1 of the config keys of its sizes. `normed`: with norms of its step and of what it reads and writes."""
    size = keys.count(state_size)
    rank = -(-keys.width // 16) if keys.value(step_rank) == "auto" else keys.count(step_rank)
    return Mamba1(
        width=keys.width,
        inner=keys.count(expand) * keys.width,
        state_size=size,
        step_rank=rank,
        conv_kernel=keys.count(conv_kernel),
        extra_weights=rank + 2 * size if normed else 0,
        state_dtype=state_dtype(keys),
    )


def short_convolution(keys: Keys, kind: str) -> Mixer:
    return ShortConvolution(width=keys.width, conv_kernel=keys.count("conv_L_cache"))
