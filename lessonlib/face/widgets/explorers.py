"""The explorers of notebooks 03, 04, 05 and 08: curves that follow a slider, and the numbers beneath them.

Each `..._view` makes a picture (SVG written by hand) and beneath it the table of its `..._numbers`, from plain values;
each `explore_...` puts menus and sliders before it. Every number is one of cache.py, batching.py, levers.py or
request.py. Llama-3.1-8B on an H100 unless a menu says otherwise. Needs ipywidgets, imported only with this module.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from lessonlib.base.checks import checked, count, rate
from lessonlib.base.errors import InvalidInputError
from lessonlib.base.units import format_bytes, format_percent, format_seconds
from lessonlib.face.palette import BOUNDARY, CACHE, CACHE_INK, GRID, INK, INKS, PREFILL, QUIET, WEIGHTS
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
from lessonlib.policy.batching import output_token_in_prompt_tokens, price_of_request
from lessonlib.policy.cache import answer_traffic, span_where_cache_passes_weights, step_parts
from lessonlib.policy.estimates import omega, rho, roof_batch
from lessonlib.policy.full_server import memory_batch, steady_state
from lessonlib.policy.sensitivity import break_even_output, faster_prefill
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request

HEIGHT = 330
LEFT, RIGHT, TOP, BOTTOM = 70, 700, 44, 280
POINTS = 60


class Curve(NamedTuple):
    """A line of the chart, its name written at its end."""

    name: str
    colour: str
    x: Any
    y: Any
    dashed: bool = False
    below: bool = False  # its name stands under the line


class Axis(NamedTuple):
    """From `low` to `high`, linear or logarithmic; `said` is its label with the unit."""

    said: str
    low: float
    high: float
    log: bool = False

    def share(self, value: float) -> float:
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            return [10.0**power for power in range(first, last + 1)]
        step = 10 ** math.floor(math.log10(self.high - self.low))
        while (self.high - self.low) / step < 4:
            step /= 2
        return [step * i for i in range(math.ceil(self.low / step), math.floor(self.high / step + 1e-9) + 1)]


def chart(title: str, x: Axis, y: Axis, curves: Sequence[Curve], marks: Sequence[tuple[float, str]] = ()) -> str:
    """Curves with their names, and dashed verticals at `marks` (x, words). One picture, read aloud by its title."""

    def across(value: float) -> float:
        return LEFT + (RIGHT - LEFT) * x.share(value)

    def up(value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * y.share(value)

    drawn = [svg_text(8, 20, title, more=' font-weight="bold"')]
    for tick in x.ticks():
        drawn.append(f'<path d="M{across(tick):.1f} {TOP}V{BOTTOM}" stroke="{GRID}"/>')
        drawn.append(svg_text(across(tick), BOTTOM + 17, f"{tick:,.10g}", QUIET, "middle"))
    for tick in y.ticks():
        drawn.append(f'<path d="M{LEFT} {up(tick):.1f}H{RIGHT}" stroke="{GRID}"/>')
        drawn.append(svg_text(LEFT - 6, up(tick) + 4, f"{tick:,.10g}", QUIET, "end"))
    scale = " (log scale)"
    drawn.append(svg_text((LEFT + RIGHT) / 2, BOTTOM + 38, x.said + (scale if x.log else ""), anchor="middle"))
    middle = (TOP + BOTTOM) / 2
    turned = f' transform="rotate(-90 14 {middle})"'
    drawn.append(svg_text(14, middle, y.said + (scale if y.log else ""), anchor="middle", more=turned))
    for at, words in marks:
        if x.low <= at <= x.high:
            drawn.append(f'<path d="M{across(at):.1f} {TOP}V{BOTTOM}" stroke="{BOUNDARY}" stroke-dasharray="6 4"/>')
            side, anchor = (-5, "end") if x.share(at) > 0.5 else (5, "start")
            drawn.append(svg_text(across(at) + side, TOP + 12, words, anchor=anchor))
    taken: list[float] = []
    for curve in curves:
        inside = [(across(a), up(b)) for a, b in zip(curve.x, curve.y, strict=True) if y.low <= b <= y.high * 1.001]
        if not inside:
            continue
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b in inside)
        dash = ' stroke-dasharray="6 4"' if curve.dashed else ""
        drawn.append(f'<path d="M{path}" fill="none" stroke="{curve.colour}" stroke-width="2.5"{dash}/>')
        height = inside[-1][1] + (16 if curve.below else -6)
        while any(abs(height - other) < 15 for other in taken):
            height += 15 if height < middle else -15
        taken.append(height)
        ink = INKS.get(curve.colour, curve.colour)
        drawn.append(svg_text(inside[-1][0] - 8, height, curve.name, ink, "end", ' font-weight="bold"'))
    label = f"{title}. Across: {x.said}. Up: {y.said}. Curves: {'; '.join(curve.name for curve in curves)}."
    return svg(HEIGHT, label, "".join(drawn))


# ---- 03: what growth does to a step


@checked(prompt=count(), output=count(2))
def growth_numbers(model: str, prompt: int, output: int, batch: int) -> dict[str, str]:
    """First and last step, in steady state and for a batch started together, and the bytes behind them."""
    deployment, request = deployed(model, "h100-sxm"), Request(prompt, output)
    steady, together = (
        step_parts(deployment, request, (1, output - 1), batch, together=t).seconds for t in (False, True)
    )
    passes, traffic = span_where_cache_passes_weights(deployment, batch), answer_traffic(deployment, request, batch)
    return {
        "first step, steady": format_seconds(steady[0]),
        "last step, steady": format_seconds(steady[1]),
        "first step, together": format_seconds(together[0]),
        "last step, together": format_seconds(together[1]),
        "cache of one token": format_bytes(deployment.cache_bytes_per_token),
        "cache read over the answer": format_bytes(traffic.triangle),
        "if it had its final size": format_bytes(traffic.end),
        "cache passes weights at": "never" if passes is None else f"{passes:,} tokens",
    }


def growth_view(model: str, prompt: int, output: int, batch: int) -> str:
    """A decode step by own position: in steady state, apart into its parts, and for a batch started together."""

    def inside() -> str:
        deployment, request = deployed(model, "h100-sxm"), Request(prompt, output)
        if output < 3:
            raise InvalidInputError("The answer has fewer than two steps, so nothing grows; choose a longer output.")
        k = np.unique(np.linspace(1, output - 1, POINTS).round())
        steady, together = (step_parts(deployment, request, k, batch, together=t) for t in (False, True))
        whole, lockstep = 1e3 * steady.seconds, 1e3 * together.seconds
        curves = [
            Curve("linear layers", WEIGHTS, k, 1e3 * (steady.linear + steady.other)),
            Curve(
                "+ the neighbours' caches",
                CACHE,
                k,
                1e3 * (steady.linear + steady.other + steady.neighbours),
                below=True,
            ),
            Curve("+ the own cache", CACHE_INK, k, whole),
            Curve("all started together", BOUNDARY, k, lockstep, dashed=True),
        ]
        highest = 1.1 * max(whole.max(), lockstep.max())
        title = f"{model}, batch {batch:,}: a step takes {whole[0]:.2f} to {whole[-1]:.2f} ms, in lockstep "
        title += f"{lockstep[0]:.2f} to {lockstep[-1]:.2f} ms"
        picture = chart(title, Axis("output tokens so far", 0, output), Axis("ms a step", 0, highest), curves)
        return picture + table(growth_numbers(model, prompt, output, batch))

    return framed(inside)


def explore_growth() -> Explorer:
    sliders = sliders_of("prompt", "output", "batch")
    start = {"model": "llama-3.1-8b", "prompt": 128, "output": 12_800, "batch": 32}
    return Explorer({"model": model_names()}, sliders, start, growth_view)


# ---- 04: what a batch pays for


def batch_numbers(model: str, accelerator: str, prompt: int, output: int) -> dict[str, str]:
    """Memory batch and roof batch, and the steady state alone and at the memory batch, each prompt by itself."""
    deployment, request = deployed(model, accelerator), Request(prompt, output)
    limit = memory_batch(deployment, request)
    alone, full = (steady_state(deployment, request, batch) for batch in (1, limit))
    return {
        "largest batch that fits": f"{limit:,}",
        "roof batch (estimate)": f"{roof_batch(deployment, request):,.0f}",
        "omega": f"{omega(deployment, request):.3g}",
        "tokens/s at batch 1": f"{alone.tokens_per_second:,.1f}",
        "tokens/s at the memory batch": f"{full.tokens_per_second:,.1f}",
        "TPOT at batch 1": format_seconds(alone.tpot),
        "TPOT at the memory batch": format_seconds(full.tpot),
        "GPU seconds a request there": format_seconds(full.seconds_per_request),
    }


def batch_view(model: str, accelerator: str, prompt: int, output: int) -> str:
    """Output tokens a second by batch, prompts mixed into steps, up to the memory batch, with the roof batch on it."""

    def inside() -> str:
        deployment, request = deployed(model, accelerator), Request(prompt, output)
        deployment.require_fit(prompt + output)
        limit = memory_batch(deployment, request)
        batches = np.unique(np.geomspace(1, limit, POINTS).round()).astype(int)
        mixed = output > 1  # one output token has no step to ride on
        rates = [steady_state(deployment, request, int(batch), mixed).tokens_per_second for batch in batches]
        roof = roof_batch(deployment, request)
        most = 10 ** math.ceil(math.log10(max(10.0, 1.5 * limit, roof)))
        x = Axis("batch size", 1, most, log=True)
        y = Axis(
            "output tokens a second",
            10 ** math.floor(math.log10(rates[0])),
            10 ** math.ceil(math.log10(max(rates) * 1.2)),
            True,
        )
        marks = [(float(limit), f"memory is full: {limit:,}"), (roof, f"roof of the linear layers {roof:,.0f}")]
        if abs(x.share(float(limit)) - x.share(roof)) < 0.25:
            marks = marks[:1]
        title = f"{model} on {accelerator}: {rates[0]:,.0f} tokens/s alone, {rates[-1]:,.0f} at batch {limit:,}"
        numbers = batch_numbers(model, accelerator, prompt, output)
        return chart(
            title, x, y, [Curve("prompts mixed in" if mixed else "steady state", INK, batches, rates)], marks
        ) + table(numbers)

    return framed(inside)


def explore_batch() -> Explorer:
    menus = {"model": model_names(), "accelerator": accelerator_options()}
    sliders = sliders_of("prompt", "output")
    start = {"model": "llama-3.1-8b", "accelerator": "h100-sxm", "prompt": 128, "output": 12_800}
    return Explorer(menus, sliders, start, batch_view)


# ---- 05: what a faster prefill buys


def prefill_numbers(prompt: int, output: int, batch: int) -> dict[str, str]:
    """What a free prefill saves on the two clocks, and from which output on that is under 5 %."""
    deployment, request = deployed("llama-3.1-8b", "h100-sxm"), Request(prompt, output)
    cost = request_cost(deployment, request, batch)
    share = 1 - cost.decode_share
    return {
        "prefill share, GPU clock": format_percent(share),
        "prefill share, request clock": format_percent(cost.ttft / cost.undisturbed),
        "saved by twice as fast, GPU": format_percent(share / 2),
        "rho, the estimate": f"{rho(deployment, request, batch):.3g}",
        "time to first token": format_seconds(cost.ttft),
        "under 5 % from this output on": f"{break_even_output(deployment, prompt, batch):,} tokens",
    }


def prefill_view(prompt: int, output: int, batch: int) -> str:
    """Per cent of time that a prefill k times faster saves, on the two clocks."""

    def inside() -> str:
        deployment = deployed("llama-3.1-8b", "h100-sxm")
        request = Request(prompt, output)
        cost = request_cost(deployment, request, batch)
        k = np.geomspace(1, 1000, POINTS)
        clocks = {"GPU clock": cost.prefill.seconds, "request clock": cost.ttft}
        saved = {name: 100 * (1 - 1 / faster_prefill(p, cost.decode.seconds, k)) for name, p in clocks.items()}
        at_most = {name: 1 - 1 / faster_prefill(p, cost.decode.seconds, math.inf) for name, p in clocks.items()}
        highest = 110 * max(at_most.values())
        x, y = Axis("prefill this many times faster", 1, 1300, log=True), Axis("% of time saved", 0, highest)
        colours = {"GPU clock": PREFILL, "request clock": INK}
        curves = [Curve(name, colours[name], k, values, name == "request clock") for name, values in saved.items()]
        title = f"{prompt:,} -> {output:,}, batch {batch:,}: a free prefill saves "
        title += f"{format_percent(at_most['GPU clock'])} of GPU time"
        return chart(title, x, y, curves) + table(prefill_numbers(prompt, output, batch))

    return framed(inside)


def explore_prefill() -> Explorer:
    sliders = sliders_of("prompt", "output", "batch")
    return Explorer({}, sliders, {"prompt": 1024, "output": 128, "batch": 32}, prefill_view)


# ---- 08: what an output token costs


@checked(output=count(), dollars=rate("dollars for one GPU and hour"))
def price_numbers(prompt: int, output: int, batch: int, dollars: float) -> dict[str, str]:
    """What an output token costs here, alone and at the memory batch: in prompt tokens, in dollars, in GPU time."""
    deployment, request = deployed("llama-3.1-8b", "h100-sxm"), Request(prompt, output)
    limit = memory_batch(deployment, request)
    here, alone, full = (f"{output_token_in_prompt_tokens(deployment, request, b):,.1f}" for b in (batch, 1, limit))
    paid, least = (price_of_request(deployment, request, b, dollars) * 1e6 / output for b in (batch, limit))
    return {
        "one output token, in prompt tokens": here,
        "at batch 1": alone,
        "at the memory batch": full,
        "memory batch": f"{limit:,}",
        "$ a million output, here": f"${paid:,.2f}",
        "$ a million output, at the memory batch": f"${least:,.2f}",
        "GPU time of one output token": format_seconds(request_cost(deployment, request, batch).tpot / batch),
    }


def price_view(prompt: int, output: int, batch: int, dollars: int) -> str:
    """An output token's GPU time in prompt tokens of a 1,024-token prefill, by batch; and its price in dollars."""

    def inside() -> str:
        deployment, request = deployed("llama-3.1-8b", "h100-sxm"), Request(prompt, output)
        if output < 2:
            raise InvalidInputError("One output token comes from the prefill: there is no step to price. Choose more.")
        deployment.require_fit(prompt + output)
        limit = memory_batch(deployment, request)
        price = output_token_in_prompt_tokens(deployment, request, batch)
        batches = np.unique(np.geomspace(1, limit, POINTS).round()).astype(int)
        prices = [output_token_in_prompt_tokens(deployment, request, int(b)) for b in batches]
        x = Axis("batch size", 1, 1.3 * 10 ** math.ceil(math.log10(max(10, limit + 1))), log=True)
        y = Axis("price, in prompt tokens", 1, 1000, log=True)
        title = (
            f"{prompt:,} -> {output:,}, batch {batch:,}: one output token costs as much as {price:,.1f} prompt tokens"
        )
        marks = [(float(limit), f"memory is full: {limit:,}")]
        return chart(title, x, y, [Curve("price", INK, batches, prices)], marks) + table(
            price_numbers(prompt, output, batch, dollars)
        )

    return framed(inside)


def explore_price() -> Explorer:
    sliders = sliders_of("prompt", "output", "batch") | {"dollars": ("dollar", (1, 2, 3, 4, 5, 8, 10, 15, 20))}
    return Explorer({}, sliders, {"prompt": 1024, "output": 128, "batch": 1, "dollars": 2}, price_view)
