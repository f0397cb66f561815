"""Figures look the same whatever the reader's matplotlibrc says, and labels find their places."""

import inspect

import matplotlib
import numpy as np
import pytest
from helpers import server
from matplotlib.colors import to_hex
from matplotlib.text import Text

from lessonlib.face import figures
from lessonlib.face.exercises.book.common import CHAT, FP8_CACHE, INT4, REASONING, cost_of
from lessonlib.face.exercises.book.notebook_07 import recorded_machine
from lessonlib.face.figures.labels import along, label
from lessonlib.face.figures.style import house_style, new_figure, png_bytes
from lessonlib.face.figures.traffic_panels import traffic_panels
from lessonlib.facts.catalogue import load_model
from lessonlib.facts.workloads import load_workload
from lessonlib.measured.efficiency import decode_fits, decode_search
from lessonlib.measured.timing.cpu import recorded_cpu
from lessonlib.policy.cache import step_parts
from lessonlib.policy.full_server import steady_state
from lessonlib.policy.levers import prefix_cache
from lessonlib.policy.mix import price
from lessonlib.request.request import Request
from lessonlib.work.layouts import LAYOUTS

HOSTILE = {
    "text.usetex": True,
    "font.family": "cursive",
    "font.size": 40,
    "text.color": "yellow",
    "axes.facecolor": "black",
    "axes.grid": True,
    "axes.grid.which": "both",
    "axes.labelsize": 30,
    "axes.spines.right": True,
    "axes.xmargin": 0.4,
    "axes.unicode_minus": False,
    "figure.constrained_layout.h_pad": 1.0,
    "figure.dpi": 30,
    "lines.linewidth": 9,
    "lines.linestyle": ":",
    "lines.dashed_pattern": [9, 9],
    "patch.force_edgecolor": True,
    "savefig.bbox": "tight",
    "savefig.dpi": 30,
    "savefig.facecolor": "red",
    "xtick.direction": "in",
    "xtick.labelsize": 30,
    "ytick.minor.visible": True,
}
COSTS = {"chat": cost_of(CHAT), "reasoning": cost_of(REASONING)}
STATES = {"chat": steady_state(server(), CHAT), "reasoning": steady_state(server(), REASONING, 1)}
BATCHES, TOKENS, STEPS = [1, 8, 33], np.array([1, 100, 4000]), np.array([1, 6400, 12_799])
DRAWN = {
    "break_even_lines": lambda: figures.break_even_lines(server()),
    "cache_triangle": lambda: figures.cache_triangle(server(), REASONING),
    "fraction_by_step": lambda: figures.fraction_by_step(decode_search().points, decode_fits()[()], "T"),
    "gpu_layouts": lambda: figures.gpu_layouts(*EIGHT),
    "lever_curves": lambda: figures.lever_curves(
        server(), dict.fromkeys("abcd", Request(9_000, 90_000)) | {"a": REASONING, "b": CHAT}, LEVERS, "T"
    ),
    "measured_against_floor": lambda: figures.measured_against_floor(decode_search().points, "T"),
    "measured_steps": lambda: figures.measured_steps(
        recorded_machine(), [point for point in recorded_cpu().points if point.phase == "decode"], "T"
    ),
    "memory_maps": lambda: figures.memory_maps(server()),
    "one_batch": lambda: figures.one_batch(server(), REASONING),
    "one_pass": lambda: figures.one_pass(server()),
    "output_token_prices": lambda: figures.output_token_prices(
        {"chat": (BATCHES, [300, 60, 9]), "reasoning": (BATCHES, [310, 80, 27])}, "T"
    ),
    "plane": lambda: figures.plane(server(), [load_workload(name) for name in ("chat", "agent-step")]),
    "request_bars": lambda: figures.request_bars(COSTS, "T"),
    "roofline_figure": lambda: figures.roofline_figure(
        [("a", 1, 3e12, "#000"), ("b", 900, 9e14, "#000")], 1e15, 3e12, "T"
    ),
    "savings_dots": lambda: figures.savings_dots({"chat": [0.03, 0.04]}, {"chat": [0.6, 0.5, 0.7]}, "T"),
    "server_timeline": lambda: figures.server_timeline(server()),
    "step_by_depth": lambda: figures.step_by_depth({"a": ([0, 9], [0.02, 0.03], [0.01, 0.02])}, "T"),
    "step_over_answer": lambda: figures.step_over_answer(
        STEPS, *(step_parts(server(), REASONING, STEPS, 8, together) for together in (False, True)), 8, "T"
    ),
    "throughput_by_batch": lambda: figures.throughput_by_batch(
        {"chat": (BATCHES, [200, 900, 3000], 20.0), "reasoning": (BATCHES, [190, 700, 2000], 300.0)}, "T"
    ),
    "time_shares": lambda: figures.time_shares(STATES, "T"),
    "traffic_panels": lambda: traffic_panels(server(), [9, 900], [90, 9000], {"alone": price(server(), TWO, 1)}),
}
EIGHT = [server(load_model("mixtral-8x7b"), devices=8, layout=layout) for layout in LAYOUTS]
LEVERS = {"int4": INT4, "fp8": FP8_CACHE, "prompt": prefix_cache(1.0)}
BATCHES_ARRAY, TWO = np.array(BATCHES), Request(np.array([9, 900]), np.array([90, 9000]))


def test_every_figure_is_drawn_here():
    public = {name for name, value in vars(figures).items() if inspect.isfunction(value)}
    assert set(DRAWN) - {"traffic_panels"} == public - {"show"}


@pytest.fixture
def hostile():
    """A reader's own style; what it sets is there afterwards."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(HOSTILE)
        yield
        assert all(matplotlib.rcParams[key] == value or key == "font.family" for key, value in HOSTILE.items())


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_brings_its_words_and_is_made_in_the_house_style(name, hostile):
    figure = DRAWN[name]()
    if name != "traffic_panels":  # it is described by the report
        for words in (figure.alt, figure.caption):
            assert len(words.split()) > 7 and words.endswith(".") and "nan" not in words and "  " not in words
        assert len(figure.alt) < 1100
    assert all(to_hex(one.get_facecolor()) == "#ffffff" for one in (figure, *figure.axes))
    for text in filter(Text.get_text, figure.findobj(Text)):
        assert text.get_fontfamily() == ["DejaVu Sans"] and text.get_fontsize() < 15 and not text.get_usetex()
        assert to_hex(text.get_color()) != to_hex(HOSTILE["text.color"])


OF_EACH_FILE = (
    "savings_dots",
    "step_by_depth",
    "one_pass",
    "server_timeline",
    "fraction_by_step",
    "plane",
    "time_shares",
)


@pytest.mark.parametrize(
    "name", [*OF_EACH_FILE, *(pytest.param(name, marks=pytest.mark.slow) for name in DRAWN if name not in OF_EACH_FILE)]
)
def test_nothing_of_a_readers_own_style_reaches_a_picture(name):
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        clean = png_bytes(DRAWN[name]())
        matplotlib.rcParams.update(HOSTILE)
        assert png_bytes(DRAWN[name]()) == clean


@pytest.fixture
def axes():
    with house_style():
        _, axes = new_figure("A title", height=5)
        axes.set(xlim=(0, 10), ylim=(0, 10))
        yield axes


def box(text):
    text.get_window_extent()  # lays an annotation out
    return text.get_window_extent()


@pytest.mark.parametrize("side", ["right", "left", "above", "below", "above left", "below right"])
def test_a_label_stands_on_its_side(axes, side):
    said = label(axes, (5, 5), "some words", side)
    axes.get_figure().draw_without_rendering()
    (x, y), around = axes.transData.transform((5, 5)), box(said)
    assert ("right" in side) == (around.x0 > x) and ("left" in side) == (around.x1 < x)
    assert ("above" in side) == (around.y0 > y) and ("below" in side) == (around.y1 < y)


def test_a_label_takes_the_first_side_that_is_free(axes):
    axes.plot([5, 10], [5, 5])
    assert label(axes, (5, 5), "words").get_ha() == "right"  # the curve runs to the right
    assert label(axes, (5, 5), "words").xyann[1] > 0  # and to the left stands the first label
    assert label(axes, (5, 9.9), "words", "above", "below").xyann[1] < 0  # above is outside
    boxes = [box(text) for text in axes.texts]
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])


def test_a_label_far_from_its_point_has_a_line_to_it(axes):
    for y in np.arange(4.2, 5.9, 0.2):
        axes.plot([0, 10], [y, y])
    said = label(axes, (5, 5), "words")
    assert said.arrow_patch is not None and abs(said.xyann[1]) > 25
    axes.plot(*np.meshgrid(np.arange(0, 10, 0.1), np.arange(0, 10, 0.1)), "k.")
    assert label(axes, (5, 5), "words", "left", "right").get_ha() == "right"  # no place is free: the first side


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_words_run_along_a_curve(axes, scale):
    axes.set(xscale=scale, yscale=scale, xlim=(1, 1e4), ylim=(1e9, 1e13))
    x = np.geomspace(1, 1e5, 50)
    y = 1e9 * x
    said = along(axes, x, y, "words", 0.5)
    axes.get_figure().draw_without_rendering()
    ends = axes.transData.transform([(1, 1e9), (1e4, 1e13)])
    slope = np.degrees(np.arctan2(*(ends[1] - ends[0])[::-1]))
    assert said.get_rotation() == pytest.approx(slope, abs=0.5)
    assert said.get_transform().transform(said.get_position()) == pytest.approx(ends.mean(axis=0), abs=8)
    assert along(axes, x, 100 * x, "words") is None  # nothing of it is seen
    assert along(axes, x, 1e12 * x, "words", least=0.5) is None
