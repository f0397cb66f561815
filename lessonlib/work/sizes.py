"""A model as plain numbers, added up once for a precision and a number of devices: a request then takes microseconds.

Nothing is computed here that the parts do not say; they are only added up over layers and multiplied by bytes. Layers
with the same mixer form one kind: they run one after another, so a kind's time is its layer's time times its layers.
All byte counts are of all devices together, copies included.
"""

import math
from typing import Any, NamedTuple

from lessonlib.base.errors import InvalidInputError
from lessonlib.model.attention import Mixer
from lessonlib.model.draft import DraftHead
from lessonlib.model.model import Model
from lessonlib.model.precision import Precision


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
    all_reduces: int  # of one pass: one for each mixer and each feed-forward
    all_reduce_bytes: float  # sent and received for one token by one device, over the whole pass

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


def sizes_of(model: Model, precision: Precision, devices: int = 1) -> ModelSizes:
    """The model in `precision`, split over `devices` by tensor parallelism.

    Raises InvalidInputError when heads or KV heads cannot be divided over the devices.
    """
    weights = model.weights_by_part
    expert_biases = sum(layers * ffn.experts * ffn.expert_other_weights for layers, ffn in model.expert_kinds)
    of = precision.bytes_of
    block_bytes = weights["blocks"] * of("blocks") + (weights["other"] - expert_biases - model.head_bias) * of("other")
    head_bytes = weights["head"] * of("head") + model.head_bias * of("other")
    experts, expert_weights = [], 0
    for layers, ffn in model.expert_kinds:
        each = ffn.expert_weights * of("experts") + ffn.expert_other_weights * of("other")
        share = ffn.experts_per_token / ffn.experts
        expert_weights += layers * ffn.experts_per_token * ffn.expert_weights
        experts.append(RoutedExperts(layers * ffn.experts * each, math.log1p(-share) if share < 1 else -math.inf))
    kinds = []
    for layers, mixer in ((layers, one) for layers, whole in model.mixer_kinds for one in whole.in_turn):
        if mixer.cache_elements and (mixer.state_elements or mixer.conv_elements):
            raise InvalidInputError(f"{mixer.owner}: it has both a cache and a constant state; make it two mixers.")
        kinds.append(
            LayerKind(
                part=f"{layers} x {mixer.label}",
                label=mixer.label,
                layers=layers,
                mixer=mixer,
                pair_flops=float(layers * mixer.pair_flops),
                fresh_pair_flops=float(layers * mixer.fresh_pair_flops),
                expand_flops=float(layers * mixer.expand_flops),
                token_flops=float(layers * mixer.token_flops),
                cache_bytes=layers * mixer.cache_elements * of("cache") * mixer.cache_copies(devices),
                state_bytes=layers * (4.0 * mixer.state_elements + precision.compute_bytes * mixer.conv_elements),
            )
        )
    all_reduces = sum(count * len(block.parts) for count, block in model.blocks) if devices > 1 else 0
    return ModelSizes(
        token_flops=2.0 * (model.block_matmul_weights - expert_weights),
        expert_flops=2.0 * expert_weights,
        logit_flops=2.0 * model.head_weights,
        block_bytes=block_bytes,
        head_bytes=head_bytes,
        experts=tuple(experts),
        kinds=tuple(kinds),
        resident_bytes=sum(
            (block_bytes, head_bytes, *(e.bytes for e in experts), weights["embedding"] * of("embedding"))
        ),
        all_reduces=all_reduces,
        all_reduce_bytes=all_reduces * 2 * (devices - 1) / devices * model.width * precision.sent_bytes,
    )


def draft_sizes_of(draft: Model | DraftHead, precision: Precision, devices: int = 1) -> ModelSizes:
    """A draft as it runs beside its target, in the same precision on the same devices.

    Of a head, what it shares with the target is read in every draft pass, and lies in memory once, as the target's.
    """
    if isinstance(draft, Model):
        return sizes_of(draft, precision, devices)
    sizes, projection = sizes_of(draft.body, precision, devices), draft.projection * precision.bytes_of("blocks")
    shared = sizes.head_bytes if draft.shares_head else 0.0
    return sizes._replace(
        token_flops=sizes.token_flops + 2.0 * draft.projection,
        block_bytes=sizes.block_bytes + projection,
        resident_bytes=sizes.resident_bytes + projection - shared,
    )
