"""Rules of families whose layers differ in more than their mixer: one part a layer, several mixers, shared blocks."""

from dataclasses import replace
from itertools import accumulate
from typing import Any

from lessonlib.model.attention import Mixer
from lessonlib.model.config.keys import Keys
from lessonlib.model.config.mixers import attention, head_dim_of, latent, mamba1_of, mamba2, state_dtype
from lessonlib.model.config.rules import ONE_LETTER
from lessonlib.model.hybrid import DifferentialAttention, SeveralMixers, SharedBlockAttention
from lessonlib.model.recurrent import GatedLinearRecurrence, LightningAttention, MatrixLstm, Rwkv4
from lessonlib.model.state import KimiDeltaAttention

OWN_WORDS = ONE_LETTER | {"hybrid": "H", "mlp": "-", "moe": "+"}
PATTERN = {"M": "L", "*": "F", "-": "-", "E": "+"}  # Nemotron-H's hybrid_override_pattern, a letter a layer


def no_mixer(keys: Keys, kind: str) -> None:
    """Of layers that are a feed-forward alone."""


def _letters(keys: Keys, key: str) -> list[str] | None:
    """The kinds that a list of words says, layer by layer; None where it is null."""
    words = keys.value(key)
    if words is None:
        return None
    if not isinstance(words, list) or not words:
        raise keys.wrong(key, words, "a list of words, one a layer")
    for word in words:
        if not isinstance(word, str) or word not in OWN_WORDS:
            raise keys.refused(key, word, "a kind of layer that this family does not have")
    return [OWN_WORDS[word] for word in words]


def _of_every_layer(keys: Keys, kinds: list[str]) -> list[str]:
    if len(kinds) != keys.layers:
        raise keys.wrong(keys.family.layers, keys.layers, f"{len(kinds)}, as its list of kinds has a word for each")
    return kinds


# --- Nemotron-H: a layer is one of mixer, feed-forward, experts ---


def nemotron_kinds(keys: Keys) -> list[str]:
    """A list of words, or the older pattern of letters; the class takes four layers where there is neither."""
    kinds, pattern = _letters(keys, "layers_block_type|layer_types"), keys.value("hybrid_override_pattern")
    if pattern is not None:
        if not isinstance(pattern, str) or not pattern or any(letter not in PATTERN for letter in pattern):
            raise keys.wrong("hybrid_override_pattern", pattern, f"a letter a layer, of {' '.join(PATTERN)}")
        said = [PATTERN[letter] for letter in pattern]
        if kinds not in (None, said):
            raise keys.wrong("hybrid_override_pattern", pattern, "the same as 'layers_block_type' says")
        kinds = said
    if kinds is None and keys.config.get("model_type", "nemotron_h") != "nemotron_h":
        raise keys.refused("layers_block_type", None, "the kinds of the layers are not stated")
    return kinds or list("L+F-")


def nemotron_layers(keys: Keys) -> int:
    """As many as the list has; a number of them that says otherwise is an error."""
    kinds, stated = nemotron_kinds(keys), keys.config.get("num_hidden_layers")
    keys.read["num_hidden_layers"] = stated
    if stated is not None and (type(stated) is not int or stated != len(kinds)):
        raise keys.wrong("num_hidden_layers", stated, f"{len(kinds)}, as its list of kinds has")
    return len(kinds)


# --- two mixers in a layer ---


def falcon_h1(keys: Keys, kind: str) -> Mixer:
    """Attention and Mamba-2 side by side."""
    mamba = mamba2(
        keys,
        kind,
        heads="mamba_n_heads",
        head_dim="mamba_d_head",
        groups="mamba_n_groups",
        state_size="mamba_d_state",
        conv_kernel="mamba_d_conv",
        expand="mamba_expand",
        inner_width="mamba_d_ssm",
        gated_norm="mamba_rms_norm",
    )
    return SeveralMixers(width=keys.width, mixers=(attention(keys, kind), mamba))


# --- Jamba: attention, Mamba and experts by period and offset ---


def _every(keys: Keys, period: str, offset: str) -> list[bool]:
    """The layers whose number leaves the remainder `offset` when divided by `period`; both are config keys."""
    every, first = keys.count(period), keys.count(offset, 0)
    if first >= every:
        raise keys.wrong(offset, first, f"less than {period}, {every}")
    return [i % every == first for i in range(keys.layers)]


def jamba_kinds(keys: Keys) -> list[str]:
    return ["F" if full else "L" for full in _every(keys, "attn_layer_period", "attn_layer_offset")]


def jamba_sparse(keys: Keys) -> list[bool]:
    """One expert is a dense feed-forward."""
    many = keys.count("num_experts|num_local_experts", 0) > 1
    return [many and here for here in _every(keys, "expert_layer_period", "expert_layer_offset")]


def mamba1_with_norms(keys: Keys, kind: str) -> Mixer:
    return mamba1_of(keys, "mamba_expand", "mamba_d_state", "mamba_dt_rank", "mamba_d_conv", normed=True)


# --- Zamba: Mamba everywhere, and in some layers a block before it that they share ---


def zamba_kinds(keys: Keys) -> list[str]:
    """By period and offset after the first three layers, where no list says it; one block for all."""
    kinds = _letters(keys, "layers_block_type|layer_types")
    if kinds is None:
        here = _every(keys, "attn_layer_period", "attn_layer_offset")
        kinds = ["L", "L", "H", *("H" if hybrid else "L" for hybrid in here)][: keys.layers]
        if keys.layers < 3:
            raise keys.wrong(keys.family.layers, keys.layers, "at least 3")
    return _borrowers(keys, kinds, 1)


def zamba2_kinds(keys: Keys) -> list[str]:
    """The list says it; where it is null, the class has one for its 54 layers."""
    kinds = _letters(keys, "layers_block_type") or list("L" + "LLLLLH" * 7 + "LLLLHLLLHLL")
    ids, stated = [i for i, kind in enumerate(kinds) if kind == "H"], keys.value("hybrid_layer_ids")
    if stated not in (None, ids):
        raise keys.wrong("hybrid_layer_ids", stated, f"{ids}, as the list of kinds says")
    return _borrowers(keys, kinds, keys.count("num_mem_blocks"))


def _borrowers(keys: Keys, kinds: list[str], blocks: int) -> list[str]:
    """B instead of H from the layer on that is the first to use a block again: they are used in turn."""
    _of_every_layer(keys, kinds)
    seen = accumulate(kind == "H" for kind in kinds)
    return ["B" if kind == "H" and number > blocks else kind for kind, number in zip(kinds, seen, strict=True)]


def _shared_attention(keys: Keys, adapter_rank: int = 0) -> SharedBlockAttention:
    heads, twice = keys.count(keys.family.heads), 2 * keys.width
    if keys.derived("attention_hidden_size", twice) != twice:
        raise keys.refused("attention_hidden_size", keys.value("attention_hidden_size"), f"only 2 widths, {twice}")
    size = keys.derived("attention_head_dim|head_dim", twice // heads)
    kv_heads = keys.derived(keys.family.kv_heads, heads)
    return SharedBlockAttention(
        width=keys.width, heads=heads, kv_heads=kv_heads, head_dim=size, adapter_rank=adapter_rank
    )


def zamba_mamba(keys: Keys, kind: str) -> Mixer:
    """Heads of it are blocks of the same matrices, so that their number changes no count."""
    if keys.count("mamba_expand") * keys.width % keys.count("n_mamba_heads"):
        raise keys.wrong("n_mamba_heads", keys.value("n_mamba_heads"), "a divisor of the inner width")
    return mamba1_of(keys, "mamba_expand", "mamba_d_state", "mamba_dt_rank", "mamba_d_conv")


def zamba_hybrid(keys: Keys, kind: str) -> Mixer:
    return SeveralMixers(width=keys.width, mixers=(_shared_attention(keys), zamba_mamba(keys, kind)))


def zamba2_mamba(keys: Keys, kind: str) -> Mixer:
    return mamba2(
        keys,
        kind,
        heads="n_mamba_heads",
        head_dim="mamba_headdim",
        groups="mamba_ngroups",
        state_size="mamba_d_state",
        conv_kernel="mamba_d_conv",
        expand="mamba_expand",
    )


def zamba2_hybrid(keys: Keys, kind: str) -> Mixer:
    rank = keys.count("adapter_rank") if keys.switch("use_shared_attention_adapter") else 0
    return SeveralMixers(width=keys.width, mixers=(_shared_attention(keys, rank), zamba2_mamba(keys, kind)))


def zamba_borrowed(kind: str, mixer: Any, feedforward: Any) -> int:
    """The shared block without what each layer has of its own, in the layers that use it again."""
    if kind != "B":
        return 0
    attention, width = mixer.mixers[0], mixer.width
    own = attention.own_weights + feedforward.extra_matrix_weights
    return attention.matmul_weights + feedforward.matmul_weights - own + 3 * width


# --- attention that is nearly usual ---


def square_output(keys: Keys, kind: str) -> Mixer:
    """Helium: the output matrix is w x w, whatever the heads are."""
    mixer = attention(keys, kind)
    if mixer.heads * head_dim_of(keys) != keys.width:
        raise keys.wrong(keys.family.heads, mixer.heads, f"heads of {head_dim_of(keys)} that make up the width")
    return mixer


def biased_output(keys: Keys, kind: str) -> Mixer:
    """GPT-NeoX Japanese: the last layer alone has a bias on its output."""
    plain = attention(keys, kind)
    return replace(plain, other_weights=plain.other_weights + keys.width)


def differential(keys: Keys, kind: str) -> Mixer:
    """Values split in halves, so that KV heads are even; four vectors of a head's size weigh the two softmaxes."""
    size = head_dim_of(keys)
    heads, kv_heads = keys.count(keys.family.heads), keys.derived(keys.family.kv_heads, 0)
    kv_heads = kv_heads or heads
    if kv_heads % 2 or heads % kv_heads:
        raise keys.wrong("num_key_value_heads", kv_heads, f"an even divisor of the {heads} heads")
    plain = attention(keys, kind)
    other = plain.other_weights + 4 * size
    return DifferentialAttention(width=keys.width, heads=heads, kv_heads=kv_heads, head_dim=size, other_weights=other)


# --- mixers of one size ---


def listed_kinds(keys: Keys) -> list[str]:
    """MiniMax: 1 is full attention, 0 lightning attention, layer by layer."""
    listed = keys.value("attn_type_list")
    whole = isinstance(listed, list) and all(type(kind) is int and kind in (0, 1) for kind in listed)
    if not whole or len(listed) != keys.layers:
        raise keys.wrong("attn_type_list", listed, f"a list of {keys.layers} zeros and ones")
    return ["LF"[kind] for kind in listed]


def alternating_unless_listed(keys: Keys) -> list[str]:
    """The class alternates, full attention first; a list under the older name is not read by it."""
    if keys.config.get("attn_type_list") is not None:
        raise keys.refused(
            "layer_types", None, "'attn_type_list' says the kinds of layers, and its class does not read that"
        )
    return ["FL"[i % 2] for i in range(keys.layers)]


def lightning(keys: Keys, kind: str) -> Mixer:
    return LightningAttention(width=keys.width, heads=keys.count(keys.family.heads), head_dim=head_dim_of(keys))


def linear_recurrence(keys: Keys, kind: str) -> Mixer:
    return GatedLinearRecurrence(
        width=keys.width,
        inner=keys.derived("lru_width", keys.width),
        heads=keys.count(keys.family.heads),
        conv_kernel=keys.count("conv1d_width"),
        state_dtype=state_dtype(keys),
    )


def recurrent_kinds(keys: Keys) -> list[str]:
    """The words of block_types, repeated."""
    words, letter = keys.value("block_types|_block_types"), {"recurrent": "L", "attention": "S"}
    if not isinstance(words, list) or not words or any(word not in letter for word in map(str, words)):
        raise keys.wrong("block_types", words, f"a list of words, {' or '.join(letter)}")
    return [letter[words[i % len(words)]] for i in range(keys.layers)]


def rwkv4(keys: Keys, kind: str) -> Mixer:
    return Rwkv4(width=keys.width, inner=keys.derived("attention_hidden_size", keys.width))


def matrix_lstm(keys: Keys, kind: str) -> Mixer:
    """Keys and values of a factor of the width each, rounded down."""
    heads, width = keys.count(keys.family.heads), keys.width
    if keys.derived("embedding_dim", width) != width:
        raise keys.wrong("embedding_dim", keys.value("embedding_dim"), f"the width, {width}")
    sizes = [int(width * factor_of(keys, key)) for key in ("qk_dim_factor", "v_dim_factor")]
    for size in sizes:
        if size % heads or not size:
            raise keys.wrong(keys.family.heads, heads, f"a divisor of the keys' and values' widths, {sizes}")
    keys_, values = (size // heads for size in sizes)
    return MatrixLstm(width=width, heads=heads, key_dim=keys_, value_dim=values, state_dtype=state_dtype(keys))


def matrix_lstm_inner(keys: Keys) -> int:
    multiple = keys.count("ffn_round_up_to_multiple_of")
    return int((keys.width * factor_of(keys, "ffn_proj_factor") + multiple - 1) // multiple) * multiple


def factor_of(keys: Keys, key: str) -> float:
    factor = keys.value(key)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1000:
        raise keys.wrong(key, factor, "a factor more than zero")
    return factor


def full_rank_delta(keys: Keys, kind: str) -> Mixer:
    """Ling: Kimi Delta Attention with full matrices for its gates; its sizes are those of attention unless stated.

    Its class, once loaded, keeps the size of a head in linear_head_dim alone: head_dim then is the rotary one.
    """
    if keys.config.get("linear_head_dim") is None and keys.count("head_dim") == keys.count("qk_rope_head_dim"):
        raise keys.refused("linear_head_dim", None, "head_dim is that of the rotary part, so the size is not known")
    return KimiDeltaAttention(
        width=keys.width,
        heads=keys.derived("linear_num_heads", keys.count(keys.family.heads)),
        head_dim=keys.derived("linear_head_dim", keys.count("head_dim")),
        conv_kernel=keys.derived("linear_conv_kernel_dim", keys.count("short_conv_kernel_size")),
        full_rank_gates=True,
        state_dtype=state_dtype(keys),
    )


def latent_with_gate(keys: Keys, kind: str) -> Mixer:
    """An output a head gates what the head gives."""
    body = latent(keys, kind)
    return replace(body, gate_outputs=body.heads)
