"""Each term of the equations, exactly, against plain loops over layers, tokens and keys that are not lessonlib's."""

import itertools
import math
import random
from dataclasses import asdict, replace

import pytest
from helpers import (
    assembled,
    deepseek_v3,
    device,
    gpt_oss,
    gqa_model,
    h100,
    llama,
    mixtral_8x7b,
    qwen3_next,
    qwen25_05b,
    refuses,
    server,
)

from lessonlib.base.errors import UnknownNameError
from lessonlib.model.attention import GroupedQueryAttention, MultiHeadLatentAttention
from lessonlib.model.block import Block
from lessonlib.model.feedforward import DenseFeedForward, MixtureOfExperts
from lessonlib.model.model import Model
from lessonlib.model.precision import BITS, Precision, bytes_of
from lessonlib.model.state import GatedDeltaNet, KimiDeltaAttention, Mamba1, Mamba2, ShortConvolution
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import Deployment, Efficiency, Speculation
from lessonlib.time.roofline import pass_cost

W, V = 64, 100
GQA = GroupedQueryAttention(width=W, heads=8, kv_heads=2, head_dim=16)
SLIDING = GroupedQueryAttention(width=W, heads=4, kv_heads=4, head_dim=8, value_dim=4, window=6)
MLA = MultiHeadLatentAttention(width=W, heads=4, kv_rank=24, nope_dim=8, rope_dim=4, value_dim=10, query_rank=12)
DELTA = GatedDeltaNet(width=W, key_heads=2, value_heads=4, key_dim=8, value_dim=16, conv_kernel=4)
DENSE = DenseFeedForward(width=W, inner=96)
PLAIN = DenseFeedForward(width=W, inner=50, gated=False)
MOE = MixtureOfExperts(width=W, experts=8, experts_per_token=2, expert_inner=16, shared_inner=24, shared_gate=True)
ALL_PEAKS = {"bf16": 989e12, "fp32": 67e12, "fp8": 1979e12}
MIXED = assembled("mixed", W, V, ((2, GQA, DENSE), (3, SLIDING, PLAIN), (2, MLA, MOE), (2, DELTA, MOE)))


def keys_of(position, window):
    """The positions, from 1, that the token at `position` attends to: itself and those before it, `window` in all."""
    return [key for key in range(1, position + 1) if window is None or key > position - window]


# Spans and attention


@pytest.mark.parametrize("window", [None, 1, 2, 6, 7, 64])
@pytest.mark.parametrize("new", [1, 2, 5, 6, 7, 20])
def test_span_sum_is_the_count_of_pairs(window, new):
    near = () if window is None else (window - 2, window - 1, window, window + 1)
    for cached in {0, 1, 3, 4, 5, 6, 7, 30, *near} - {-1}:
        pairs = [(i, key) for i in range(cached + 1, cached + new + 1) for key in keys_of(i, window)]
        mixer = GroupedQueryAttention(width=8, heads=2, kv_heads=1, head_dim=4, window=window)
        assert mixer.span_sum(cached, new) == len(pairs)
        assert sum(mixer.span(position) for position in range(cached + 1, cached + new + 1)) == len(pairs)


@pytest.mark.parametrize(
    "cached, new, spans",
    [
        (4, 1, [5]),  # window - 2
        (5, 1, [6]),  # window - 1: the window is just full, the token itself included
        (6, 1, [6]),  # window: the oldest token is out
        (3, 5, [4, 5, 6, 6, 6]),  # crosses the window
        (0, 8, [1, 2, 3, 4, 5, 6, 6, 6]),
    ],
)
def test_a_window_of_six_counts_the_token_itself(cached, new, spans):
    model = gqa_model(layers=3, heads=8, kv_heads=2, head_dim=16, window=6)
    cost = pass_cost(server(model), new, cached, batch=5)
    assert cost.attention.flops == 3 * 5 * sum(4 * 8 * 16 * span for span in spans)
    assert cost.cache_read == 3 * 5 * min(cached, 5) * (2 * 2 * 16 * 2)
    assert cost.cache_write == 3 * 5 * new * (2 * 2 * 16 * 2)


def test_each_query_head_takes_a_product_with_each_key_and_each_value():
    """4 h d_h a pair, by counting multiplications and additions one by one."""
    flops = 0
    for position in range(8, 12):  # four new tokens on seven cached ones
        for _key, _head in itertools.product(keys_of(position, None), range(8)):
            flops += sum(2 for _ in range(16))  # the score
            flops += sum(2 for _ in range(16))  # the weighted value
    assert pass_cost(server(gqa_model(layers=1)), 4, 7).attention.flops == flops


@pytest.mark.parametrize("context", [0, 1, 4, 5, 6, 100])
def test_a_step_reads_and_writes_its_span_exactly(context):
    for window in (None, 6):
        step = pass_cost(server(gqa_model(layers=1, window=window)), 1, context, batch=3)
        bytes_of_a_token = 2 * 2 * 16 * 2
        assert step.cache_read + step.cache_write == 3 * bytes_of_a_token * len(keys_of(context + 1, window))
        assert step.attention.bytes == step.cache_read + step.cache_write


def test_values_may_be_narrower_than_keys():
    mixer = GroupedQueryAttention(width=W, heads=8, kv_heads=2, head_dim=16, value_dim=4)
    model = assembled("toy", W, V, ((1, mixer, DENSE),))
    cost = pass_cost(server(model), 1, 9)
    assert cost.attention.flops == 10 * 8 * (2 * 16 + 2 * 4)
    assert cost.attention.bytes == 10 * 2 * (16 + 4) * 2


# Linear layers


def matrices_of(part):
    """(rows, columns) of every matrix that one token meets, written out from the papers' figures."""
    w = part.width
    if isinstance(part, GroupedQueryAttention):
        value = part.value_dim or part.head_dim
        found = [(w, part.heads * part.head_dim), (w, part.kv_heads * part.head_dim), (w, part.kv_heads * value)]
        return [*found, (part.heads * value, w), (w, part.gate_outputs)]
    if isinstance(part, MultiHeadLatentAttention):
        query, inner = part.heads * (part.nope_dim + part.rope_dim), part.query_rank
        found = [(w, query)] if inner is None else [(w, inner), (inner, query)]
        found += [(w, part.kv_rank), (w, part.rope_dim)]
        found += [(part.kv_rank, part.nope_dim), (part.kv_rank, part.value_dim)] * part.heads
        return [*found, (part.heads * part.value_dim, w)]
    if isinstance(part, GatedDeltaNet):
        keys, values = part.key_heads * part.key_dim, part.value_heads * part.value_dim
        heads = part.value_heads
        return [(w, keys), (w, keys), (w, values), (w, values), (w, heads), (w, heads), (values, w)]
    if isinstance(part, DenseFeedForward):
        return [(w, part.inner)] * (2 if part.gated else 1) + [(part.inner, w)]
    assert isinstance(part, MixtureOfExperts)
    used = [(w, part.expert_inner), (w, part.expert_inner), (part.expert_inner, w)] * part.experts_per_token
    shared = [(w, part.shared_inner), (w, part.shared_inner), (part.shared_inner, w)]
    return [*used, *shared, (w, part.experts), (w, int(part.shared_gate))]


def layers_of(model):
    """Every layer of the model, one by one."""
    return [block for count, block in model.blocks for _ in range(count)]


def plain_linear_flops(model, tokens, logits):
    flops = 0
    for block in layers_of(model):
        for part in block.parts:
            flops += sum(2 * tokens * rows * columns for rows, columns in matrices_of(part))
    return flops + 2 * logits * model.vocabulary * model.width


@pytest.mark.parametrize("model", [MIXED, llama(), deepseek_v3(), qwen3_next(), mixtral_8x7b(), gpt_oss(24, 32)])
@pytest.mark.parametrize("new, batch, logits", [(1, 1, 1), (7, 3, 1), (7, 3, 0), (5, 2, 5)])
def test_linear_flops(model, new, batch, logits):
    cost = pass_cost(server(model), new, 11, batch, logits)
    assert cost.linear.flops == plain_linear_flops(model, new * batch, logits * batch)


def test_logits_are_needed_once_in_a_pass_that_emits_a_token_and_never_in_an_inner_chunk():
    head = 2 * V * W
    for chunk in (None, 4, 10):
        cost = request_cost(server(MIXED, prefill_chunk=chunk), Request(10, 5), batch=3)
        assert cost.prefill.linear.flops == plain_linear_flops(MIXED, 30, 0) + 3 * head
        assert cost.decode.linear.flops == 4 * (plain_linear_flops(MIXED, 3, 0) + 3 * head)


def test_weight_bytes_are_every_parameter_once_but_for_tables():
    untied = gqa_model()
    tied = gqa_model(tied_embeddings=True, position_weights=999)
    for model in (untied, tied):
        streamed = sum(
            rows * columns for block in layers_of(model) for p in block.parts for rows, columns in matrices_of(p)
        )
        streamed += model.layers * 2 * W + W + V * W  # norms, the final norm, the head
        for new, batch in ((1, 1), (7, 3)):
            assert pass_cost(server(model), new, 2, batch).linear.bytes == 2 * streamed
    assert server(untied).weight_bytes == pass_cost(server(untied), 1).linear.bytes + 2 * V * W
    assert server(tied).weight_bytes == pass_cost(server(tied), 1).linear.bytes + 2 * 999


def test_a_tied_head_is_streamed_and_multiplied():
    model = qwen25_05b()
    cost = pass_cost(server(model), 1, 10)
    assert cost.linear.bytes == 2 * model.parameters
    assert cost.linear.flops - 2 * model.block_matmul_weights == 2 * 151_936 * 896


# Mixture of experts


def expected_distinct(experts, per_token, tokens):
    """Over the experts one by one: the chance that at least one of the tokens takes it."""
    return math.fsum(1 - math.prod([(experts - per_token) / experts] * tokens) for _ in range(experts))


@pytest.mark.parametrize("experts, per_token", [(8, 2), (128, 8), (1, 1), (4, 4)])
@pytest.mark.parametrize("tokens", [1, 2, 32, 200])
def test_distinct_experts(experts, per_token, tokens):
    ffn = MixtureOfExperts(width=W, experts=experts, experts_per_token=per_token, expert_inner=16)
    deployment = server(assembled("toy", W, V, ((3, GQA, ffn),)))
    none = pass_cost(server(assembled("toy", W, V, ((3, GQA, PLAIN),))), 1, 5).linear.bytes
    rest = none - 3 * 2 * (2 * W * 50) + 3 * 2 * W * experts  # the router for the plain feed-forward
    found = (pass_cost(deployment, 1, 5, batch=tokens).linear.bytes - rest) / (3 * 2 * 3 * W * 16)
    assert found == pytest.approx(expected_distinct(experts, per_token, tokens), rel=1e-12)
    assert pass_cost(deployment, tokens, 5).linear.bytes == pass_cost(deployment, 1, 5, batch=tokens).linear.bytes


def test_distinct_experts_as_routed_by_chance():
    """2,000 seeded batches of 32 tokens, each of which draws 8 of 128 experts: within four standard errors."""
    chance = random.Random(8)
    counts = [len(set().union(*(chance.sample(range(128), 8) for _ in range(32)))) for _ in range(2000)]
    mean = sum(counts) / len(counts)
    error = math.sqrt(sum((count - mean) ** 2 for count in counts) / len(counts) ** 2)
    model = assembled(
        "toy", W, V, ((1, GQA, MixtureOfExperts(width=W, experts=128, experts_per_token=8, expert_inner=16)),)
    )
    (experts,) = server(model).sizes.experts
    one = 2 * 3 * W * 16
    read = pass_cost(server(model), 1, 5, batch=32).linear.bytes - server(model).sizes.dense_bytes
    assert error < 0.1 and abs(read / one - mean) < 4 * error
    assert experts.bytes == 128 * one


def test_experts_of_different_sizes_are_counted_apart():
    small = MixtureOfExperts(width=W, experts=4, experts_per_token=1, expert_inner=8)
    large = MixtureOfExperts(width=W, experts=16, experts_per_token=2, expert_inner=32)
    deployment = server(assembled("toy", W, V, ((2, GQA, small), (1, GQA, large))))
    read = pass_cost(deployment, 1, 5, batch=3).linear.bytes - deployment.sizes.dense_bytes
    expected = 2 * expected_distinct(4, 1, 3) * 2 * 3 * W * 8 + expected_distinct(16, 2, 3) * 2 * 3 * W * 32
    assert read == pytest.approx(expected, rel=1e-12)


# Multi-head latent attention


def mla_model(**changes):
    sizes = {"width": W, "heads": 4, "kv_rank": 24, "nope_dim": 8, "rope_dim": 4, "value_dim": 10}
    return assembled("toy", W, V, ((3, MultiHeadLatentAttention(**sizes | changes), DENSE),))


def absorbed(positions, heads=4, rank=24, rope=4):
    return sum(2 * heads * (rank + rope) + 2 * heads * rank for p in positions for _ in keys_of(p, None))


def expanded(positions, cached, heads=4, rank=24, nope=8, rope=4, value=10):
    pairs = sum(2 * heads * (nope + rope) + 2 * heads * value for p in positions for _ in keys_of(p, None))
    return pairs + sum(2 * rank * heads * (nope + value) for _ in range(cached))


def test_mla_is_expanded_when_nothing_is_cached_and_absorbed_in_a_step():
    deployment = server(mla_model())
    assert pass_cost(deployment, 9, batch=2).attention.flops == 3 * 2 * expanded(range(1, 10), 0)
    for context in (1, 2, 30):
        assert pass_cost(deployment, 1, context, batch=2).attention.flops == 3 * 2 * absorbed([context + 1])
    cost = request_cost(deployment, Request(9, 6), batch=2)
    assert cost.prefill.attention.flops == 3 * 2 * expanded(range(1, 10), 0)
    assert cost.decode.attention.flops == 3 * 2 * absorbed(range(10, 15))


def test_mla_on_a_cached_prefix_takes_the_cheaper():
    deployment = server(mla_model())
    chosen = set()
    for cached, new in itertools.product((1, 2, 5, 40), (1, 3, 30, 100, 400)):
        positions = range(cached + 1, cached + new + 1)
        both = {"absorbed": absorbed(positions), "expanded": expanded(positions, cached)}
        chosen.add(min(both, key=both.get))
        assert pass_cost(deployment, new, cached).attention.flops == 3 * min(both.values())
    assert chosen == {"absorbed", "expanded"}


def test_mla_caches_one_latent_and_one_rotary_key_for_all_heads():
    cost = pass_cost(server(mla_model()), 3, 7, batch=2)
    assert cost.cache_read == 3 * 2 * 7 * (24 + 4) * 2
    assert cost.cache_write == 3 * 2 * 3 * (24 + 4) * 2


def test_deepseek_v3_by_its_own_sizes():
    deployment = server(deepseek_v3(), accelerator=device())
    step, prompt = pass_cost(deployment, 1, 999), pass_cost(deployment, 1000)
    assert step.attention.flops == 61 * 1000 * (2 * 128 * (512 + 64) + 2 * 128 * 512)
    assert prompt.attention.flops == 61 * 500_500 * (2 * 128 * (128 + 64) + 2 * 128 * 128)


# Constant state


@pytest.mark.parametrize(
    "mixer, state_shape, convolution_shape, flops_an_element",
    [
        (DELTA, (4, 8, 16), (2 * 2 * 8 + 4 * 16, 3), 6),
        (KimiDeltaAttention(width=W, heads=4, head_dim=8, conv_kernel=4), (4, 8, 8), (3 * 4 * 8, 3), 6),
        (
            Mamba2(width=W, heads=4, head_dim=8, groups=2, state_size=16, conv_kernel=4),
            (4, 8, 16),
            (4 * 8 + 2 * 2 * 16, 3),
            4,
        ),
        (Mamba1(width=W, inner=128, state_size=16, step_rank=4, conv_kernel=4), (128, 16), (128, 3), 4),
        (ShortConvolution(width=W, conv_kernel=3), (0,), (W, 2), 4),
    ],
)
@pytest.mark.parametrize(
    "precision, stated, of_state, of_convolution",
    [
        (Precision("bf16"), None, 2, 2),  # the config does not say, so as the model computes
        (Precision("fp32"), None, 4, 4),
        (Precision("bf16", compute="fp8"), None, 2, 1),
        (Precision("bf16"), "fp32", 4, 2),  # the config says
        (Precision("bf16", state="fp16"), "fp32", 2, 2),  # and is overruled
        (Precision("int4", state="fp32"), None, 4, 2),
    ],
)
def test_constant_state_is_read_and_written_once_a_pass(
    mixer, state_shape, convolution_shape, flops_an_element, precision, stated, of_state, of_convolution
):
    mixer = replace(mixer, state_dtype=stated)
    deployment = server(assembled("toy", W, V, ((3, mixer, DENSE),)), device(peaks=ALL_PEAKS), dtype=precision)
    elements = sum(1 for _ in itertools.product(*map(range, state_shape)))
    held = 3 * (of_state * elements + of_convolution * math.prod(convolution_shape))
    for new, cached, batch in ((1, 0, 1), (1, 10_000, 2), (50, 7, 2)):
        cost = pass_cost(deployment, new, cached, batch)
        assert cost.state_bytes == cost.attention.bytes == 2 * batch * held
        assert cost.cache_read == cost.cache_write == 0
        assert cost.attention.flops == 3 * batch * new * flops_an_element * elements
    decode = request_cost(deployment, Request(5, 11), batch=2).decode
    assert decode.state_bytes == 10 * 2 * 2 * held
    assert decode.attention.flops == 10 * 3 * 2 * flops_an_element * elements
    assert deployment.sequence_bytes(1.0) == deployment.sequence_bytes(1e6) == held
    assert deployment.memory_needed(100.0, 7) == deployment.weight_bytes + 7 * held


# Time


ROOF = Accelerator(name="toy", memory=1e12, bandwidth=1e9, peaks={"bf16": 30e9}, link=1e8)


def plain_pass(model, new, cached, batch, logits=1, efficiency=None, of=ROOF):
    """(FLOPs, bytes, seconds, cache read, cache written) of one pass in bf16 on one device, layer by layer."""
    efficiency = efficiency or Efficiency()
    peak, bandwidth = efficiency.mfu * of.peaks["bf16"], efficiency.mbu * of.bandwidth
    head = 2 * model.vocabulary * model.width
    dense, routed, read, written = [0, 2 * model.other_weights], [0, 0], 0, 0
    kinds = {"linear layers": dense, "routed experts": routed, "LM head": [head * logits * batch, head]}
    for block in layers_of(model):
        dense[1] += 2 * block.norm_weights
        for part in block.parts:
            dense[1] += 2 * part.other_weights
            met = sum(2 * rows * columns for rows, columns in matrices_of(part))
            if isinstance(part, MixtureOfExperts):
                one = 2 * 3 * part.width * part.expert_inner
                routed[0] += one * part.experts_per_token * new * batch
                routed[1] += one * expected_distinct(part.experts, part.experts_per_token, new * batch)
                met -= one * part.experts_per_token
            dense[0], dense[1] = dense[0] + met * new * batch, dense[1] + met
        mixer = block.mixer
        kind = kinds.setdefault(mixer, [0, 0])
        positions = range(cached + 1, cached + new + 1)
        if isinstance(mixer, GatedDeltaNet):
            state = mixer.value_heads * mixer.key_dim * mixer.value_dim
            channels = 2 * mixer.key_heads * mixer.key_dim + mixer.value_heads * mixer.value_dim
            kind[0] += 6 * state * new * batch
            kind[1] += 2 * batch * (2 * state + 2 * channels * (mixer.conv_kernel - 1))
            continue
        if isinstance(mixer, MultiHeadLatentAttention):
            sizes = (mixer.heads, mixer.kv_rank)
            fresh = expanded(positions, cached, *sizes, mixer.nope_dim, mixer.rope_dim, mixer.value_dim)
            kind[0] += batch * (min(absorbed(positions, *sizes, mixer.rope_dim), fresh) if cached else fresh)
            token, window = 2 * (mixer.kv_rank + mixer.rope_dim), None
        else:
            dims, window = mixer.head_dim + (mixer.value_dim or mixer.head_dim), mixer.window
            pairs = sum(len(keys_of(position, window)) for position in positions)
            kind[0] += 2 * batch * mixer.heads * dims * pairs
            token = 2 * mixer.kv_heads * dims
        kept = [key for key in keys_of(cached + 1, window) if key <= cached]
        kind[1] += batch * token * (len(kept) + new)
        read, written = read + batch * token * len(kept), written + batch * token * new
    seconds = efficiency.overhead
    for flops, moved in kinds.values():
        both = flops / peak, moved / bandwidth
        seconds += max(both) if efficiency.overlap else sum(both)
    flops, moved = (sum(column) for column in zip(*kinds.values(), strict=True))
    return flops, moved, seconds, read, written


def numbers_of(phase):
    return phase.flops, phase.bytes, phase.seconds, phase.cache_read, phase.cache_write


@pytest.mark.parametrize(
    "efficiency", [Efficiency(), Efficiency(mfu=0.5, mbu=0.8, overhead=1e-4), Efficiency(0.5, 0.8, 1e-4, overlap=False)]
)
@pytest.mark.parametrize("new, cached, batch", [(1, 0, 1), (1, 5, 3), (1, 6, 1), (9, 0, 2), (30, 4, 2), (2, 40, 1)])
def test_one_pass_of_a_model_with_every_kind_of_layer(new, cached, batch, efficiency):
    found = pass_cost(server(MIXED, ROOF, efficiency=efficiency), new, cached, batch)
    assert numbers_of(found) == pytest.approx(plain_pass(MIXED, new, cached, batch, 1, efficiency), rel=1e-13)


@pytest.mark.parametrize("prompt, output, cached, batch", [(1, 1, 0, 1), (3, 30, 0, 1), (12, 25, 5, 4), (40, 2, 39, 2)])
@pytest.mark.parametrize("chunk", [None, 4])
@pytest.mark.parametrize("overlap", [True, False])
def test_one_request_on_a_model_with_every_kind_of_layer(prompt, output, cached, batch, chunk, overlap):
    """The accounting identity, with nothing of lessonlib on the right-hand side."""
    deployment = server(MIXED, ROOF, efficiency=Efficiency(overhead=1e-4, overlap=overlap), prefill_chunk=chunk)
    cost = request_cost(deployment, Request(prompt, output, cached), batch)
    starts = range(cached, prompt, chunk or prompt)
    ends = [min(start + (chunk or prompt), prompt) for start in starts]

    def prefill(b):
        passes = [
            plain_pass(MIXED, end - start, start, b, int(end == prompt), deployment.efficiency)
            for start, end in zip(starts, ends, strict=True)
        ]
        return [math.fsum(column) for column in zip(*passes, strict=True)]

    steps = [plain_pass(MIXED, 1, prompt + k - 1, batch, 1, deployment.efficiency) for k in range(1, output)]
    decode = [math.fsum(column) for column in zip(*steps, strict=True)] or [0] * 5
    assert numbers_of(cost.prefill) == pytest.approx(prefill(batch), rel=1e-12)
    assert numbers_of(cost.decode) == pytest.approx(decode, rel=1e-12)
    assert cost.seconds == pytest.approx(prefill(batch)[2] + decode[2], rel=1e-12)
    assert cost.ttft == pytest.approx(prefill(1)[2], rel=1e-12)
    assert cost.undisturbed == pytest.approx(prefill(1)[2] + decode[2], rel=1e-12)
    assert (cost.prefill.passes, cost.decode.passes) == (len(ends), output - 1)
    if output > 1:
        assert cost.tpot == pytest.approx(decode[2] / (output - 1), rel=1e-12)


def test_each_kind_of_layer_has_a_roof_of_its_own():
    """A compute-bound kind and a memory-bound one: one roof over their sum would let each hide behind the other."""
    wide = GroupedQueryAttention(width=W, heads=64, kv_heads=1, head_dim=16)  # 64 FLOP/byte
    narrow = GroupedQueryAttention(width=W, heads=4, kv_heads=4, head_dim=16)  # 1 FLOP/byte
    deployment = server(assembled("toy", W, V, ((1, wide, DENSE), (1, narrow, DENSE))), ROOF)
    step = pass_cost(deployment, 1, 999)
    apart = 4 * 64 * 16 * 1000 / 30e9 + 2 * 4 * 16 * 2 * 1000 / 1e9
    assert step.attention.seconds == pytest.approx(apart, rel=1e-13)
    assert step.attention.seconds > 1.2 * max(step.attention.flops / 30e9, step.attention.bytes / 1e9)


def test_layers_with_the_same_mixer_are_one_kind_wherever_they_stand():
    folded = server(assembled("toy", W, V, ((1, GQA, DENSE), (2, SLIDING, MOE), (3, GQA, MOE)))).sizes
    assert [(kind.layers, kind.mixer.window) for kind in folded.kinds] == [(4, None), (2, 6)]


def test_a_batch_is_the_same_as_more_sequences():
    one, many = (pass_cost(server(MIXED, ROOF), 3, 8, batch) for batch in (1, 5))
    assert many.attention.flops == 5 * one.attention.flops and many.attention.bytes == 5 * one.attention.bytes


# Tensor parallelism


def test_all_reduces_by_hand():
    """Two a layer, each of 2 (N - 1) hops (reduce-scatter, then all-gather) of a chunk of 1/N, and one latency each."""
    model = gqa_model(layers=3, heads=8, kv_heads=4)
    for devices, new, batch in ((2, 1, 1), (4, 7, 3)):
        efficiency = Efficiency(all_reduce_latency=5e-6)
        deployment = server(model, ROOF, devices=devices, efficiency=efficiency)
        seconds = 0.0
        for _layer, _part in itertools.product(range(3), ("mixer", "feed-forward")):
            message = batch * new * W * 2
            seconds += 5e-6 + sum(message / devices / 1e8 for _ in range(2 * (devices - 1)))
        cost = pass_cost(deployment, new, 5, batch)
        assert cost.communication == pytest.approx(seconds, rel=1e-13)
        alone = pass_cost(server(model, ROOF), new, 5, batch)
        assert cost.linear.flops == alone.linear.flops and cost.linear.bytes == alone.linear.bytes
        assert cost.linear.seconds == pytest.approx(alone.linear.seconds / devices, rel=1e-13)
        assert cost.seconds == pytest.approx(cost.linear.seconds + cost.attention.seconds + seconds, rel=1e-13)
        decode = request_cost(deployment, Request(6, 12), batch).decode
        step = pass_cost(deployment, 1, 6, batch)
        assert decode.communication == pytest.approx(11 * step.communication, rel=1e-13)


def test_one_device_has_no_all_reduces():
    cost = request_cost(server(), Request(10, 10))
    assert cost.prefill.communication == cost.decode.communication == 0


@pytest.mark.parametrize("devices, copies", [(1, 1), (2, 1), (4, 1), (8, 1), (16, 2), (32, 4)])
def test_kv_heads_are_copied_beyond_their_number(devices, copies):
    """Device i holds query heads i 32/N and on; each needs its KV head, whoever else holds it too."""
    group = 32 // 8
    held = [{head // group for head in range(i * 32 // devices, (i + 1) * 32 // devices)} for i in range(devices)]
    kv_heads = sum(map(len, held))
    assert kv_heads == 8 * copies
    deployment = server(devices=devices)
    assert deployment.cache_bytes_per_token == 32 * kv_heads * 2 * 128 * 2
    step, alone = pass_cost(deployment, 1, 999, batch=4), pass_cost(server(), 1, 999, batch=4)
    assert step.cache_read == copies * alone.cache_read and step.cache_write == copies * alone.cache_write
    assert step.attention.flops == alone.attention.flops
    assert step.attention.seconds == pytest.approx(alone.attention.seconds * copies / devices, rel=1e-13)
    assert deployment.sequence_bytes(1000.0) == copies * server().sequence_bytes(1000.0)
    copied = 32 * (kv_heads - 8) * 2 * 128 * 4096 * 2  # W_k and W_v go with their heads
    assert deployment.weight_bytes == server().weight_bytes + copied
    assert step.linear.weights == alone.linear.weights + copied
    assert step.linear.flops == alone.linear.flops + 4 * copied


def test_the_latent_of_mla_lies_on_every_device():
    alone, eight = (server(deepseek_v3(), device(), devices=devices) for devices in (1, 8))
    assert eight.cache_bytes_per_token == 8 * alone.cache_bytes_per_token == 8 * 70_272
    first, second = pass_cost(alone, 1, 4000), pass_cost(eight, 1, 4000)
    assert second.cache_read == 8 * first.cache_read
    memory_seconds = (second.cache_read + second.cache_write) / (8 * 2e12)
    assert memory_seconds == pytest.approx((first.cache_read + first.cache_write) / 2e12, rel=1e-13)


def test_a_state_is_shared_out_over_the_devices():
    alone, four = (server(qwen3_next(), device(), devices=devices) for devices in (1, 4))
    assert pass_cost(alone, 1, 9).state_bytes == pass_cost(four, 1, 9).state_bytes
    assert four.cache_bytes_per_token == 2 * alone.cache_bytes_per_token  # two KV heads on four devices


@pytest.mark.parametrize("model, devices", [(llama(), 3), (llama(), 64), (deepseek_v3(), 3), (qwen3_next(), 32)])
def test_heads_that_cannot_be_divided_are_refused(model, devices):
    refuses(lambda: server(model, device(), devices=devices), ": devices", str(devices), "heads")


def test_kv_heads_that_can_neither_be_divided_nor_copied_are_refused():
    mixer = GroupedQueryAttention(width=W, heads=24, kv_heads=6, head_dim=8)
    model = assembled("toy", W, V, ((1, mixer, DENSE),))
    refuses(lambda: server(model, device(), devices=4), "GroupedQueryAttention: devices", "4", "6 KV heads")


# Precision


@pytest.mark.parametrize(
    "dtype, bits",
    [
        ("fp32", 32),
        ("fp16", 16),
        ("bf16", 16),
        ("fp8", 8),
        ("int8", 8),
        ("int4", 4 + 16 / 64),
        ("mxfp4", 4 + 8 / 32),
        ("nvfp4", 4 + 8 / 16),
        ("q8_0", 8 + 16 / 32),
        ("q4_0", 4 + 16 / 32),
        ("q4_k_m", 4.85),
        ("q6_k", (256 * 6 + 16 * 8 + 16) / 256),
    ],
)
def test_a_dtype_has_its_bits_with_its_scales(dtype, bits):
    assert bytes_of(dtype) == bits / 8 == BITS[dtype] / 8


def test_quantised_weights_leave_head_embedding_norms_and_router_in_bf16():
    precision = Precision("int4")
    assert (precision.blocks, precision.experts) == ("int4", "int4")
    assert {precision.head, precision.embedding, precision.other, precision.cache, precision.plain} == {"bf16"}
    assert Precision("fp16").head == Precision("fp16").cache == "fp16"
    matrices = sum(r * c for block in layers_of(MIXED) for p in block.parts[:1] for r, c in matrices_of(p))
    matrices += 2 * (3 * W * 96) + 3 * (2 * W * 50) + 4 * (3 * W * 24)  # the dense and shared feed-forwards
    experts = 4 * 8 * 3 * W * 16
    routers_and_norms = 4 * W * (8 + 1) + 9 * 2 * W + W + sum(b.mixer.other_weights for b in layers_of(MIXED))
    deployment = server(MIXED, dtype=precision)
    resident = 4.25 / 8 * (matrices + experts) + 2 * (routers_and_norms + 2 * V * W)
    assert deployment.weight_bytes == pytest.approx(resident, rel=1e-14)
    streamed = resident - 2 * V * W - 4.25 / 8 * experts * (1 - 2 / 8)
    assert pass_cost(deployment, 1, 5).linear.bytes == pytest.approx(streamed, rel=1e-14)


@pytest.mark.parametrize("part", ["blocks", "experts", "head", "embedding", "other"])
def test_each_part_has_a_precision_of_its_own(part):
    plain = Precision("bf16")
    changed = Precision(**asdict(plain) | {part: "fp8"})
    saved = server(MIXED).weight_bytes - server(MIXED, dtype=changed).weight_bytes
    assert saved == MIXED.weights_by_part[part] > 0


def test_the_cache_has_a_precision_of_its_own():
    half = pass_cost(server(dtype=Precision("bf16", cache="fp8")), 1, 100)
    whole = pass_cost(server(), 1, 100)
    assert whole.cache_read == 2 * half.cache_read and whole.linear.bytes == half.linear.bytes
    assert half.attention.intensity == 8


CHIP = device(peaks={"fp32": 1e14, "bf16": 2e14, "fp16": 3e14, "fp8": 5e14, "fp4": 7e14, "int8": 11e14})


@pytest.mark.parametrize(
    "precision, accelerator, dtypes",
    [  # what blocks, experts, head and attention multiply in
        (Precision("bf16"), CHIP, ("bf16", "bf16", "bf16", "bf16")),
        (Precision("fp16"), CHIP, ("fp16", "fp16", "fp16", "fp16")),
        (Precision("fp32"), CHIP, ("fp32", "fp32", "fp32", "fp32")),
        (Precision("fp8"), CHIP, ("fp8", "fp8", "bf16", "bf16")),
        (Precision("nvfp4"), CHIP, ("fp4", "fp4", "bf16", "bf16")),
        (Precision("bf16", experts="nvfp4"), CHIP, ("bf16", "fp4", "bf16", "bf16")),
        (Precision("fp8", experts="mxfp4", head="fp8", cache="fp8"), CHIP, ("fp8", "bf16", "bf16", "bf16")),
        *((Precision(dtype), CHIP, ("bf16",) * 4) for dtype in ("int4", "mxfp4", "int8", "q8_0", "q4_k_m", "q6_k")),
        (Precision(bits=4.25), CHIP, ("bf16",) * 4),
        (Precision("fp16", bits=4.25), CHIP, ("fp16",) * 4),
        (Precision("fp8", compute="bf16"), CHIP, ("bf16",) * 4),
        (Precision("int8", compute="int8"), CHIP, ("int8",) * 4),
        (Precision("nvfp4", compute="fp8"), CHIP, ("fp8",) * 4),
        (Precision("fp8"), device(), ("bf16",) * 4),  # no fp8 peak: weights are widened
        (Precision("nvfp4"), device(peaks={"bf16": 1.0, "fp8": 2.0}), ("bf16",) * 4),
        (Precision(), device(peaks={"fp16": 1e14}), ("fp16",) * 4),
        (Precision("fp8"), device(peaks={"fp16": 1e14, "fp8": 2e14}), ("fp8", "fp8", "fp16", "fp16")),
        (Precision("fp16"), device(peaks={"bf16": 1e14}), ("bf16",) * 4),
    ],
)
@pytest.mark.parametrize("overlap", [True, False])
def test_each_kernel_has_the_peak_of_the_dtype_that_it_multiplies_in(precision, accelerator, dtypes, overlap):
    fast = replace(accelerator, bandwidth=1e30)  # so that compute binds everywhere
    deployment = server(MIXED, fast, precision, efficiency=Efficiency(0.5, overlap=overlap))
    assert tuple(deployment.dtypes.values()) == dtypes
    cost = pass_cost(deployment, 64, batch=2)
    named = {"linear layers": dtypes[0], "routed experts": dtypes[1], "LM head": dtypes[2]}
    for part, roof in cost.roofs.items():
        peak = 0.5 * accelerator.peaks[named.get(part, dtypes[3])]
        assert roof.seconds == pytest.approx(roof.flops / peak, rel=1e-9) and roof.seconds > 0
    assert deployment.peak == 0.5 * accelerator.peaks[dtypes[0]]


def test_a_peak_that_is_missing_is_named():
    old = device(peaks={"fp16": 1e14, "int8": 2e14})
    for precision in (Precision(compute="bf16"), Precision("fp8", compute="fp8"), Precision("fp32")):
        wanted = precision.compute or "fp32"
        refuses(lambda p=precision: server(MIXED, old, p), f"no {wanted} peak", "fp16, int8", kind=UnknownNameError)


@pytest.mark.parametrize("bits", [1.58, 4.25, 6, 16.0])
def test_a_format_without_a_name_goes_by_its_bits(bits):
    precision = Precision(bits=bits)
    assert precision == Precision(f"{bits:g} bits") and precision.head == "bf16"
    assert precision.bytes_of("blocks") == precision.bytes_of("experts") == bits / 8
    plain, weights = server(MIXED), server(MIXED, dtype=precision)
    matrices = MIXED.weights_by_part["blocks"] + MIXED.weights_by_part["experts"]
    assert plain.weight_bytes - weights.weight_bytes == pytest.approx((2 - bits / 8) * matrices, rel=1e-12)
    assert replace(precision, cache="fp8").blocks == precision.blocks
    assert replace(precision, blocks="int4", experts="int4") == Precision("int4")
    assert Precision("fp16", bits=bits).head == "fp16"
    assert Precision(experts="8.5 bits", bits=bits).bytes_of("experts") == 8.5 / 8


def test_bits_that_cannot_be_meant_are_refused():
    for bits in (0, -1, 65, math.nan, math.inf, "4", True):
        refuses(lambda b=bits: Precision(bits=b), "Precision: bits")
    refuses(lambda: Precision("int4", bits=4.5), "Precision: bits is 4.5", "int4")
    for dtype in ("4.25", "4.25bits", "nan bits", "0 bits", "inf bits", " bits", "many bits"):
        refuses(lambda d=dtype: Precision(d), "Precision: blocks", kind=UnknownNameError)


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "int4", "fp16"])
def test_an_all_reduce_sends_two_bytes_a_number_whatever_the_weights_are_stored_in(dtype):
    deployment = server(gqa_model(layers=3, heads=8, kv_heads=4), CHIP, dtype, devices=2)
    assert deployment.sizes.collective_bytes == 2 * 3 * 2 * (2 - 1) / 2 * W * 2
    told = server(gqa_model(layers=3, heads=8, kv_heads=4), CHIP, Precision(dtype, compute="fp8"), devices=2)
    assert told.sizes.collective_bytes == deployment.sizes.collective_bytes


# Speculation


@pytest.mark.parametrize("acceptance, drafts", [(0.0, 3), (0.5, 1), (0.8, 4), (1.0, 4)])
def test_tokens_of_a_round_as_accepted_by_chance(acceptance, drafts):
    """A round's answer: the accepted drafts up to the first refusal, and one token of the verifying pass."""
    expected = 0.0
    for accepted in range(drafts + 1):
        chance = acceptance**accepted * (1 if accepted == drafts else 1 - acceptance)
        expected += chance * (accepted + 1)
    assert Speculation(drafts, acceptance, "free").tokens_per_round == pytest.approx(expected, rel=1e-14)


def test_speculative_rounds_by_hand():
    draft = gqa_model(layers=1, heads=2, kv_heads=1)
    speculation = Speculation(3, 0.6, draft)
    deployment = server(MIXED, ROOF, speculation=speculation, efficiency=Efficiency(overhead=1e-4))
    prompt, output, batch = 20, 12, 2  # the mean context is 25
    rounds = 11 / (1 + 0.6 + 0.6**2 + 0.6**3)
    verify = plain_pass(MIXED, 4, 25, batch, 4, deployment.efficiency)
    drafted = plain_pass(draft, 1, 25, batch, 1, deployment.efficiency)
    decode = request_cost(deployment, Request(prompt, output), batch).decode
    expected = [rounds * v + rounds * 3 * d for v, d in zip(verify, drafted, strict=True)]
    assert numbers_of(decode) == pytest.approx(expected, rel=1e-12)
    assert decode.passes == pytest.approx(rounds * 4, rel=1e-12)
    assert deployment.weight_bytes == pytest.approx(server(MIXED).weight_bytes + server(draft).weight_bytes, rel=1e-15)
    held = server(MIXED).sequence_bytes(32.0) + server(draft).sequence_bytes(32.0)
    assert deployment.sequence_bytes(32.0) == pytest.approx(held, rel=1e-15)


def test_with_free_drafts_a_round_is_one_verifying_pass():
    decode = request_cost(server(MIXED, ROOF, speculation=Speculation(3, 1.0, "free")), Request(20, 12)).decode
    expected = [11 / 4 * value for value in plain_pass(MIXED, 4, 25, 1, 4)]
    assert numbers_of(decode) == pytest.approx(expected, rel=1e-12)


# Memory


def test_memory_is_reserved_for_prompt_and_output():
    """Token by token: a sliding layer keeps no more than its window."""
    model = assembled("toy", W, V, ((2, GQA, DENSE), (3, SLIDING, DENSE)))
    deployment = server(model)
    for tokens in (1, 5, 6, 7, 50):
        held = sum(2 * (2 * 2 * 16 * 2) for _ in range(tokens))
        held += sum(3 * (4 * (8 + 4) * 2) for _ in keys_of(tokens, 6))
        assert model.cache_bytes(tokens) == deployment.sequence_bytes(float(tokens)) == held
        assert deployment.memory_needed(float(tokens), 4) == deployment.weight_bytes + 4 * held


def test_a_deployment_takes_its_share_of_all_memory():
    assert Deployment(llama(), h100(), devices=4, memory_fraction=0.5).memory_available == 0.5 * 4 * 85_520_809_984
    free = server().memory_available - 2 * 8_030_261_248
    assert server().memory_free == free


def test_blocks_may_lack_a_mixer_or_a_feed_forward():
    """A layer that is one of mixer and feed-forward, as in Nemotron-H: one all-reduce each."""
    model = Model(name="toy", width=W, vocabulary=V, blocks=((2, Block(GQA, None)), (3, Block(None, DENSE))))
    assert model.layers == 5
    cost = pass_cost(server(model, ROOF, devices=2, efficiency=Efficiency(all_reduce_latency=1.0)), 1, 9)
    assert cost.communication == pytest.approx(5 * (1.0 + W * 2 / 1e8), rel=1e-13)
    assert cost.attention.flops == 2 * 10 * 4 * 8 * 16
