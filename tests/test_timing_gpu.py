"""The GPU timing where there is none to time: each reason is one sentence, and a record is read without PyTorch.

What runs on a device is tested with PyTorch, in tests/with_torch (`make test-torch`).
"""

import subprocess
import sys
from types import ModuleType

import pytest

from lessonlib import InvalidInputError, LessonError, Request, request_cost
from lessonlib.measured.timing import gpu
from lessonlib.measured.timing.predictions import predictions, this_machine, timing_report
from lessonlib.measured.timing.record import record_from

RECORD = {
    "schema": "lessonlib.timing/1",
    "what": "cuda",
    "when": "2026-11-30T12:00:00Z",
    "device": {"name": "made up", "memory": 80e9},
    "versions": {"torch": "2.13.0"},
    "conditions": {"model": "llama-3.1-8b", "dtype": "bf16", "bucket": 1, "attention": "True length.", "left_out": []},
    "yardsticks": {
        "read_bandwidth": {"value": 3e12, "unit": "byte/s", "repeats": [3e12]},
        "copy_bandwidth": {"value": 2.8e12, "unit": "byte/s", "repeats": [2.8e12]},
        "matmul_rate": {"value": 700e12, "unit": "FLOP/s", "repeats": [700e12]},
    },
    "points": [
        {"phase": "prefill", "context": 0, "tokens": 1024, "batch": 1, "seconds": [0.03]},
        {"phase": "decode", "context": 1000, "tokens": 1, "batch": 1, "seconds": [0.006, 0.0065, 0.007]},
        {"phase": "decode", "context": 1000, "tokens": 1, "batch": 32, "seconds": [0.009]},
    ],
    "requests": [{"name": "reasoning", "prompt": 128, "output": 1280, "batch": 1, "ttft": 0.01, "seconds": 8.0}],
}


def rows_of(**conditions):
    record = record_from(RECORD | {"conditions": RECORD["conditions"] | conditions})
    return this_machine(record), {row.what: row for row in predictions(record)}


def test_without_pytorch_one_sentence_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed, where it is
    with pytest.raises(gpu.GpuUnavailableError, match=r"^No GPU was timed: PyTorch is not installed\.$"):
        gpu.time_gpu(quick=True)
    assert issubclass(gpu.GpuUnavailableError, LessonError)


def test_a_pytorch_that_is_too_old_is_named(monkeypatch):
    old = ModuleType("torch")
    old.__version__ = "2.1.0"
    monkeypatch.setitem(sys.modules, "torch", old)
    with pytest.raises(gpu.GpuUnavailableError, match=r"PyTorch 2\.1\.0 is too old; 2\.5 or newer is needed"):
        gpu.time_gpu()


def test_the_command_says_it_and_ends_with_1():
    code = "import sys, runpy; sys.modules['torch'] = None; sys.argv[1:] = ['gpu', '--quick']\n"
    code += "runpy.run_module('lessonlib.measured.timing', run_name='__main__')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr == "No GPU was timed: PyTorch is not installed.\n"


@pytest.mark.parametrize(
    ("built_for", "said", "words"),
    [
        (None, [], "is a build without CUDA or ROCm."),
        ("13.0", [], "sees none."),
        (
            "13.0",
            ["CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). Please update"],
            "cannot use it (CUDA initialization: The NVIDIA driver on your system is too old (found version 11040)).",
        ),
        (
            "13.0",
            ["CUDA error: no kernel image is available\nfor execution on the device"],
            "cannot use it (CUDA error: no kernel image is available for execution on the device).",
        ),
    ],
)
def test_each_reason_is_one_sentence(built_for, said, words):
    assert gpu.why_not("2.13.0", built_for, said) == f"No GPU was timed: PyTorch 2.13.0 {words}"


def test_importing_it_loads_no_pytorch():
    code = "import sys; sys.modules['torch'] = None; import lessonlib.measured.timing.gpu"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("section", "key"),
    [("device", "name"), ("device", "memory")]
    + [("conditions", key) for key in RECORD["conditions"]]
    + [("yardsticks", "read_bandwidth"), ("yardsticks", "matmul_rate")],
)
def test_what_the_report_reads_is_needed(section, key):
    less = {name: value for name, value in RECORD[section].items() if name != key}
    with pytest.raises(InvalidInputError, match=f"'{key}' of its {section} is None"):
        record_from(RECORD | {section: less})


def test_a_record_may_be_of_an_apple_gpu():
    assert record_from(RECORD | {"what": "mps"}).what == "mps"


def test_the_prediction_is_from_the_ceilings():
    machine, rows = rows_of()
    assert machine.bandwidth == 3e12 and machine.peak == 700e12
    decode = rows["decode at 1,000, batch 32"]
    assert decode.predicted == pytest.approx(request_cost(machine, Request(1000, 2), 32).decode.seconds, rel=1e-12)
    assert decode.ratio == pytest.approx(0.009 / decode.predicted)
    alone = rows["decode at 1,000, batch 1"]
    assert alone.measured == 0.0065
    assert (alone.lowest_ratio, alone.highest_ratio) == pytest.approx(
        (0.006 / alone.predicted, 0.007 / alone.predicted)
    )
    expected = request_cost(machine, Request(128, 1280)).undisturbed
    assert rows["reasoning 128 -> 1,280"].predicted == pytest.approx(expected, rel=1e-12)


def test_a_bucket_is_predicted_as_it_was_read():
    machine, exact = rows_of()
    _, rounded = rows_of(bucket=256)
    more = rounded["decode at 1,000, batch 32"].predicted - exact["decode at 1,000, batch 32"].predicted
    # A step on 1,000 cached tokens has a span of 1,001 and reads 1,024: 23 more, in each of 32 sequences.
    assert more == pytest.approx(32 * machine.model.cache_bytes(23) / 3e12)


def test_the_report_says_what_was_reached_and_left_out():
    record = record_from(
        RECORD | {"conditions": RECORD["conditions"] | {"left_out": ["decode at 32,768 was left out"]}}
    )
    text = timing_report(record)
    (row,) = [row for row in predictions(record) if row.what == "decode at 1,000, batch 1"]
    reached = f"{1 / row.ratio:.0%}"
    assert f"Decode at batch 1 reaches {reached} to {reached} of the measured read bandwidth." in text
    assert text.splitlines()[-2:] == ["True length.", "decode at 32,768 was left out"]
    assert "reasoning 128 -> 1,280" in text
