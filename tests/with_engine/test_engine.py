"""The real engine behind a socket, with a toy of Qwen2's architecture: files, server, timing, record, calibration."""

import json
import os
import sys
import urllib.request
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

import engine
from lessonlib.base.errors import InvalidInputError
from lessonlib.base.units import format_bytes
from lessonlib.facts.catalogue import load_model, model_record
from lessonlib.measured.timing.cpu import TimingFailedError, timed_apart
from lessonlib.measured.timing.engine import (
    CALIBRATING,
    FORETOLD,
    MODEL,
    NARROW,
    VARIANTS,
    calibrations,
    expected_seconds,
    stages,
    timed,
)
from lessonlib.measured.timing.engine_files import FORMATS, file_bytes, parameters_in, vocabulary, write_weights
from lessonlib.measured.timing.engine_run import EXTRA, LIMITS, models, served
from lessonlib.measured.timing.predictions import predictions, this_machine
from lessonlib.measured.timing.record import read_record, write_record
from lessonlib.measured.timing.server import time_server
from lessonlib.measured.timing.server_client import TOLD, WORDS
from lessonlib.time.deployment import Efficiency

TOY = {
    "hidden_size": 256,
    "intermediate_size": 2048,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights")
    for name, (model, weights) in models(TOY).items():
        assert write_weights(path / name, model, weights) == model.parameters
    return path


def test_the_real_file_would_have_the_catalogues_parameters():
    (full, *_) = [model for name, (model, _) in models({}).items() if name == "fp16.gguf"]
    assert full == load_model(MODEL) and full.parameters == model_record(MODEL)["parameters"] == 494_032_768


def test_a_file_has_the_models_parameters_by_two_readers(folder):
    import gguf

    for name, (model, weights) in models(TOY).items():
        tensors = gguf.GGUFReader(folder / name).tensors
        assert sum(int(tensor.n_elements) for tensor in tensors) == parameters_in(folder / name) == model.parameters
        assert {tensor.tensor_type.name for tensor in tensors} == {FORMATS[weights], "F32"}
        assert (folder / name).stat().st_size == pytest.approx(file_bytes(model, weights), rel=0.2)


def test_a_file_that_is_there_is_kept_and_a_damaged_one_written_anew(folder, tmp_path):
    model, weights = models(TOY)["q4_0.gguf"]
    path = folder / "q4_0.gguf"
    before = path.stat().st_mtime_ns
    write_weights(path, model, weights)
    assert path.stat().st_mtime_ns == before
    torn = tmp_path / path.name
    torn.write_bytes(path.read_bytes()[:5000])
    assert parameters_in(torn) == 0
    write_weights(torn, model, weights)
    assert torn.read_bytes() == path.read_bytes() and [file.name for file in tmp_path.iterdir()] == [path.name]


def test_what_cannot_be_written_is_refused_and_nothing_is_left(tmp_path, monkeypatch):
    model, weights = models(TOY)["fp16.gguf"]
    with pytest.raises(InvalidInputError, match="not of Qwen2's architecture"):
        write_weights(tmp_path / "a.gguf", load_model("llama-3.1-8b"), weights)
    with pytest.raises(InvalidInputError, match="parameters"):  # a model that counts another number
        write_weights(tmp_path / "a.gguf", replace(model, other_weights=1 + model.other_weights), weights)
    with pytest.raises(InvalidInputError, match="too small"):
        write_weights(tmp_path / "a.gguf", replace(model, vocabulary=200), weights)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=10))
    with pytest.raises(InvalidInputError, match="make room"):
        write_weights(tmp_path / "a.gguf", model, weights)
    assert list(tmp_path.iterdir()) == []


def test_the_tokens_are_as_many_as_wanted_and_all_different():
    tokens, merges = vocabulary(2000)
    assert len(set(tokens)) == len(tokens) == 2000
    assert {f"Ġ{word}" for word in WORDS} <= set(tokens) and len(set(merges)) == len(merges)
    assert all(merge.replace(" ", "") in tokens for merge in merges)


@pytest.fixture(scope="module")
def server(folder):
    with served(folder / "fp16.gguf", 4, 1, True) as (address, process):
        yield address, process


def test_a_word_of_ours_is_a_token_of_the_engine(server):
    for words in (len(TOLD.split()) + 1, 100):
        record = time_server(
            f"{server[0]}/v1", MODEL, concurrency=(1, 4), requests={"x": (words, 24)}, extra=EXTRA, limits=LIMITS
        )
        replies = record.conditions["replies"]
        assert [reply["problem"] for reply in replies] == [""] * 5
        assert {(reply["prompt"], reply["output"], reply["chunks"]) for reply in replies} == {(words + 2, 24, 24)}
        assert [(reply["cached"], list(reply["notes"])) for reply in replies] == [(0, [])] * 5


def test_the_server_is_of_this_machine_alone_and_ends_with_us(folder):
    import psutil

    with served(folder / "q8_0.gguf", 1, 1, True) as (address, process):
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            assert json.load(answer)["status"] == "ok"
        assert psutil.pid_exists(process)
    assert not psutil.pid_exists(process)


def test_a_server_that_does_not_start_is_one_line(tmp_path):
    (tmp_path / "no.gguf").write_bytes(b"no model")
    with (
        pytest.raises(TimingFailedError, match=r"the server on no\.gguf did not start"),
        served(tmp_path / "no.gguf", 1, 1, True),
    ):
        pass


@pytest.fixture(scope="module")
def record(folder):
    """The quick run, in an interpreter of its own as a learner starts it."""
    code = (
        "import json, sys; from pathlib import Path; from lessonlib.measured.timing.engine_run import measure; "
        "print(json.dumps(measure(Path(sys.argv[1]), True, changed=json.loads(sys.argv[2]), patience=1.0)))"
    )
    command = [sys.executable, "-c", code, str(folder), json.dumps(TOY)]
    return timed_apart(command, "time_engine", "timing", stages(True), False)


def test_the_record_holds_what_was_planned_and_says_the_load(record, tmp_path):
    assert read_record(write_record(record, tmp_path)) == record
    assert record.what == "engine" and set(record.conditions["variants"]) == set(VARIANTS)
    timings = (*CALIBRATING, *(timing for timing in FORETOLD if timing.phase != "request"))
    assert len(record.points) == len(timings)
    assert all(len(timed(record, timing).seconds) == 1 for timing in timings)
    (request,) = record.requests
    assert (request.prompt, request.output) == (256, 64) and 0 < request.ttft < request.seconds
    assert len(record.conditions["load"]) == stages(True) == 4 + len(timings) + 1
    assert all(one["during"] >= 0 and one["waited"] >= 0 for one in record.conditions["load"])
    assert all("chunks came in bursts" in note for note in record.conditions["notes"])  # a toy's steps are that short
    text = json.dumps(record.conditions) + json.dumps(record.device)
    assert not any(word in text for word in ("/home", "/tmp", "127.0.0.1", os.sep + "root"))


def test_what_is_foretold_was_foretold_before_it_was_timed(record):
    said = record.conditions["predicted"]
    assert [one["phase"] for one in said] == [timing.phase for timing in FORETOLD]
    for one in said:
        assert one["predicted"] <= one["timed"] and one["by"]["floor"] > 0
    found = calibrations(record)
    assert found.keys() == record.conditions["calibrated"].keys() == {"added up", "overlapping"}
    for name, one in found.items():
        assert isinstance(one, str) == (name not in said[0]["by"])
        assert record.conditions["calibrated"][name] == (one if isinstance(one, str) else asdict(one))


def test_the_measured_times_stand_beside_predictions(record):
    rows = predictions(record)
    assert len(rows) == len(record.points) + 1 and all(row.measured > 0 for row in rows)
    floors = {point: row.predicted for point, row in zip(record.points, rows, strict=False)}
    for timing in (*CALIBRATING, *(one for one in FORETOLD if one.phase != "request")):
        assert floors[timed(record, timing)] == expected_seconds(record, timing, Efficiency())
    q8 = this_machine(record, "q8_0")
    assert q8.sizes.dense_bytes < 0.6 * this_machine(record).sizes.dense_bytes
    assert this_machine(record, NARROW).model.blocks[0][1].feedforward.inner == 1216


def test_the_tool_says_what_it_takes_writes_once_and_keeps_the_newest_record(record, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(engine, "models", lambda changed: models(TOY))
    engine.write_files(tmp_path / "weights")
    said = capsys.readouterr().out
    size = sum(file_bytes(model, weights) for model, weights in models(TOY).values())
    assert f"They take {format_bytes(size)} of disk" in said and "make engine-clean" in said
    assert {path.name for path in (tmp_path / "weights").iterdir()} == models(TOY).keys()
    engine.write_files(tmp_path / "weights")
    assert capsys.readouterr().out.startswith("The files of random weights are there")
    monkeypatch.setattr(engine, "RECORDS", tmp_path)
    monkeypatch.setattr(engine, "time_engine", lambda **asked: record)
    (tmp_path / "engine-2020-01-01T00-00-00Z.json").write_text("older")
    (tmp_path / "cpu-2020-01-01T00-00-00Z.json").write_text("another's")
    for _ in range(2):  # the same record twice is the same file
        engine.keep_record()
        kept = sorted(path.name for path in tmp_path.glob("*.json"))
        assert kept[0].startswith("cpu-") and len(kept) == 2
        assert read_record(tmp_path / kept[1]) == record
