"""Models with every law of spans, of a size that fills a device, and devices of one's own, for the explorers' tests."""

from functools import cache

import frozen_models
from helpers import assembled

from lessonlib.model.attention import (
    ChunkedAttention,
    GroupedQueryAttention,
    MultiHeadLatentAttention,
    SharedCacheAttention,
)
from lessonlib.model.block import Block
from lessonlib.model.compressed import CompressedAttention
from lessonlib.model.feedforward import DenseFeedForward, MixtureOfExperts
from lessonlib.model.hybrid import DifferentialAttention, SeveralMixers, SharedBlockAttention
from lessonlib.model.model import Model
from lessonlib.model.recurrent import GatedLinearRecurrence, LightningAttention, MatrixLstm, Rwkv4
from lessonlib.model.sparse import BlockSparseAttention, SparseLatentAttention
from lessonlib.model.state import Convolutions, GatedDeltaNet, Mamba2
from lessonlib.time.accelerator import Accelerator

W = 512
HEADS = {"width": W, "heads": 16, "kv_heads": 4, "head_dim": 64}
MLA = {"width": W, "heads": 16, "kv_rank": 96, "nope_dim": 32, "rope_dim": 16, "value_dim": 48, "query_rank": 64}
DENSE = DenseFeedForward(width=W, inner=1536)
MOE = MixtureOfExperts(width=W, experts=24, experts_per_token=3, expert_inner=256, shared_inner=128, latent=96)
COMPRESSED = {"width": W, "heads": 16, "head_dim": 64, "query_rank": 48, "groups": 4, "group_rank": 32, "window": 100}
GQA = GroupedQueryAttention(**HEADS)


def _stack(name: str, *mixers, ffn=DENSE, **changes) -> Model:
    return assembled(name, W, 8000, tuple((layers, mixer, ffn) for layers, mixer in mixers), **changes)


@cache
def own_models() -> tuple[Model, ...]:
    chunked = (ChunkedAttention(**HEADS, chunk=chunk) for chunk in (96, 1000))
    blocks = BlockSparseAttention(**HEADS, top_k=5, block=64, index_heads=2, index_dim=32)
    sparse = SparseLatentAttention(**MLA, top_k=300, index_heads=8, index_dim=32)
    picked = SparseLatentAttention(**MLA, top_k=300)
    windowed = GroupedQueryAttention(**HEADS, window=200)
    entries = CompressedAttention(**COMPRESSED, rate=16)
    best = CompressedAttention(**COMPRESSED, rate=4, top_k=40, index_heads=4, index_dim=16)
    shared = (SharedCacheAttention(**HEADS, window=window) for window in (None, 200))
    side_by_side = SeveralMixers(width=W, mixers=(GQA, Mamba2(width=W, heads=8, head_dim=64, groups=1, state_size=64)))
    latent = SeveralMixers(width=W, mixers=(sparse, Convolutions(width=W, channels=96, conv_kernel=4)))
    states = (
        LightningAttention(width=W, heads=8, head_dim=64),
        MatrixLstm(width=W, heads=8, key_dim=32, value_dim=64, state_dtype="fp32"),
        GatedLinearRecurrence(width=W, heads=8, inner=256, conv_kernel=4),
        Rwkv4(width=W, inner=512),
        GatedDeltaNet(width=W, key_heads=8, value_heads=16, key_dim=32, value_dim=32, conv_kernel=4),
    )
    twice = Block(GQA, DENSE, norm_weights=2 * W, matrices=W * 8, again=W, passes=2)
    borrows = Block(GQA, DENSE, norm_weights=2 * W, borrowed_weights=W * W)
    looped = Model(
        name="passes twice", width=W, vocabulary=8000, blocks=((6, twice), (4, borrows)), matrices=77,
        idle_weights=4000, position_weights=900, layer_tables=300, head_bias=8000, max_positions=4096,
    )  # fmt: skip
    return (
        _stack("chunks", *((6, mixer) for mixer in chunked), (2, GQA), max_positions=50_000),
        _stack("blocks", (8, blocks), (4, GQA), ffn=MOE, max_positions=50_000),
        _stack("sparse latents", (3, sparse), (9, picked), max_positions=50_000),
        _stack(
            "entries", (2, CompressedAttention(**COMPRESSED)), (5, entries), (5, best), ffn=MOE, max_positions=50_000
        ),
        _stack("shared caches", (2, GQA), (2, windowed), *((4, mixer) for mixer in shared), max_positions=50_000),
        _stack("side by side", (6, side_by_side), (3, latent), max_positions=50_000),
        _stack("shared block", (5, SharedBlockAttention(**HEADS, adapter_rank=8)), (5, DifferentialAttention(**HEADS))),
        _stack(
            "states \u202e\x1b[1m\n\U000e0001", *((3, mixer) for mixer in states), (1, windowed), max_positions=50_000
        ),
        _stack(
            "windowed latents", (4, MultiHeadLatentAttention(**MLA, window=500)), (4, MultiHeadLatentAttention(**MLA))
        ),
        looped,
        *(make() for make in frozen_models.ODD.values()),
    )


@cache
def own_accelerators() -> tuple[Accelerator, ...]:
    return (
        Accelerator(name="small 'one'", memory=2e8, bandwidth=5e10, peaks={"bf16": 2e12, "fp8": 5e12}, link=1e9),
        Accelerator(name='alone \\ \u2028\t\x7f"it\'s"', memory=1e9, bandwidth=1e12, peaks={"fp16": 1e13}),
        Accelerator(
            name="wide", memory=1e14, bandwidth=2e12, peaks={"fp32": 1e13, "bf16": 1e14, "fp4": 1e15}, link=4e11
        ),
    )
