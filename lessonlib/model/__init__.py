"""A decoder as counts: parts, blocks, the whole, and the precision of its numbers. No hardware, no time."""

from typing import TYPE_CHECKING

from lessonlib.base.door import opened

if TYPE_CHECKING:
    from lessonlib.model.attention import (
        ChunkedAttention,
        GroupedQueryAttention,
        Mixer,
        MultiHeadLatentAttention,
        SharedCacheAttention,
    )
    from lessonlib.model.block import Block
    from lessonlib.model.compressed import CompressedAttention
    from lessonlib.model.draft import FREE_DRAFTS, DraftHead
    from lessonlib.model.feedforward import DenseFeedForward, FeedForward, MixtureOfExperts
    from lessonlib.model.hybrid import DifferentialAttention, SeveralMixers, SharedBlockAttention
    from lessonlib.model.model import Model
    from lessonlib.model.part import Part
    from lessonlib.model.precision import Precision
    from lessonlib.model.recurrent import GatedLinearRecurrence, LightningAttention, MatrixLstm, Rwkv4
    from lessonlib.model.sparse import BlockSparseAttention, Indexer, SparseLatentAttention
    from lessonlib.model.state import ConstantState, GatedDeltaNet, KimiDeltaAttention, Mamba1, Mamba2, ShortConvolution
else:
    __getattr__, __dir__ = opened(__name__)
