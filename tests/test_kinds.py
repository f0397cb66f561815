"""Sparse and chunked attention: each law against lists of tokens, and all that is priced by it against plain loops."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import assembled, device, refuses, server
from hypothesis import given
from hypothesis import strategies as st
from token_by_token import TokenByToken, assert_conserved, assert_same, random_traffic, with_cache_of

from lessonlib.facts.catalogue import load_model
from lessonlib.model.attention import (
    ChunkedAttention,
    GroupedQueryAttention,
    MultiHeadLatentAttention,
    SharedCacheAttention,
)
from lessonlib.model.compressed import Compressed, CompressedAttention, Entries, EntryIndexer
from lessonlib.model.feedforward import DenseFeedForward, MixtureOfExperts
from lessonlib.model.hybrid import SeveralMixers
from lessonlib.model.model import Model
from lessonlib.model.precision import Precision
from lessonlib.model.sparse import BlockSparseAttention, Indexer, SparseLatentAttention
from lessonlib.model.state import Convolutions
from lessonlib.policy.cache import cache_by_kind, span_where_cache_passes_weights
from lessonlib.policy.full_server import memory_batch
from lessonlib.policy.serving.simulator import POLICIES, simulate
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.roofline import pass_cost

EXACT = 1e-12
DATA = Path(__file__).parents[1] / "data"
W = 64
MLA = {"width": W, "heads": 4, "kv_rank": 24, "nope_dim": 8, "rope_dim": 4, "value_dim": 10, "query_rank": 12}
DENSE = DenseFeedForward(width=W, inner=96)


def sparse(top_k=6, index_heads=3, index_dim=5):
    return SparseLatentAttention(**MLA, top_k=top_k, index_heads=index_heads, index_dim=index_dim)


def chunked(chunk=6):
    return ChunkedAttention(width=W, heads=4, kv_heads=2, head_dim=8, chunk=chunk)


def blocks(block, top_k=3):
    return BlockSparseAttention(
        width=W, heads=4, kv_heads=2, head_dim=8, top_k=top_k, block=block, index_heads=2, index_dim=5
    )


def shared(window=None):
    return SharedCacheAttention(width=W, heads=4, kv_heads=2, head_dim=8, window=window)


def sliding_latent(window):
    return MultiHeadLatentAttention(**MLA, window=window)


def entries(rate, top_k=None):
    return Entries(width=W, heads=4, entry_dim=8 * rate, rate=rate, series=1, top_k=top_k)


def entry_indexer(rate):
    return EntryIndexer(width=W, heads=4, entry_dim=2 * rate, rate=rate, series=2, query_rank=12)


def attended(mixer, position):
    """The tokens that the one at `position` attends to, as a list. Which ones an indexer picks does not matter."""
    before = list(range(1, position + 1))
    if isinstance(mixer, Compressed):  # each entry is `rate` tokens
        complete = before[: position // mixer.rate * mixer.rate]
        return complete if mixer.top_k is None else complete[-mixer.rate * mixer.top_k :]
    if isinstance(mixer, BlockSparseAttention):
        newest = (position - 1) // mixer.block
        return [token for token in before if (token - 1) // mixer.block > newest - mixer.top_k]
    if getattr(mixer, "window", None):
        return before[-mixer.window :]
    if isinstance(mixer, ChunkedAttention):
        return [token for token in before if (token - 1) // mixer.chunk == (position - 1) // mixer.chunk]
    return before[-mixer.top_k :] if isinstance(mixer, SparseLatentAttention) else before


def read(mixer, cached, new):
    """The cached tokens that a pass reads: those that its tokens attend to, all different where it may be so."""
    if isinstance(mixer, ChunkedAttention) or getattr(mixer, "window", None):
        return sum(token <= cached for token in attended(mixer, cached + 1))
    if isinstance(mixer, (BlockSparseAttention, Compressed)):
        return min(cached, max(0, sum(len(attended(mixer, cached + i)) - 1 for i in range(1, new + 1))))
    return min(cached, new * mixer.top_k) if isinstance(mixer, SparseLatentAttention) else cached


def held(mixer, tokens):
    if isinstance(mixer, SharedCacheAttention):
        return 0
    if isinstance(mixer, Compressed):
        return tokens // mixer.rate * mixer.rate
    return min(tokens, getattr(mixer, "chunk", None) or getattr(mixer, "window", None) or tokens)


def counted(kind, new, cached):
    """(FLOPs, bytes) of one sequence in a pass, token by token. The expanded form of MLA where it is the cheaper."""
    mixer = kind.mixer
    pairs = sum(len(attended(mixer, cached + i)) for i in range(1, new + 1))
    flops = kind.pair_flops * pairs
    if kind.expand_flops:
        expanded = kind.fresh_pair_flops * pairs + kind.expand_flops * read(mixer, cached, new)
        flops = min(flops, expanded) if cached else expanded
    return flops, kind.cache_bytes * (read(mixer, cached, new) + new)


KINDS = [sparse(), sparse(1), sparse(40), chunked(), chunked(1), chunked(40), blocks(4), blocks(1), blocks(16, 2)]
KINDS += [shared(), shared(7), sliding_latent(9), entries(4), entries(1, 3), entries(5, 2), entry_indexer(4)]
LAWS = st.one_of(
    *(st.builds(law, st.integers(1, 70)) for law in (sparse, chunked, shared, sliding_latent, entries)),
    *(st.builds(law, st.integers(1, 30), st.integers(1, 6)) for law in (blocks, entries)),
)
OURS = (Compressed, BlockSparseAttention, ChunkedAttention, MultiHeadLatentAttention, SharedCacheAttention)


# ---- the laws


@given(LAWS, st.integers(0, 200), st.integers(1, 60))
def test_the_closed_sums_are_the_lists(mixer, cached, new):
    spans = [len(attended(mixer, position)) for position in range(cached + 1, cached + new + 1)]
    assert mixer.span_sum(float(cached), float(new)) == sum(spans) == mixer.span_sum(cached, new)
    assert [mixer.span(position) for position in range(cached + 1, cached + new + 1)] == spans
    assert mixer.read(float(cached), float(new)) == read(mixer, cached, new)
    by_step = [read(mixer, cached + k, 1) for k in range(new)]
    assert mixer.read_sum(float(cached), float(new), float(sum(spans))) == sum(by_step)
    tokens = np.arange(0.0, 300.0)
    assert mixer.held(tokens).tolist() == [held(mixer, int(token)) for token in tokens]
    together = mixer.span_sum(tokens, np.full(300, float(new)))
    assert together.tolist() == [mixer.span_sum(token, float(new)) for token in tokens]


def test_the_span_of_a_chunk_is_a_sawtooth():
    assert [chunked(4).span(position) for position in range(1, 11)] == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
    far = 2.0**50
    assert chunked(8192).span_sum(far + 5, 10.0) == sum(range(6, 16))  # exact far out, too


NAMES = ("2 x sparse MLA, top 6", "2 x indexer")


def test_a_sparse_step_reads_the_tokens_that_are_picked_and_scores_all():
    mixer = sparse(top_k=6, index_heads=3, index_dim=5)
    model = assembled("toy", W, 100, ((2, mixer, DENSE),))
    latents, indexer = (pass_cost(server(model), 1, 100, batch=3).roofs[name] for name in NAMES)
    assert latents.flops == 2 * 3 * 6 * (2 * 4 * (24 + 4) + 2 * 4 * 24)
    assert (latents.cache_read, latents.cache_write) == (2 * 3 * 6 * 28 * 2, 2 * 3 * 28 * 2)
    assert indexer.flops == 2 * 3 * 101 * (2 * 3 * 5)
    assert (indexer.cache_read, indexer.cache_write) == (2 * 3 * 100 * 5 * 2, 2 * 3 * 5 * 2)
    assert pass_cost(server(model), 7, 100).roofs["2 x sparse MLA, top 6"].cache_read == 2 * min(100, 7 * 6) * 28 * 2


def test_an_indexer_has_its_weights_and_its_keys_a_dtype_of_their_own():
    """QUIRKS: q_lora x heads x dim + w dim + w heads + 2 dim beyond those of MLA."""
    mixer, plain = sparse(), sparse(index_heads=0, index_dim=0)
    assert plain.in_turn == (plain,) and mixer.in_turn == (mixer, mixer.indexer)
    assert mixer.parameters - plain.parameters == 12 * 3 * 5 + W * 5 + W * 3 + 2 * 5 == mixer.indexer.parameters
    with_it, without = (assembled("toy", W, 100, ((2, kind, DENSE),)) for kind in (mixer, plain))
    assert with_it.parameters - without.parameters == 2 * mixer.indexer.parameters
    assert sum(with_it.weights_by_part.values()) == with_it.parameters
    assert with_it.weights_by_part["other"] - without.weights_by_part["other"] == 2 * 2 * 5
    saved = pass_cost(server(with_it), 1).linear.flops - pass_cost(server(without), 1).linear.flops
    assert saved == 2 * 2 * (12 * 3 * 5 + W * 5 + W * 3)
    for precision, of_latent, of_key in (
        (Precision("bf16"), 2, 2),
        (Precision("bf16", index="fp8"), 2, 1),
        (Precision("bf16", cache="fp8"), 1, 1),
        (Precision("bf16", cache="fp8", index="bf16"), 1, 2),
    ):
        kinds = server(with_it, dtype=precision).sizes.kinds
        assert [kind.cache_bytes for kind in kinds] == [2 * 28 * of_latent, 2 * 5 * of_key]
    assert "index" in str(Precision("bf16", index="fp8")) and "index" not in str(Precision("bf16"))


def deepseek_v32():
    w = 7168
    mixer = SparseLatentAttention(
        width=w,
        heads=128,
        kv_rank=512,
        nope_dim=128,
        rope_dim=64,
        value_dim=128,
        query_rank=1536,
        other_weights=2048,
        top_k=2048,
        index_heads=64,
        index_dim=128,
    )
    experts = MixtureOfExperts(width=w, experts=256, experts_per_token=8, expert_inner=2048, shared_inner=2048)
    return assembled("v3.2", w, 129_280, ((3, mixer, DenseFeedForward(width=w, inner=18_432)), (58, mixer, experts)))


def test_golden_values_of_deepseek_v32_and_glm_5():
    model = deepseek_v32()
    latents, keys = server(model, device()).sizes.kinds
    assert (latents.cache_bytes, keys.cache_bytes) == (70_272, 15_616)
    assert model.cache_bytes(1) == 70_272 + 15_616 == server(model, device()).cache_bytes_per_token
    assert keys.pair_flops == 61 * 16_384 and latents.pair_flops == 61 * 278_528
    assert model.parameters == 671_026_404_352 + 61 * (1536 * 64 * 128 + 7168 * 128 + 7168 * 64 + 2 * 128)
    glm = {"width": 6144, "heads": 64, "kv_rank": 512, "nope_dim": 192, "rope_dim": 64, "value_dim": 256}
    glm_mixer = SparseLatentAttention(**glm, query_rank=2048, top_k=2048, index_heads=32, index_dim=128)
    glm_model = assembled("glm-5", 6144, 154_880, ((78, glm_mixer, DenseFeedForward(width=6144, inner=12_288)),))
    assert [kind.cache_bytes for kind in server(glm_model, device()).sizes.kinds] == [89_856, 19_968]


def test_a_long_sparse_step_is_bound_by_its_indexer():
    """At 128k tokens it reads 2 GB of keys, and the latents only 144 MB: each is under a roof of its own."""
    step = pass_cost(server(deepseek_v32(), device()), 1, 131_072)
    latents, keys = (step.roofs[kind.part] for kind in server(deepseek_v32(), device()).sizes.kinds)
    assert latents.cache_read == 2048 * 70_272 and keys.cache_read == 131_072 * 15_616
    assert latents.bound == keys.bound == "memory" and keys.seconds > 10 * latents.seconds
    assert step.attention.seconds == latents.seconds + keys.seconds


# ---- a request is the plain loop of its passes, by the lists


@given(
    st.lists(LAWS, min_size=1, max_size=3, unique=True),
    st.integers(1, 50),
    st.integers(1, 60),
    st.integers(0, 49),
    st.sampled_from([1e13, 3e10, 1e10, 3e9, 1e8]),
    st.sampled_from([None, 7]),
)
def test_a_request_is_the_plain_loop_of_its_passes(mixers, prompt, output, cached, peak, chunk):
    model = assembled("toy", W, 100, tuple((2 + i, mixer, DENSE) for i, mixer in enumerate(mixers)))
    deployment = server(model, device(bandwidth=1e9, peaks={"bf16": peak}), prefill_chunk=chunk)
    cached = min(cached, prompt - 1)
    cost = request_cost(deployment, Request(prompt, output, cached), 3)
    size = chunk or prompt - cached
    prefill = [(min(size, prompt - start), start) for start in range(cached, prompt, size)]
    for phase, passes in ((cost.prefill, prefill), (cost.decode, [(1, prompt + k) for k in range(output - 1)])):
        for kind in deployment.sizes.kinds if passes else ():
            by_list = [counted(kind, *each) for each in passes]
            found = phase.roofs[kind.part]
            assert found.flops == pytest.approx(3 * math.fsum(flops for flops, _ in by_list), rel=EXACT)
            assert found.bytes == pytest.approx(3 * math.fsum(moved for _, moved in by_list), rel=EXACT)
            both = (max(flops / deployment.peak, moved / deployment.bandwidth) for flops, moved in by_list)
            assert found.seconds == pytest.approx(3 * math.fsum(both), rel=EXACT)
        ends = [new + start >= prompt for new, start in passes]
        loop = [pass_cost(deployment, *each, batch=3, logits=int(end)) for each, end in zip(passes, ends, strict=True)]
        assert phase.seconds == pytest.approx(math.fsum(one.seconds for one in loop), rel=EXACT)
    many = request_cost(deployment, Request([prompt, 1], output, [cached, 0]), 3)
    assert many.seconds[0] == pytest.approx(cost.seconds, rel=EXACT)


@pytest.mark.parametrize("top_k", [1, 5, 30, 31, 60, 61, 100])
def test_near_the_ridge_the_roof_changes_where_all_tokens_are_no_longer_picked(top_k):
    """Up to top_k a step attends to as many tokens as it reads and writes; from there on it moves one more."""
    mixer = sparse(top_k, 0, 0)
    flops, moved = mixer.pair_flops, mixer.cache_elements * 2
    for tilt in (1 - 1e-3, 1 + 1e-3, (top_k + 0.5) / (top_k + 1)):
        tight = device(bandwidth=1e9, peaks={"bf16": 1e9 * flops / moved * tilt})
        deployment = server(assembled("toy", W, 100, ((1, mixer, DENSE),)), tight)
        decode = request_cost(deployment, Request(30, 40)).decode
        loop = [pass_cost(deployment, 1, 30 + k) for k in range(39)]
        assert decode.seconds == pytest.approx(math.fsum(one.seconds for one in loop), rel=EXACT)


def test_an_expanded_prefix_projects_only_what_is_read():
    mixer = sparse(6)
    (kind, _) = server(assembled("toy", W, 100, ((1, mixer, DENSE),))).sizes.kinds
    assert counted(kind, 2, 1000)[0] == min(
        kind.pair_flops * 12, kind.fresh_pair_flops * 12 + kind.expand_flops * min(1000, 12)
    )


# ---- memory, growth and a server


@pytest.mark.parametrize("mixer", [mixer for mixer in KINDS if mixer.held(9.0)], ids=lambda mixer: mixer.label)
def test_memory_and_growth_follow_the_law(mixer):
    deployment = server(assembled("toy", W, 100, ((2, mixer, DENSE),)), device(memory=1e7))
    tokens = np.arange(100)
    found = cache_by_kind(deployment, tokens)
    for one, kernel in zip(found, mixer.in_turn, strict=True):
        assert one.bytes.tolist() == [2 * kernel.cache_elements * 2 * held(kernel, int(n)) for n in tokens]
    at_end, in_the_middle = (
        sum(2 * kernel.cache_elements * 2 * held(kernel, tokens) for kernel in mixer.in_turn) for tokens in (50, 40)
    )
    assert deployment.sequence_bytes(50.0) == at_end
    assert memory_batch(deployment, Request(30, 20)) == int(deployment.memory_free // in_the_middle)


@pytest.mark.parametrize("mixer", KINDS, ids=lambda mixer: mixer.label)
@pytest.mark.parametrize("batch", [7, 64, 200])
def test_the_first_span_at_which_caches_pass_the_weights(mixer, batch):
    assert_first_span([mixer], batch)


@pytest.mark.parametrize("batch", [10, 33, 40, 47, 60, 64, 100])
def test_the_first_span_with_chunks_of_several_sizes(batch):
    """The bytes of a step rise and fall; the first span above the weights is not found by halving alone."""
    assert_first_span([chunked(12), chunked(40), chunked(7), sparse(2, 0, 0)], batch)


def assert_first_span(mixers, batch):
    deployment = server(assembled("toy", W, 100, tuple((2, mixer, DENSE) for mixer in mixers)))
    weights, kinds = pass_cost(deployment, 1, batch=batch).linear.weights, deployment.sizes.kinds
    spans = range(1, 1000)
    moved = (batch * sum(kind.cache_bytes * (read(kind.mixer, s - 1, 1) + 1) for kind in kinds) for s in spans)
    first = next((span for span, moves in zip(spans, moved, strict=False) if moves > weights), None)
    found = span_where_cache_passes_weights(deployment, batch)
    assert found == first or (first is None and (found is None or found >= 1000))


class ByTheList(TokenByToken):
    """The server that goes token by token, with these laws as lists."""

    def law(self, kind, tokens):
        known = isinstance(kind.mixer, OURS)
        return (kind.mixer, held(kind.mixer, tokens)) if known else super().law(kind, tokens)

    def attention(self, kind, new, cached):
        known = isinstance(kind.mixer, (*OURS, Indexer))
        return counted(kind, int(new), int(cached)) if known else super().attention(kind, new, cached)


@pytest.mark.parametrize(
    "mixers",
    [
        [sparse(30)],
        [chunked(30), sparse(50, 0, 0)],
        [blocks(16), sliding_latent(30)],
        [shared(), shared(20)],
        [entries(8), entries(4, 9)],
    ],
    ids=["sparse", "both", "blocks", "shared", "entries"],
)
@pytest.mark.parametrize("prefill", POLICIES)
def test_a_server_is_the_server_that_goes_token_by_token(mixers, prefill):
    full = GroupedQueryAttention(width=W, heads=4, kv_heads=2, head_dim=8)
    model = assembled("toy", W, 100, tuple((2, mixer, DENSE) for mixer in [*mixers, full]))
    deployment = server(model, device(bandwidth=1e9, peaks={"bf16": 3e10}))
    deployment = with_cache_of(deployment, deployment.sequence_bytes(900.0))
    traffic = random_traffic(deployment, 3, 25, 150, load=20.0)
    largest = ByTheList(deployment, traffic, prefill, 7, 0.01).bytes_of(300)
    deployment = with_cache_of(deployment, 2.5 * largest)
    run = simulate(deployment, traffic, prefill, 7, 0.01)
    assert_same(run, ByTheList(deployment, traffic, prefill, 7, 0.01).run())
    assert_conserved(run)


# ---- the dtype of a constant state


@pytest.mark.parametrize(
    "changes, stated",
    [
        ({}, "fp32"),  # as published
        ({"mamba_ssm_dtype": "bfloat16"}, "bf16"),
        ({"mamba_ssm_dtype": None, "mamba_ssm_cache_dtype": "float16"}, "fp16"),
        ({"mamba_ssm_dtype": None}, None),
    ],
)
def test_the_config_says_the_dtype_of_a_state(changes, stated):
    read_ = load_model("qwen3.5-27b").mixer_kinds
    assert {mixer.state_dtype for _, mixer in read_ if mixer.state_elements} == {"fp32"}
    config = json.loads((DATA / "models/qwen3.5-27b.json").read_text())["config"]
    config = config.get("text_config", config) | changes
    model = Model.from_config(config)
    (layers, mixer) = next(kind for kind in model.mixer_kinds if kind[1].state_elements)
    assert mixer.state_dtype == stated
    kind = server(model, device()).sizes.kinds[0]
    of_state = 4 if stated == "fp32" else 2
    assert kind.state_bytes == layers * (of_state * mixer.state_elements + 2 * mixer.conv_elements)
    assert model.state_bytes() == kind.state_bytes
    words = " ".join(request_cost(server(model, device()), Request(9, 9)).assumptions())
    assert f"Constant state: {stated or 'bf16'} ({'by the' if stated else 'the dtype'}" in words


def test_a_dtype_of_a_state_that_is_not_known_is_refused():
    config = json.loads((DATA / "models/qwen3.5-27b.json").read_text())["config"]
    config = config.get("text_config", config) | {"mamba_ssm_dtype": "float12"}
    refuses(lambda: Model.from_config(config), "mamba_ssm_dtype", "float12")


# ---- what is said, and what is refused


def test_each_law_is_said():
    model = assembled("toy", W, 100, ((2, sparse(), DENSE), (1, chunked(), DENSE)))
    assert "2 x sparse MLA, top 6" in repr(model) and "1 x GQA, chunk 6" in repr(model)
    cost = request_cost(server(model), Request(10, 10))
    words = " ".join(cost.assumptions())
    for sentence in ("the most that it can", "reads and scores the key of every token", "within its chunk of 6"):
        assert words.count(sentence) == 1
    assert "2 x indexer" in repr(cost) and "2 x indexer" in cost.equations()
    assert not any("parse" in line or "hunk" in line for line in request_cost(server(), Request(9, 9)).assumptions())


def test_a_shared_cache_is_read_and_never_held():
    mixer, owner = shared(), GroupedQueryAttention(width=W, heads=4, kv_heads=2, head_dim=8)
    assert owner.matmul_weights - mixer.matmul_weights == W * owner.cache_elements  # no W_k, no W_v
    assert mixer.copied_weights(4) == 0 and owner.copied_weights(4) > 0
    model = assembled("toy", W, 100, ((1, owner, DENSE), (3, mixer, DENSE)))
    assert model.cache_bytes(100) == assembled("toy", W, 100, ((1, owner, DENSE),)).cache_bytes(100)
    step = pass_cost(server(model), 1, 50)
    assert step.roofs["3 x GQA, shared cache"].bytes == 3 * step.roofs["1 x GQA"].bytes  # all 51 tokens, in both


def test_compressed_attention_is_its_window_its_entries_and_their_indexer():
    sizes = {"width": W, "heads": 4, "head_dim": 16, "query_rank": 12, "groups": 2, "group_rank": 6, "window": 8}
    window = CompressedAttention(**sizes)
    all_entries = CompressedAttention(**sizes, rate=8)
    picked = CompressedAttention(**sizes, rate=4, top_k=3, index_heads=2, index_dim=8)
    assert window.matmul_weights == W * 12 + 12 * 64 + W * 16 + 64 * 6 + 2 * 6 * W
    assert all_entries.parameters - window.parameters == 2 * W * 16 + 8 * 16 + 16
    indexer = 4 * W * 8 + 12 * 2 * 8 + W * 2 + 2 * 4 * 8 + 8
    assert picked.parameters - window.parameters == 4 * W * 16 + 2 * 4 * 16 + 16 + indexer
    assert [len(mixer.in_turn) for mixer in (window, all_entries, picked)] == [1, 2, 3]
    model = assembled("toy", W, 100, ((1, picked, DENSE),))
    assert model.cache_bytes(103) == 2 * (8 * 16 + 25 * 16 + 25 * 8)  # a window, and 25 entries with a key each
    step = pass_cost(server(model), 1, 103)
    assert step.roofs["1 x entries of 4 tokens, top 3"].flops == 3 * 4 * 4 * 16
    assert step.roofs["1 x indexer of entries"].flops == 26 * 2 * 2 * 8
    assert model.parameters == sum(model.weights_by_part.values())
    refuses(lambda: replace(picked, rate=0), "CompressedAttention: top_k", "3")
    refuses(lambda: replace(picked, groups=3), "CompressedAttention: groups", "3")
    refuses(lambda: Entries(width=W, heads=4, entry_dim=9, rate=2, series=1), "Entries: rate", "2")


def test_one_projection_for_keys_and_values_is_one_matrix_less():
    plain = GroupedQueryAttention(width=W, heads=4, kv_heads=2, head_dim=8)
    once = replace(plain, values_are_keys=True)
    assert plain.matmul_weights - once.matmul_weights == W * 2 * 8
    assert once.cache_elements == plain.cache_elements
    assert once.copied_weights(4) * 2 == plain.copied_weights(4)


def test_convolutions_beside_attention_are_kept_and_have_a_roof_of_their_own():
    attention = GroupedQueryAttention(width=W, heads=4, kv_heads=2, head_dim=8)
    convolutions = Convolutions(width=W, conv_kernel=4, channels=96, state_dtype="fp32")
    assert (convolutions.matmul_weights, convolutions.parameters) == (0, 4 * 96)
    model = assembled("toy", W, 100, ((2, SeveralMixers(width=W, mixers=(attention, convolutions)), DENSE),))
    assert model.state_bytes() == 2 * 96 * 3 * 4  # the last three inputs, in 32 bits
    assert model.cache_bytes(10) == 2 * attention.cache_elements * 10 * 2
    step = pass_cost(server(model), 1, 50, batch=3)
    assert step.roofs["2 x its convolutions"].bytes == 3 * 2 * model.state_bytes()
    assert step.roofs["2 x its convolutions"].flops == 0


def test_what_stands_beside_mixers_is_met_and_stored_as_it_says():
    mixer = GroupedQueryAttention(width=W, heads=4, kv_heads=2, head_dim=8)
    plain = assembled("toy", W, 100, ((2, mixer, DENSE),))
    blocks_ = ((2, replace(plain.blocks[0][1], matrices=7, again=3)),)
    model = replace(plain, blocks=blocks_, matrices=11, layer_tables=13)
    assert (
        model.parameters - plain.parameters
        == 2 * 7 + 11 + 13
        == sum(model.weights_by_part.values()) - sum(plain.weights_by_part.values())
    )
    assert model.block_matmul_weights - plain.block_matmul_weights == 2 * (7 + 3) + 11
    one, other = (pass_cost(server(each), 1).linear for each in (model, plain))
    assert one.flops - other.flops == 2 * (2 * (7 + 3) + 11)
    assert one.weights - other.weights == (2 * 7 + 11) * 2  # a table is looked up, never streamed
    idle = replace(plain, idle_weights=17)
    assert idle.parameters - 17 == idle.active_parameters == plain.parameters == sum(idle.weights_by_part.values()) - 17
    of_idle, of_plain = server(idle), server(plain)
    assert pass_cost(of_idle, 5, 30).seconds == pass_cost(of_plain, 5, 30).seconds
    assert of_idle.sizes.resident_bytes - of_plain.sizes.resident_bytes == 17 * 2


def test_a_layer_in_a_loop_is_stored_once_and_met_cached_and_streamed_each_time():
    mixer = GroupedQueryAttention(width=W, heads=4, kv_heads=2, head_dim=8, other_weights=5)
    once = assembled("toy", W, 100, ((3, mixer, DENSE),))
    looped = replace(once, blocks=((3, replace(once.blocks[0][1], passes=4)),))
    unrolled = replace(once, blocks=((12, once.blocks[0][1]),))
    assert looped.parameters == once.parameters == sum(looped.weights_by_part.values())
    assert looped.cache_bytes(50) == unrolled.cache_bytes(50)
    for precision, devices in ((Precision("bf16"), 1), (Precision("fp8", other="fp32"), 4)):
        of = {
            "accelerator": device(link=1e9, peaks={"bf16": 5e14, "fp8": 1e15}),
            "devices": devices,
            "dtype": precision,
        }
        three, four = server(looped, **of), server(unrolled, **of)
        for request in (Request(30, 20), Request(1, 2)):
            one, other = request_cost(three, request, 3), request_cost(four, request, 3)
            assert one.seconds == pytest.approx(other.seconds, rel=EXACT)
        assert three.sizes.resident_bytes == server(once, **of).sizes.resident_bytes
    experts = MixtureOfExperts(width=W, experts=4, experts_per_token=1, expert_inner=8)
    refuses(lambda: replace(once.blocks[0][1], feedforward=experts, passes=2), "passes", "2")


def test_sizes_that_cannot_be_meant_are_refused():
    refuses(lambda: blocks(0), "BlockSparseAttention: block", "0")
    refuses(lambda: replace(blocks(4), index_heads=3), "BlockSparseAttention: index_heads", "3")
    for mixer in (blocks(4), sparse()):
        refuses(lambda mixer=mixer: replace(mixer, window=8), "window", "8")
    refuses(lambda: sparse(0), "SparseLatentAttention: top_k", "0")
    refuses(lambda: sparse(index_dim=0), "index_dim", "0")
    refuses(lambda: sparse(index_heads=0), "index_dim", "5")
    refuses(lambda: replace(sparse(), query_rank=None), "query_rank", "None")
    refuses(lambda: chunked(0), "ChunkedAttention: chunk", "0")
    refuses(lambda: replace(chunked(), window=4), "window", "4")
