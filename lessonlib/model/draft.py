"""Drafts: what proposes tokens in speculative decoding, beside a small model of its own.

A draft head reads the hidden states of its target instead of the whole text, so one layer is enough:

    MTP      one more block of the target's last kind, behind a projection of 2 w to w (the token before it and the
             hidden state); embedding and LM head are the target's. Source: DeepSeek-V3, arXiv 2412.19437
    EAGLE-3  a projection of three hidden states, 3 w to w, one layer whose queries, keys and values read 2 w numbers,
             and a small LM head of its own; the embedding is the target's. Source: Li et al., arXiv 2503.01840
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from lessonlib.base.checks import Checked, a, checked, count, flag
from lessonlib.model.attention import GroupedQueryAttention
from lessonlib.model.block import Block
from lessonlib.model.feedforward import DenseFeedForward
from lessonlib.model.model import Model

FREE_DRAFTS = "free"  # drafts that take no time: a limit that no draft reaches, and never a lever to be ranked


@dataclass(frozen=True, kw_only=True)
class DraftHead(Checked):
    """A head that drafts from its target's hidden states. It has the target's embedding, and none of its own.

    `body`: its layers, norms and LM head, as a model of the target's width. `projection`: matrix weights that bring the
    hidden states in, beside those of the body; every draft pass is taken to use them. `shares_head`: the body's LM head
    is the target's, read in every draft pass but not stored twice.
    """

    body: Model
    projection: int
    shares_head: bool = False

    rules: ClassVar = {"body": a(Model), "projection": count(0), "shares_head": flag()}

    @property
    def name(self) -> str:
        return self.body.name

    @property
    def max_positions(self) -> int | None:
        return self.body.max_positions

    @property
    def parameters(self) -> int:
        """What it stores beside its target."""
        shared = self.body.head_weights if self.shares_head else 0
        return self.body.parameters + self.projection - shared

    @classmethod
    def mtp(cls, target: Model) -> Self:
        """The multi-token-prediction head of `target`, as DeepSeek-V3 has one; more drafts a round use it again.

        It has a block like the target's last one; where that is a mixer or a feed-forward alone, one of each (as in
        Nemotron 3).
        """
        target = a(Model, "load_model('deepseek-v3')")("DraftHead.mtp", "target", target)
        found = [replace(block, borrowed_weights=0) for _, block in target.blocks]
        if len(found[-1].parts) == 1:
            alone = [block for block in found if block.feedforward is None], [b for b in found if b.mixer is None]
            found = [some[-1] for some in alone if some]
        else:
            found = found[-1:]
        body = Model(
            name=f"MTP head of {target.name}",
            width=target.width,
            vocabulary=target.vocabulary,
            blocks=tuple((1, block) for block in found),
            tied_embeddings=True,
            max_positions=target.max_positions,
            other_weights=3 * target.width,  # norms of the token, of the hidden state, and before the head
        )
        return cls(body=body, projection=2 * target.width * target.width, shares_head=True)

    @classmethod
    def from_config(cls, config: dict[str, Any], name: str = "EAGLE-3 head") -> Self:
        """The EAGLE-3 head that a config.json describes, the parsed dict.

        Raises UnsupportedModelError for a draft of another kind, InvalidInputError for a value that cannot be meant.
        """
        from lessonlib.model.config.drafts import eagle3_sizes

        return cls.eagle3(**eagle3_sizes(config), name=name)

    @classmethod
    @checked(**dict.fromkeys(("width", "inner", "heads", "kv_heads", "head_dim", "vocabulary"), count()))
    def eagle3(
        cls,
        width: int,
        inner: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        vocabulary: int = 32_000,
        max_positions: int | None = None,
        name: str = "EAGLE-3 head",
    ) -> Self:
        """An EAGLE-3 head for a target of `width`; `vocabulary` is the small one that it drafts in."""
        mixer = GroupedQueryAttention(width=width, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
        body = Model(
            name=name,
            width=width,
            vocabulary=vocabulary,
            blocks=((1, Block(mixer, DenseFeedForward(width=width, inner=inner), norm_weights=3 * width)),),
            tied_embeddings=True,
            max_positions=max_positions,
            other_weights=width,
        )
        second_half = width * (heads + 2 * kv_heads) * head_dim  # of what queries, keys and values read
        return cls(body=body, projection=3 * width * width + second_half)
