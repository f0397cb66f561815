"""How several devices share one model: what each of them holds, and what they send to each other.

    tensor   each layer is split over all N devices: heads, matrices, experts, vocabulary. What heads share lies on each
             device: KV heads beyond their number with W_k and W_v, MLA's latent and its down-projections, routers, an
             indexer. Two ring all-reduces a layer, one for each mixer and each feed-forward: 2 (N - 1) / N w numbers
             for a token.
    expert   data-parallel attention and expert parallelism: each device serves ceil(b / N) sequences with weights of
             its own for all but the routed experts, of which it has E / N. Each layer with experts sends a token to
             the devices that hold its k experts, and their results back: w numbers each way for each other device, of
             which (N - 1) (1 - C(E - E / N, k) / C(E, k)) are expected, k distinct experts being picked uniformly.

Sources: Shoeybi et al. 2019 (arXiv 1909.08053); DeepSeek-AI 2024 (2412.19437), section 3.4, for the second.
"""

from typing import NamedTuple

from lessonlib.model.model import Model
from lessonlib.model.precision import Precision

TENSOR, EXPERT = "tensor", "expert"
LAYOUTS = {
    TENSOR: "tensor parallelism",
    EXPERT: "data-parallel attention with expert parallelism",
}
SENT = {TENSOR: "all-reduces", EXPERT: "all-to-alls"}


class Shares(NamedTuple):
    """Devices that a layer is split over, and devices that each have a whole one, routed experts apart."""

    split: int
    replicas: int


def shares(layout: str, devices: int) -> Shares:
    return Shares(devices, 1) if layout == TENSOR else Shares(1, devices)


class Collectives(NamedTuple):
    """Of one pass: the number of them, and the bytes that one device sends for one of its tokens."""

    number: int
    bytes: float


def collectives(layout: str, devices: int, model: Model, precision: Precision) -> Collectives:
    """All-reduces of tensor parallelism, or dispatches and combines of expert parallelism; none on one device."""
    if devices == 1:
        return Collectives(0, 0.0)
    if layout == TENSOR:
        count = sum(layers * block.passes * len(block.parts) for layers, block in model.blocks)
        return Collectives(count, count * 2 * (devices - 1) / devices * model.width * precision.sent_bytes)
    count, sent = 0, 0.0
    for layers, ffn in model.expert_kinds:
        count += 2 * layers
        numbers = layers * ffn.routed_width * other_devices(devices, ffn.experts, ffn.experts_per_token)
        sent += numbers * (precision.dispatched_bytes + precision.sent_bytes)
    return Collectives(count, sent)


def other_devices(devices: int, experts: int, picked: int) -> float:
    """Expected number of the other devices that hold one of the `picked` distinct experts of a token."""
    none = 1.0  # the chance that a device, with experts / devices of them, holds none
    for i in range(picked):
        none *= max(0.0, experts - experts / devices - i) / (experts - i)
    return (devices - 1) * (1 - none)
