"""What `time_engine` runs in .venv-engine: the server as a process of its own, the waiting for idle cores, the plan.

    python -m lessonlib.measured.timing.engine_run FOLDER QUICK ROUNDS DEEPEST

FOLDER holds the files of `make engine`. Prints a line for each stage; the last line is the record, as JSON.
"""

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from lessonlib.facts.catalogue import model_config
from lessonlib.measured.timing.cpu import TimingFailedError, this_device, yardstick
from lessonlib.measured.timing.engine import (
    CALIBRATING,
    DEEPEST,
    FORETOLD,
    MODEL,
    ROUNDS,
    VARIANTS,
    Timing,
    calibrations,
    expected_seconds,
    rounds_of,
)
from lessonlib.measured.timing.predictions import remarks
from lessonlib.measured.timing.record import Record, head, record_from
from lessonlib.measured.timing.server import time_server
from lessonlib.measured.timing.server_client import Limits
from lessonlib.model.model import Model
from lessonlib.time.deployment import Efficiency

LIMITS = Limits(seconds=7200, silence=3600)
EXTRA = {"ignore_eos": True, "temperature": 0, "cache_prompt": False}
ROOM = 8192 + 256  # tokens of context of a single sequence; of each of several, FEW
FEW = 256
PATIENCE = 120  # seconds for the server to load
QUIET = 0.3  # cores that others may keep busy
RESTLESS = 30.0  # seconds to wait for that before each timing
YARDSTICK_BYTES = 2**30  # memory that the yardstick reads: many times a cache


def file_of(changed: Mapping[str, Any], weights: str) -> str:
    """The name of the file with that format and those changes of the config."""
    return f"{weights}{'-narrow' if changed else ''}.gguf"


def models(changed: Mapping[str, Any]) -> dict[str, tuple[Model, str]]:
    """The model and the format of each file; `changed` of the catalogue's config makes a toy, for tests."""
    config = model_config(MODEL)
    return {
        file_of(one["changed"], one["weights"]): (
            Model.from_config(config | dict(changed) | one["changed"], name=MODEL),
            one["weights"],
        )
        for one in VARIANTS.values()
    }


@dataclass
class Neighbours:
    """What else runs on this machine: waited for before each timing, and measured during it."""

    patience: float
    said: list[dict[str, Any]] = field(default_factory=list)

    def busy(self) -> float:
        """Cores that are busy, in half a second in which we are not."""
        import psutil  # type: ignore[import-untyped]

        return psutil.cpu_percent(interval=0.5) / 100 * (psutil.cpu_count() or 1)

    def rest(self) -> tuple[float, float]:
        """Wait until others are quiet twice running, or `patience` is over; seconds waited, and how busy they are."""
        start, calm, busy = time.perf_counter(), 0, 0.0
        while calm < 2 and time.perf_counter() - start < self.patience:
            busy = self.busy()
            calm = calm + 1 if busy <= QUIET else 0
        return time.perf_counter() - start, busy

    @contextmanager
    def watched(self, what: Mapping[str, Any], *ours: int) -> Any:
        """Note how many cores others kept busy, before and during what is timed; `ours`: processes that are not."""
        import psutil

        waited, before = self.rest()
        mine = [psutil.Process(), *map(psutil.Process, ours)]

        def spent() -> tuple[float, float]:
            all_of = psutil.cpu_times()
            idle = all_of.idle + getattr(all_of, "iowait", 0.0)
            guests = getattr(all_of, "guest", 0.0) + getattr(all_of, "guest_nice", 0.0)
            own = sum(sum(process.cpu_times()[:2]) for process in mine)
            return sum(all_of) - guests - idle - own, time.perf_counter()

        first, start = spent()
        yield
        last, end = spent()
        during = max(0.0, (last - first) / (end - start))
        noted = {"waited": round(waited, 1), "before": round(before, 2), "during": round(during, 2)}
        self.said.append(dict(what) | noted)


@contextmanager
def served(file: Path, parallel: int, prompt_threads: int, flash: bool) -> Any:
    """The engine's server on a file, as a process of its own that ends with this one: its address, and its id."""
    room = FEW if parallel > 1 else ROOM
    command = [sys.executable, "-m", "lessonlib.measured.timing.engine_files", str(file)]
    command += map(str, (parallel, room, prompt_threads, int(flash)))
    with tempfile.TemporaryFile() as errors:
        options: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
        process = subprocess.Popen(command, encoding="utf-8", **options)
        assert process.stdin and process.stdout
        try:
            address = process.stdout.readline().strip()
            end = time.monotonic() + PATIENCE
            while address and not _healthy(address) and time.monotonic() < end and process.poll() is None:
                time.sleep(0.1)
            if not address or not _healthy(address):
                errors.seek(0)
                words = " ".join(errors.read().decode(errors="replace")[-400:].split())
                raise TimingFailedError(f"time_engine: the server on {file.name} did not start: {words}")
            yield address, process.pid
        finally:
            process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


def _healthy(address: str) -> bool:
    """Whether the server is there and has loaded; while it loads it answers 503."""
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
            return answer.status == 200
    except (OSError, urllib.error.URLError):
        return False


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seconds(reply: Mapping[str, Any], phase: str) -> float:
    """The time to the first token; or the median time between tokens, by their mean where chunks came in bursts."""
    if phase == "prefill":
        return reply["ttft"]
    if reply["notes"] and reply["tpot"] is None:
        raise TimingFailedError(f"time_engine: no time between tokens was seen: {'; '.join(reply['notes'])}")
    return reply["tpot"] if reply["notes"] else reply["gaps"]["p50"]


@dataclass
class Run:
    """The record so far, and what makes it."""

    folder: Path
    changed: Mapping[str, Any]
    neighbours: Neighbours
    found: dict[str, Any]
    points: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)

    @property
    def record(self) -> Record:
        return record_from(self.found | {"points": list(self.points.values())}, "of this machine")

    def time(self, timings: Iterable[Timing]) -> None:
        """Each timing once, those of one server together."""

        def server(timing: Timing) -> tuple[str, int, bool]:
            # The prompt of a single sequence whose steps are timed may take all idle cores: its prefill is not timed.
            return timing.variant, 16 if timing.batch > 1 else 1, timing.phase == "decode" and timing.batch == 1

        for (variant, parallel, all_cores), group in groupby(sorted(timings, key=server), server):
            chosen = VARIANTS[variant]
            file = self.folder / file_of(chosen["changed"], chosen["weights"])
            idle = all_cores and self.neighbours.busy() <= QUIET  # threads that wait for each other spin
            threads = self.found["device"]["cores"] if idle else 1
            with served(file, parallel, threads, chosen["flash"]) as (address, process):
                for timing in group:
                    self._ask(address, process, timing)

    def _ask(self, address: str, process: int, timing: Timing) -> None:
        what = timing.place
        with self.neighbours.watched(what, process):
            at, shape = now(), {timing.phase: (timing.words, timing.output)}
            asked: dict[str, Any] = {"concurrency": (timing.batch,), "requests": shape, "extra": EXTRA}
            record = time_server(f"{address}/v1", MODEL, **asked, limits=LIMITS, say=lambda line: None)
        replies = record.conditions["replies"]
        for problem in filter(None, (reply["problem"] for reply in replies)):
            raise TimingFailedError(f"time_engine: {timing.phase} of {timing.words} words: {problem}")
        self.notes |= dict.fromkeys(remarks(replies))
        for said in self.found["conditions"]["predicted"]:
            if what.items() <= said.items():
                said.setdefault("timed", at)
        if timing.phase == "request":
            one = record.requests[0]
            self.found["requests"].append(asdict(one))
        else:
            seconds = median(_seconds(reply, timing.phase) for reply in replies)
            self.points.setdefault(json.dumps(what), what | {"seconds": []})["seconds"].append(seconds)
        print(json.dumps(what)[1:], flush=True)

    def measure_yardsticks(self) -> None:
        """The rate of reading memory and that of a matrix product, by one thread: twice, as all else is repeated."""
        memory = np.ones(YARDSTICK_BYTES // 4, dtype=np.float32)
        rows, product = np.ones((512, 1024), dtype=np.float32), np.ones((1024, 5632), dtype=np.float32)
        calls: dict[str, tuple[float, str, Callable[[], Any]]] = {
            "read_bandwidth": (memory.nbytes, "byte/s", lambda: memory @ memory),
            "matmul_rate": (2 * len(rows) * product.size, "FLOP/s", lambda: rows @ product),
        }
        for name, (work, unit, call) in calls.items():
            with self.neighbours.watched({"phase": name}):
                stick = yardstick(work, unit, call)
            earlier = self.found["yardsticks"].get(name, {"repeats": []})["repeats"]
            repeats = earlier + stick["repeats"]
            self.found["yardsticks"][name] = stick | {"repeats": repeats, "value": max(repeats)}

    def predict(self) -> None:
        """What FORETOLD will take, by the floor and by what the first timings calibrate; before any of it is timed."""
        record = self.record
        known = {"floor": Efficiency(), **calibrations(record)}
        self.found["conditions"]["calibrated"] = {
            name: one if isinstance(one, str) else asdict(one) for name, one in known.items() if name != "floor"
        }
        usable = {name: one for name, one in known.items() if isinstance(one, Efficiency)}
        for timing in FORETOLD:
            by = {name: expected_seconds(record, timing, one) for name, one in usable.items()}
            self.found["conditions"]["predicted"].append(timing.place | {"predicted": now(), "by": by})


def measure(
    folder: Path,
    quick: bool,
    rounds: int = ROUNDS,
    deepest: int = DEEPEST,
    changed: Mapping[str, Any] | None = None,
    patience: float = RESTLESS,
) -> dict[str, Any]:
    """The fields of a record. `changed`: what a toy's config has otherwise than the catalogue's."""
    import xllamacpp  # type: ignore[import-not-found]

    conditions: dict[str, Any] = {
        "model": MODEL,
        "changed": dict(changed or {}),
        "variants": VARIANTS,
        "dtype": "fp16",
        "threads": 1,
    }
    conditions |= {"engine": "llama.cpp, by xllamacpp", "kernels": xllamacpp.get_system_info().strip(" |")}
    conditions |= {"rounds": 1 if quick else rounds, "deepest": deepest, "predicted": [], "load": []}
    made = head("engine", numpy=np.__version__, xllamacpp=version("xllamacpp"))
    found = made | {"device": this_device(), "conditions": conditions, "yardsticks": {}, "requests": []}
    run = Run(folder, conditions["changed"], Neighbours(patience), found)
    conditions["load"] = run.neighbours.said
    run.measure_yardsticks()
    planned = rounds_of(quick, rounds, deepest)
    for _ in planned:
        run.time(CALIBRATING)
    run.measure_yardsticks()
    run.predict()
    for timings in planned:
        run.time(timings)
    conditions["notes"] = list(run.notes)
    return found | {"points": list(run.points.values())}


if __name__ == "__main__":
    quick, rounds, deepest = map(int, sys.argv[2:])
    print(json.dumps(measure(Path(sys.argv[1]), bool(quick), rounds, deepest)), flush=True)
