"""The recorded run is whole, of a quiet machine, and names no machine; its figure shows what it holds."""

import re

import numpy as np
import pytest

from lessonlib import pass_cost
from lessonlib.face.exercises.asking import find
from lessonlib.face.exercises.book.notebook_07 import recorded_machine, recorded_steps
from lessonlib.face.figures.measured import measured_steps
from lessonlib.face.palette import MEASURED
from lessonlib.facts.tables import DATA
from lessonlib.measured.timing.cpu import CONTEXTS, PROMPTS, RECORDED, REQUESTS, busy_warning, recorded_cpu
from lessonlib.measured.timing.record import read_records


def steps():
    return [point for point in recorded_cpu().points if point.phase == "decode"]


def test_the_recorded_run_is_a_whole_one_of_a_quiet_machine():
    record = recorded_cpu()
    assert busy_warning(record) == ""
    assert [point.context for point in steps()] == list(CONTEXTS)
    assert [point.tokens for point in record.points if point.phase == "prefill"] == list(PROMPTS)
    assert {run.name: (run.prompt, run.output) for run in record.requests} == REQUESTS
    assert recorded_machine().sizes.dense_bytes > record.conditions["weights_bytes"]  # the gains of the norms


def test_the_right_option_is_what_the_record_says():
    least, most = recorded_steps()
    assert 2 <= least <= most <= 25 and find("how-near-on-a-cpu").right == "b"


def test_every_recorded_file_is_a_record_and_names_no_machine():
    records, skipped = read_records(DATA / "timings")
    assert recorded_cpu() in records and skipped == []
    text = (DATA / "timings" / RECORDED).read_text(encoding="utf-8")
    assert not re.search(r"/(home|root|tmp|Users|work)\b|host|user|[A-Z]:\\\\", text)


def test_the_figure_shows_medians_on_the_prediction_and_their_ratios_beneath():
    figure = measured_steps(recorded_machine(), steps(), "A title")
    upper, lower = figure.axes
    predicted = [1e3 * pass_cost(recorded_machine(), 1, point.context).seconds for point in steps()]
    medians = [1e3 * point.median for point in steps()]
    for axes, expected in ((upper, medians), (lower, np.array(medians) / predicted)):
        dots = next(line for line in axes.lines if line.get_marker() == "o" and line.get_color() == MEASURED)
        assert list(dots.get_xdata()) == list(CONTEXTS)
        assert list(dots.get_ydata()) == pytest.approx(list(expected))
    curve = next(line for line in upper.lines if len(line.get_xdata()) > len(CONTEXTS))
    assert np.interp(CONTEXTS, *curve.get_data()) == pytest.approx(predicted, rel=1e-3)
    words = " ".join(text.get_text() for text in upper.texts)
    assert f"{1e3 * pass_cost(recorded_machine(), 1).linear.seconds:.1f} ms" in words and "7 repeats" in words
