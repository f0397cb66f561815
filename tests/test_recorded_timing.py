"""The recorded run is whole, of a quiet machine, and names no machine; its figure shows what it holds."""

import json
import re
from dataclasses import asdict, replace
from statistics import median

import numpy as np
import pytest

from lessonlib import load_model, pass_cost
from lessonlib.base.errors import InvalidInputError
from lessonlib.face.exercises.asking import find
from lessonlib.face.exercises.book.notebook_07 import recorded_machine, recorded_steps
from lessonlib.face.figures.measured import measured_steps
from lessonlib.face.palette import MEASURED
from lessonlib.facts.tables import DATA
from lessonlib.measured.timing.cpu import CONTEXTS, PROMPTS, RECORDED, REQUESTS, busy_warning, recorded_cpu
from lessonlib.measured.timing.engine import (
    CALIBRATING,
    FORETOLD,
    MODEL,
    OTHERS,
    VARIANTS,
    EngineMissingError,
    calibrations,
    expected_seconds,
    foretold,
    recorded_engine,
    stages,
    time_engine,
    timed,
    token_costs,
)
from lessonlib.measured.timing.predictions import predictions, this_machine
from lessonlib.measured.timing.record import read_records, record_from
from lessonlib.time.deployment import Efficiency


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


# ---- the engine's run: what notebook 06 says of it in words


@pytest.fixture(scope="module")
def engine():
    return recorded_engine()


@pytest.fixture
def quiet(engine):
    """The run, where little else ran beside it: what the notebook says in words is of such a one."""
    others = median(one["during"] for one in engine.conditions["load"])
    if others > 0.3:
        pytest.skip(
            f"others kept {others:.1f} cores busy during the recorded run: `make engine ARGS=record` makes another"
        )
    return engine


def quickest(phase, context=32, variant="fp16", batch=1, tokens=1):
    wanted = (phase, context, variant, batch, tokens)
    points = recorded_engine().points
    return next(p.quickest for p in points if (p.phase, p.context, p.variant, p.batch, p.tokens) == wanted)


def test_the_engines_run_is_a_whole_one_and_names_no_machine(engine):
    rounds, deepest = engine.conditions["rounds"], engine.conditions["deepest"]
    for timing in (*CALIBRATING, *FORETOLD, *(one for one in OTHERS if one.context <= deepest)):
        repeats = len(engine.requests) if timing.phase == "request" else len(timed(engine, timing).seconds)
        assert repeats == min(rounds, timing.repeats)
    assert len(engine.conditions["load"]) == stages(False, rounds, deepest)
    assert engine.conditions["changed"] == {} and engine.conditions["variants"] == VARIANTS
    assert this_machine(engine).model == load_model(MODEL)
    (file,) = (DATA / "timings").glob("engine-*.json")
    assert not re.search(r"/(home|root|tmp|Users|work)\b|127\.0|host|user|[A-Z]:\\\\", file.read_text(encoding="utf-8"))


def test_each_time_was_foretold_before_it_was_measured(engine):
    assert all(one.predicted_at <= one.timed_at for one in foretold(engine))
    known = {"floor": Efficiency(), **calibrations(engine)}
    for timing, one in zip(FORETOLD, foretold(engine), strict=True):
        usable = {name: found for name, found in known.items() if not isinstance(found, str)}
        again = {name: expected_seconds(engine, timing, found) for name, found in usable.items()}
        assert one.by == pytest.approx(again)


@pytest.mark.parametrize(
    "section, key, value",
    [
        ("conditions", "model", 3),
        ("conditions", "variants", {}),
        ("conditions", "variants", {"fp16": {"weights": "fp17", "changed": {}}}),
        ("conditions", "variants", {"fp16": 3}),
        ("conditions", "load", [{"waited": -1, "before": 0, "during": 0}]),
        ("conditions", "predicted", [{"predicted": "now", "timed": "then", "by": {"floor": 0}}]),
        ("yardsticks", "read_bandwidth", None),
    ],
)
def test_an_engines_record_that_is_damaged_is_refused_by_name(engine, section, key, value):
    data = json.loads(json.dumps(asdict(engine)))
    data[section][key] = value
    with pytest.raises(InvalidInputError, match=key):
        record_from(data)


def test_a_record_is_asked_only_for_what_it_holds(engine):
    with pytest.raises(InvalidInputError, match="variant is 'fp17'"):
        this_machine(engine, "fp17")
    with pytest.raises(InvalidInputError, match="holds no prefill"):
        timed(replace(engine, points=()), CALIBRATING[2])


def test_without_an_engine_it_is_said_how_to_make_one(monkeypatch, tmp_path):
    monkeypatch.setattr("lessonlib.measured.timing.engine.DATA", tmp_path / "data")
    with pytest.raises(EngineMissingError):
        time_engine(quick=True, progress=False)


def test_numbers_of_few_bits_save_time_but_less_than_their_bytes(quiet):
    floors = {row.what: row.ratio for row in predictions(quiet)}
    plain, eight, four = (floors[f"decode at 32, batch 1, {name}"] for name in ("fp16", "q8_0", "q4_0"))
    assert plain < min(eight, four)
    assert quickest("decode", variant="q4_0") < quickest("decode", variant="q8_0") < quickest("decode")


def test_a_cached_token_takes_many_times_its_bytes_and_less_with_plain_attention(quiet):
    flash, plain = (times for _, times in token_costs(quiet).values())
    assert 2 < plain < flash
    mixer = this_machine(quiet).model.blocks[0][1].mixer
    assert mixer.heads / mixer.kv_heads == 7  # "seven query heads share each KV head"


def test_a_batch_on_one_thread_is_far_from_free(quiet):
    ridge = this_machine(quiet).peak / this_machine(quiet).bandwidth
    assert 1 < ridge < 10
    assert quickest("decode", batch=16) > 4 * quickest("decode")


def test_the_calibration_carries_to_a_request_and_not_to_a_context_a_batch_or_a_format(quiet):
    assert isinstance(calibrations(quiet)["added up"], str)
    request, context, batch, bits = (one.by["overlapping"] / one.measured - 1 for one in foretold(quiet))
    assert abs(request) < 0.2 and max(context, batch, bits) < -abs(request)


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
