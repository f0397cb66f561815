"""Time a real decoder on this machine's CPU, with one thread.

First the yardsticks: the bandwidth of matrix-vector products over the decoder's own weights, and the rate of a large
matrix product. They stand in for bandwidth and peak, and nothing is fitted. Then decode at growing contexts, prefill
at growing lengths, and a short chat-shaped and a short reasoning-shaped request from prompt to last token.

BLAS reads its number of threads when NumPy loads, so the timing runs in an interpreter of its own. About 30 seconds,
1 GB.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np

from lessonlib.base.checks import a, checked
from lessonlib.base.errors import LessonError
from lessonlib.facts.tables import DATA
from lessonlib.measured.timing.browser import refuse_in_browser
from lessonlib.measured.timing.decoder import NumpyDecoder, toy_model
from lessonlib.measured.timing.predictions import label
from lessonlib.measured.timing.record import Record, head, read_record, record_from

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "BLIS_NUM_THREADS")
CONTEXTS = (64, 512, 1024, 2048, 4096, 8000)
PROMPTS = (1, 32, 128, 256, 512)
REQUESTS = {"chat": (256, 32), "reasoning": (16, 320)}
QUICK_SIZES = {"layers": 2, "width": 64, "heads": 4, "inner": 128, "vocabulary": 256}
QUICK_REQUESTS = {"chat": (32, 4), "reasoning": (4, 40)}
STAGES = 3 + len(CONTEXTS) + len(PROMPTS) + len(REQUESTS)  # lines that `measure` prints
BUSY = 1.25  # repeats of one measurement that differ by more than this were disturbed
RECORDED = "cpu-2026-11-30T05-55-03Z.json"  # the run that notebook 07 replays


class TimingFailedError(LessonError):
    """The timing's own interpreter ended without a result; the message holds its last words."""


def time_cpu(quick: bool = False, progress: bool = True) -> Record:
    """Time the decoder in a fresh interpreter with one BLAS thread; returns the checked Record.

    `quick`: a toy size, for tests, in about a second. `progress`: a bar of the stages done. Raises TimingFailedError,
    in a browser too, where no process can be started.
    """
    refuse_in_browser("time_cpu", "show the recorded run, recorded_cpu()", TimingFailedError)
    command = [sys.executable, "-m", "lessonlib.measured.timing", "cpu", *(["--quick"] if quick else [])]
    return timed_apart(command, "time_cpu", "timing this CPU", STAGES, progress)


def timed_apart(command: list[str], owner: str, title: str, stages: int, progress: bool) -> Record:
    """The Record that a command prints as its last line, in an interpreter with one BLAS thread; a bar of its lines."""
    from tqdm.auto import tqdm

    found = os.pathsep.join(filter(None, [str(DATA.parent), os.environ.get("PYTHONPATH")]))
    environment, last = os.environ | dict.fromkeys(THREADS, "1") | {"PYTHONPATH": found}, ""
    with tempfile.TemporaryFile() as errors:  # a file takes any number of warnings; a pipe that nobody reads blocks
        options: dict[str, Any] = {
            "stdout": subprocess.PIPE,
            "stderr": errors,
            "encoding": "utf-8",
            "errors": "replace",
        }
        with subprocess.Popen(command, env=environment, **options) as process:
            for line in tqdm(process.stdout, title, stages, leave=False, disable=not progress):
                last = line
        errors.seek(0)
        words = " ".join(errors.read().decode(errors="replace")[-400:].split())
    if process.returncode != 0 or not last.startswith("{"):
        raise TimingFailedError(f"{owner}: the timing ended with code {process.returncode}: {words}")
    return record_from(json.loads(last), "of this machine")


@cache
def recorded_cpu() -> Record:
    """The run of `time_cpu` that is kept in data/timings, made on a machine that did little else."""
    return read_record(DATA / "timings" / RECORDED)


@checked(record=a(Record, "recorded_cpu()"))
def busy_warning(record: Record) -> str:
    """A sentence when repeats of one measurement differ much, with the factor of each such; "" on a quiet machine."""
    spreads = {name: stick.spread for name, stick in record.yardsticks.items()}
    spreads |= {label(record, point): max(point.seconds) / min(point.seconds) for point in record.points}
    words = ", ".join(f"{name} by a factor of {spread:.2f}" for name, spread in spreads.items() if spread > BUSY)
    said = f"repeats of one measurement differ ({words}). Close other programs and time it again."
    return f"This machine was busy: {said}" if words else ""


# ---- what runs in the interpreter of its own


def this_device() -> dict[str, Any]:
    """The machine without its name: what it is, its cores, and its memory in bytes where the system says it."""
    device: dict[str, Any] = {"machine": platform.machine(), "system": platform.system(), "cores": os.cpu_count()}
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        device["memory"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return device


def seconds_of(calls: Iterable[Callable[[], Any]], wait: Callable[[], Any] | None = None) -> list[float]:
    """Seconds of each call, run one after another; `wait` ends when what a call began is done."""
    marks = [time.perf_counter()]
    for call in calls:
        call()
        if wait is not None:
            wait()
        marks.append(time.perf_counter())
    return [after - before for before, after in pairwise(marks)]


def _repeated(call: Callable[[], Any], repeats: int) -> list[float]:
    """Seconds of `repeats` calls after one to warm up pages, caches and the allocator."""
    return seconds_of([call] * (1 + repeats))[1:]


def yardstick(work: float, unit: str, call: Callable[[], Any]) -> dict[str, Any]:
    """A rate from the quickest repeat: interruptions only ever add time."""
    rates = [work / seconds for seconds in _repeated(call, 9)]
    print(unit, flush=True)
    return {"value": max(rates), "unit": unit, "repeats": rates}


def measure(quick: bool) -> dict[str, Any]:
    """The fields of a record, timed in this interpreter. Prints a line for each of STAGES; fewer if `quick`."""
    sizes, requests = (QUICK_SIZES, QUICK_REQUESTS) if quick else ({}, REQUESTS)
    contexts, prompts = (CONTEXTS[:2], PROMPTS[:3]) if quick else (CONTEXTS, PROMPTS)
    decoder = NumpyDecoder(toy_model(**sizes), room=max(contexts) + 16)
    random = np.random.default_rng(0)
    for cached in (*decoder.keys, *decoder.values):
        cached[:] = 0.01  # pages in use, as after a real prompt
    print("decoder made", flush=True)
    vectors = [np.ones(len(matrix), dtype=np.float32) for matrix in decoder.matrices]
    streamed = sum(matrix.nbytes for matrix in decoder.matrices)
    rows, product = np.ones((512, decoder.model.width), dtype=np.float32), decoder.layers[0]["gate_up"]

    def sweep() -> None:
        for vector, matrix in zip(vectors, decoder.matrices, strict=True):
            vector @ matrix

    def run(new: int, cached: int) -> None:
        decoder.cached = cached
        decoder.forward(random.integers(0, decoder.model.vocabulary, new))

    def decode(steps: int) -> None:
        for _ in range(steps):
            run(1, decoder.cached)

    yardsticks = {
        "matvec_bandwidth": yardstick(streamed, "byte/s", sweep),
        "matmul_rate": yardstick(2 * len(rows) * product.size, "FLOP/s", lambda: rows @ product),
    }
    points: list[dict[str, Any]] = []
    passes = [("decode", context, 1, 7) for context in contexts] + [("prefill", 0, prompt, 3) for prompt in prompts]
    for phase, context, new, repeats in passes:
        times = _repeated(partial(run, new, context), repeats)
        points.append({"phase": phase, "context": context, "tokens": new, "batch": 1, "seconds": times})
        print(phase, flush=True)
    measured: list[dict[str, Any]] = []
    for name, (prompt, output) in requests.items():
        first, rest = seconds_of([partial(run, prompt, 0), partial(decode, output - 1)])
        entry = {"name": name, "prompt": prompt, "output": output, "batch": 1}
        measured.append(entry | {"ttft": first, "seconds": first + rest})
        print(name, flush=True)
    conditions = {"model": sizes, "dtype": "fp32", "threads": 1, "weights_bytes": streamed}
    found = {"device": this_device(), "conditions": conditions, "yardsticks": yardsticks}
    return head("cpu", numpy=np.__version__) | found | {"points": points, "requests": measured}
