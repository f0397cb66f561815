"""Time a real decoder on this machine's CPU, with one thread, and put lessonlib's prediction beside it.

First the yardsticks: the bandwidth of matrix-vector products over the decoder's own weights, and the rate of a large
matrix product. They stand in for bandwidth and peak, and nothing is fitted. Then decode at growing contexts, prefill
at growing lengths, and a short chat-shaped and a short reasoning-shaped request from prompt to last token.

BLAS reads its number of threads when NumPy loads, so the timing runs in an interpreter of its own. About 30 seconds,
1 GB.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any

from lessonlib.base.errors import LessonError
from lessonlib.facts.tables import DATA
from lessonlib.measured.timing.record import Record, TimedPass, read_record, record_from
from lessonlib.model.precision import Precision
from lessonlib.request.cost import Request, request_cost
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import Deployment
from lessonlib.time.roofline import pass_cost

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "BLIS_NUM_THREADS")
CONTEXTS = (64, 512, 1024, 2048, 4096, 8000)
PROMPTS = (1, 32, 128, 256, 512)
REQUESTS = {"chat": (256, 32), "reasoning": (16, 320)}
BUSY = 1.25  # repeats of one measurement that differ by more than this were disturbed


RECORDED = "cpu-2026-11-30T05-55-03Z.json"  # the run that notebook 06 replays


class TimingFailedError(LessonError):
    """The timing's own interpreter ended without a result; the message holds its last words."""


def time_cpu(quick: bool = False, progress: bool = True) -> Record:
    """Time the decoder in a fresh interpreter with one BLAS thread; returns the checked Record.

    `quick`: a toy size, for tests, in about a second. `progress`: a bar of the stages done. Raises TimingFailedError.
    """
    command = [sys.executable, "-m", "lessonlib.measured.timing", "cpu", *(["--quick"] if quick else [])]
    environment = os.environ | dict.fromkeys(THREADS, "1")
    stages = 3 + (len(CONTEXTS) + len(PROMPTS) + len(REQUESTS))
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    assert process.stdout is not None and process.stderr is not None
    last = ""
    for line in _with_bar(process.stdout, stages) if progress else process.stdout:
        last = line
    words = process.stderr.read()
    if process.wait() != 0 or not last.startswith("{"):
        raise TimingFailedError(f"time_cpu: the timing ended with code {process.returncode}: {words.strip()[-400:]}")
    return record_from(json.loads(last), "of this machine")


def _with_bar(lines: Any, stages: int) -> Iterator[str]:
    from tqdm.auto import tqdm

    with tqdm(total=stages, desc="timing this CPU", leave=False) as bar:
        for line in lines:
            bar.update(1)
            yield line


@cache
def recorded_cpu() -> Record:
    """The run of `time_cpu` that is kept in data/timings, made on a machine that did little else."""
    return read_record(DATA / "timings" / RECORDED)


def this_machine(record: Record) -> Deployment:
    """The timed decoder on a machine whose peak and bandwidth are the record's yardsticks."""
    from lessonlib.measured.timing.decoder import toy_model

    machine = Accelerator(
        name="this CPU",
        memory=float(record.device.get("memory", 16e9)),
        bandwidth=record.yardsticks["matvec_bandwidth"].value,
        peaks={"fp32": record.yardsticks["matmul_rate"].value},
        source="measured here",
    )
    return Deployment(toy_model(**record.conditions["model"]), machine, Precision("fp32"), memory_fraction=1.0)


def cpu_predictions(record: Record) -> list[dict[str, Any]]:
    """Measured beside predicted, a row for each point and request: what, tokens, seconds, and measured / predicted."""
    deployment = this_machine(record)
    rows = []
    for point in record.points:
        seconds = pass_cost(deployment, point.tokens, point.context, point.batch).seconds
        low, high = min(point.seconds) / seconds, max(point.seconds) / seconds
        rows.append(
            {"what": _label(point), "measured": point.median, "predicted": seconds, "ratio": point.median / seconds}
        )
        rows[-1] |= {"lowest_ratio": low, "highest_ratio": high}
    for request in record.requests:
        cost = request_cost(deployment, Request(request.prompt, request.output), request.batch)
        ratio = request.seconds / cost.elapsed
        label = f"{request.name} {request.prompt:,} -> {request.output:,}"
        rows.append({"what": label, "measured": request.seconds, "predicted": cost.elapsed, "ratio": ratio})
        rows[-1] |= {"lowest_ratio": ratio, "highest_ratio": ratio}
    return rows


def busy_warning(record: Record) -> str:
    """A sentence when repeats of one measurement differ much, with the factor of each such; "" on a quiet machine."""
    spreads = {name: stick.spread for name, stick in record.yardsticks.items()}
    spreads |= {_label(point): max(point.seconds) / min(point.seconds) for point in record.points}
    words = ", ".join(f"{name} by a factor of {spread:.2f}" for name, spread in spreads.items() if spread > BUSY)
    if not words:
        return ""
    return (
        f"This machine was busy: repeats of one measurement differ ({words}). Close other programs and time it again."
    )


def _label(point: TimedPass) -> str:
    return f"{point.phase} of {point.tokens:,}" if point.phase == "prefill" else f"decode at {point.context:,}"


# ---- what runs in the interpreter of its own


def _seconds(call: Callable[[], Any], repeats: int) -> list[float]:
    call()  # warm-up: pages, caches, the allocator
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return times


def _yardstick(work: float, unit: str, times: list[float]) -> dict[str, Any]:
    """A rate from the quickest repeat: interruptions only ever add time."""
    rates = [work / seconds for seconds in times]
    return {"value": max(rates), "unit": unit, "repeats": rates}


def measure(quick: bool) -> dict[str, Any]:
    import platform

    import numpy as np

    from lessonlib.measured.timing.decoder import NumpyDecoder, toy_model

    sizes: dict[str, int] = {"layers": 2, "width": 64, "heads": 4, "inner": 128, "vocabulary": 256} if quick else {}
    contexts, prompts = (CONTEXTS[:2], PROMPTS[:3]) if quick else (CONTEXTS, PROMPTS)
    requests = {"chat": (32, 4), "reasoning": (4, 40)} if quick else REQUESTS
    decoder = NumpyDecoder(toy_model(**sizes), room=max(contexts) + 16)
    random = np.random.default_rng(0)
    for keys, values in zip(decoder.keys, decoder.values, strict=True):
        keys[:] = 0.01  # pages in use, as after a real prompt
        values[:] = 0.01
    print("decoder made", flush=True)

    vectors = [np.ones(len(matrix), dtype=np.float32) for matrix in decoder.matrices]
    streamed = sum(matrix.nbytes for matrix in decoder.matrices)

    def sweep() -> None:
        for vector, matrix in zip(vectors, decoder.matrices, strict=True):
            vector @ matrix

    yardsticks = {"matvec_bandwidth": _yardstick(streamed, "byte/s", _seconds(sweep, 9))}
    print("bandwidth measured", flush=True)
    rows, matrix = np.ones((512, decoder.model.width), dtype=np.float32), decoder.layers[0]["gate_up"]
    work = 2 * rows.shape[0] * matrix.size
    yardsticks["matmul_rate"] = _yardstick(work, "FLOP/s", _seconds(lambda: rows @ matrix, 9))
    print("matrix product measured", flush=True)

    points: list[dict[str, Any]] = []

    def run(new: int, cached: int) -> None:
        decoder.cached = cached
        decoder.forward(random.integers(0, decoder.model.vocabulary, new))

    def times_of(new: int, cached: int, repeats: int) -> list[float]:
        return _seconds(lambda: run(new, cached), repeats)

    for context in contexts:
        times = times_of(1, context, 7)
        points.append({"phase": "decode", "context": context, "tokens": 1, "batch": 1, "seconds": times})
        print(f"decode at {context}", flush=True)
    for prompt in prompts:
        times = times_of(prompt, 0, 3)
        points.append({"phase": "prefill", "context": 0, "tokens": prompt, "batch": 1, "seconds": times})
        print(f"prefill of {prompt}", flush=True)
    measured = []
    for name, (prompt, output) in requests.items():
        started = time.perf_counter()
        run(prompt, 0)
        first = time.perf_counter() - started
        for _ in range(output - 1):
            decoder.forward(random.integers(0, decoder.model.vocabulary, 1))
        entry = {"name": name, "prompt": prompt, "output": output, "batch": 1, "ttft": first}
        measured.append(entry | {"seconds": time.perf_counter() - started})
        print(f"{name} request", flush=True)
    device: dict[str, Any] = {"machine": platform.machine(), "system": platform.system(), "cores": os.cpu_count()}
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        device["memory"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "schema": "lessonlib.timing/1",
        "what": "cpu",
        "when": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "device": device,
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "conditions": {"model": sizes, "dtype": "fp32", "threads": 1, "weights_bytes": streamed},
        "yardsticks": yardsticks,
        "points": points,
        "requests": measured,
    }
