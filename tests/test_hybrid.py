"""Mixers with a state of one size, and layers of several makes: each against a plain loop over its own arrays.

Each loop below is written from the paper that the class names. What it holds in memory is what the class must count.
"""

import numpy as np
import pytest
from helpers import assembled, refuses, server

from lessonlib.model.attention import GroupedQueryAttention
from lessonlib.model.block import Block
from lessonlib.model.feedforward import DenseFeedForward, MixtureOfExperts
from lessonlib.model.hybrid import DifferentialAttention, SeveralMixers, SharedBlockAttention
from lessonlib.model.model import Model
from lessonlib.model.precision import Precision
from lessonlib.model.recurrent import GatedLinearRecurrence, LightningAttention, MatrixLstm, Rwkv4
from lessonlib.model.state import KimiDeltaAttention, Mamba1, Mamba2
from lessonlib.time.roofline import pass_cost
from lessonlib.work.layouts import collectives, other_devices

W, H, D, V, L = 12, 3, 4, 5, 6  # width, heads, sizes of keys and of values, channels


class Layer:
    """Random weights by name, matrices apart, and a state: what a loop over tokens works with."""

    def __init__(self, matrices, vectors, state):
        draw = np.random.default_rng(3)
        self.matrices = {name: draw.normal(size=shape) for name, shape in matrices.items()}
        self.vectors = {name: draw.normal(size=shape) for name, shape in vectors.items()}
        self.state = {name: np.zeros(shape) for name, shape in state.items()}

    def __getattr__(self, name):
        return self.matrices[name] if name in self.matrices else self.vectors[name]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def normed(x):
    return x / np.sqrt((x * x).mean() + 1e-6)


def lightning():
    layer = Layer(dict.fromkeys(("q", "k", "v", "gate", "out"), (W, H * D)), {"norm": H * D}, {"memory": (H, D, D)})

    def step(x):
        q, k, v = ((x @ layer.matrices[name]).reshape(H, D) for name in "qkv")
        layer.state["memory"] = 0.9 * layer.state["memory"] + k[:, :, None] * v[:, None, :]
        read = np.einsum("hd,hde->he", q, layer.state["memory"]).ravel()
        return (sigmoid(x @ layer.gate) * normed(read) * layer.norm) @ layer.out.T

    return LightningAttention(width=W, heads=H, head_dim=D), layer, step, 0


def matrix_lstm():
    matrices = {"q": (W, H * D), "k": (W, H * D), "v": (W, H * V), "gate": (W, H * V), "out": (H * V, W)}
    matrices |= {"i": (W, H), "f": (W, H)}
    state = {"memory": (H, D, V), "normaliser": (H, D), "stabiliser": H}
    layer = Layer(matrices, {"i_bias": H, "f_bias": H, "norm": H * V}, state)

    def step(x):
        q, k, v = ((x @ layer.matrices[name]).reshape(H, -1) for name in "qkv")
        i, f = x @ layer.i + layer.i_bias, np.log(sigmoid(x @ layer.f + layer.f_bias))
        before = layer.state["stabiliser"]
        layer.state["stabiliser"] = now = np.maximum(f + before, i)
        kept, new = np.exp(f + before - now)[:, None], np.exp(i - now)[:, None]
        layer.state["memory"] = kept[..., None] * layer.state["memory"] + new[..., None] * k[:, :, None] * v[:, None]
        layer.state["normaliser"] = kept * layer.state["normaliser"] + new * k
        read = np.einsum("hd,hdv->hv", q, layer.state["memory"])
        read = read / np.maximum(np.abs((q * layer.state["normaliser"]).sum(1)), np.exp(-now))[:, None]
        return (sigmoid(x @ layer.gate) * (np.array([normed(head) for head in read]).ravel() * layer.norm)) @ layer.out

    return MatrixLstm(width=W, heads=H, key_dim=D, value_dim=V), layer, step, 0


def linear_recurrence(kernel=4):
    groups = (H, L // H, L // H)
    layer = Layer(
        {"x": (W, L), "y": (W, L), "out": (L, W), "a": groups, "i": groups},
        {"x_bias": L, "y_bias": L, "out_bias": W, "a_bias": L, "i_bias": L, "decay": L}
        | {"taps": (kernel, L), "taps_bias": L},
        {"memory": L, "inputs": (kernel - 1, L)},
    )

    def step(token):
        inputs = np.vstack([layer.state["inputs"], token @ layer.x + layer.x_bias])
        layer.state["inputs"] = inputs[1:]
        x = (inputs * layer.taps).sum(0) + layer.taps_bias
        a, i = (
            sigmoid(
                np.einsum("hc,hcd->hd", x.reshape(H, -1), layer.matrices[name]).ravel() + layer.vectors[f"{name}_bias"]
            )
            for name in "ai"
        )
        a = np.exp(-8 * a * np.log1p(np.exp(layer.decay)))
        layer.state["memory"] = a * layer.state["memory"] + np.sqrt(1 - a * a) * i * x
        return (layer.state["memory"] * np.tanh(token @ layer.y + layer.y_bias)) @ layer.out + layer.out_bias

    return GatedLinearRecurrence(width=W, inner=L, heads=H, conv_kernel=kernel), layer, step, (kernel - 1) * L


def rwkv():
    layer = Layer(
        {"k": (W, L), "v": (W, L), "r": (W, L), "out": (L, W)},
        {"decay": L, "first": L, "k_mix": W, "v_mix": W, "r_mix": W},
        {"numerator": L, "denominator": L, "largest": L, "before": W, "before_of_feedforward": W},
    )

    def step(x):
        mixed = {
            name: x * layer.vectors[f"{name}_mix"] + layer.state["before"] * (1 - layer.vectors[f"{name}_mix"])
            for name in "kvr"
        }
        layer.state["before"] = x
        k, v, r = (mixed[name] @ layer.matrices[name] for name in "kvr")
        above, below, largest = (layer.state[name] for name in ("numerator", "denominator", "largest"))
        top = np.maximum(largest, layer.first + k)
        old, new = np.exp(largest - top), np.exp(layer.first + k - top)
        read = (old * above + new * v) / (old * below + new)
        top = np.maximum(largest - np.exp(layer.decay), k)
        old, new = np.exp(largest - np.exp(layer.decay) - top), np.exp(k - top)
        layer.state |= {"numerator": old * above + new * v, "denominator": old * below + new, "largest": top}
        return (sigmoid(r) * read) @ layer.out

    return Rwkv4(width=W, inner=L), layer, step, 2 * W


@pytest.mark.parametrize("made", [lightning, matrix_lstm, linear_recurrence, rwkv])
def test_a_loop_over_tokens_holds_what_its_class_counts(made):
    mixer, layer, step, convolution = made()
    sizes = {name: array.shape for name, array in layer.state.items()}
    first = [step(x) for x in np.random.default_rng(4).normal(size=(20, W))]
    assert all(y.shape == (W,) and np.isfinite(y).all() for y in first)
    assert {name: array.shape for name, array in layer.state.items()} == sizes  # whatever has been read
    assert mixer.matmul_weights == sum(array.size for array in layer.matrices.values())
    assert mixer.other_weights == sum(array.size for array in layer.vectors.values())
    assert mixer.conv_elements == convolution
    assert mixer.state_elements + convolution == sum(array.size for array in layer.state.values())
    assert mixer.token_flops == 4 * mixer.state_elements and mixer.cache_elements == 0
    model = assembled("toy", W, 50, ((2, mixer, DenseFeedForward(width=W, inner=8)),))
    roof = pass_cost(server(model), 3, 1000, batch=5).roofs[f"2 x {mixer.label}"]
    assert roof.flops == 2 * 5 * 3 * mixer.token_flops
    assert roof.bytes == 2 * 2 * 5 * 2 * (mixer.state_elements + mixer.conv_elements)  # read and written once


# --- several mixers in a layer ---

ATTENTION = GroupedQueryAttention(width=64, heads=8, kv_heads=2, head_dim=8)
MAMBA = Mamba2(width=64, heads=8, head_dim=16, groups=2, state_size=8, conv_kernel=4)
DENSE = DenseFeedForward(width=64, inner=96)


def test_mixers_of_a_layer_are_priced_each_by_its_own_law():
    both = SeveralMixers(width=64, mixers=(ATTENTION, MAMBA))
    side_by_side = assembled("both", 64, 100, ((3, both, DENSE),))
    apart = assembled("apart", 64, 100, ((3, ATTENTION, DENSE), (3, MAMBA, None)))
    assert both.parameters == ATTENTION.parameters + MAMBA.parameters
    assert side_by_side.parameters == apart.parameters - sum(b.norm_weights for _, b in apart.blocks[1:]) * 3
    assert side_by_side.block_matmul_weights == apart.block_matmul_weights
    for tokens in (0, 1, 700):
        assert side_by_side.cache_bytes(tokens) == apart.cache_bytes(tokens) == 3 * tokens * 2 * 2 * 8 * 2
    assert side_by_side.state_bytes() == apart.state_bytes() > 0
    found, expected = (pass_cost(server(model), 1, 500, batch=4).roofs for model in (side_by_side, apart))
    for name in ("3 x GQA", "3 x Mamba-2"):
        assert repr(found[name]) == repr(expected[name])
    assert both.label == "GQA with Mamba-2" and server(side_by_side).sizes.kinds == server(apart).sizes.kinds
    plain = assembled("plain", 64, 100, ((3, both, DENSE), (2, MAMBA, DENSE)))
    assert [kind.part for kind in server(plain).sizes.kinds] == ["3 x GQA", "5 x Mamba-2"]


def test_the_mixers_of_a_layer_have_its_width():
    refuses(lambda: SeveralMixers(width=32, mixers=(ATTENTION, MAMBA)), "width")
    refuses(lambda: SeveralMixers(width=64, mixers=(ATTENTION,)), "mixers")


def test_differential_attention_scores_all_keys_for_each_half_of_the_values():
    sizes = {"width": 64, "heads": 8, "kv_heads": 4, "head_dim": 8}
    plain, difference = GroupedQueryAttention(**sizes), DifferentialAttention(**sizes)
    by_hand = sum(2 * 8 + 2 * 8 for _ in range(8) for _ in range(2))  # scores and values, a head and half
    assert difference.pair_flops == difference.fresh_pair_flops == by_hand == 2 * plain.pair_flops
    assert difference.cache_elements == plain.cache_elements and difference.parameters == plain.parameters


# --- weights that layers share ---


def shared(positions, blocks, rank=2):
    """A model that runs one block at `positions` places, of which `blocks` have weights of their own."""
    attention = SharedBlockAttention(width=64, heads=8, kv_heads=8, head_dim=16, adapter_rank=rank)
    mixer = SeveralMixers(width=64, mixers=(attention, MAMBA))
    adapter = rank * (64 + 2 * 96)
    ffn = DenseFeedForward(width=64, inner=96, extra_matrix_weights=adapter)
    common = attention.matmul_weights - attention.own_weights + 3 * 64 * 96 + 3 * 64
    parts = (
        (blocks, Block(mixer, ffn, 4 * 64)),
        (positions - blocks, Block(mixer, ffn, 4 * 64, borrowed_weights=common)),
    )
    return Model(name="shared", width=64, vocabulary=100, blocks=parts, other_weights=64), common


def test_a_shared_block_is_stored_once_and_read_wherever_it_is_used():
    model, common = shared(5, 2)
    alone, _ = shared(4, 2)
    own = 64 * 64 + 3 * 2 * (2 * 64) * 2 + 2 * (64 + 2 * 96)  # the matrix behind the block, its adapters
    assert common == 2 * 64 * 3 * 128 + 128 * 64 + 3 * 64 * 96 + 3 * 64
    assert model.parameters - alone.parameters == own + MAMBA.parameters + 64
    assert sum(model.weights_by_part.values()) == model.parameters == model.active_parameters
    assert model.borrowed_weights == 3 * common
    for precision, of_block in ((Precision("bf16"), 2), (Precision("fp8", head="bf16"), 1)):
        sizes, fewer = (server(each, dtype=precision).sizes for each in (model, alone))
        assert sizes.block_bytes - sizes.resident_bytes + sizes.head_bytes + 2 * 64 * 100 == 3 * common * of_block
        read_more = own + MAMBA.matmul_weights + common
        assert sizes.block_bytes - fewer.block_bytes == pytest.approx(
            (read_more - 3 * 64) * of_block + (4 * 64 + MAMBA.other_weights) * 2, rel=1e-12
        )
    used = own + common - 3 * 64 + MAMBA.matmul_weights
    assert server(model).sizes.token_flops - server(alone).sizes.token_flops == 2 * used


def test_no_block_borrows_more_than_it_has():
    refuses(lambda: Block(MAMBA, None, 64, borrowed_weights=MAMBA.parameters + 65), "borrowed_weights")
    assert Block(MAMBA, None, 64, borrowed_weights=MAMBA.parameters + 64).parameters == 0


# --- experts that work in a latent ---


def test_latent_experts_take_and_send_the_latent():
    sizes = {"width": 64, "experts": 16, "experts_per_token": 3, "expert_inner": 40, "shared_inner": 24, "gated": False}
    plain, latent = MixtureOfExperts(**sizes), MixtureOfExperts(**sizes, latent=20)
    assert plain.expert_weights == 2 * 64 * 40 and latent.expert_weights == 2 * 20 * 40
    assert latent.router_weights == plain.router_weights == 64 * 16
    assert latent.dense_weights - plain.dense_weights == 2 * 64 * 20
    models = [assembled("toy", 64, 100, ((2, ATTENTION, ffn),)) for ffn in (plain, latent)]
    sent = [collectives("expert", 4, model, Precision()) for model in models]
    assert sent[0].number == sent[1].number == 4 and sent[1].bytes * 64 == sent[0].bytes * 20
    assert sent[1].bytes == pytest.approx(2 * 20 * other_devices(4, 16, 3) * 4, rel=1e-12)


# --- what files say of them ---


def test_a_layer_of_nemotron_is_one_of_mixer_and_feed_forward():
    sizes = {"model_type": "nemotron_h", "moe_latent_size": 1024, "n_routed_experts": 64, "num_experts_per_tok": 6}
    by_word = Model.from_config(sizes | {"layers_block_type": ["mamba", "moe", "mamba", "mlp", "attention"]})
    by_letter = Model.from_config(sizes | {"hybrid_override_pattern": "MEM-*", "num_hidden_layers": 5})
    assert by_word.blocks == by_letter.blocks and by_word.layers == 5
    for _, block in by_word.blocks:
        assert (block.mixer is None) != (block.feedforward is None) and block.norm_weights == 4096
    assert [(n, ffn.latent, ffn.gated) for n, ffn in by_word.expert_kinds] == [(1, 1024, False)]
    for wrong in ({"num_hidden_layers": 4}, {"layers_block_type": ["mamba"]}, {"hybrid_override_pattern": "MEX-*"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Model.from_config(sizes | {"hybrid_override_pattern": "MEM-*", "num_hidden_layers": 5} | wrong)


def test_the_blocks_of_zamba_are_used_in_turn():
    kinds = ["linear_attention", "hybrid", "linear_attention", "hybrid", "hybrid", "hybrid"]
    config = {"model_type": "zamba2", "num_hidden_layers": 6, "layers_block_type": kinds}
    models = {n: Model.from_config(config | {"num_mem_blocks": n}) for n in (1, 2, 4, 9)}
    for blocks, model in models.items():
        borrowers = sum(count for count, block in model.blocks if block.borrowed_weights)
        assert borrowers == max(0, 4 - blocks) and model.layers == 6
        assert server(model).sizes.block_bytes == server(models[9]).sizes.block_bytes  # what is read is the same
    assert models[1].parameters < models[2].parameters < models[4].parameters == models[9].parameters


# FLOPs of passes over 64 and 128 tokens at default sizes, as tools/config_oracle.py counts them (transformers 5.24).
COUNTED = {
    "nemotron_h": (120_151_326_720, 239_086_059_520), "jamba": (794_356_350_976, 1_589_244_067_840),
    "falcon_h1": (1_175_303_880_704, 2_204_510_584_832), "zamba2": (550_954_190_848, 1_045_287_913_472),
    "xlstm": (862_558_617_600, 1_725_117_235_200), "minimax": (278_904_438_784, 562_103_844_864),
    "bailing_hybrid": (422_747_930_624, 846_659_944_448), "zamba": (1_477_374_812_160, 2_957_898_588_160),
    "bitnet": (310_042_951_680, 622_602_485_760), "helium": (263_360_348_160, 528_733_962_240),
    "diffllama": (146_901_303_296, 295_950_090_240), "gpt_neox_japanese": (333_950_484_480, 670_585_323_520),
}  # fmt: skip


def of_states(mixer, tokens):
    """What the class itself multiplies for a state: by chunks of 64 (mLSTM) or 256 (lightning), padded or not."""
    if isinstance(mixer, Mamba1):
        return 2 * mixer.inner * mixer.state_size * tokens
    if isinstance(mixer, LightningAttention):
        channels = mixer.heads * mixer.head_dim
        return 4 * channels * tokens**2 + 4 * mixer.state_elements * tokens
    if isinstance(mixer, MatrixLstm):
        keys, values = mixer.heads * mixer.key_dim, mixer.heads * mixer.value_dim
        return (2 * 64 * (keys + values) + 4 * keys * mixer.value_dim + 2 * keys) * tokens
    return 0


@pytest.mark.parametrize("family", COUNTED)
def test_flops_are_those_that_transformers_counts(family):
    """2 FLOP a weight and token, routed experts apart, all pairs; and how the class computes convolution and state.

    Of Mamba-2, padded to a chunk, and of the delta rule, by chunks, what is left is the same for each chunk.
    """
    model, left = Model.from_config({"model_type": family}), []
    for tokens, counted in zip((64, 128), COUNTED[family], strict=True):
        routed = sum(n * ffn.experts_per_token * ffn.expert_weights for n, ffn in model.expert_kinds)
        expected = 2 * tokens * (model.block_matmul_weights - routed + model.head_weights)
        for layers, mixer in model.kernel_kinds:
            expected += layers * (mixer.fresh_pair_flops * tokens**2 + of_states(mixer, tokens))
            if mixer.conv_elements:
                taps = mixer.conv_kernel
                expected += layers * 2 * taps * mixer.counts.conv_channels * (tokens + taps - 1)
        left.append(counted - expected)
    kinds = {type(mixer) for _, mixer in model.kernel_kinds}
    assert left[1] == (2 if KimiDeltaAttention in kinds else 1) * left[0]
    assert bool(left[0]) == bool(kinds & {Mamba2, KimiDeltaAttention})
