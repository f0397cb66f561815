"""The timing itself on PyTorch's CPU at toy size: every stage runs, and what comes out is a valid record."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from test_gpu_decoder import decoder, toy

from lessonlib import Accelerator, Deployment, Precision, Request, request_cost
from lessonlib.measured.timing import gpu, gpu_run
from lessonlib.measured.timing.predictions import predictions
from lessonlib.measured.timing.record import read_record, record_from, write_record

CPU = torch.device("cpu")
PLAN = gpu_run.Plan((16, 300, 5000), (1, 2), (8, 64), {"chat": (32, 8), "reasoning": (8, 300)})
DEVICE = {"name": "this CPU", "memory": 8e9}


@pytest.fixture(scope="module")
def said():
    return []


@pytest.fixture(scope="module")
def record(said):
    limit = decoder(bucket=256).bytes_needed(1500)  # no room for the longest context
    found = gpu_run.time_model(toy(), CPU, torch.float32, limit, PLAN, said.append)
    yardsticks = gpu_run.ceilings(CPU, torch.float32, 2**22, 256)
    # PyTorch's CPU stands in for a GPU, and what a record needs is told by its kind.
    return record_from(found | {"what": "cuda", "yardsticks": yardsticks, "device": DEVICE})


@pytest.fixture(scope="module")
def deployment(record):
    read, product = (record.yardsticks[name].value for name in ("read_bandwidth", "matmul_rate"))
    device = Accelerator(name="this CPU", memory=8e9, bandwidth=read, peaks={"fp32": product})
    return Deployment(toy(), device, Precision("fp32"))


def test_all_that_fits_is_timed(record, tmp_path):
    decode = [(point.context, point.batch) for point in record.points if point.phase == "decode"]
    assert decode == [(16, 1), (300, 1), (16, 2), (300, 2)]
    assert [point.tokens for point in record.points if point.phase == "prefill"] == [8, 64]
    assert all(len(point.seconds) == 15 for point in record.points)
    assert {(one.name, one.prompt, one.output) for one in record.requests} == {("chat", 32, 8), ("reasoning", 8, 300)}
    assert all(0 < one.ttft < one.seconds for one in record.requests)
    assert read_record(write_record(record, tmp_path)) == record


def test_the_ceilings_are_rates_with_every_repeat(record):
    assert {name: stick.unit for name, stick in record.yardsticks.items()} == {
        "read_bandwidth": "byte/s",
        "copy_bandwidth": "byte/s",
        "matmul_rate": "FLOP/s",
    }
    for stick in record.yardsticks.values():
        assert len(stick.repeats) == 15 and min(stick.repeats) <= stick.value <= max(stick.repeats)


def test_what_does_not_fit_is_said(record, said):
    left_out = [line for line in record.conditions["left_out"] if "5,000" in line]
    assert [line in said for line in left_out] == [True, True]
    assert left_out[0].startswith("decode at 5,000, batch 1 was left out: it needs ")


def test_the_rounding_of_the_bucket_is_said_and_predicted(record, deployment):
    assert record.conditions["bucket"] == 256
    # Half of 255 tokens of two layers of two heads of 16, keys and values, in fp32.
    assert "spans of whole 256 tokens: on average 65.28 kB more" in record.conditions["attention"]
    rows = {row.what: row for row in predictions(record, deployment)}
    bucketed, exact = rows["decode at 300, batch 2"].predicted, request_cost(deployment, Request(300, 2), 2).decode
    assert bucketed > exact.seconds
    assert bucketed == pytest.approx(request_cost(deployment, Request(511, 2), 2).decode.seconds, rel=1e-12)


def test_at_true_length_the_prediction_is_request_cost(record, deployment):
    record = replace(record, conditions=record.conditions | {"bucket": 1})
    rows = {row.what: row for row in predictions(record, deployment)}
    expected = request_cost(deployment, Request(8, 300)).undisturbed
    assert rows["reasoning 8 -> 300"].predicted == pytest.approx(expected, rel=1e-12)
    assert len(rows) == len(record.points) + len(record.requests)
    for row in rows.values():
        assert row.ratio == pytest.approx(row.measured / row.predicted)
        assert row.lowest_ratio <= row.ratio <= row.highest_ratio


@pytest.mark.parametrize("output", [1, 2, 120])
def test_a_request_emits_exactly_its_output_tokens(output):
    made = decoder(room=160)
    made.history.fill_(-1)
    took = gpu_run.time_request(made, 30, output)
    assert (made.history >= 0).sum(dim=1).tolist() == [30 + output] * 2
    assert (made.history[:, : 30 + output] >= 0).all()
    assert made.cached == 30 + output - 1
    assert (took["prompt"], took["output"]) == (30, output) and 0 < took["ttft"] < took["seconds"]


def test_out_of_memory_takes_the_next_smaller_size_and_says_so():
    sizes = {"large": 64, "small": 2}  # layers
    limit = decoder().bytes_needed(2000)
    said = []

    def measure(name):
        ((_, block),) = toy().blocks
        model = replace(toy(), name=name, blocks=((sizes[name], block),))
        return gpu_run.time_model(model, CPU, torch.float32, limit, PLAN, said.append)

    found = gpu_run.first_that_fits(sizes, measure, said.append)
    assert found["conditions"]["model"] == "small"
    assert found["conditions"]["left_out"][0] == said[0]
    assert said[0].startswith("large was left out, for it ran out of memory (large: weights and 0 cached tokens need ")
    assert gpu_run.first_that_fits(["large"], measure, said.append) is None


def test_no_room_for_a_request_is_out_of_memory_too():
    limit = decoder().bytes_needed(100)
    with pytest.raises(torch.OutOfMemoryError, match="cached tokens need"):
        gpu_run.time_model(toy(), CPU, torch.float32, limit, PLAN, print)


# ---- no GPU

no_gpu = pytest.mark.skipif(
    torch.cuda.is_available() or torch.backends.mps.is_available(), reason="this machine has a GPU"
)


@no_gpu
def test_without_a_gpu_one_sentence_says_why():
    with pytest.raises(gpu.GpuUnavailableError) as caught:
        gpu.time_gpu(quick=True)
    built = "sees none" if torch.version.cuda or torch.version.hip else "is a build without CUDA or ROCm"
    assert str(caught.value) == f"No GPU was timed: PyTorch {torch.__version__} {built}."


@no_gpu
def test_the_command_says_it_and_ends_with_1():
    command = [sys.executable, "-m", "lessonlib.measured.timing", "gpu", "--quick"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.startswith("No GPU was timed: ") and run.stderr.count("\n") == 1
