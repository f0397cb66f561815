"""Drawings, boxes and arrows, that explain an idea before it is computed; what they say of it the library computes.

Each takes a deployment and the case to draw, and returns a Figure with its alt text and caption: `show(drawing(...))`.
What is drawn to scale says so.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lessonlib.base.checks import checked, count, items
from lessonlib.base.errors import InvalidInputError
from lessonlib.base.units import format_bytes, format_percent, format_seconds
from lessonlib.face.figures.sheet import UNIT, arrow, box, setting, sheet, write
from lessonlib.face.figures.style import described, house_style, new_figure, plain_numbers
from lessonlib.face.palette import BOUNDARY, CACHE, CACHE_INK, INK, PREFILL, PREFILL_INK, QUIET, WEIGHTS
from lessonlib.policy.cache import answer_traffic, paging
from lessonlib.request.cost import request_cost
from lessonlib.request.request import REQUEST, Request
from lessonlib.time.deployment import DEPLOYMENT, Deployment
from lessonlib.time.roofline import pass_cost


@house_style()
@checked(deployment=DEPLOYMENT, cached=count(0), batch=count())
def one_pass(deployment: Deployment, cached: int = 1024, batch: int = 1) -> Figure:
    """One decode pass and what it streams from memory through the compute units: all weights, and the cache.

    Weights and cache are to scale with each other, and so are the two times; what else lies in memory is not drawn.
    """
    step = pass_cost(deployment, 1, cached, batch)
    linear, attention = step.linear, step.attention
    weights, read, written = linear.weights, step.cache_read + step.state_bytes, step.cache_write
    stream, multiply = (
        [getattr(part, f"{what}_seconds") for part in (linear, attention)] for what in ("memory", "compute")
    )
    bound = "bytes" if sum(stream) > sum(multiply) else "multiplications"
    each = "1 token" if batch == 1 else f"{batch:,} tokens"
    title = f"To emit {each}, a pass streams all weights through the chip"
    figure, axes = sheet(title, 5.3)
    top, foot, tall = 58.0, 26.0, 26.0
    box(axes, 0, foot - 5.5, 36, top - foot + 5.5, QUIET, pale=True)
    write(axes, 18, top - 2.8, f"memory, {deployment.bandwidth / 1e12:.3g} TB/s", weight="bold")
    low = min(max(0.6, tall * read / (weights + read)), tall - 6)
    words = f"weights\n{format_bytes(weights, 3)}"
    box(axes, 3, foot + low + 0.8, 30, tall - low - 0.8, WEIGHTS, words, weight="bold")
    axes.add_patch(Rectangle((3, foot), 30, low, color=CACHE, linewidth=0))
    held = "cache" if batch == 1 else f"{batch:,} caches"
    words = f"{cached:,} tokens{'' if batch == 1 else ' each'}"
    if low > 7:
        write(axes, 18, foot + low / 2, f"{held}\n{format_bytes(read, 3)}", color="white", weight="bold")
    write(axes, 18, foot - 2.8, words if low > 7 else f"{held} of {words}", color=CACHE_INK, weight="bold")
    units = f"compute units\n{deployment.peak / 1e12:,.0f} TFLOP/s"
    box(axes, 66, foot, 21, 24, INK, units, pale=True, weight="bold")
    level = (foot + 19.5, foot + 7.5, foot + 2.5)
    arrow(axes, (36.8, level[0]), (65.2, level[0]), WEIGHTS, 10)
    write(axes, 50, level[0] + 5.5, "all weights, once", color=WEIGHTS, weight="bold")
    arrow(axes, (36.8, level[1]), (65.2, level[1]), CACHE, 1.4 + 8.6 * min(1.0, read / weights))
    write(axes, 50, level[1] + 4.2, f"{held}: {format_bytes(read, 3)}", color=CACHE_INK, weight="bold")
    arrow(axes, (65.2, level[2]), (36.8, level[2]), CACHE, 1.4, linestyle="--")
    write(axes, 50, level[2] - 2.6, f"{format_bytes(written, 3)} written", color=CACHE_INK)
    arrow(axes, (76.5, top - 1.5), (76.5, foot + 25))
    write(axes, 78, top - 3, f"{each} in", "left")
    arrow(axes, (87.8, foot + 12), (99, foot + 12))
    write(axes, 93.5, foot + 16.5, f"{each}\nout" if batch > 1 else "1 token\nout")
    scale = 64 / max(sum(stream), sum(multiply))
    for y, name, parts, colours in (
        (11.5, "time to stream", stream, (WEIGHTS, CACHE)),
        (4.5, "time to multiply", multiply, (INK, INK)),
    ):
        write(axes, 17.5, y, name, "right")
        ends = np.cumsum([19, *(scale * seconds for seconds in parts)])
        for left, right, colour in zip(ends, ends[1:], colours, strict=False):
            axes.add_patch(Rectangle((left, y - 2.2), max(right - left, 0.2), 4.4, color=colour, linewidth=0))
        write(axes, ends[-1] + 1.5, y, format_seconds(sum(parts), 3), "left", weight="bold")
    alt = (
        f"On the left a tall box, the memory, with the weights, {format_bytes(weights, 3)}, and beneath them {held} of "
        f"{words}, {format_bytes(read, 3)}. A broad arrow carries all weights to the compute units, a second one the "
        f"cache; a dashed one brings back {format_bytes(written, 3)}. {each} in, {each} out. Beneath, two bars: "
        f"{format_seconds(sum(stream), 3)} to stream, {format_seconds(sum(multiply), 3)} to multiply."
    )
    return described(
        figure,
        alt,
        f"{setting(deployment)}. Weights and cache are drawn to scale with each other, and so are the two times: here "
        f"the {bound} take longer. What else lies in memory is not drawn.",
    )


@house_style()
@checked(deployment=DEPLOYMENT, request=REQUEST, batch=count(2))
def one_batch(deployment: Deployment, request: Request, batch: int = 32) -> Figure:
    """One decode step of a batch in steady state: weights that all share, and a cache of its own for each request.

    Six of the requests are drawn, at places spread evenly over the answer. All bars have one scale.
    """
    steps = max(1, request.output - 1)
    shown = min(batch, 6)
    places = (np.arange(shown) + 0.5) * steps / shown
    held = [float(deployment.sequence_bytes(request.prompt + int(place))) for place in places]
    decode = request_cost(deployment, request).decode
    caches = batch * (decode.cache_read + decode.state_bytes) / steps
    weights = pass_cost(deployment, 1, 0, batch).linear.weights
    title = f"{batch:,} requests share one read of the weights; nobody shares a cache"
    figure, axes = sheet(title, 5.6)
    box(
        axes,
        0,
        18,
        22,
        42,
        WEIGHTS,
        f"weights\n\n{format_bytes(weights, 3)}\n\nread once\nfor all {batch:,}",
        weight="bold",
    )
    for row, size in enumerate(held[::-1]):
        y = 56.5 - 7.2 * row
        arrow(axes, (22.6, 39 + (y - 39) * 0.75), (35.5, y), WEIGHTS, 1.6)
        box(axes, 36, y - 2.4, 17, 4.8, INK, f"request {row + 1}", pale=True)
        length = 28 * size / max(held)
        arrow(axes, (57.4, y), (53.6, y), CACHE, 1.6)
        axes.add_patch(Rectangle((58, y - 2.2), length, 4.4, color=CACHE, linewidth=0))
        write(axes, 59 + length, y, format_bytes(size, 3), "left", color=CACHE_INK)
    write(axes, 58, 61.8, "a cache of its own: all its tokens so far", "left", color=CACHE_INK, weight="bold")
    if batch > shown:
        write(axes, 44.5, 56.5 - 7.2 * shown + 1.2, f"... and {batch - shown:,} more", color=QUIET)
    scale = 96 / (weights + caches)
    axes.add_patch(Rectangle((2, 1.5), weights * scale, 6, color=WEIGHTS, linewidth=0))
    axes.add_patch(Rectangle((2 + weights * scale, 1.5), caches * scale, 6, color=CACHE, linewidth=0))
    write(axes, 2, 10.5, "one step reads, to scale:", "left")
    for left, size, words, ink in (
        (2.0, weights, "weights", WEIGHTS),
        (2 + weights * scale, caches, f"{batch:,} caches", CACHE_INK),
    ):
        words = f"{words} {format_bytes(size, 3)}"
        if size * scale > 20:
            write(axes, left + size * scale / 2, 4.5, words, color="white", weight="bold")
        else:
            write(axes, 98, 10.5, words, "right", color=ink, weight="bold")
    alt = (
        f"A box of weights, {format_bytes(weights, 3)}, with an arrow to each of {shown} requests; each has a bar of "
        f"cache of its own, from {format_bytes(held[0], 3)} to {format_bytes(held[-1], 3)}. Beneath, what a step "
        f"reads: weights {format_bytes(weights, 3)} once, and {batch:,} caches, {format_bytes(caches, 3)} together."
    )
    spread = f"{request.prompt:,} → {request.output:,} tokens, each request at its own place in the answer"
    return described(figure, alt, f"{setting(deployment)}; {spread}. A bigger batch divides the blue part alone.")


@house_style()
@checked(deployment=DEPLOYMENT, request=REQUEST)
def cache_triangle(deployment: Deployment, request: Request) -> Figure:
    """The cache reads of an answer, a column for each step or for several: a triangle on what the prompt left.

    Dashed: the rectangle that they would be if the cache had its final size all along. The area is the bytes read.
    """
    steps = request.output - 1
    if steps < 2:
        raise InvalidInputError("cache_triangle: the request has fewer than two decode steps; nothing grows.")
    traffic = answer_traffic(deployment, request)
    edges = np.unique(np.linspace(0, steps, min(steps, 28) + 1).round())
    middles = (edges[:-1] + edges[1:]) / 2
    read = np.array([pass_cost(deployment, 1, int(request.prompt + step)).cache_read for step in middles]) / 1e9
    first, last = (pass_cost(deployment, 1, request.prompt + step).cache_read / 1e9 for step in (0, steps - 1))
    thin = first < 0.25 * last
    title = "what the prompt left, and what came since"
    if thin and traffic.triangle < 0.55 * traffic.end:
        title = "all that came before: the reads add up to a triangle"
    figure, axes = new_figure(f"Each step reads {title}", height=4.8)
    axes.set(xlim=(0, steps), ylim=(0, 1.16 * last))
    for height, colour in ((read, CACHE), (np.minimum(first, read), PREFILL)):
        axes.bar(middles, height, np.diff(edges), color=colour, edgecolor="white", linewidth=0.6)
    axes.plot([0, steps, steps], [last, last, 0], "--", color=BOUNDARY, linewidth=1.6, clip_on=False)
    never = format_percent(1 - traffic.triangle / traffic.end, 2)
    words = f"dashed: as if each step read the final cache, {format_bytes(traffic.end)}; {never} of it is never read"
    write(axes, 0.01 * steps, 1.08 * last, words, "left")
    at = (0.68 * steps, (first + 0.68 * last) / 2) if thin else (0.75 * steps, first / 2)
    style: dict[str, Any] = {"color": "white", "weight": "bold"}
    ground = {"facecolor": CACHE if thin else PREFILL, "edgecolor": "none", "pad": 3}
    write(axes, *at, f"read in all\n{format_bytes(traffic.triangle)}", fontsize=13, bbox=ground, **style)
    words = f"what the prompt left, {request.prompt:,} tokens,\nis read again by every step"
    if thin:
        write(axes, 0.03 * steps, 0.66 * last, words, "left", color=PREFILL_INK)
        arrow(axes, (0.07 * steps, 0.57 * last), (0.035 * steps, first), PREFILL, 1.4)
    else:
        write(axes, 0.27 * steps, first / 2, words, bbox=ground, **style)
    plain_numbers(axes.yaxis, "{:g}")
    plain_numbers(axes.xaxis)
    axes.set_xlabel("decode step (linear scale)")
    axes.set_ylabel("GB of cache that the step reads (linear scale)")
    alt = (
        f"Columns that rise from the first decode step to the last, {first:.3g} to {last:.3g} GB, and hold "
        f"{format_bytes(traffic.triangle)}. They stand on a {'thin strip' if thin else 'block'}, what the prompt left. "
        f"A dashed rectangle of the final height holds {format_bytes(traffic.end)}; its upper left part is never read."
    )
    each = (
        f"A column stands for about {steps / len(middles):,.0f} steps" if steps > len(middles) else "A column is a step"
    )
    return described(figure, alt, f"{setting(deployment)}; {request.prompt:,} → {request.output:,} tokens. {each}.")


@house_style()
@checked(deployment=DEPLOYMENT, lengths=items(count(), least=1), maximum=count(), block=count())
def memory_maps(
    deployment: Deployment, lengths: Sequence[int] = (410, 150, 290, 60), maximum: int = 512, block: int = 32
) -> Figure:
    """The same sequences in contiguous and in paged memory. A cell is a block of `block` tokens, a letter a sequence.

    Contiguous, each reserves `maximum` tokens from the start; paged, each takes a block when it needs one.
    """
    found, across = paging(lengths, maximum, block), 8
    each = math.ceil(maximum / block)
    names = [chr(ord("A") + i % 26) for i in range(len(lengths))]
    rows = math.ceil(len(lengths) * each / across)
    if rows > 12:
        raise InvalidInputError(
            f"memory_maps: {rows * across} blocks are too many to draw; take fewer, or larger blocks."
        )
    left: list[tuple[str, float]] = []
    for name, length in zip(names, lengths, strict=True):
        left += [(name, min(1.0, max(0.0, (length - i * block) / block))) for i in range(each)]
    taken: list[tuple[str, float]] = []  # in the order in which blocks are asked for, all sequences in turn
    for i in range(each):
        more = [(name, (length - i * block) / block) for name, length in zip(names, lengths, strict=True)]
        taken += [(name, min(1.0, rest)) for name, rest in more if rest > 0]
    panels = (
        ("contiguous: the maximum, reserved", left, "what is reserved", found.contiguous_waste),
        (f"paged: a page of {block} tokens at a time", taken, "the pages taken", found.paged_waste),
    )
    height = 1.75 + 0.36 * rows
    figure, axes = sheet("Paging frees what was reserved; what was written stays as large", height)
    for column, (words, cells, what, waste) in enumerate(panels):
        x, top = 53.0 * column, UNIT * (height - 0.5) - 4
        write(axes, x, top + 1, words, "left", weight="bold")
        for i in range(rows * across):
            name, filled = cells[i] if i < len(cells) else ("", -1.0)
            corner = (x + 5.6 * (i % across), top - 2.2 - 4.5 * (i // across + 1))
            edge: dict[str, Any] = {
                "edgecolor": QUIET if name else "#BBBBBB",
                "linewidth": 0.9,
                "linestyle": "-" if name else ":",
            }
            axes.add_patch(Rectangle(corner, 5.1, 4, facecolor="none", **edge))
            if filled > 0:
                axes.add_patch(Rectangle(corner, 5.1 * filled, 4, color=CACHE, linewidth=0))
            inside = filled > 0.4  # the letter stands in the larger part of its cell
            at = corner[0] + 5.1 * (filled / 2 if inside else (1 + max(filled, 0)) / 2)
            write(
                axes,
                at,
                corner[1] + 1.9,
                name,
                color="white" if inside else QUIET,
                weight="bold" if inside else "normal",
            )
        free = rows * across - len(cells)
        said = f"{format_percent(waste, 2)} of {what} stays empty"
        write(axes, x, 6.5, said, "left", color=INK)
        said = f"{free} pages are free for others" if free else "nothing is free for others"
        write(axes, x, 2.2, said, "left", color=CACHE_INK if free else QUIET, weight="bold")
    alt = (
        f"Two maps of the same memory, a cell a page of {block} tokens. Contiguous: each of {len(lengths)} sequences "
        f"holds {each} cells in a row, and {format_percent(found.contiguous_waste, 2)} of them stay empty. "
        f"Paged: the filled cells of all lie mixed, {format_percent(found.paged_waste, 2)} is empty, the rest free."
    )
    used = format_bytes(found.used * deployment.cache_bytes_per_token, 3)
    caption = f"{setting(deployment)}. Green is written: {used} on both sides; each step reads all of it either way. "
    caption += f"Drawn with pages of {block} tokens."
    return described(figure, alt, caption)
