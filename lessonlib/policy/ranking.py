"""The usual levers on a mix of requests, ranked at the floor and at typical efficiency.

A rank that holds in both is worth something: at the floor a lever that saves bytes looks better than where each pass
has an overhead. Drafts take their own time, with yields that were published; free drafts are a limit and not here.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from lessonlib.base.checks import checked, optional
from lessonlib.base.errors import DoesNotFitError, InvalidInputError
from lessonlib.model.attention import GroupedQueryAttention, MultiHeadLatentAttention
from lessonlib.model.draft import DraftHead
from lessonlib.model.feedforward import DenseFeedForward
from lessonlib.policy.full_server import full_batch
from lessonlib.policy.levers import (
    RELOAD_RATES,
    Lever,
    drafts_that_yield,
    expert_parallel,
    faster_peak,
    more_bandwidth,
    more_memory,
    prefix_cache,
    prefix_reload,
    quantised,
    shorter_answer,
    sparse_attention,
    tensor_parallel,
    windowed_layers,
)
from lessonlib.policy.mix import price
from lessonlib.request.request import BATCH, REQUESTS, Case, Request, columns_of
from lessonlib.time.deployment import DEPLOYMENT, EFFICIENCY, Deployment, Efficiency

HALF_CACHED = "half of each prompt in a prefix cache"
# Published tokens of a round of three drafts: MTP on DeepSeek-V3, EAGLE-3 on Llama-3.1-8B (data/levers.csv).
YIELDS = {"MTP": 2.44, "EAGLE-3": 3.14}


class Ranked(NamedTuple):
    """A lever: device-seconds before over after, at one batch, and with each at its own memory batch.

    `typical`: the latter at typical efficiency, None where none was given. `holds`: it has the same place in both
    rankings.
    """

    name: str
    held: float
    at_limit: float
    typical: float | None = None
    holds: bool | None = None


@checked(deployment=DEPLOYMENT, request=REQUESTS)
def usual_levers(deployment: Deployment, request: Request) -> dict[str, Lever]:
    """The levers that one may pull, by name, without those that the deployment or the requests have already."""
    columns_of("usual_levers", request)
    found = {
        "twice the FLOP/s": faster_peak(2),
        "twice the bandwidth": more_bandwidth(2),
        "twice the memory": more_memory(2),
        "half the thought: answers half as long": shorter_answer(0.5),
    }
    bits = {part: deployment.precision.bytes_of(part) for part in ("blocks", "experts", "cache")}
    weights = max(bits["blocks"], bits["experts"])
    if weights > 1 and "fp8" in deployment.accelerator.peaks:
        found["W8A8: weights and activations in fp8"] = quantised(blocks="fp8", experts="fp8")
    if weights > 1:
        found["4-bit weights (head stays)"] = quantised(blocks="int4", experts="int4")
    if bits["cache"] > 1:
        found["fp8 cache"] = quantised(cache="fp8")
    if not np.any(request.cached):
        found[HALF_CACHED] = prefix_cache(0.5)
    mixers = [mixer for _, mixer in deployment.model.mixer_kinds]
    if all(type(mixer) is GroupedQueryAttention and mixer.window is None for mixer in mixers):
        found["sparse layers: 5 of 6 with a window of 1,024 (another model)"] = windowed_layers(1024, 6)
    latent = [mixer for mixer in mixers if type(mixer) is MultiHeadLatentAttention]
    if any(mixer.query_rank is not None and mixer.window is None for mixer in latent):
        found["sparse layers: the best 2,048 tokens (another model)"] = sparse_attention()
    if deployment.speculation is None:
        found |= _drafts(deployment)
    if deployment.accelerator.link is not None:
        layouts = {"tensor": tensor_parallel} | ({"expert": expert_parallel} if deployment.model.expert_kinds else {})
        for layout, lever in layouts.items():
            found[f"twice the devices, {layout} parallel"] = lever(2 * deployment.devices)
    return found


def _drafts(deployment: Deployment) -> dict[str, Lever]:
    """Draft heads of the model's kind, with yields that were published: MTP of DeepSeek-V3, EAGLE-3 of Llama-3.1-8B."""
    model = deployment.model
    _, block = model.blocks[-1]
    mixer, ffn = block.mixer, block.feedforward
    if isinstance(mixer, MultiHeadLatentAttention):
        return {_drafting("MTP"): drafts_that_yield(3, YIELDS["MTP"], DraftHead.mtp(model))}
    if not isinstance(mixer, GroupedQueryAttention):
        return {}
    inner = ffn.inner if isinstance(ffn, DenseFeedForward) else 3 * model.width
    sizes = (model.width, inner, mixer.heads, mixer.kv_heads, mixer.head_dim)
    head = DraftHead.eagle3(*sizes, vocabulary=min(32_000, model.vocabulary), max_positions=model.max_positions)
    return {_drafting("EAGLE-3"): drafts_that_yield(3, YIELDS["EAGLE-3"], head)}


def _drafting(how: str) -> str:
    return f"{how} drafts, {YIELDS[how]} tokens a round"


@checked(deployment=DEPLOYMENT, request=REQUESTS, batch=BATCH, typical=optional(EFFICIENCY))
def rank_levers(
    deployment: Deployment, request: Request, batch: int, typical: Efficiency | None = None
) -> list[Ranked]:
    """The usual levers and a prefill that takes no time, best first at the memory batch of the deployment as given.

    `typical`: an Efficiency at which they are ranked again. A lever that leaves no room for one request is left out.
    """
    columns_of("rank_levers", request)
    found = _gains(deployment, request, batch)
    order = sorted(found, key=lambda name: (-found[name][1], -found[name][0], name))
    again: dict[str, tuple[float, float]] = {}
    if typical is not None:
        again = _gains(replace(deployment, efficiency=typical), request, batch)
    second = sorted(again, key=lambda name: (-again[name][1], -again[name][0], name))
    return [
        Ranked(
            name,
            *found[name],
            again[name][1] if again else None,
            order.index(name) == second.index(name) if again else None,
        )
        for name in order
    ]


def _gains(deployment: Deployment, request: Request, batch: int) -> dict[str, tuple[float, float]]:
    """Device-seconds before over after of each lever: at the batch, and each at its own memory batch."""

    def both(case: Case) -> Any:
        """At its batch, and at its own memory batch: one price where these are one."""
        held, limit = price(*case), full_batch(case.deployment, case.request)
        return held, held if limit == case.batch else price(case.deployment, case.request, limit)

    def seconds(cost: Any, case: Case) -> float:
        return float(cost.seconds * case.deployment.devices)

    case = Case(deployment, request, batch)
    before = both(case)
    free = [cost.seconds / cost.decode.seconds if cost.decode.seconds else math.inf for cost in before]
    found = {"a prefill that takes no time": (free[0], free[1])}
    for name, lever in usual_levers(deployment, request).items():
        try:
            changed = lever(deployment, request, batch)
            after = both(changed)
        except (DoesNotFitError, InvalidInputError):  # heads that do not divide, no room for one request
            continue
        held, limit = (seconds(old, case) / seconds(new, changed) for old, new in zip(before, after, strict=True))
        found[name] = held, limit
        if name == HALF_CACHED:
            for link, rate in RELOAD_RATES.items():
                wait = float(np.sum(prefix_reload(deployment, changed.request, rate).reload))
                held, limit = (old.seconds / (new.seconds + wait) for old, new in zip(before, after, strict=True))
                found[f"{HALF_CACHED}, reloaded over {link}"] = held, limit
    return found
