"""Rules for layers with parts that few families have: sparse attention of several kinds, hyper-connections, loops.

Each says what it adds to the mixer or to the block that the row describes. Source: the classes of transformers 5.24.
"""

from dataclasses import replace

from lessonlib.model.attention import GroupedQueryAttention, Mixer, MultiHeadLatentAttention
from lessonlib.model.block import Block
from lessonlib.model.compressed import CompressedAttention
from lessonlib.model.config.keys import Keys
from lessonlib.model.config.mixers import attention, latent, sizes_of, sparse_latent
from lessonlib.model.config.spelling import by_layer, opened
from lessonlib.model.feedforward import DenseFeedForward, MixtureOfExperts
from lessonlib.model.hybrid import SeveralMixers
from lessonlib.model.sparse import BlockSparseAttention
from lessonlib.model.state import Convolutions

# --- Doge ---


def all_kept(keys: Keys, kind: str) -> Mixer:
    """Doge scores each token's values, a number a KV head, and attends to the keep_window_size best tokens.

    Within the positions that it states that is all of them, in which case no token is masked; else it is refused.
    """
    kept, positions = keys.count("keep_window_size"), keys.count("max_position_embeddings")
    if kept < positions:
        raise keys.refused("keep_window_size", kept, f"it masks tokens within the {positions:,} positions")
    return attention(keys, kind)


def doge_layer(keys: Keys, kind: str, block: Block) -> Block:
    """With the projection of its values into scores, their decay, and two residuals that are scaled."""
    mixer = block.mixer
    assert isinstance(mixer, GroupedQueryAttention)
    bias = mixer.kv_heads if keys.switch("attention_bias") else 0
    norms = block.norm_weights + 2 * keys.width + mixer.kv_heads + bias
    return replace(block, norm_weights=norms, matrices=mixer.kv_heads**2 * mixer.head_dim)


# --- MiniMax M3 ---


def m3_spelling(keys: Keys) -> None:
    """Published files keep the indexer's sizes in an object, and which layers are sparse in lists of 0 and 1."""
    opened(keys, "sparse_attention_config", {
        "sparse_num_index_heads": "index_n_heads", "sparse_index_dim": "index_head_dim",
        "sparse_block_size": "index_block_size", "sparse_topk_blocks": "index_topk_blocks",
        "sparse_local_block": "index_local_blocks",
    })  # fmt: skip


def m3_kinds(keys: Keys) -> list[str]:
    if keys.config.get("sparse_attention_freq", []) is None:
        raise keys.refused("sparse_attention_freq", None, "its class takes a list, or the key left out")
    return ["X" if sparse else "F" for sparse in _flags(keys, "sparse_attention_freq", default=0)]


def m3_sparse(keys: Keys) -> list[bool]:
    return [bool(sparse) for sparse in _flags(keys, "moe_layer_freq", default=1)]


def _flags(keys: Keys, key: str, default: int) -> list[int]:
    """A list of 0 and 1, one a layer; where it is absent or null, the default in all."""
    value = keys.value(key)
    flags = [default] * keys.layers if value is None else value
    if not isinstance(flags, list) or len(flags) != keys.layers or any(flag not in (0, 1) for flag in flags):
        raise keys.wrong(key, value, f"a list of {keys.layers} zeros and ones")
    return flags


def block_sparse(keys: Keys, kind: str) -> Mixer:
    if not 1 <= keys.count("index_local_blocks", 0) <= keys.count("index_topk_blocks"):
        why = "only blocks that are picked with the query's own among them are read"
        raise keys.refused("index_local_blocks", keys.value("index_local_blocks"), why)
    return BlockSparseAttention(
        **sizes_of(attention(keys, kind)),
        top_k=keys.count("index_topk_blocks"),
        block=keys.count("index_block_size"),
        index_heads=keys.count("index_n_heads"),
        index_dim=keys.count("index_head_dim"),
    )


# --- Hunyuan 4 ---


def hy_v4_layer(keys: Keys, kind: str, block: Block) -> Block:
    """With an output gate a channel, sinks, and independent hyper-connections around attention and feed-forward."""
    mixer, streams = block.mixer, keys.count("hc_mult")
    assert isinstance(mixer, MultiHeadLatentAttention)
    return replace(
        block,
        norm_weights=block.norm_weights + mixer.heads + 2 * (2 * streams + 2),
        matrices=keys.width * mixer.heads * mixer.value_dim + 2 * (2 * streams) * streams * keys.width,
    )


def one_stream(keys: Keys) -> dict[str, int]:
    """What makes one stream of the hyper-connections' streams at the end."""
    streams = keys.count("hc_mult")
    return {"matrices": streams**2 * keys.width, "other_weights": streams + 1}


def hy_v4_indexed(keys: Keys) -> list[str]:
    """The first two layers and each fourth after the second have an indexer of their own, if no list says it."""
    listed = keys.listed("indexer_types", keys.layers, ("full", "shared"))
    if listed and listed[0] != "full":
        raise keys.refused(
            "indexer_types", listed, "there is no layer before the first whose tokens it could take over"
        )
    shared = (
        [word == "shared" for word in listed] if listed else [i > 0 and (i - 1) % 4 > 0 for i in range(keys.layers)]
    )
    return ["H" if takes_over else "I" for takes_over in shared]


# --- dots3 note ---

SLIDING_SIZES = (
    "num_attention_heads", "num_key_value_heads", "q_lora_rank", "kv_lora_rank", "head_dim", "qk_nope_head_dim",
    "v_head_dim",
)  # fmt: skip


def dots_spelling(keys: Keys) -> None:
    """Published files call layers with an indexer full ones, and say by use_dsa whether they are."""
    has_indexer = keys.config.get("use_dsa", None if "per_layer_config" in keys.config else True)
    if not isinstance(has_indexer, bool | None):
        raise keys.wrong("use_dsa", has_indexer, "true or false")
    keys.read["use_dsa"] = has_indexer
    if "use_dsa" not in keys.config:
        keys.defaults_used.append("use_dsa")
    words, full = keys.config.get("layer_types"), ("full_attention", "indexed_attention")
    if isinstance(words, list) and has_indexer is not None:
        words = [full[has_indexer] if isinstance(word, str) and word in full else word for word in words]
        keys.config = keys.config | {"layer_types": words}


def dots_kinds(keys: Keys) -> list[str]:
    windows, full = keys.switch("use_sliding_window"), "F" if keys.read["use_dsa"] is False else "I"
    return ["S" if windows and i >= 2 and i % 4 != 1 else full for i in range(keys.layers)]


def dots_sparse(keys: Keys) -> list[bool]:
    first, step = keys.count("first_k_dense_replace", 0), keys.value("moe_layer_freq")
    listed = _flags(keys, "moe_layer_freq", 1) if isinstance(step, list) else None
    return [
        i >= first and bool(listed[i] if listed else i % keys.count("moe_layer_freq") == 0) for i in range(keys.layers)
    ]


def dots_latent(keys: Keys, kind: str) -> Mixer:
    """Latent attention; sliding layers have sizes of their own, under swa_* or by layer in per_layer_config."""
    sizes = {}
    if "per_layer_config" in keys.config:
        sizes = by_layer(keys, "per_layer_config", kind, (*SLIDING_SIZES, "qk_rope_head_dim"))
    elif kind == "S":
        if "swa_head_dim" not in keys.config:
            keys.defaults_used.append("per_layer_config")
        sizes = {name: keys.count(f"swa_{name}") for name in SLIDING_SIZES}
        rope = keys.optional("swa_qk_rope_head_dim")
        sizes["qk_rope_head_dim"] = sizes["head_dim"] - sizes["qk_nope_head_dim"]
        if rope not in (None, sizes["qk_rope_head_dim"]):
            raise keys.wrong("swa_qk_rope_head_dim", rope, "swa_head_dim less swa_qk_nope_head_dim")
    here = keys.where(sizes)
    if here.count("num_key_value_heads") != here.count("num_attention_heads"):
        value = here.value("num_key_value_heads")
        raise keys.wrong("num_key_value_heads", value, "as many as there are heads, which share one latent")
    if kind == "I":
        return sparse_latent(here, kind)
    return replace(latent(here, kind, query_ranked=True), window=keys.window if kind == "S" else None)


def dots_layer(keys: Keys, kind: str, block: Block) -> Block:
    """With an output gate a head, a norm of the rotary key, and shared experts of a size of their own."""
    mixer, ffn = block.mixer, block.feedforward
    assert isinstance(mixer, MultiHeadLatentAttention)
    shared = keys.count("shared_experts_intermediate_size|moe_shared_expert_intermediate_size")
    if isinstance(ffn, MixtureOfExperts):
        ffn = replace(ffn, shared_inner=keys.count("n_shared_experts") * shared)
    norms, gate = block.norm_weights + mixer.rope_dim, keys.width * mixer.heads
    return replace(block, feedforward=ffn, norm_weights=norms, matrices=gate)


# --- Inkling ---


def inkling_spelling(keys: Keys) -> None:
    """Where dense_intermediate_size is stated, intermediate_size is that of the experts."""
    dense = keys.config.get("dense_intermediate_size")
    keys.read["dense_intermediate_size"] = dense
    if "dense_intermediate_size" not in keys.config:
        keys.defaults_used.append("dense_intermediate_size")
    if dense is not None:
        sizes = {"moe_intermediate_size": keys.value("intermediate_size"), "intermediate_size": dense}
        keys.config = keys.config | sizes


def inkling_kinds(keys: Keys) -> list[str]:
    if keys.value("local_layer_ids") is None:
        return ["Z" if (i + 1) % 6 else "H" for i in range(keys.layers)]
    local = keys.indices("local_layer_ids")
    return ["Z" if i in local else "H" for i in range(keys.layers)]


def convolved(keys: Keys, kind: str) -> Mixer:
    """Attention with convolutions of keys and values, and of what attention and feed-forward put out."""
    names = ("num_attention_heads", "num_key_value_heads", "head_dim")
    sizes = {name: keys.count(f"swa_{name}") for name in names} if kind == "Z" else {}
    mixer = attention(keys.where(sizes), kind)
    assert isinstance(mixer, GroupedQueryAttention)
    convolutions = Convolutions(
        width=keys.width,
        conv_kernel=keys.count("conv_kernel_size|sconv_kernel_size"),
        channels=mixer.cache_elements + 2 * keys.width,
        state_dtype="fp32",  # as its class keeps them
    )
    window = keys.window if kind == "Z" else None
    return SeveralMixers(width=keys.width, mixers=(replace(mixer, window=window), convolutions))


def inkling_layer(keys: Keys, kind: str, block: Block) -> Block:
    """With biases by distance: each head mixes d_rel profiles over rel_extent tokens, or a window, by weights it makes.

    The router scores shared experts, too, and it scales all its weights.
    """
    assert isinstance(block.mixer, SeveralMixers)
    mixer, profiles = block.mixer.mixers[0], keys.count("d_rel")
    assert isinstance(mixer, GroupedQueryAttention)
    bank = profiles * (mixer.window or keys.count("rel_extent"))
    matrices, norms = keys.width * mixer.heads * profiles + bank, block.norm_weights
    if isinstance(block.feedforward, MixtureOfExperts):
        matrices, norms = matrices + keys.width * keys.count("n_shared_experts"), norms + 1
    return replace(block, norm_weights=norms, matrices=matrices, again=(mixer.heads - 1) * bank)


# --- DBRX ---


def dbrx_spelling(keys: Keys) -> None:
    """Two objects hold its sizes; the width in one of them is the model's, whatever it says."""
    opened(keys, "attn_config", {})
    opened(keys, "ffn_config", {"hidden_size": None})


# --- DeepSeek-V4 ---

RATES = {"compressed_sparse_attention": "compress_rate_csa", "heavily_compressed_attention": "compress_rate_hca"}
KIND_OF_RATIO = {0: "S", 4: "P", 128: "Q"}


def v4_spelling(keys: Keys) -> None:
    opened(keys, "compress_rates", {**RATES})


def v4_kinds(keys: Keys) -> list[str]:
    """By compress_ratios, whose last ones are of layers that draft; else two that compress much, then both in turn."""
    ratios = keys.value("compress_ratios")
    if ratios is None:
        return ["Q" if i < 2 or i % 2 == 0 else "P" for i in range(keys.layers)]
    if (
        not isinstance(ratios, list)
        or len(ratios) < keys.layers
        or not all(type(ratio) is int and ratio in KIND_OF_RATIO for ratio in ratios)
    ):
        raise keys.wrong("compress_ratios", ratios, f"a list of 0, 4 or 128 for each of the {keys.layers} layers")
    return [KIND_OF_RATIO[ratio] for ratio in ratios[: keys.layers]]


def compressed(keys: Keys, kind: str) -> Mixer:
    heads, head_dim, query_rank = (keys.count(key) for key in ("num_attention_heads", "head_dim", "q_lora_rank"))
    rates = {"S": 0, "P": keys.count("compress_rate_csa"), "Q": keys.count("compress_rate_hca")}
    top_k, index = keys.count("index_topk"), (keys.count("index_n_heads"), keys.count("index_head_dim"))
    return CompressedAttention(
        width=keys.width,
        heads=heads,
        head_dim=head_dim,
        query_rank=query_rank,
        groups=keys.count("o_groups"),
        group_rank=keys.count("o_lora_rank"),
        window=keys.window,
        rate=rates[kind],
        top_k=top_k if kind == "P" else None,
        index_heads=index[0] if kind == "P" else 0,
        index_dim=index[1] if kind == "P" else 0,
        other_weights=query_rank + head_dim + heads,  # two norms, and sinks
    )


def v4_layer(keys: Keys, kind: str, block: Block) -> Block:
    """With manifold-constrained hyper-connections around attention and feed-forward; each mixes n streams by n x n."""
    keys.listed("mlp_layer_types", keys.layers, ("hash_moe", "moe"))  # which route otherwise, and are as large
    streams = keys.count("hc_mult")
    mixed = (2 + streams) * streams
    matrices, norms = 2 * mixed * streams * keys.width, block.norm_weights + 2 * (mixed + 3)
    return replace(block, norm_weights=norms, matrices=matrices, again=2 * streams**2 * keys.width)


# --- Dory ---


def dory_spelling(keys: Keys) -> None:
    """Published files list attention and feed-forward as blocks of their own, so each number of layers is twice it."""
    words = keys.config.get("layer_types")
    if words is None and "num_hidden_layers" in keys.config:
        raise keys.refused("layer_types", words, "without it the number of layers may count attention apart, or not")
    if isinstance(words, list) and "mlp" in words:
        numbers = ("num_hidden_layers", "n_input_layers", "n_output_layers", "n_recurrent_layers")
        halves = {key: value // 2 for key in numbers if (value := keys.optional(key, 0)) is not None}
        keys.config = keys.config | halves | {"layer_types": words[::2]}


def recurrent(keys: Keys, kinds: list[str]) -> list[str]:
    """The layers between those for the input and those for the output, which run in a loop: small letters."""
    first, last = keys.count("n_input_layers", 0), keys.count("n_output_layers", 0)
    middle = keys.layers - first - last
    stated = keys.optional("n_recurrent_layers", 0)
    if middle < 0 or stated not in (None, middle):
        raise keys.wrong(
            "n_recurrent_layers", stated, f"what n_input_layers and n_output_layers leave of {keys.layers}"
        )
    end = first + middle
    return [kind.lower() if first <= i < end else kind for i, kind in enumerate(kinds)]


def dory_layer(keys: Keys, kind: str, block: Block) -> Block:
    """With scales where others have norms: of queries, gates, both inner products, and both residuals."""
    mixer, ffn = block.mixer, block.feedforward
    assert isinstance(mixer, GroupedQueryAttention) and isinstance(ffn, DenseFeedForward)
    loops = keys.count("n_recurrent_loops")
    scales = 2 * (mixer.heads * mixer.head_dim + ffn.inner + keys.width)
    return replace(block, norm_weights=block.norm_weights + scales, passes=loops if kind.islower() else 1)


# --- Llama 3.2 Vision ---


def text_layers(keys: Keys) -> int:
    """The layers that text goes through: those that attend to images alone are passed by where there is none."""
    keys.layers = keys.count("num_hidden_layers")
    layers = keys.layers - len(keys.indices("cross_attention_layers"))
    if not layers:
        raise keys.wrong("cross_attention_layers", keys.value("cross_attention_layers"), "some layers left for text")
    return layers


def for_images(keys: Keys) -> dict[str, int]:
    """The weights of those layers, norms of queries and keys and two gates among them; eight more rows to look up."""
    mixer, inner = attention(keys, "F"), keys.count("intermediate_size")
    each = mixer.matmul_weights + 2 * mixer.head_dim + 3 * keys.width * inner + 2 * keys.width + 2
    number = keys.count("num_hidden_layers") - keys.layers
    return {"idle_weights": number * each, "layer_tables": 8 * keys.width}
