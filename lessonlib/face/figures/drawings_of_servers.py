"""Drawings of a server in time, and of several GPUs that serve one model."""

import math
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lessonlib.base.checks import checked, count
from lessonlib.base.errors import InvalidInputError
from lessonlib.base.units import format_bytes, format_seconds
from lessonlib.face.figures.sheet import arrow, box, rgb, setting, sheet, write
from lessonlib.face.figures.style import described, house_style
from lessonlib.face.palette import BOUNDARY, CACHE, DECODE, INK, OTHER, PREFILL, PREFILL_INK, QUIET, WEIGHTS
from lessonlib.time.deployment import DEPLOYMENT, Deployment
from lessonlib.time.roofline import Phase, pass_cost
from lessonlib.work.layouts import EXPERT, TENSOR, other_devices
from lessonlib.work.passes import Passes, attention_work, linear_work


def mixed_step(deployment: Deployment, batch: int, context: int, chunk: int, done: int) -> float:
    """Seconds of a pass of `batch` decode tokens and `chunk` tokens of a prompt of which `done` are prefilled."""
    sizes = deployment.sizes
    works = linear_work(sizes, float(batch + chunk), float(batch + 1))
    for new, cached, sequences in ((1.0, context, batch), (chunk, done, 1)):
        works += [attention_work(kind, float(new), float(cached), float(sequences)) for kind in sizes.kinds]
    return float(Phase(deployment, [Passes(sizes, works, float(batch + chunk), 1.0)]).seconds)


@house_style()
@checked(deployment=DEPLOYMENT, prompt=count(), batch=count(), context=count(), chunk=count())
def server_timeline(
    deployment: Deployment, prompt: int = 2048, batch: int = 8, context: int = 4096, chunk: int = 512
) -> Figure:
    """What a newcomer's prompt does to those who are being served: a stop for its prefill, or slower, mixed steps.

    `batch` requests at `context` tokens decode when a prompt arrives; mixed, each step carries up to `chunk` of its
    tokens. Three of the requests are drawn. Time is to scale, the same in both halves.
    """
    if deployment.sizes.replicas > 1:
        raise InvalidInputError(
            "server_timeline: each device serves requests of its own in this layout; take 'tensor'."
        )
    step = float(pass_cost(deployment, 1, context, batch).seconds)
    joined = float(pass_cost(deployment, 1, context, batch + 1).seconds)
    stop = float(pass_cost(deployment, prompt).seconds)
    starts = range(0, prompt, chunk)
    mixed = [mixed_step(deployment, batch, context, min(chunk, prompt - done), done) for done in starts]
    slowest = format_seconds(max(mixed), 3)
    before = max(2, round(0.25 * max(stop, sum(mixed)) / step))
    end = before * step + 1.25 * max(stop, sum(mixed)) + 2 * step
    title = "A prompt stops everybody, or rides along and slows each step"
    figure, axes = sheet(title, 5.4)
    left, scale = 15.0, 85 / end
    users = min(batch, 3)
    plans = (
        (
            "prefill first",
            [("decode", step)] * before + [("prefill", stop)],
            f"nobody gets a token for {format_seconds(stop, 3)}",
        ),
        (
            "mixed",
            [("decode", step)] * before + [("mixed", seconds) for seconds in mixed],
            f"{min(chunk, prompt):,} prompt tokens ride on a step: {slowest}, not {format_seconds(step, 3)}",
        ),
    )
    for half, (name, plan, said) in enumerate(plans):
        top = 59.0 - 29.5 * half
        write(axes, 0, top, name, "left", weight="bold")
        arrival, time = left + before * step * scale, left
        plan = plan + [("joined", joined)] * math.ceil((end - sum(seconds for _, seconds in plan)) / joined)
        for kind, seconds in plan:
            width = min(seconds * scale, 100 - time)
            for row in range(users + 1):
                newcomer, y = row == users, top - 7.0 - 5.2 * row
                colour = PREFILL if newcomer and kind in ("prefill", "mixed") else DECODE
                if kind == "joined" or (newcomer and colour == PREFILL) or (not newcomer and kind != "prefill"):
                    block = Rectangle((time, y), width - min(0.25, width / 4), 4.0, color=colour, linewidth=0)
                    axes.add_patch(block)
            time += width
            if time > 99.9:
                break
        for row in range(users + 1):
            words = "the newcomer" if row == users else f"request {row + 1}"
            write(axes, left - 1, top - 5.0 - 5.2 * row, words, "right", color=PREFILL_INK if row == users else INK)
        axes.plot([arrival, arrival], [top - 7.4 - 5.2 * users, top - 1.5], "--", color=BOUNDARY, linewidth=1.3)
        span = (stop if half == 0 else sum(mixed)) * scale
        write(axes, arrival + 0.8, top - 0.3, said, "left", weight="bold", color=PREFILL_INK)
        if half == 0:
            for x in (arrival + 0.5, arrival + span - 0.5):
                arrow(axes, (arrival + span / 2, top - 10.2), (x, top - 10.2), QUIET, 1.2)
    foot = 59.0 - 29.5 - 7.0 - 5.2 * users - 3.2
    write(axes, left, foot, f"time, to scale: {format_seconds(end, 2)} in all", "left", color=QUIET)
    write(axes, 100, foot, "blue: a decode step    vermilion: prefill", "right", color=QUIET)
    alt = (
        f"Two timelines. Above, {users} requests get a token every {format_seconds(step, 3)} until a prompt of "
        f"{prompt:,} tokens arrives; for {format_seconds(stop, 3)} only the newcomer's prefill runs, then all go on. "
        f"Beneath, the prompt is cut into {len(mixed)} pieces that ride on steps; these take up to {slowest} each, "
        "and nobody stops."
    )
    case = f"{batch:,} requests at {context:,} tokens, {users} of them drawn, and a prompt of {prompt:,}"
    caption = f"{setting(deployment)}; {case}. Blue: a decode step. Vermilion: prefill."
    return described(figure, alt, caption)


@house_style()
@checked(tensor=DEPLOYMENT, expert=DEPLOYMENT, batch=count())
def gpu_layouts(tensor: Deployment, expert: Deployment, batch: int = 256) -> Figure:
    """The same model on the same devices in two layouts: all devices serve all requests, or each serves its own.

    `tensor` and `expert`: the two deployments, alike but for `layout`; the model has routed experts. Bytes of weights
    are those of a device.
    """
    devices, kinds = tensor.devices, tensor.model.expert_kinds
    if (tensor.layout, expert.layout, expert.devices) != (TENSOR, EXPERT, devices) or devices < 2 or not kinds:
        wanted = "two deployments of one model with routed experts, on as many devices, 'tensor' and then 'expert'"
        raise InvalidInputError(f"gpu_layouts: tensor and expert are not {wanted}.")
    ffn = kinds[0][1]
    own, here = math.ceil(batch / devices), math.ceil(ffn.experts / devices)
    whole = "1 whole expert" if here == 1 else f"{here:,} whole experts"
    held = tensor.cache_bytes_per_token / devices / expert.cache_bytes_per_token  # of a sequence's cache, on a device
    part = "a copy" if held == 1 else f"1/{1 / held:.0f}"
    sliced = f"{part} of each of\nthe {batch:,} caches"
    picked = ffn.experts_per_token
    others = other_devices(devices, ffn.experts, picked)
    title = f"{devices} GPUs share every layer, or each serves its own requests and some experts"
    figure, axes = sheet(title, 5.9)
    panels = (
        (
            tensor,
            "tensor parallel: a slice of every layer",
            sliced,
            "a slice of every\nattention layer",
            f"1/{devices} of each of\n{ffn.experts:,} experts",
        ),
        (
            expert,
            "data-parallel attention, expert parallel",
            f"the whole caches of\n{own:,} requests",
            "all of the\nattention layers",
            f"{whole}\nof {ffn.experts:,}",
        ),
    )
    for column, (deployment, name, caches, attention, experts) in enumerate(panels):
        x, drawn = 52.5 * column, min(devices, 8)
        write(axes, x, 64, name, "left", weight="bold")
        box(axes, x, 30, 47.5, 31, QUIET, pale=True)
        write(axes, x + 2, 58, f"GPU 1 of {devices}", "left", weight="bold")
        write(axes, x + 45.5, 58, f"{format_bytes(deployment.weight_bytes / devices, 3)} of weights", "right")
        for row, (colour, words) in enumerate(((CACHE, caches), (WEIGHTS, attention), (OTHER, experts))):
            y, cell = 47.2 - 8.2 * row, 20.8 / drawn
            box(axes, x + 2, y, 21.5, 7.2, colour, words, pale=True, fontsize=10)
            for i in range(drawn):
                place = x + 25.2 + i * cell, y + 0.6
                axes.add_patch(Rectangle(place, cell - 0.5, 6.0, facecolor=(*rgb(colour), 0.2), linewidth=0))
                lit = float(i == 0 or colour == WEIGHTS)
                if deployment is tensor:
                    lit = held if colour == CACHE else 1 / devices
                axes.add_patch(Rectangle(place, cell - 0.5, 6.0 * lit, facecolor=colour, linewidth=0))
        y = 19
        for i in range(drawn):
            box(axes, x + 6 * i, y, 5.2, 5, INK, f"{i + 1}", pale=True, weight="bold")
        arrow(axes, (x + 2.6, 29.5), (x + 2.6, 24.4), QUIET, 1.2)
        if column == 0:
            for i in range(drawn - 1):
                style: dict[str, Any] = {"arrowstyle": "<|-|>,head_length=0.4,head_width=0.2", "width": 1.4}
                arrow(
                    axes,
                    (x + 6 * i + 2.6, y - 0.4),
                    (x + 6 * i + 8.6, y - 0.4),
                    connectionstyle="arc3,rad=0.5",
                    **style,
                )
            arrow(axes, (x + 6 * drawn - 3.4, y - 0.4), (x + 2.6, y - 0.4), connectionstyle="arc3,rad=-0.22", **style)
            said = f"{deployment.sizes.collectives:,} all-reduces a pass:\neach adds up what all {devices} GPUs found"
        else:
            for i in range(1, drawn):
                arrow(
                    axes,
                    (x + 2.6, y - 0.4),
                    (x + 6 * i + 2.6, y - 0.4),
                    OTHER,
                    1.2,
                    connectionstyle=f"arc3,rad={0.62 - 0.04 * i}",
                )
            visited = f"a token visits\n{others:.1f} other GPUs, for {picked} experts"
            said = f"{deployment.sizes.collectives:,} all-to-alls a pass: {visited}"
        write(axes, x, 4.2, said, "left")
    sent = [format_bytes(deployment.sizes.collective_bytes, 3) for deployment in (tensor, expert)]
    alt = (
        f"Two panels, each one GPU of {devices} opened and all {devices} in a row. Tensor parallel: "
        f"{' '.join(sliced.split())}, a slice of the attention layers and of each of {ffn.experts:,} experts; "
        f"neighbours are joined by all-reduces. Expert parallel: the caches of {own:,} of {batch:,} requests, all "
        f"attention layers, {whole}; arrows lead from one GPU to all others."
    )
    sends = f"A GPU sends {sent[0]} for each token of a pass (left), or {sent[1]} for each token of its own (right)"
    return described(figure, alt, f"{setting(tensor)}, {batch:,} requests. {sends}.")
