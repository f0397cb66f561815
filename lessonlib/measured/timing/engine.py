"""Time a real engine at real size on this machine's CPU: llama.cpp's server, a model of half a billion parameters.

`make engine` makes the engine and files of random weights (engine_files.py); `time_engine` starts the server on them
and times it from outside by time_server, as any server (engine_run.py). All steps run on one thread. First the
yardsticks: the rate at which one thread reads memory, and that of a large matrix product. Then decode of two models
and a prefill, from which `efficiency_from_runs` calibrates; then `FORETOLD`, each predicted before it is timed; then
prefill by length, decode by context, by batch and by the format of the weights.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from statistics import median
from typing import Any, NamedTuple

from lessonlib.base.checks import checked, count, flag
from lessonlib.base.errors import InvalidInputError, LessonError
from lessonlib.base.text import markdown_table
from lessonlib.base.units import format_seconds
from lessonlib.facts.tables import DATA
from lessonlib.measured.own_runs import TimedRun, efficiency_from_runs
from lessonlib.measured.timing.browser import refuse_in_browser
from lessonlib.measured.timing.cpu import TimingFailedError, timed_apart
from lessonlib.measured.timing.predictions import label, predictions, this_machine
from lessonlib.measured.timing.record import Record, TimedPass, read_records
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import Efficiency
from lessonlib.time.roofline import pass_cost

MODEL = "qwen2.5-0.5b"
FULL, NARROW, PLAIN = "fp16", "fp16, narrow", "fp16, plain attention"
VARIANTS: dict[str, dict[str, Any]] = {
    FULL: {"weights": "fp16", "changed": {}, "flash": True},
    # A quarter of the feed-forward: as many layers and kernels, and half of the bytes.
    NARROW: {"weights": "fp16", "changed": {"intermediate_size": 1216}, "flash": True},
    PLAIN: {"weights": "fp16", "changed": {}, "flash": False},
    "q8_0": {"weights": "q8_0", "changed": {}, "flash": True},
    "q4_0": {"weights": "q4_0", "changed": {}, "flash": True},
}
MARKS = 2  # tokens of a prompt that are not words: a comma and the last stop
STEPS = 32  # output tokens of a timing of decode
SHORT = 32  # tokens of context in the middle of those steps, as few as time_server's prompts allow
ROUNDS = 3
DEEPEST = 8192


class EngineMissingError(LessonError):
    """There is no engine on this machine, or no file of weights; the message says how to make them."""


class Timing(NamedTuple):
    """What is asked of the server: a prompt of `words` and `output` tokens, `batch` at once, at most `repeats` times.

    `phase`: "prefill" by the time to the first token, "decode" by the time between tokens, "request" for the whole.
    """

    phase: str
    variant: str
    words: int
    output: int
    batch: int = 1
    repeats: int = ROUNDS

    @property
    def context(self) -> int:
        """Tokens cached in the middle of its steps."""
        return self.words + MARKS + (self.output - 2) // 2 if self.phase == "decode" else 0

    @property
    def place(self) -> dict[str, Any]:
        """The fields of its point in a record."""
        tokens = 1 if self.phase == "decode" else self.words + MARKS
        what = {"phase": self.phase, "variant": self.variant, "context": self.context, "tokens": tokens}
        return what | {"batch": self.batch} | ({"output": self.output} if self.phase == "request" else {})


def _prefill(tokens: int) -> Timing:
    return Timing("prefill", FULL, tokens - MARKS, 2)


def _decode(context: int, variant: str = FULL, batch: int = 1, repeats: int = ROUNDS) -> Timing:
    return Timing("decode", variant, context - MARKS - (STEPS - 2) // 2, STEPS, batch, repeats)


CALIBRATING = (_decode(SHORT), _decode(SHORT, NARROW), _prefill(512))
FORETOLD = (
    Timing("request", FULL, 256 - MARKS, 64),
    _decode(2048),
    _decode(SHORT, batch=4),
    _decode(SHORT, "q8_0"),
)
OTHERS = (
    *map(_prefill, (32, 128, 1024)),
    _decode(512),
    *(_decode(context, repeats=2) for context in (4096, DEEPEST)),
    *(_decode(context, PLAIN) for context in (SHORT, 2048)),
    _decode(SHORT, "q4_0"),
    *(_decode(SHORT, batch=batch) for batch in (2, 8, 16)),
)


def rounds_of(quick: bool, rounds: int = ROUNDS, deepest: int = DEEPEST) -> list[list[Timing]]:
    """What is timed after the calibration, round by round; no context beyond `deepest` but those that are foretold."""
    chosen = (*FORETOLD, *(one for one in OTHERS if not quick and one.context <= deepest))
    return [[one for one in chosen if number < one.repeats] for number in range(1 if quick else rounds)]


def stages(quick: bool, rounds: int = ROUNDS, deepest: int = DEEPEST) -> int:
    """Lines that the timing prints before its record: two for the yardsticks, twice, and one for each timing."""
    planned = rounds_of(quick, rounds, deepest)
    return 4 + sum(len(CALIBRATING) + len(one) for one in planned)


@checked(quick=flag(), progress=flag(), rounds=count(), deepest=count())
def time_engine(quick: bool = False, progress: bool = True, rounds: int = ROUNDS, deepest: int = DEEPEST) -> Record:
    """Time the engine of `make engine` on this CPU; returns the checked Record.

    `quick`: once what is calibrated on and what is foretold, some two minutes; else all, `rounds` times, some half an
    hour. `deepest`: the longest context; each takes its prompt's time first, long on a slow machine. Before each timing
    it waits for other programs to rest, half a minute at most, and then goes on; the record says so. Raises
    EngineMissingError, and TimingFailedError with the last words of what failed.
    """
    refuse_in_browser("time_engine", "show the recorded run, recorded_engine()", EngineMissingError)
    home = DATA.parent / ".venv-engine"
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not (home / "made").exists() or not list((home / "weights").glob("*.gguf")):
        raise EngineMissingError("No engine was timed: there is none here. `make engine` in a terminal makes it.")
    command = [str(python), "-m", "lessonlib.measured.timing.engine_run", str(home / "weights")]
    command += [str(number) for number in (int(quick), rounds, deepest)]
    return timed_apart(command, "time_engine", "timing the engine", stages(quick, rounds, deepest), progress)


@cache
def recorded_engine() -> Record:
    """The newest run of `time_engine` that is kept in data/timings."""
    records, _ = read_records(DATA / "timings", "engine")
    if not records:
        raise TimingFailedError("recorded_engine: data/timings holds no record of an engine.")
    return records[-1]


def timed(record: Record, timing: Timing) -> TimedPass:
    """The point of a record that this timing made; InvalidInputError where it holds none."""
    for one in record.points:
        if all(getattr(one, key) == value for key, value in timing.place.items()):
            return one
    where = f"the record of {record.when} holds no {timing.phase} at context {timing.context}, {timing.variant}"
    raise InvalidInputError(f"{where}, batch {timing.batch}; expected one that time_engine made.")


def calibrations(record: Record) -> dict[str, Efficiency | str]:
    """The Efficiency that the record's first three timings give, or why they give none: added up, and overlapping."""
    first, second, prompt = (timed(record, timing) for timing in CALIBRATING)
    one, other = (TimedRun(this_machine(record, at.variant), at.quickest, at.context) for at in (first, second))
    prefill = TimedRun(this_machine(record), prompt.quickest, new=prompt.tokens)
    found: dict[str, Efficiency | str] = {}
    for name, overlap in (("added up", False), ("overlapping", True)):
        try:
            found[name] = efficiency_from_runs(one, other, prefill, overlap)
        except LessonError as error:
            found[name] = f"cannot be solved, for {_reason(error)}"
    return found


def _reason(error: LessonError) -> str:
    """What is wrong with the runs, without the advice on a datasheet: the yardsticks of a record are measured."""
    said = str(error).removeprefix("efficiency_from_runs: ").partition(";")[0]
    return said.replace("the datasheet's", "the yardstick's")


class Foretold(NamedTuple):
    """A time that was predicted before it was measured: when, by which efficiencies, and what it came to, seconds."""

    what: str
    predicted_at: str
    timed_at: str
    by: dict[str, float]
    measured: float


def foretold(record: Record) -> list[Foretold]:
    """What the record predicted before it was timed, beside its quickest repeat."""
    found = []
    for timing, said in zip(FORETOLD, record.conditions["predicted"], strict=False):
        if timing.phase == "request":
            what = f"request {timing.words + MARKS} → {timing.output}"
            measured = min(one.seconds for one in record.requests)
        else:
            what, measured = label(record, timed(record, timing)), timed(record, timing).quickest
        found.append(Foretold(what, said["predicted"], said["timed"], said["by"], measured))
    return found


def expected_seconds(record: Record, timing: Timing, efficiency: Efficiency) -> float:
    """What the arithmetic says of a timing, with that efficiency of the record's yardsticks."""
    machine = replace(this_machine(record, timing.variant), efficiency=efficiency)
    if timing.phase == "request":
        return request_cost(machine, Request(timing.words + MARKS, timing.output)).undisturbed
    return pass_cost(machine, timing.place["tokens"], timing.context, timing.batch).seconds


# ---- as text


def engine_said(record: Record) -> str:
    """What ran, the machine's two yardsticks, and what other programs took meanwhile."""
    machine, others = this_machine(record), sorted(one["during"] for one in record.conditions["load"])
    rates = f"{machine.bandwidth / 1e9:.1f} GB/s and multiplies {machine.peak / 1e9:.1f} GFLOP/s"
    return (
        f"{record.when[:10]}: {machine.model.parameters:,} parameters, {record.device['cores']} cores, one thread\n"
        f"it reads {rates}; other programs kept {median(others):.1f} cores busy meanwhile, {others[-1]:.1f} at most"
    )


def beside_floor(record: Record, points: Sequence[TimedPass]) -> str:
    """A Markdown table of points of the record: floor, quickest repeat, their ratio, slowest over quickest."""
    floors, table = dict(zip(record.points, predictions(record), strict=False)), []
    for point in points:
        floor, spread = floors[point], max(point.seconds) / point.quickest
        times = [format_seconds(time, 3) for time in (floor.predicted, point.quickest)]
        ratio = f"{point.quickest / floor.predicted:.2f}"
        table.append([floor.what, *times, ratio, f"{spread:.2f} of {len(point.seconds)}"])
    return markdown_table(("what", "floor", "measured", "ratio", "spread of repeats"), table)


def token_costs(record: Record) -> dict[str, tuple[float, float]]:
    """What a cached token adds to a step, by variant: seconds, and those over its bytes / bandwidth."""
    machine, found = this_machine(record), {}
    for variant in (FULL, PLAIN):
        alone = [one for one in record.points if (one.phase, one.batch, one.variant) == ("decode", 1, variant)]
        first, *_, last = sorted(alone, key=lambda one: one.context) if len(alone) > 1 else (None, None)
        if first and last:
            seconds = (last.quickest - first.quickest) / (last.context - first.context)
            found[variant] = seconds, seconds * machine.bandwidth / machine.cache_bytes_per_token
    return found


def foretold_table(record: Record) -> str:
    """A Markdown table of what was predicted before it was timed, with the error of each prediction."""
    rows, table = foretold(record), []
    for one in rows:
        cells = [f"{format_seconds(time, 3)} ({100 * time / one.measured - 100:+.0f} %)" for time in one.by.values()]
        table.append([one.what, format_seconds(one.measured, 3), *cells])
    return markdown_table(("foretold", "measured", *rows[0].by), table)
