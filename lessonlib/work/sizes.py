"""A model as plain numbers, added up once for a precision and a number of devices: a request then takes microseconds.

Nothing is computed here that the parts do not say; they are only added up over layers and multiplied by bytes. Layers
with the same mixer form one kind: they run one after another, so a kind's time is its layer's time times its layers.
All byte counts are of all devices together, copies included.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from lessonlib.base.errors import InvalidInputError
from lessonlib.model.attention import Mixer
from lessonlib.model.draft import DraftHead
from lessonlib.model.model import Model
from lessonlib.model.precision import Precision, bytes_of
from lessonlib.work import layouts
from lessonlib.work.layouts import TENSOR


class LayerKind(NamedTuple):
    """All layers with one mixer. FLOPs and bytes are of all these layers together, for one sequence."""

    part: str  # such as "32 x GQA"
    label: str
    layers: int
    mixer: Mixer  # it knows the law of spans: what a token attends to, what a pass reads, what a sequence holds
    pair_flops: float  # a (query, key) pair, on cached tokens
    fresh_pair_flops: float  # the same when nothing is cached
    expand_flops: float  # to re-project one cached token; 0 where there is no such choice
    token_flops: float  # a token, whatever its context (constant state)
    cache_bytes: float  # a cached token
    state_bytes: float  # the constant state once

    def sequence_bytes(self, tokens: Any) -> Any:
        """Cache and constant state that a sequence of `tokens` tokens holds in these layers."""
        return self.cache_bytes * self.mixer.held(tokens) + self.state_bytes


class RoutedExperts(NamedTuple):
    """All layers with one mixture of experts."""

    bytes: float  # every routed expert of these layers, once
    log_idle: float  # ln(1 - k / E): one token leaves a given expert idle with this log-probability


class ModelSizes(NamedTuple):
    """What a pass needs to know of a model."""

    token_flops: float  # of one token in the dense linear layers: 2 P_block, routed experts apart
    expert_flops: float  # of one token in the routed experts that it uses
    logit_flops: float  # 2 V w: the LM head for one position
    block_bytes: float  # weights of the dense linear layers: shared experts, routers, norms and biases among them
    head_bytes: float  # weights of the LM head
    experts: tuple[RoutedExperts, ...]
    kinds: tuple[LayerKind, ...]
    resident_bytes: float  # all weights, as they lie in memory
    collectives: int  # of one pass: all-reduces, or all-to-alls
    collective_bytes: float  # that one device sends for one of its tokens, over the whole pass
    replicas: int  # devices that each serve sequences of their own; 1 where all serve each

    @property
    def dense_bytes(self) -> float:
        """Weights that every pass streams, the head's included, routed experts apart."""
        return self.block_bytes + self.head_bytes

    def sequence_bytes(self, tokens: Any) -> Any:
        """Cache and constant state of one sequence that has `tokens` tokens."""
        total = 0.0 * tokens
        for kind in self.kinds:
            total = total + kind.sequence_bytes(tokens)
        return total


def sizes_of(model: Model, precision: Precision, devices: int = 1, layout: str = TENSOR) -> ModelSizes:
    """The model in `precision` on `devices` in one of LAYOUTS (work/layouts.py): what they hold and do together.

    Raises InvalidInputError when heads or KV heads cannot be divided over a tensor-parallel group.
    """
    weights, of, share = model.weights_by_part, precision.bytes_of, layouts.shares(layout, devices)
    expert_biases = sum(layers * ffn.experts * ffn.expert_other_weights for layers, ffn in model.expert_kinds)
    copied = sum(layers * mixer.copied_weights(share.split) for layers, mixer in model.mixer_kinds)
    mixers = ((layers, block.mixer) for layers, block in model.blocks if block.mixer is not None)
    stored_copies = sum(layers * mixer.copied_weights(share.split) for layers, mixer in mixers)
    routers = (share.split - 1) * sum(layers * ffn.router_weights for layers, ffn in model.expert_kinds)
    other = weights["other"] - expert_biases - model.head_bias + routers
    block_bytes = share.replicas * ((weights["blocks"] + stored_copies) * of("blocks") + other * of("other"))
    again = [more - once for more, once in zip(model.block_weights(streamed=True), model.block_weights(), strict=True)]
    streamed_again = (again[0] + copied - stored_copies - model.idle_weights) * of("blocks") + again[2] * of("other")
    head_bytes = share.replicas * (weights["head"] * of("head") + model.head_bias * of("other"))
    embedding_bytes = share.replicas * weights["embedding"] * of("embedding")
    experts, expert_weights, resident_experts = [], 0, 0.0
    for layers, ffn in model.expert_kinds:
        each = layers * (ffn.expert_weights * of("experts") + ffn.expert_other_weights * of("other"))
        idle = 1 - ffn.experts_per_token / ffn.experts
        expert_weights += layers * ffn.experts_per_token * ffn.expert_weights
        experts.append(RoutedExperts(ffn.experts * each, math.log1p(idle - 1) if idle else -math.inf))
        resident_experts += share.replicas * math.ceil(ffn.experts / share.replicas) * each
    sent = layouts.collectives(layout, devices, model, precision)
    return ModelSizes(
        token_flops=2.0 * (model.block_matmul_weights - expert_weights + copied + routers),
        expert_flops=2.0 * expert_weights,
        logit_flops=2.0 * model.head_weights,
        block_bytes=block_bytes + share.replicas * streamed_again,
        head_bytes=head_bytes,
        experts=tuple(experts),
        kinds=tuple(_kinds(model, precision, share.split)),
        resident_bytes=block_bytes + head_bytes + embedding_bytes + resident_experts,
        collectives=sent.number,
        collective_bytes=sent.bytes,
        replicas=share.replicas,
    )


def _kinds(model: Model, precision: Precision, split: int) -> Iterator[LayerKind]:
    """The layers of each mixer, or of each kernel that runs in turn, with the heads of a layer over `split` devices."""
    for layers, mixer in model.kernel_kinds:
        if mixer.cache_elements and (mixer.state_elements or mixer.conv_elements):
            raise InvalidInputError(f"{mixer.owner}: it has both a cache and a constant state; make it two mixers.")
        state = bytes_of(precision.of_state(mixer.state_dtype)) * mixer.state_elements
        copies = float(layers * (split if mixer.copied_whole else 1))
        cache = layers * mixer.cache_elements * mixer.cache_copies(split)
        yield LayerKind(
            part=f"{layers} x {mixer.label}",
            label=mixer.label,
            layers=layers,
            mixer=mixer,
            pair_flops=copies * mixer.pair_flops,
            fresh_pair_flops=copies * mixer.fresh_pair_flops,
            expand_flops=copies * mixer.expand_flops,
            token_flops=copies * mixer.token_flops,
            cache_bytes=cache * precision.bytes_of(mixer.cache_part),
            state_bytes=layers * (state + precision.compute_bytes * mixer.conv_elements),
        )


def draft_sizes_of(
    draft: Model | DraftHead, precision: Precision, devices: int = 1, layout: str = TENSOR
) -> ModelSizes:
    """A draft as it runs beside its target, in the same precision on the same devices.

    Of a head, what it shares with the target is read in every draft pass, and lies in memory once, as the target's.
    """
    if isinstance(draft, Model):
        return sizes_of(draft, precision, devices, layout)
    sizes = sizes_of(draft.body, precision, devices, layout)
    projection = sizes.replicas * draft.projection * precision.bytes_of("blocks")
    shared = sizes.head_bytes if draft.shares_head else 0.0
    return sizes._replace(
        token_flops=sizes.token_flops + 2.0 * draft.projection,
        block_bytes=sizes.block_bytes + projection,
        resident_bytes=sizes.resident_bytes + projection - shared,
    )
