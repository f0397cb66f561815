"""What fits in a deployment's memory, and what would where it does not.

    needed    = weights + batch x (cache and state of prompt + output tokens)
    available = memory fraction x devices x memory of a device

Memory is reserved for prompt + output tokens. Activations and the engine's own buffers live in the rest, 10 % by
default.
"""

import math
from dataclasses import replace
from typing import Any

from lessonlib.base.checks import checked, count
from lessonlib.base.errors import MOST_TOKENS, DoesNotFitError, InvalidInputError, LessonError
from lessonlib.base.units import format_bytes
from lessonlib.work.layouts import TENSOR

MOST_DEVICES = 1024  # of one group that a remedy may name
SMALLER: dict[str, dict[str, Any]] = {  # a precision that may fit, in words, and what it changes of another
    "an fp8 cache": {"cache": "fp8"},
    "fp8 weights": {"blocks": "fp8", "experts": "fp8"},
    "int4 weights": {"blocks": "int4", "experts": "int4"},
    "int4 weights and an fp8 cache": {"blocks": "int4", "experts": "int4", "cache": "fp8"},
}


@checked(tokens=count())
def largest_batch(deployment: Any, tokens: int) -> int:
    """The largest batch of sequences that hold `tokens` tokens each; 0 when not even one fits. Deployment's method.

    `policy.memory_batch` says how many are under way at a time on a full server, of one request or of a mix.
    """
    if deployment.memory_free <= 0:
        return 0
    model, each = deployment.model, deployment.sequence_bytes(float(tokens))
    if not each:
        raise InvalidInputError(f"largest_batch: {model.name} keeps neither cache nor state; any batch fits.")
    batch = math.floor(min(deployment.memory_free / each, MOST_TOKENS))
    if batch == MOST_TOKENS:  # floats count no further, and no batch is taken beyond
        return batch
    while deployment.memory_needed(float(tokens), batch + 1) <= deployment.memory_available:
        batch += 1
    while batch and deployment.memory_needed(float(tokens), batch) > deployment.memory_available:
        batch -= 1
    return batch


@checked(tokens=count(), batch=count())
def require_fit(deployment: Any, tokens: int, batch: int = 1) -> None:
    """Raise DoesNotFitError, with the smallest changes that fit, unless `batch` sequences of `tokens` tokens fit."""
    needed = deployment.memory_needed(float(tokens), batch)
    if needed <= deployment.memory_available:
        return
    remedies = tuple(_remedies(deployment, tokens, batch))
    nothing = "no dtype does, and there is no link figure to join more devices"
    if deployment.link_rate is not None:
        nothing = f"no dtype and no number of these devices up to {MOST_DEVICES:,} does"
    weights, available = deployment.weight_bytes, deployment.memory_available
    message = (
        f"{deployment.model.name} with {batch:,} x {tokens:,} tokens on {deployment.devices} x "
        f"{deployment.accelerator.name}{deployment.layout_in_words} needs {format_bytes(needed)} (weights "
        f"{format_bytes(weights)}, cache {format_bytes(needed - weights)}); available are {format_bytes(available)} "
        f"({deployment.memory_fraction:.0%} of the memory). What would fit: {'; or '.join(remedies) or nothing}."
    )
    raise DoesNotFitError(message, needed, available, remedies)


def _remedies(deployment: Any, tokens: int, batch: int) -> list[str]:
    """The smallest change of each kind that fits: batch, precision, devices."""
    found = []
    if largest := largest_batch(deployment, tokens):
        found.append(f"batch={largest}")
    for words, change in SMALLER.items():
        smaller = replace(deployment, precision=replace(deployment.precision, **change))
        if smaller.memory_needed(float(tokens), batch) <= deployment.memory_available:
            found.append(words)
            break
    if deployment.link_rate is not None:
        found += _more_devices(deployment, tokens, batch, alone=not found)
    return found


def _more_devices(deployment: Any, tokens: int, batch: int, alone: bool) -> list[str]:
    """The fewest devices that hold the batch; failing that, if `alone`, the fewest that hold a smaller one."""
    each = deployment.memory_fraction * deployment.accelerator.memory
    fewest = deployment.devices
    if deployment.layout == TENSOR:  # where more devices never need fewer bytes
        most = each * MOST_DEVICES  # beyond which none is tried
        needed = deployment.memory_needed(float(tokens), batch)
        fewest = math.ceil(needed / each) if needed <= most else MOST_DEVICES + 1
    second: list[str] = []
    for devices in range(deployment.devices + 1, MOST_DEVICES + 1):
        if devices < fewest and (second or batch == 1 or not alone):
            continue
        try:
            more = replace(deployment, devices=devices)
        except LessonError:  # heads that do not divide over so many
            continue
        if more.memory_needed(float(tokens), batch) <= more.memory_available:
            return [f"devices={devices}"]
        if alone and not second and batch > 1 and (largest := more.largest_batch(tokens)):
            second.append(f"devices={devices} with batch={largest}")
    return second
