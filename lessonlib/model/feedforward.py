"""Feed-forwards: the part of a block that works on each token alone, dense or as a mixture of experts.

A gated feed-forward has three matrices (gate, up, down), a plain one two. In a mixture of experts a router sends each
token to `experts_per_token` of `experts`; shared experts see every token. With uniform routing a pass over t tokens
touches E (1 - (1 - k/E)**t) distinct experts: the classic occupancy expectation, so at t = 1 exactly k.

Sources: Shazeer 2020 (arXiv 2002.05202) for the gated form; Jiang et al. 2024 (2401.04088) for the mixture of experts.
"""

# A kind derives what the base gives as a plain zero; nobody can write to either, for the classes are frozen.
# mypy: disable-error-code="override"

from dataclasses import dataclass
from functools import cached_property

from lessonlib.base.checks import wrong
from lessonlib.model.part import Part


class FeedForward(Part):
    """The questions every feed-forward answers. What is about routed experts is zero for a dense one.

    `dense_weights`: matrix weights that every token meets, those of the dense feed-forward or of the shared experts.
    `router_weights`: those of the router. `expert_weights`, `expert_other_weights`: matrix weights and biases of one
    routed expert.
    """

    width: int
    gated: bool

    experts = experts_per_token = router_weights = expert_weights = expert_other_weights = dense_weights = 0

    @property
    def matrices(self) -> int:
        return 3 if self.gated else 2

    @property
    def routed_width(self) -> int:
        """Numbers of a token that a routed expert takes."""
        return self.width

    @cached_property
    def matmul_weights(self) -> int:
        return self.dense_weights + self.router_weights + self.experts_per_token * self.expert_weights

    @cached_property
    def parameters(self) -> int:
        routed = self.experts * (self.expert_weights + self.expert_other_weights)
        return self.dense_weights + self.router_weights + routed + self.other_weights


@dataclass(frozen=True, kw_only=True)
class DenseFeedForward(FeedForward):
    """A plain (2 w inner) or gated (3 w inner) feed-forward; `other_weights` holds its biases.

    `extra_matrix_weights`: those of matrices beside these, such as an adapter of low rank.
    """

    width: int
    inner: int
    gated: bool = True
    extra_matrix_weights: int = 0
    other_weights: int = 0

    @cached_property
    def dense_weights(self) -> int:
        return self.matrices * self.width * self.inner + self.extra_matrix_weights


@dataclass(frozen=True, kw_only=True)
class MixtureOfExperts(FeedForward):
    """Routed experts of `expert_inner`, and shared experts of `shared_inner` in all (0: none).

    `shared_gate` adds one router column for the shared experts. `expert_other_weights` are the biases of one expert,
    `other_weights` those of the router (a correction bias counts only where it is a parameter). `latent`: the width in
    which routed experts work (LatentMoE, Nemotron 3); a projection into it and one back are dense.
    """

    width: int
    experts: int
    experts_per_token: int
    expert_inner: int
    shared_inner: int = 0
    gated: bool = True
    shared_gate: bool = False
    latent: int | None = None
    expert_other_weights: int = 0
    other_weights: int = 0

    def complete(self) -> None:
        if self.experts_per_token > self.experts:
            expected = f"at most the number of experts, {self.experts}"
            raise wrong(self.owner, "experts_per_token", self.experts_per_token, expected)

    @property
    def routed_width(self) -> int:
        return self.latent or self.width

    @cached_property
    def router_weights(self) -> int:
        return self.width * (self.experts + self.shared_gate)

    @cached_property
    def expert_weights(self) -> int:
        return self.matrices * self.routed_width * self.expert_inner

    @cached_property
    def dense_weights(self) -> int:
        return self.width * (self.matrices * self.shared_inner + 2 * (self.latent or 0))
