"""What a request's time depends on: Amdahl's law for the prefill, the break-even line, and elasticities.

Amdahl     = T / (T_prefill / k + T_decode)                what a prefill k times faster buys
elasticity = d ln T / d ln x                               per cent of time for a per cent of x
"""

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np

from lessonlib.base.checks import ABOVE_ZERO, between, checked, fraction, numbers, wrong
from lessonlib.base.errors import MOST_TOKENS, InvalidInputError
from lessonlib.policy.estimates import rho
from lessonlib.policy.levers import scaled
from lessonlib.request.cost import decode_phase, prefill_phase
from lessonlib.request.request import BATCH, REQUEST, Case, Request, require_chunks
from lessonlib.time.deployment import DEPLOYMENT, Deployment
from lessonlib.work.layouts import EXPERT


@checked(prefill_seconds=numbers(0, holes=True), decode_seconds=numbers(0, holes=True), k=numbers(ABOVE_ZERO, math.inf))
def faster_prefill(prefill_seconds: Any, decode_seconds: Any, k: Any) -> Any:
    """Amdahl's law: time before over time after a prefill k times faster (k may be infinite). Seconds of one clock.

    Numbers or arrays; NaN cells, which `request_cost` leaves where it refuses, stay NaN.
    """
    given = {"prefill_seconds": prefill_seconds, "decode_seconds": decode_seconds, "k": k}
    try:
        np.broadcast_shapes(*(value.shape for value in given.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {value.shape}" for name, value in given.items())
        raise InvalidInputError(f"faster_prefill: the shapes do not broadcast together: {shapes}.") from None
    with np.errstate(divide="ignore", invalid="ignore"):  # a free prefill and no decode: infinitely faster
        ratio = (prefill_seconds + decode_seconds) / (prefill_seconds / k + decode_seconds)
    if not ratio.ndim and np.isnan(ratio):
        raise wrong("faster_prefill", "prefill_seconds", 0.0, "one time above 0, as decode_seconds is 0 too")
    return ratio if ratio.ndim else float(ratio)


@checked(deployment=DEPLOYMENT, prompt=numbers(1, MOST_TOKENS, whole=True), batch=BATCH, share=fraction())
def break_even_output(deployment: Deployment, prompt: Any, batch: int = 1, share: float = 0.05) -> Any:
    """The least output at which prefill is under `share` of the GPU clock, for each prompt (a number or an array).

    Memory and positions are not looked at: it is where the line lies, not whether a server holds it.
    """
    prompts = np.atleast_1d(prompt)
    require_chunks("break_even_output", deployment, prompts)
    prefill = prefill_phase(deployment, prompts, 0.0, float(batch)).seconds
    with np.errstate(over="ignore"):
        allowed = prefill * (1 - share) / share  # decode seconds from which on the share is small enough
    low, high = np.ones_like(prompts), np.full_like(prompts, 2.0)

    def short_of(output: Any) -> Any:
        return decode_phase(deployment, prompts, output, float(batch)).seconds <= allowed

    while np.any(short := short_of(high)):
        if np.max(high) > MOST_TOKENS:
            raise InvalidInputError(f"break_even_output: no output up to 2**53 tokens brings prefill under {share:g}.")
        high = np.where(short, 2 * high, high)
    for _ in range(60):  # halving down to a whole token
        middle = np.floor((low + high) / 2)
        short = short_of(middle)
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return high if np.ndim(prompt) else int(high[0])


@checked(share=fraction())
def break_even_by_rho(deployment: Deployment, prompt: Any, batch: int = 1, share: float = 0.05) -> Any:
    """rho's estimate of the same line: rho = share / (1 - share), a straight line in the plane of prompt and output."""
    return rho(deployment, Request(prompt, 1), batch) * (1 - share) / share


RATES = {  # what an elasticity is asked for, and the field of an accelerator or an efficiency that it is
    "peak": "peaks",
    "bandwidth": "bandwidth",
    "link": "link",
    "latency": "all_reduce_latency",  # or that of all-to-alls, as the layout has it
    "overhead": "overhead",
    "weight bytes": None,
    "cache bytes": None,
}


def _scaled(deployment: Deployment, name: str, k: float) -> Deployment:
    """The deployment with one of RATES times k. Bytes are scaled where a pass reads them: nothing else changes."""
    if field := RATES[name]:
        if name == "latency" and deployment.layout == EXPERT:
            field = "all_to_all_latency"
        return scaled(deployment, field, k)
    sizes = deployment.sizes
    if name == "weight bytes":
        experts = tuple(each._replace(bytes=k * each.bytes) for each in sizes.experts)
        rest = {name: k * getattr(sizes, name) for name in ("block_bytes", "head_bytes")}
        sizes = sizes._replace(experts=experts, **rest)
    else:
        both = ((kind, k * kind.cache_bytes, k * kind.state_bytes) for kind in sizes.kinds)
        sizes = sizes._replace(kinds=tuple(kind._replace(cache_bytes=c, state_bytes=s) for kind, c, s in both))
    changed = copy.copy(deployment)
    object.__setattr__(changed, "sizes", sizes)
    return changed


def gpu_seconds(case: Case) -> float:
    """GPU seconds of a case, without asking whether it fits: for derivatives at the very limit."""
    deployment, request, batch = case
    require_chunks("gpu_seconds", deployment, request.prompt - request.cached)
    prompt, output, cached, b = map(float, (request.prompt, request.output, request.cached, batch))
    return prefill_phase(deployment, prompt, cached, b).seconds + decode_phase(deployment, prompt, output, b).seconds


@checked(deployment=DEPLOYMENT, request=REQUEST, batch=BATCH, step=between(1e-9, 1e-2, "ln x"))
def elasticities(deployment: Deployment, request: Request, batch: int = 1, step: float = 1e-4) -> dict[str, float]:
    """d ln T / d ln x of the GPU clock for each of RATES, and for prompt and output (one token either way).

    Central differences in ln x of width `step`: below 1e-9 rounding shows, above 1e-2 the curve's bends do.
    peak + bandwidth + link - latency - overhead = -1: double all rates and halve all waits, and the time halves. A
    draft model's own bytes are not scaled.
    """
    case, found = Case(deployment, request, batch), {}
    for name in RATES:
        up, down = (replace(case, deployment=_scaled(deployment, name, math.exp(way * step))) for way in (1, -1))
        found[name] = math.log(gpu_seconds(up) / gpu_seconds(down)) / (2 * step)
    for name in ("prompt", "output"):
        tokens = getattr(request, name)
        least = request.cached + 1 if name == "prompt" else 1
        fewer, more = max(tokens - 1, least), tokens + 1
        up, down = (replace(case, request=replace(request, **{name: n})) for n in (more, fewer))
        found[name] = math.log(gpu_seconds(up) / gpu_seconds(down)) / math.log(more / fewer)
    if not all(map(math.isfinite, found.values())):
        raise InvalidInputError("elasticities: the time is beyond what a float holds; take smaller numbers.")
    return found
