"""Sparse attention: every token is kept, an indexer scores all of them, and each query attends to the best few.

Source: DeepSeek-AI 2025, DeepSeek-V3.2 (arXiv 2512.02556); GLM-5 has the same layer.
"""

# A kind derives what the base gives as a plain zero; nobody can write to either, for the classes are frozen.
# mypy: disable-error-code="override,assignment"

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lessonlib.base.checks import wrong
from lessonlib.base.elementwise import floor, maximum, minimum
from lessonlib.model.attention import (
    Followed,
    GroupedQueryAttention,
    Mixer,
    MultiHeadLatentAttention,
    below,
    spans_up_to,
)


@dataclass(frozen=True, kw_only=True)
class Indexer(Mixer):
    """Scores every token for every query: `heads` queries of `key_dim` against one small key that each token keeps.

    FLOP a pair: 2 h_I d_I. Its keys may have a dtype of their own, Precision's `index`. Its queries come from MLA's
    query latent of `query_rank`. Weights: r_q h_I d_I + w d_I + w h_I, and 2 d_I of the norm of its key.
    """

    width: int
    heads: int
    key_dim: int
    query_rank: int

    label, fills_at, cache_part, copied_whole = "indexer", math.inf, "index", True

    @cached_property
    def matmul_weights(self) -> int:
        return self.query_rank * self.heads * self.key_dim + self.width * (self.key_dim + self.heads)

    @cached_property
    def other_weights(self) -> int:
        return 2 * self.key_dim

    @cached_property
    def cache_elements(self) -> int:
        return self.key_dim

    @cached_property
    def pair_flops(self) -> int:
        return 2 * self.heads * self.key_dim

    def cache_copies(self, devices: int) -> float:
        return float(devices)  # every device picks the same tokens, so each keeps all keys

    def copied_weights(self, devices: int) -> float:
        return (devices - 1.0) * self.matmul_weights


@dataclass(frozen=True, kw_only=True)
class BlockIndexer(Indexer):
    """That of MiniMax M3: queries from the layer's input, w h_I d_I, no weights of heads, norms of query and key."""

    @cached_property
    def matmul_weights(self) -> int:
        return self.width * self.key_dim * (self.heads + 1)


@dataclass(frozen=True, kw_only=True)
class SparseLatentAttention(Followed, MultiHeadLatentAttention):
    """MLA whose queries attend to the `top_k` tokens that an indexer picks, of all that are kept.

        span(p) = min(p, top_k)
        read(c, n) = min(c, n top_k) latents: a step's exactly, of more tokens the most, as if no two picked the same

    `index_heads` and `index_dim` are the indexer's; 0 where a layer takes over the tokens that another one picked.
    """

    top_k: int
    index_heads: int = 0
    index_dim: int = 0

    fills_at = None

    def complete(self) -> None:
        if self.window is not None:
            raise wrong(self.owner, "window", self.window, "None: an indexer picks from all tokens")
        if bool(self.index_heads) != bool(self.index_dim):
            expected = "at least 1, as index_heads is" if self.index_heads else "0, as index_heads is"
            raise wrong(self.owner, "index_dim", self.index_dim, expected)
        if self.index_heads and self.query_rank is None:
            raise wrong(self.owner, "query_rank", None, "a rank, as the indexer's queries come from the query latent")

    @cached_property
    def label(self) -> str:
        return f"sparse MLA, top {self.top_k:,}" + ("" if self.index_heads else ", picked before")

    @property
    def note(self) -> str:
        return (
            f"Sparse attention: all latents are kept, {self.top_k:,} attended to; a pass of n tokens is taken to read "
            "n times as many, the most that it can. The indexer reads and scores the key of every token."
        )

    @property
    def follower(self) -> Indexer | None:
        return self.indexer

    @cached_property
    def indexer(self) -> Indexer | None:
        if not self.index_heads or self.query_rank is None:
            return None
        sizes = {"heads": self.index_heads, "key_dim": self.index_dim, "query_rank": self.query_rank}
        return Indexer(width=self.width, **sizes)

    def span_sum(self, cached: Any, new: Any) -> Any:
        return spans_up_to(self.top_k, cached, new)

    def read(self, cached: Any, new: Any) -> Any:
        return minimum(cached, new * self.top_k)

    def read_sum(self, cached: Any, steps: Any, spans: Any) -> Any:
        """Up to `top_k` a step reads all that is cached, its span less itself; from there on its whole span."""
        return spans - below(self.top_k, cached, steps)

    def stretches(self, cached: Any, steps: Any) -> tuple[tuple[Any, Any], ...]:
        """Up to `top_k` a step moves its span; from there on it moves one token more, the one that it writes."""
        growing = below(self.top_k, cached, steps)
        return (cached, growing), (cached + growing, steps - growing)


@dataclass(frozen=True, kw_only=True)
class BlockSparseAttention(Followed, GroupedQueryAttention):
    """GQA to the `top_k` blocks of `block` tokens that an indexer picks for each query (MiniMax M3).

    A block's score is that of its best key; the query's own block is always among those picked. So of the b blocks that
    there are a query sees the newest, as far as it is filled, and others whole:

        span(p) = p - block x max(0, b - top_k), b = ceil(p / block)
        read(c, n) <= the n spans without the tokens themselves: a step's exactly, of more tokens the most that it can

    Each KV head picks for itself. Source: the class MiniMaxM3VLIndexer of transformers 5.24.
    """

    top_k: int
    block: int
    index_heads: int
    index_dim: int

    fills_at = None

    @property
    def period(self) -> int:
        return self.block

    def complete(self) -> None:
        super().complete()
        if self.window is not None:
            raise wrong(self.owner, "window", self.window, "None: an indexer picks from all tokens")
        if self.kv_heads % self.index_heads:
            raise wrong(self.owner, "index_heads", self.index_heads, f"a divisor of the {self.kv_heads} KV heads")

    @cached_property
    def label(self) -> str:
        return f"sparse {super().label}, top {self.top_k:,} blocks of {self.block:,}"

    @property
    def note(self) -> str:
        return (
            f"Block-sparse attention: all tokens are kept, {self.top_k:,} blocks of {self.block:,} attended to; a pass "
            "of n tokens is taken to read each of its picks anew. The indexer reads and scores the key of every token."
        )

    @cached_property
    def follower(self) -> Indexer:
        return BlockIndexer(width=self.width, heads=self.index_heads, key_dim=self.index_dim, query_rank=self.width)

    def span_sum(self, cached: Any, new: Any) -> Any:
        return super().span_sum(cached, new) - self.block * (self._unseen(cached + new) - self._unseen(cached))

    def _unseen(self, tokens: Any) -> Any:
        """The blocks that the first `tokens` tokens do not see, summed over them: 1, 2, ... of each later block."""
        whole, rest = floor(tokens / self.block), tokens % self.block
        past = maximum(whole - self.top_k, 0.0)
        return self.block * past * (past + 1) / 2 + rest * maximum(whole + 1 - self.top_k, 0.0)

    def read(self, cached: Any, new: Any) -> Any:
        return minimum(cached, self.span_sum(cached, new) - new)
