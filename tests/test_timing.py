"""The timed decoder is correct and does what lessonlib counts; a record is whole, checked, and never half written."""

import inspect
import json
import os
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest
from helpers import refuses

from lessonlib import (
    Accelerator,
    Deployment,
    InvalidInputError,
    Precision,
    Request,
    load_model,
    pass_cost,
    request_cost,
)
from lessonlib.measured.timing import cpu
from lessonlib.measured.timing.decoder import Counts, NumpyDecoder, toy_model
from lessonlib.measured.timing.predictions import predictions, this_machine, timing_report
from lessonlib.measured.timing.record import (
    TOY_SIZES,
    TimedPass,
    Yardstick,
    read_record,
    read_records,
    record_from,
    write_record,
)

TOY = {"layers": 2, "width": 64, "heads": 4, "inner": 96, "vocabulary": 50}
IDS = np.random.default_rng(1).integers(0, 50, 150)


@pytest.fixture(scope="module")
def record():
    return cpu.time_cpu(quick=True, progress=False)


def deployment():
    machine = Accelerator(name="toy", memory=1e12, bandwidth=1e10, peaks={"fp32": 1e11})
    return Deployment(toy_model(**TOY), machine, Precision("fp32"))


# ---- the decoder


def test_cached_decode_is_the_full_pass():
    whole, stepped = (NumpyDecoder(toy_model(**TOY), room=150) for _ in range(2))
    expected = whole.forward(IDS)
    stepped.forward(IDS[:70])
    stepped.forward(IDS[70:100])  # a chunk
    for token in IDS[100:]:
        logits = stepped.forward(np.array([token]))
    assert np.abs(logits - expected).max() < 1e-4
    assert np.abs(expected).max() > 0.1  # logits that could differ


def test_a_later_token_does_not_change_an_earlier_one():
    changed = IDS[:100].copy()
    changed[99] = (changed[99] + 1) % 50
    first, second = (NumpyDecoder(toy_model(**TOY), room=150) for _ in range(2))
    first.forward(IDS[:100])
    second.forward(changed)
    for mine, other in zip(first.keys, second.keys, strict=True):
        assert np.array_equal(mine[:, :, :99], other[:, :, :99]) and not np.array_equal(mine[:, :, 99], other[:, :, 99])


@pytest.mark.parametrize(("new", "cached"), [(1, 0), (150, 0), (1, 100), (33, 64)])
def test_a_pass_counts_what_lessonlib_counts(new, cached):
    decoder = NumpyDecoder(toy_model(**TOY), room=200)
    if cached:
        decoder.forward(IDS[:cached])
    decoder.counts = Counts()
    decoder.forward(IDS[:new])
    expected, found = pass_cost(deployment(), new, cached), decoder.counts
    assert found.linear_flops == expected.linear.flops
    assert found.attention_flops == expected.attention.flops
    assert found.weight_bytes == expected.linear.bytes
    assert (found.cache_read, found.cache_write) == (expected.cache_read, expected.cache_write)


def test_a_request_counts_what_lessonlib_counts():
    decoder = NumpyDecoder(toy_model(**TOY), room=200)
    decoder.forward(IDS[:100])
    decoder.counts = Counts()
    for token in IDS[100:]:
        decoder.forward(np.array([token]))
    decode, found = request_cost(deployment(), Request(100, 51)).decode, decoder.counts
    assert (found.linear_flops, found.attention_flops) == (decode.linear.flops, decode.attention.flops)
    assert (found.weight_bytes, found.cache_read) == (decode.linear.bytes, decode.cache_read)


def test_its_weights_are_the_models():
    decoder = NumpyDecoder(toy_model(**TOY), room=8)
    gains = sum(layer["gains"].size for layer in decoder.layers) + decoder.final_gain.size
    held = sum(matrix.size for matrix in decoder.matrices) + decoder.embedding.size + gains
    assert held == decoder.model.parameters


def test_the_cache_is_never_overrun_and_other_models_are_refused():
    decoder = NumpyDecoder(toy_model(**TOY), room=10)
    decoder.forward(IDS[:10])
    with pytest.raises(InvalidInputError, match="10 in all at most"):
        decoder.forward(IDS[:1])
    with pytest.raises(InvalidInputError, match="toy_model"):
        NumpyDecoder(load_model("llama-3.1-8b"), room=10)


# ---- the timing, for real, at toy size


def test_timing_gives_a_record_with_one_thread(record):
    assert (record.what, record.conditions["threads"]) == ("cpu", 1)
    assert {point.phase for point in record.points} == {"decode", "prefill"}
    assert {request.name for request in record.requests} == {"chat", "reasoning"}
    assert all(0 < request.ttft < request.seconds for request in record.requests)
    assert set(record.yardsticks) == {"matvec_bandwidth", "matmul_rate"}


def test_prediction_is_request_cost_from_the_yardsticks(record):
    rows = predictions(record)
    assert len(rows) == len(record.points) + len(record.requests)
    machine = this_machine(record)
    assert machine.bandwidth == record.yardsticks["matvec_bandwidth"].value
    for row in rows:
        assert row.ratio == pytest.approx(row.measured / row.predicted)
        assert row.lowest_ratio <= row.ratio <= row.highest_ratio
    chat = next(request for request in record.requests if request.name == "chat")
    expected = request_cost(machine, Request(chat.prompt, chat.output)).undisturbed
    assert next(row for row in rows if row.what.startswith("chat")).predicted == expected
    assert all(row.what in timing_report(record) for row in rows)


def test_a_busy_machine_is_said(record):
    quiet = Yardstick(value=1e9, unit="byte/s", repeats=(1e9, 0.9e9))
    busy = Yardstick(value=1e9, unit="byte/s", repeats=(1e9, 0.5e9))
    step = TimedPass(phase="decode", context=64, tokens=1, batch=1, seconds=(1e-3, 1.2e-3))
    calm = replace(record, yardsticks={"matvec_bandwidth": quiet}, points=(step,))
    assert cpu.busy_warning(calm) == ""
    disturbed = cpu.busy_warning(replace(calm, points=(step, replace(step, context=8000, seconds=(1e-3, 3.5e-3)))))
    assert "(decode at 8,000 by a factor of 3.50)" in disturbed
    assert "matvec_bandwidth by a factor of 2.00" in cpu.busy_warning(
        replace(calm, yardsticks={"matvec_bandwidth": busy})
    )


def test_an_interpreter_that_fails_is_said(monkeypatch):
    monkeypatch.setattr(cpu.sys, "executable", "false")
    with pytest.raises(cpu.TimingFailedError, match="ended with code 1"):
        cpu.time_cpu(quick=True, progress=False)


@pytest.mark.skipif(os.name != "posix", reason="a script stands for the interpreter")
def test_an_interpreter_may_say_more_than_a_pipe_holds(record, monkeypatch, tmp_path):
    interpreter, written = tmp_path / "python", tmp_path / "record.json"
    written.write_text(json.dumps(asdict(record)))
    script = f"""#!{sys.executable}
import signal, sys
signal.alarm(30)  # an end, should nobody read what follows
for stream, text in ((sys.stderr, "a warning\\n"), (sys.stdout, "a stage\\n")) * 2:
    stream.write(text * 60_000)  # 1 MB on each in turn
sys.stdout.flush()
sys.stdout.buffer.write(b"\\xff no UTF-8" + b"x" * 1_000_000 + b"\\n")
print(open({str(written)!r}).read())
sys.exit({{code}})
"""
    monkeypatch.setattr(cpu.sys, "executable", str(interpreter))
    for code in (0, 3):
        interpreter.write_text(script.format(code=code))
        interpreter.chmod(0o755)
        if code:
            with pytest.raises(cpu.TimingFailedError, match=r"ended with code 3: .*a warning$"):
                cpu.time_cpu(progress=False)
        else:
            assert cpu.time_cpu(progress=False) == record


# ---- records


def test_a_record_comes_back_as_it_was_written(record, tmp_path):
    path = write_record(record, tmp_path / "timings")
    assert read_record(path) == record
    assert write_record(record, tmp_path / "timings") == path
    assert [entry.name for entry in (tmp_path / "timings").iterdir()] == [path.name]
    assert os.name != "posix" or path.stat().st_mode & 0o777 == 0o644


def test_a_damaged_or_foreign_file_is_named_and_skipped(record, tmp_path):
    write_record(record, tmp_path)
    (tmp_path / "broken.json").write_text('{"schema": ')
    (tmp_path / "foreign.json").write_text('{"schema": "other"}')
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large.json").write_text(" " * (2**20 + 1))
    records, skipped = read_records(tmp_path)
    assert records == [record]
    for name in ("broken.json", "foreign.json", "binary.json", "large.json"):
        assert any(name in line for line in skipped)
    assert read_records(tmp_path, "cuda")[0] == []


@pytest.mark.parametrize("path", ["/dev/zero", None, 5, "a\0b", "x" * 5000, ".", b"x"])
def test_what_is_no_regular_file_is_refused(path):
    with pytest.raises(InvalidInputError, match="record") as caught:
        read_record(path)
    assert len(str(caught.value)) < 300


def test_a_file_that_is_too_large_is_said_once(tmp_path):
    (tmp_path / "large.json").write_text(" " * (2**20 + 1))
    with pytest.raises(InvalidInputError) as caught:
        read_record(tmp_path / "large.json")
    assert str(caught.value).count("is over 1,048,576 bytes") == 1 and "damaged" not in str(caught.value)


def test_a_folder_and_a_kind_that_are_none_are_refused(tmp_path):
    for folder in (tmp_path / "nowhere", None, 5, "a\0b"):
        with pytest.raises(InvalidInputError, match="folder is"):
            read_records(folder)
    for what in ("toaster", 5, []):
        refuses(lambda what=what: read_records(tmp_path, what), "what", "cpu, cuda")


def test_the_sizes_of_a_record_are_those_of_the_decoder():
    assert set(inspect.signature(toy_model).parameters) == TOY_SIZES


def changed(record, path, value):
    data = json.loads(json.dumps(asdict(record)))
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("schema",), "lessonlib.measured.timing/9", "schema"),
        (("what",), "toaster", "what is 'toaster'"),
        (("when",), 5, "when is 5"),
        (("device",), [], "device"),
        (("yardsticks", "matmul_rate", "repeats"), [], "matmul_rate"),
        (("yardsticks", "matmul_rate", "value"), 0, "matmul_rate"),
        (("yardsticks", "matmul_rate", "unit"), None, "matmul_rate"),
        (("points", 0, "seconds"), [0.0], r"point 0: seconds\[0\] is 0.0"),
        (("points", 0, "seconds"), ["quick"], "point 0"),
        (("points", 0, "context"), -1, "context is -1"),
        (("points", 0, "phase"), None, "point 0"),
        (("points", 0, "phase"), "dreaming", "prefill or decode"),
        (("when",), "yesterday", "when is 'yesterday'"),
        (("requests",), 5, "requests is 5"),
        (("conditions",), {}, "'model' of its conditions is None"),
        (("conditions", "model"), {"layers": 0}, "'model' of its conditions"),
        (("conditions", "model"), {"colour": 3}, "'model' of its conditions"),
        (("device", "memory"), "16 GB", "'memory' of its device is '16 GB'"),
        (("yardsticks",), {}, "'matvec_bandwidth' of its yardsticks is None"),
        (("points",), {}, "points"),
        (("requests", 0, "ttft"), float("nan"), "request 0: ttft"),
        (("requests", 0, "prompt"), 1.5, "request 0: prompt is 1.5"),
    ],
)
def test_a_wrong_field_is_named(record, path, value, words):
    with pytest.raises(InvalidInputError, match=words):
        record_from(changed(record, path, value))


def other_record(record):
    return replace(record, device=record.device | {"cores": 3})


def test_another_record_of_the_same_second_gets_a_name_of_its_own(record, tmp_path):
    first, second = write_record(record, tmp_path), write_record(other_record(record), tmp_path)
    assert second.name == first.name.replace(".json", "-2.json")
    assert write_record(other_record(record), tmp_path) == second
    assert read_record(first) == record and read_record(second) == other_record(record)
    first.write_text("notes of somebody")
    assert write_record(record, tmp_path).name.endswith("-3.json") and first.read_text() == "notes of somebody"


def test_what_cannot_be_written_is_refused_and_nothing_is(record, tmp_path):
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file", None, "a\0b", tmp_path / ("x" * 5000)):
        with pytest.raises(InvalidInputError, match="cannot be written to"):
            write_record(record, folder)
    long = replace(record.points[0], seconds=(1.0,) * 300_000)
    for wrong, words in (
        (None, "record is None"),
        (asdict(record), "record is {"),
        (replace(record, versions={"x": {1}}), "JSON"),
        (replace(record, conditions=record.conditions | {"x": float("nan")}), "JSON"),
        (replace(record, points=(long,)), "1,048,576"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            write_record(wrong, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_nothing_is_left_behind_when_writing_fails(record, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    for step in ("link", "replace"):
        monkeypatch.setattr(f"lessonlib.base.files.os.{step}", fail)
    with pytest.raises(InvalidInputError, match="disk full"):
        write_record(record, tmp_path)
    assert list(tmp_path.iterdir()) == []
