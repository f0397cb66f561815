"""The explorer of a request: choose a model, an accelerator, a prompt, an output and a batch, and see what it costs.

Every number shown is `request_cost`'s, `rho`'s or `omega`'s. Needs ipywidgets, imported only with this module.
"""

import math

import numpy as np

from lessonlib.base.checks import a, checked, count
from lessonlib.base.errors import InvalidInputError
from lessonlib.base.units import format_bytes, format_percent, format_seconds, tokens_label
from lessonlib.face.palette import BOUNDARY, CACHE, CACHE_INK, GRID, MEASURED, PREFILL, QUIET, WEIGHTS
from lessonlib.face.widgets.explorer import (
    Explorer,
    accelerator_options,
    deployed,
    framed,
    sliders_of,
    svg,
    svg_text,
    table,
)
from lessonlib.facts.catalogue import model_names
from lessonlib.facts.workloads import load_workload, workload_names
from lessonlib.policy.estimates import RHO_OF_FIVE_PERCENT, omega, rho
from lessonlib.request.cost import RequestCost, request_cost
from lessonlib.request.request import REQUEST, Request
from lessonlib.time.deployment import Deployment

START = {"model": "llama-3.1-8b", "accelerator": "h100-sxm", "prompt": 1024, "output": 128, "batch": 1}
# The picture. The plane runs from 1 token to these powers of ten.
HEIGHT = 452
LEFT, RIGHT, TOP, BOTTOM = 56, 710, 96, 408
DECADES_ACROSS, DECADES_UP = 5.3, 5.0


@checked(cost=a(RequestCost, "request_cost(server, Request(128, 12_800))"))
def numbers(cost: RequestCost) -> dict[str, str]:
    """The numbers of the explorer's table, as printed."""
    deployment, request, batch = cost.deployment, cost.request, cost.batch
    if cost.refused is not None:
        raise InvalidInputError("numbers: the cost is of arrays; expected that of one request.")
    linear = cost.decode.linear
    busy = "compute" if linear.compute_seconds > linear.memory_seconds else "memory"
    exact = cost.prefill.seconds / cost.decode.seconds if cost.decode.seconds else math.nan
    tokens = request.prompt + request.output
    return {
        "GPU clock, whole batch": format_seconds(cost.seconds),
        "GPU clock, share of one": format_seconds(cost.seconds / batch),
        "request clock, undisturbed": format_seconds(cost.undisturbed),
        "wait, others' prefills included": format_seconds(cost.seconds),
        "time to first token": format_seconds(cost.ttft),
        "time per output token, undisturbed": format_seconds(cost.tpot),
        "decode's linear layers": f"{busy} bound" if cost.decode.seconds else "no decode step",
        "decode share of GPU time": format_percent(cost.decode_share, 5),
        "decode share of FLOPs": format_percent(cost.decode.flops / cost.flops, 4),
        "rho, the estimate": f"{rho(deployment, request, batch):.3g}",
        "prefill / decode, exact": "undefined" if math.isnan(exact) else f"{exact:.3g}",
        "omega": f"{omega(deployment, request):.3g}",
        "memory needed": f"{format_bytes(deployment.memory_needed(tokens, batch), 3)} of "
        f"{format_bytes(deployment.memory_available, 3)}",
        "largest batch that fits": f"{deployment.largest_batch(tokens):,}",
    }


def view(model: str, accelerator: str, prompt: int, output: int, batch: int) -> str:
    """Picture and table of one request as HTML; where it cannot be computed, the sentence of the error."""

    def inside() -> str:
        deployment, request = deployed(model, accelerator), REQUEST("view", "request", Request(prompt, output))
        cost = request_cost(deployment, request, count()("view", "batch", batch))
        return _picture(cost) + table(numbers(cost))

    return framed(inside)


def _across(tokens: float) -> float:
    return LEFT + (RIGHT - LEFT) * math.log10(tokens) / DECADES_ACROSS


def _up(tokens: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * math.log10(tokens) / DECADES_UP


def _picture(cost: RequestCost) -> str:
    """One bar of GPU time by part, and the request on the plane of prompt and output."""
    request, deployment = cost.request, cost.deployment
    label = (
        f"{deployment.model.name} on {deployment.accelerator.name}, {request.prompt:,} to {request.output:,} tokens, "
        f"batch {cost.batch:,}: decode is {format_percent(cost.decode_share, 4)} of {format_seconds(cost.seconds)} of "
        f"GPU time; rho {rho(deployment, request, cost.batch):.3g}, omega {omega(deployment, request):.3g}"
    )
    return svg(HEIGHT, label, _bar(cost) + _plane(cost))


def _bar(cost: RequestCost) -> str:
    parts = (
        ("prefill", cost.prefill.seconds, PREFILL),
        ("decode: linear layers", cost.decode.linear.seconds, WEIGHTS),
        ("decode: attention", cost.decode.attention.seconds, CACHE),
    )
    drawn = [svg_text(10, 18, f"GPU time of the batch: {format_seconds(cost.seconds)}", more=' font-weight="bold"')]
    x = 10.0
    for i, (name, seconds, colour) in enumerate(parts):
        width = 700 * seconds / cost.seconds
        drawn.append(f'<rect x="{x:.2f}" y="26" width="{width:.2f}" height="22" fill="{colour}"/>')
        drawn.append(f'<rect x="{10 + 235 * i}" y="56" width="12" height="12" fill="{colour}"/>')
        drawn.append(svg_text(28 + 235 * i, 67, f"{name} {format_percent(seconds / cost.seconds)}"))
        x += width
    return "".join(drawn)


def _omega_edge(deployment: Deployment) -> list[tuple[float, float]]:
    """Points of the picture where omega is 1, from left to right, as far as the plane goes."""
    prompts = np.ceil(np.geomspace(1, 10**DECADES_ACROSS, 40))
    outputs = np.geomspace(1, 10**DECADES_UP, 500).round()
    over = omega(deployment, Request(prompts, outputs[:, None])) > 1
    edge = np.where(over.any(axis=0), outputs[np.argmax(over, axis=0)], 10**DECADES_UP)
    return [(_across(x), _up(y)) for x, y in zip(prompts.tolist(), edge.tolist(), strict=True)]


def _plane(cost: RequestCost) -> str:
    edge = _omega_edge(cost.deployment)
    roof = edge[0][1]
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in edge)
    drawn = [f'<path d="M{line}V{TOP}H{LEFT}Z" fill="{CACHE}" opacity="0.1"/>']
    for power in range(6):
        x, y, tokens = _across(10**power), _up(10**power), tokens_label(10**power)
        drawn.append(f'<path d="M{x:.1f} {TOP}V{BOTTOM}M{LEFT} {y:.1f}H{RIGHT}" stroke="{GRID}"/>')
        drawn += [svg_text(x, BOTTOM + 17, tokens, QUIET, "middle"), svg_text(LEFT - 6, y + 4, tokens, QUIET, "end")]
    drawn.append(svg_text((LEFT + RIGHT) / 2, BOTTOM + 36, "prompt tokens (log scale)", anchor="middle"))
    turned = f' transform="rotate(-90 14 {(TOP + BOTTOM) / 2})"'
    drawn.append(svg_text(14, (TOP + BOTTOM) / 2, "output tokens (log scale)", anchor="middle", more=turned))
    drawn.append(f'<path d="M{line}" fill="none" stroke="{CACHE}" stroke-width="2" stroke-dasharray="6 4"/>')
    below = roof + 16 if roof < BOTTOM - 24 else roof - 6
    drawn.append(svg_text(LEFT + 6, below, "omega = 1", CACHE_INK))
    drawn.append(_line_of_rho(cost))
    for name in workload_names():
        workload = load_workload(name)
        x, y = _across(workload.prompt - workload.cached), _up(workload.output)
        drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#fff" stroke="{QUIET}"/>')
        touched = abs(y - 11 - roof) < 9  # by the line of omega, above its dot
        side, anchor = (-8, "end") if workload.cached or touched else (8, "start")  # clear of the line of batch 1
        drawn.append(svg_text(x + side, y + 5 if touched else y - 7, workload.label.split(", ")[-1], QUIET, anchor))
    x, y = _across(cost.request.prompt), _up(cost.request.output)
    drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="{MEASURED}" stroke="#fff" stroke-width="2"/>')
    side, anchor = (-12, "end") if x > LEFT + 110 else (12, "start")
    drawn.append(svg_text(x + side, y - 6, "your request", anchor=anchor, more=' font-weight="bold"'))
    return "".join(drawn)


def _line_of_rho(cost: RequestCost) -> str:
    """The line rho = 0.0526 of this batch: output = slope x prompt, clipped to the plane."""
    slope = rho(cost.deployment, Request(1, 1), cost.batch) / RHO_OF_FIVE_PERCENT
    first = max(1.0, 1 / slope)
    last = min(10**DECADES_ACROSS, 10**DECADES_UP / slope)
    if first >= last:
        return ""
    ends = [(_across(prompt), _up(slope * prompt)) for prompt in (first, last)]
    (x0, y0), (x1, y1) = ends
    turn = math.degrees(math.atan2(y1 - y0, x1 - x0))
    x, y = x0 + 0.86 * (x1 - x0), y0 + 0.86 * (y1 - y0)
    words = f"batch {cost.batch:,}: rho = {RHO_OF_FIVE_PERCENT:.4f}"
    along = f' transform="rotate({turn:.1f} {x:.1f} {y:.1f})"'
    return (
        f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="{BOUNDARY}" stroke-width="1.5" '
        'stroke-dasharray="6 4"/>' + svg_text(x, y + 15, words, anchor="middle", more=along)
    )


def explore_request() -> Explorer:
    """An explorer, to display as the last line of a cell: exact costs at the floor, in bf16, on one device."""
    menus = {"model": model_names(), "accelerator": accelerator_options()}
    return Explorer(menus, sliders_of("prompt", "output", "batch"), START, view)
