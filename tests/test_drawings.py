"""A drawing says numbers of the library, to scale where it says so, and brings its own alt text and caption."""

import base64
import io

import pytest
from helpers import refuses, server
from PIL import Image

from lessonlib.base.units import format_bytes, format_seconds
from lessonlib.face import figures
from lessonlib.face.figures.drawings_of_servers import mixed_step
from lessonlib.face.figures.style import described, new_figure
from lessonlib.face.palette import CACHE, PREFILL, WEIGHTS
from lessonlib.facts.catalogue import load_model
from lessonlib.policy.cache import answer_traffic, paging
from lessonlib.policy.full_server import mixed_pass
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.roofline import pass_cost

REASONING = Request(128, 12_800)


def said(figure):
    """All words of a figure, and what stands beside it."""
    words = [text.get_text() for axes in figure.axes for text in axes.texts]
    return " ".join(" ".join([*words, figure.alt, figure.caption]).split())


def bars(figure, colour, height=None):
    """Widths of the rectangles of a colour."""
    return [
        patch.get_width()
        for patch in figure.axes[0].patches
        if hasattr(patch, "get_width") and patch.get_facecolor()[:3] == pytest.approx(rgb(colour), abs=0.01)
        if height is None or patch.get_height() == pytest.approx(height)
    ]


def rgb(colour):
    return [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]


@pytest.mark.parametrize(("cached", "batch"), [(0, 1), (1024, 1), (6000, 32), (100, 512)])
def test_one_pass_says_its_bytes_and_its_times(cached, batch):
    figure, step = figures.one_pass(server(), cached, batch), pass_cost(server(), 1, cached, batch)
    parts = (step.linear, step.attention)
    stream, multiply = (sum(getattr(part, f"{what}_seconds") for part in parts) for what in ("memory", "compute"))
    for words in (format_bytes(step.linear.weights, 3), format_bytes(step.cache_read, 3)):
        assert words in said(figure)
    assert all(format_seconds(seconds, 3) in said(figure) for seconds in (stream, multiply))
    assert ("bytes take longer" in figure.caption) == (stream > multiply)
    weights, caches = bars(figure, WEIGHTS, 4.4), bars(figure, CACHE, 4.4)
    if cached > 1000:
        assert weights[0] / caches[0] == pytest.approx(step.linear.memory_seconds / step.attention.memory_seconds)


@pytest.mark.parametrize("batch", [2, 4, 32])
def test_one_batch_has_the_bytes_of_a_step_in_steady_state_to_scale(batch):
    figure = figures.one_batch(server(), REASONING, batch)
    caches = batch * request_cost(server(), REASONING).decode.cache_read / (REASONING.output - 1)
    weights = pass_cost(server(), 1).linear.weights
    assert format_bytes(caches, 3) in said(figure) and format_bytes(weights, 3) in said(figure)
    assert bars(figure, CACHE, 6)[0] / bars(figure, WEIGHTS, 6)[0] == pytest.approx(caches / weights)
    assert ("more" in said(figure)) == (batch > 6)


@pytest.mark.parametrize("request_", [REASONING, Request(1024, 128), Request(5, 20)], ids=repr)
def test_the_area_of_the_triangle_is_what_is_read(request_):
    figure, traffic = figures.cache_triangle(server(), request_), answer_traffic(server(), request_)
    columns = [bar for bar in figure.axes[0].patches if bar.get_facecolor()[:3] == pytest.approx(rgb(CACHE), abs=0.01)]
    area = 1e9 * sum(bar.get_width() * bar.get_height() for bar in columns)
    assert area == pytest.approx(traffic.triangle, rel=0.02)
    assert format_bytes(traffic.triangle) in said(figure) and format_bytes(traffic.end) in said(figure)


def test_a_sparse_model_reads_a_flatter_one():
    model = server(load_model("deepseek-v3.2"), dtype="fp8", devices=16)
    figure = figures.cache_triangle(model, Request(128, 30_000))
    heights = [bar.get_height() for bar in figure.axes[0].patches if hasattr(bar, "get_height")]
    assert max(heights) < 30_000 * model.cache_bytes_per_token / 1e9 / 2


def test_nothing_grows_in_one_step():
    refuses(lambda: figures.cache_triangle(server(), Request(100, 2)), "cache_triangle", "decode steps")


def test_the_memory_maps_fill_as_many_cells_as_there_are_tokens():
    lengths, maximum, block = (410, 150, 290, 60), 512, 32
    figure, found = figures.memory_maps(server(), lengths, maximum, block), paging(lengths, maximum, block)
    assert sum(bars(figure, CACHE)) == pytest.approx(2 * 5.1 * found.used / block)  # the same on both sides
    assert f"{(found.contiguous - found.paged) // block} pages are free" in said(figure)
    assert f"{100 * found.contiguous_waste:.0f} %" in said(figure)
    refuses(lambda: figures.memory_maps(server(), (9_000,), 10_000, 16), "memory_maps", "blocks")
    refuses(lambda: figures.memory_maps(server(), (600,), 512, 16), "paging", "lengths[0]")


def test_the_timeline_is_to_scale():
    prompt, batch, context, chunk = 2048, 8, 4096, 512
    figure = figures.server_timeline(server(), prompt, batch, context, chunk)
    stop, step = (pass_cost(server(), *case).seconds for case in ((prompt,), (1, context, batch)))
    first, *pieces = bars(figure, PREFILL)
    longest = mixed_step(server(), batch, context, chunk, prompt - chunk)
    assert len(pieces) == 4
    assert first / pieces[-1] == pytest.approx(stop / longest, rel=0.02)  # but for the gaps between blocks
    assert all(format_seconds(seconds, 3) in said(figure) for seconds in (stop, step, longest))
    refuses(lambda: figures.server_timeline(server(devices=2, layout="expert")), "server_timeline", "layout")


def test_a_mixed_step_is_that_of_the_steady_state():
    """At one request that begins a step, and contexts at their mean, it is `mixed_pass`, where all is memory bound."""
    request, batch = Request(64, 33), 32
    steps = request.output - 1
    mean = pass_cost(server(), 1, request.prompt + (steps - 1) // 2, batch).attention.seconds
    exact = request_cost(server(), request, batch).decode.attention.seconds / steps
    ours = mixed_step(server(), batch, request.prompt + (steps - 1) // 2, request.prompt, 0) - mean + exact
    assert ours == pytest.approx(mixed_pass(server(), request, batch), rel=1e-9)


@pytest.mark.parametrize(("name", "share"), [("mixtral-8x7b", "1/8 of each"), ("deepseek-v3", "a copy of each")])
def test_two_layouts_say_what_a_device_holds(name, share):
    pair = [server(load_model(name), dtype="fp8", devices=8, layout=layout) for layout in ("tensor", "expert")]
    figure = figures.gpu_layouts(*pair, batch=100)
    words, experts = said(figure), pair[0].model.expert_kinds[0][1].experts
    assert share in words and "requests" in words and f"{experts // 8} whole expert" in words and "13 requests" in words
    for deployment in pair:
        assert f"{format_bytes(deployment.weight_bytes / 8, 3)} of weights" in words
        assert f"{deployment.sizes.collectives} all-" in words
    refuses(lambda: figures.gpu_layouts(*reversed(pair)), "gpu_layouts", "'tensor'")
    refuses(lambda: figures.gpu_layouts(server(devices=8), server(devices=8, layout="expert")), "gpu_layouts")


def test_a_figure_that_brings_its_words_is_shown_with_them(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: shown.append(bundle))
    figures.show(figures.memory_maps(server()))
    assert "Two maps of the same memory" in shown[0]["text/plain"] and "Green is written" in shown[0]["text/html"]
    figure = described(new_figure("T")[0], "Words of its own here.", "A caption of its own.")
    figures.show(figure, "Other words for it.")
    assert shown[1]["text/plain"] == "Other words for it." and "A caption of its own." in shown[1]["text/html"]
    refuses(lambda: figures.show(new_figure("T")[0]), "alt")


def test_the_rule_of_the_themes_stands_with_each_figure_that_is_shown(monkeypatch):
    """Nothing of a picture depends on it: without the rule its ground is white."""
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: shown.append(bundle))
    figures.show(figures.memory_maps(server()))
    html = shown[0]["text/html"]
    assert html.startswith("<style>[data-jp-theme-light=true] .lesson-figure{") and 'class="lesson-figure"' in html
    picture = Image.open(io.BytesIO(base64.b64decode(shown[0]["image/png"]))).convert("RGBA")
    corners = [picture.getpixel((x, y)) for x in (0, picture.width - 1) for y in (0, picture.height - 1)]
    assert corners == [(255, 255, 255, 255)] * 4
