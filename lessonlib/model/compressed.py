"""Compressed attention (DeepSeek-V4): a window of tokens as they are, and entries that stand for several tokens each.

One entry stands for `rate` tokens, as soon as there are as many. Laws here count tokens, so that an entry is `rate` of
them, and what a token caches or costs is its share of an entry.

Source: DeepSeek-AI 2026, DeepSeek-V4, sections 2.2 and 2.3, as the classes of transformers 5.24 have it.
"""

# A kind derives what the base gives as a plain zero; nobody can write to either, for the classes are frozen.
# mypy: disable-error-code="override,assignment"

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lessonlib.base.checks import wrong
from lessonlib.base.elementwise import floor, maximum, minimum
from lessonlib.model.attention import Mixer, Windowed, below


class Compressed(Mixer):
    """The law of entries: of p tokens there are floor(p / rate), and a query attends to the best `top_k` of them.

        span(p) = min(rate floor(p / rate), rate top_k), in tokens
        read(c, n) <= the n spans without a token each, and c at the most: a step that ends an entry reads it, too

    `entry_dim` numbers an entry, in `series` overlapping series that are projected and gated, and 2 FLOP for each of
    `products` numbers a pair. Fewer than `rate` tokens that wait to be compressed are left out.
    """

    width: int
    heads: int
    entry_dim: int
    rate: int
    top_k: int | None
    series: int
    products: int

    fills_at = None

    def complete(self) -> None:
        if self.entry_dim % self.rate:
            raise wrong(self.owner, "rate", self.rate, f"a divisor of the {self.entry_dim} numbers of an entry")

    @cached_property
    def matmul_weights(self) -> int:
        return 2 * self.width * self.series * self.entry_dim

    @cached_property
    def other_weights(self) -> int:
        return self.rate * self.series * self.entry_dim + self.entry_dim

    @cached_property
    def cache_elements(self) -> int:
        return self.entry_dim // self.rate

    @cached_property
    def pair_flops(self) -> int:
        return 2 * self.products * self.entry_dim // self.rate

    def _spans(self, tokens: Any) -> Any:
        """The spans of the first `tokens` tokens, summed."""
        limit = math.inf if self.top_k is None else float(self.rate * self.top_k)
        growing = minimum(tokens, limit - 1)
        whole = floor(growing / self.rate)
        rest = growing - whole * self.rate
        total = self.rate**2 * whole * (whole - 1) / 2 + self.rate * whole * (rest + 1)
        return total if self.top_k is None else total + maximum(tokens - limit + 1, 0.0) * limit

    def span_sum(self, cached: Any, new: Any) -> Any:
        return self._spans(cached + new) - self._spans(cached)

    def read(self, cached: Any, new: Any) -> Any:
        return minimum(cached, maximum(self.span_sum(cached, new) - new, 0.0))

    def read_sum(self, cached: Any, steps: Any, spans: Any) -> Any:
        return spans - (steps - below(self.rate - 1, cached, steps))

    def stretches(self, cached: Any, steps: Any) -> tuple[tuple[Any, Any], ...]:
        """Before there is an entry a step only writes; from there on it moves its span."""
        before = below(self.rate - 1, cached, steps)
        return (cached, before), (cached + before, steps - before)

    def held(self, tokens: Any) -> Any:
        return self.rate * floor(tokens / self.rate)

    def cache_copies(self, devices: int) -> float:
        return float(devices)  # one entry for all heads, so every device holds it

    def copied_weights(self, devices: int) -> float:
        return (devices - 1.0) * self.matmul_weights


@dataclass(frozen=True, kw_only=True)
class Entries(Compressed):
    """Entries that are keys and values in one, for all heads: 4 h d FLOP each."""

    width: int
    heads: int
    entry_dim: int
    rate: int
    series: int
    top_k: int | None = None

    @property
    def products(self) -> int:
        return 2 * self.heads

    @cached_property
    def label(self) -> str:
        return f"entries of {self.rate:,} tokens" + ("" if self.top_k is None else f", top {self.top_k:,}")


@dataclass(frozen=True, kw_only=True)
class EntryIndexer(Compressed):
    """The indexer that picks them: queries of `heads` x `entry_dim` score small keys, one an entry.

    It projects its queries from the query latent, r_q h_I d_I, and weighs the heads, w h_I, and compresses its keys.
    """

    width: int
    heads: int
    entry_dim: int
    rate: int
    series: int
    query_rank: int

    label, cache_part, copied_whole, top_k = "indexer of entries", "index", True, None

    @property
    def products(self) -> int:
        return self.heads

    @cached_property
    def matmul_weights(self) -> int:
        return super().matmul_weights + self.heads * (self.query_rank * self.entry_dim + self.width)


@dataclass(frozen=True, kw_only=True)
class CompressedAttention(Windowed):
    """Attention to a window of tokens, one key that is its value for all heads, and to entries before it.

    `rate` 0: the window alone. `top_k` entries are picked by an indexer of `index_heads` x `index_dim`; None: all are
    attended to. Queries have a rank, and so has the output, in `groups` of heads. Weights:
    w r_q + r_q h d + w d + h d r_o + groups r_o w, and those of the entries and of the indexer.
    """

    width: int
    heads: int
    head_dim: int
    query_rank: int
    groups: int
    group_rank: int
    window: int | None
    rate: int = 0
    top_k: int | None = None
    index_heads: int = 0
    index_dim: int = 0
    other_weights: int = 0

    def complete(self) -> None:
        if self.heads % self.groups:
            raise wrong(self.owner, "groups", self.groups, f"a divisor of the {self.heads} heads")
        if (self.top_k is None) != (self.index_heads * self.index_dim == 0) or (self.top_k and not self.rate):
            raise wrong(self.owner, "top_k", self.top_k, "a number with an indexer and a rate, None without")
        _ = self.in_turn  # each checks itself

    @cached_property
    def label(self) -> str:
        kind = self.windowed("MQA, K = V")
        return f"{kind}, entries of {self.rate:,}" if self.rate else kind

    @property
    def note(self) -> str:
        said = "Compressed attention: a window of tokens as they are"
        if not self.rate:
            return f"{said}, each a key that is its value, too."
        which = "all" if self.top_k is None else f"the best {self.top_k:,}"
        return (
            f"{said}, and {which} of the entries of {self.rate:,} tokens; up to {self.rate - 1:,} tokens that wait "
            "to be compressed are left out."
        )

    @cached_property
    def in_turn(self) -> tuple[Mixer, ...]:
        if not self.rate:
            return (self,)
        series = 1 if self.top_k is None else 2
        same = {"width": self.width, "rate": self.rate, "series": series}
        entries = Entries(heads=self.heads, entry_dim=self.head_dim, top_k=self.top_k, **same)
        if self.top_k is None:
            return self, entries
        sizes = {"heads": self.index_heads, "entry_dim": self.index_dim, "query_rank": self.query_rank}
        return self, entries, EntryIndexer(**same, **sizes)

    @cached_property
    def matmul_weights(self) -> int:
        inner, output = self.heads * self.head_dim, self.groups * self.group_rank
        own = self.query_rank * (self.width + inner) + self.width * self.head_dim
        own += inner * self.group_rank + output * self.width
        return own + sum(mixer.matmul_weights for mixer in self.in_turn[1:])

    @cached_property
    def parameters(self) -> int:
        return self.matmul_weights + self.other_weights + sum(mixer.other_weights for mixer in self.in_turn[1:])

    @cached_property
    def cache_elements(self) -> int:
        return self.head_dim

    @cached_property
    def pair_flops(self) -> int:
        return 4 * self.heads * self.head_dim

    def cache_copies(self, devices: int) -> float:
        super().cache_copies(devices)
        return float(devices)

    def copied_weights(self, devices: int) -> float:
        """The projections of the key and of the query's latent, and those of the entries and of the indexer."""
        own = (devices - 1.0) * self.width * (self.head_dim + self.query_rank)
        return own + sum(mixer.copied_weights(devices) for mixer in self.in_turn[1:])
