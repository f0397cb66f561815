"""Timings made with a known efficiency give it back; timings that contradict each other are refused."""

from dataclasses import replace

import pytest
from helpers import examples, refuses
from hypothesis import given
from hypothesis import strategies as st

from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.measured.own_runs import TimedRun, efficiency_from_runs
from lessonlib.model.precision import Precision
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import Deployment, Efficiency, Speculation
from lessonlib.time.roofline import pass_cost

SERVER = Deployment(load_model("llama-3.1-8b"), load_accelerator("h100-sxm"), Precision("bf16"))
TRUE = Efficiency(mfu=0.6, mbu=0.75, overhead=1.5e-3, overlap=False)


def step(deployment, cached, batch=1, efficiency=TRUE):
    """One decode step, timed by the library with that efficiency."""
    seconds = pass_cost(replace(deployment, efficiency=efficiency), 1, cached, batch).seconds
    return TimedRun(deployment, seconds, cached, batch)


def prompt(deployment, new=4096, efficiency=TRUE):
    seconds = pass_cost(replace(deployment, efficiency=efficiency), new).seconds
    return TimedRun(deployment, seconds, new=new)


def same(found, true):
    numbers = [(getattr(e, name)) for name in NUMBERS for e in (found, true)]
    assert numbers[::2] == pytest.approx(numbers[1::2], rel=1e-6, abs=1e-9) and not found.overlap
    return True


fractions = st.floats(0.05, 1.0)
NUMBERS = ("mfu", "mbu", "overhead")


@examples(60)
@given(
    mfu=fractions,
    mbu=fractions,
    overhead=st.floats(0, 0.05),
    cached=st.tuples(st.integers(0, 60_000), st.integers(0, 60_000)).filter(lambda pair: abs(pair[0] - pair[1]) > 2000),
    batch=st.integers(1, 16),
    new=st.integers(1024, 32_768),
)
def test_exact_timings_give_back_what_made_them(mfu, mbu, overhead, cached, batch, new):
    true = Efficiency(mfu, mbu, overhead, overlap=False)
    first, second = step(SERVER, cached[0], 1, true), step(SERVER, cached[1], batch, true)
    same(efficiency_from_runs(first, second, prompt(SERVER, new, true)), true)
    told = replace(SERVER, efficiency=Efficiency(mfu=mfu))  # the peak fraction is known from elsewhere
    same(efficiency_from_runs(replace(first, deployment=told), replace(second, deployment=told)), true)


CPU = Accelerator(name="a CPU", memory=32e9, bandwidth=3e10, peaks={"fp16": 1e11})
SMALL = load_model("qwen2.5-0.5b")
ON_CPU = Deployment(SMALL, CPU, Precision("fp16"))
ON_CPU_CUT = replace(ON_CPU, model=replace(SMALL, blocks=((8, SMALL.blocks[0][1]),)))


@examples(60)
@given(
    mfu=st.floats(0.35, 1.0), mbu=fractions, overhead=st.floats(0, 0.01), told=st.booleans(), new=st.integers(256, 4096)
)
def test_where_compute_and_memory_overlap_the_longer_of_each_roof_counts(mfu, mbu, overhead, told, new):
    """At a ridge of 3 FLOP/byte a step computes nearly as long as it reads: the sum would be twice too long."""
    true = Efficiency(mfu, mbu, overhead)
    first, second, long = step(ON_CPU, 32, 1, true), step(ON_CPU_CUT, 32, 1, true), prompt(ON_CPU, new, true)
    found = efficiency_from_runs(first, second, long, overlap=True)
    assert found.overlap and [getattr(found, name) for name in NUMBERS] == pytest.approx(
        [mfu, mbu, overhead], rel=1e-6, abs=1e-9
    )
    if told:
        first = replace(first, deployment=replace(ON_CPU, efficiency=Efficiency(mfu=mfu)))
        assert efficiency_from_runs(first, second, overlap=True).mbu == pytest.approx(mbu, rel=1e-6)


def test_a_cpus_step_that_overlaps_is_refused_as_a_sum():
    true = Efficiency(0.4, 0.8, 1e-3)
    runs = step(ON_CPU, 32, 1, true), step(ON_CPU_CUT, 32, 1, true), prompt(ON_CPU, 512, true)
    refuses(lambda: efficiency_from_runs(*runs), "efficiency_from_runs", "times the datasheet's", "bandwidth")


def test_whole_answers_give_it_back_too():
    timed = replace(SERVER, efficiency=TRUE)
    runs = []
    for lengths, batch in ((Request(1024, 128), 1), (Request(8192, 512), 8)):
        cost = request_cost(timed, lengths, batch)
        runs.append(TimedRun(SERVER, cost.decode.seconds, lengths.prompt, batch, lengths.output - 1))
    cost = request_cost(timed, Request(4096, 2), 2)
    same(efficiency_from_runs(*runs, TimedRun(SERVER, cost.prefill.seconds, batch=2, new=4096)), TRUE)


@pytest.mark.parametrize(
    "first, second",
    [
        (SERVER, replace(SERVER, precision=Precision("fp8", compute="bf16"))),  # different bytes
        (SERVER, replace(SERVER, model=load_model("qwen3-8b"))),
        *[(replace(SERVER, model=load_model(name), devices=4),) * 2 for name in ("llama-3.1-70b", "qwen3-30b-a3b")],
        (replace(SERVER, devices=8, layout="expert", model=load_model("qwen3-30b-a3b")),) * 2,
    ],
)
def test_by_bytes_by_mixtures_and_over_a_link(first, second):
    same(efficiency_from_runs(step(first, 500), step(second, 30_000, 8), prompt(first)), TRUE)


def test_the_numbers_by_hand():
    """Two equations by a plain loop: bytes / bandwidth is 4.78 ms a step, then 5.06 ms; the slope is 1 / mbu."""
    first, second = step(SERVER, 0), step(SERVER, 8192)
    moved = [pass_cost(SERVER, 1, cached).bytes / SERVER.bandwidth for cached in (0, 8192)]
    computed = [sum(r.compute_seconds for r in pass_cost(SERVER, 1, cached).roofs.values()) for cached in (0, 8192)]
    left = [run.seconds - compute for run, compute in zip((first, second), computed, strict=True)]
    slope = (left[1] - left[0]) / (moved[1] - moved[0])
    found = efficiency_from_runs(first, second)
    assert found.mfu == 1.0 and found.mbu == pytest.approx(1 / slope, rel=1e-9)
    assert found.overhead == pytest.approx(left[0] - slope * moved[0], rel=1e-9)


def test_a_perfect_machine_comes_back_whole():
    perfect = Efficiency(overlap=False)
    found = efficiency_from_runs(
        step(SERVER, 0, 1, perfect), step(SERVER, 9000, 1, perfect), prompt(SERVER, 4096, perfect)
    )
    assert (found.mfu, found.mbu) == (pytest.approx(1), pytest.approx(1)) and found.overhead == pytest.approx(
        0, abs=1e-9
    )


def test_the_result_predicts():
    found = efficiency_from_runs(step(SERVER, 0), step(SERVER, 9000, 4), prompt(SERVER))
    cost, true = (request_cost(replace(SERVER, efficiency=e), Request(2000, 700), 16) for e in (found, TRUE))
    assert cost.seconds == pytest.approx(true.seconds, rel=1e-9)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda a, b: (a, a), ("read the same",)),
        (lambda a, b: (a, replace(a, seconds=2 * a.seconds)), ("read the same",)),
        (lambda a, b: (a, replace(b, seconds=0.9 * a.seconds)), ("took less time", "contradict")),
        (lambda a, b: (a, replace(b, seconds=a.seconds)), ("took less time",)),
        (lambda a, b: (a, replace(b, seconds=a.seconds + 1e-4)), ("times the datasheet's", "bandwidth")),
        (lambda a, b: (replace(a, seconds=0.1 * a.seconds), b), ("overhead comes out", "below zero")),
        (lambda a, b: (a, b, b), ("prefill.new is 1",)),
        (lambda a, b: (a, prompt(SERVER)), ("second.new is 4096",)),
        (lambda a, b: (a, replace(b, deployment=replace(SERVER, devices=2))), ("second.deployment", "the machine")),
        (lambda a, b: (a, b, replace(prompt(SERVER), seconds=1e-3)), ("peak",)),
        (lambda a, b: (a, b, TimedRun(SERVER, 0.02, new=2)), ("prefill is 2", "compute outweighs")),
        (lambda a, b: (a, 7e-3), ("second is 0.007", "a TimedRun")),
    ],
)
def test_what_contradicts_is_refused(call, words):
    a, b = step(SERVER, 0), step(SERVER, 9000)
    refuses(lambda: efficiency_from_runs(*call(a, b)), "efficiency_from_runs", *words)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"seconds": 0}, ("seconds is 0",)),
        ({"seconds": float("nan")}, ("seconds is nan",)),
        ({"steps": 0}, ("steps is 0",)),
        ({"cached": -1}, ("cached is -1",)),
        ({"new": 100, "steps": 2}, ("steps is 2", "one prefill")),
        ({"deployment": "h100"}, ("deployment is 'h100'",)),
        (
            {"deployment": replace(SERVER, speculation=Speculation(4, 0.7, "free"))},
            ("deployment", "without speculation"),
        ),
    ],
)
def test_a_run_that_cannot_be_meant_is_refused(changes, words):
    refuses(lambda: TimedRun(**({"deployment": SERVER, "seconds": 0.01} | changes)), "TimedRun: ", *words)


def test_milliseconds_forgotten_steps_and_contexts_beyond_the_model_are_refused():
    first, second = step(SERVER, 1000), step(SERVER, 9000, 32)
    for factor in (1000, 127):  # milliseconds; all steps of an answer as one
        slow = [replace(run, seconds=run.seconds * factor) for run in (first, second)]
        refuses(lambda runs=slow: efficiency_from_runs(*runs), "efficiency_from_runs", "bandwidth", "milliseconds")
    far = replace(second, cached=SERVER.max_positions)
    refuses(lambda: efficiency_from_runs(first, far), "efficiency_from_runs", "second.cached is 131072", "131,072")
    longest = replace(step(SERVER, SERVER.max_positions - 1), steps=1)
    same(efficiency_from_runs(first, longest, prompt(SERVER)), TRUE)
