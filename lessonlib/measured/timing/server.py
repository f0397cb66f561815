"""Time a real server from outside, by its OpenAI-compatible streaming endpoint, and put lessonlib's prediction beside.

    record = time_server("http://localhost:8000/v1", "my-model", concurrency=(1, 4))
    print(server_report(record, Deployment(load_model("llama-3.1-8b"), load_accelerator("h100-sxm"))))

Chat-shaped and reasoning-shaped requests run to their last tokens, c at a time. The clock starts when a request is
sent, on a connection that is open already. TTFT is the first chunk with text; TPOT = (last - first) / (n_out - 1), with
n_out as the server's own usage counts it. Seconds between chunks are inter-token latencies only where a chunk is a
token. What cannot be known is left out, and a note says why. How one request is sent and read is in server_client.py.
"""

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict
from datetime import UTC, datetime
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from lessonlib.base.errors import InvalidInputError, LessonError, require_count, shown
from lessonlib.base.units import format_seconds
from lessonlib.measured.timing.record import SCHEMA, MeasuredRequest, Record, record_from
from lessonlib.measured.timing.server_client import Client, Limits, Reply, client_of, is_loopback
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment

REQUESTS = {"chat": (1024, 128), "reasoning": (128, 1280)}  # words of the prompt, output tokens at most
KEY = "LESSONLIB_SERVER_KEY"
MOST_AT_ONCE = 64


class ServerTimingError(LessonError):
    """The server could not be timed at all; the message says why, in one line."""


class StepFit(NamedTuple):
    """A step takes `seconds` + `slope` x cached tokens of all running requests; fitted to `requests` requests."""

    seconds: float
    slope: float
    requests: int


def time_server(
    url: str,
    model: str,
    *,
    concurrency: Sequence[int] = (1, 4),
    requests: Mapping[str, tuple[int, int]] = REQUESTS,
    rounds: int = 1,
    limits: Limits | None = None,
    key_variable: str = KEY,
    allow_plain_http: bool = False,
    extra: Mapping[str, Any] | None = None,
    say: Callable[[str], None] = print,
) -> Record:
    """Time `model` behind `url` (its base, such as http://localhost:8000/v1); returns the checked Record.

    Each of `requests` (prompt words, output tokens) is sent `rounds` times by each of c senders, for each c of
    `concurrency`; a small request comes first and is not counted. `extra`: more fields of the body, such as
    {"ignore_eos": True} for vLLM, without which a model may end early; None leaves a field out. Plain http goes to this
    machine alone unless `allow_plain_http`. A reply that fails is kept with its problem; a stage in which all fail ends
    the timing. Raises InvalidInputError before anything is sent, ServerTimingError when the small request fails.
    """
    limits = Limits() if limits is None else limits
    if not isinstance(limits, Limits) or not callable(say):
        raise InvalidInputError(
            f"time_server: limits is {shown(limits)}, say {shown(say)}; expected a Limits and a function."
        )
    client = client_of(url, model, limits, key_variable, allow_plain_http, {} if extra is None else extra)
    rounds = require_count("time_server", "rounds", rounds)
    levels = _checked_plan(concurrency, requests, rounds, limits)
    small = client.ask("warm-up", 1, 16, 2)
    if small.problem:
        raise ServerTimingError(f"No server was timed: {small.problem}.")
    replies: list[Reply] = []
    ended = ""
    try:
        for level, (name, shape) in ((level, item) for level in levels for item in requests.items()):
            stage = _stage(client, name, level, rounds, shape, replies)
            say(_line(name, level, stage))
            if all(reply.problem for reply in stage):
                ended = f"The timing ended at {name}, concurrency {level}, where no reply came whole."
                break
    except KeyboardInterrupt:
        ended = "The timing was interrupted."
    if ended:
        say(ended)
    shapes = {name: list(shape) for name, shape in requests.items()}
    conditions = {
        "model": model,
        "concurrency": levels,
        "rounds": rounds,
        "asked": shapes,
        "extra": sorted(client.extra),
    }
    conditions |= {"limits": asdict(limits), "loopback": is_loopback(client.host), "tls": client.tls, "ended": ended}
    return record_from(
        {
            "schema": SCHEMA,
            "what": "server",
            "when": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "device": {"name": "a server, seen from outside"},
            "versions": {"python": platform.python_version(), "server": client.software},
            "conditions": conditions | {"replies": [asdict(reply) | {"notes": list(reply.notes)} for reply in replies]},
            "yardsticks": {},  # neither ceilings nor single passes are seen from outside
            "points": [],
            "requests": [_measured(reply) for reply in replies if reply.tpot is not None and reply.prompt],
        },
        "of this server",
    )


def _checked_plan(
    concurrency: Sequence[int], requests: Mapping[str, tuple[int, int]], rounds: int, limits: Limits
) -> list[int]:
    """The levels of concurrency, when the plan stays within the limits."""
    if not isinstance(concurrency, Sequence) or isinstance(concurrency, str | bytes):
        raise InvalidInputError(f"time_server: concurrency is {shown(concurrency)}; expected several, such as (1, 4).")
    levels = [require_count("time_server", "concurrency", level) for level in concurrency]
    if not levels or max(levels) > MOST_AT_ONCE or not requests:
        raise InvalidInputError(f"time_server: give at least one request, and concurrency from 1 to {MOST_AT_ONCE}.")
    for name, shape in requests.items() if isinstance(requests, Mapping) else [(None, None)]:
        if not isinstance(name, str) or not isinstance(shape, tuple | list) or len(shape) != 2:
            raise InvalidInputError(
                f"time_server: requests is {shown(requests)}; expected names with prompt words and output tokens, such "
                'as {"chat": (1024, 128)}.'
            )
        for what, number in zip(("prompt words", "output tokens"), shape, strict=True):
            if type(require_count(f"time_server: {name}", what, number)) is not type(number):
                raise InvalidInputError(f"time_server: {name}: {what} is {shown(number)}; expected it as an int.")
    sent = rounds * sum(levels)
    planned = {"requests": sent * len(requests) + 1, "tokens": sent * sum(shape[1] for shape in requests.values()) + 2}
    for what, count in planned.items():
        if count > getattr(limits, what):
            raise InvalidInputError(
                f"time_server: this plan takes {count:,} {what}, and the limit is {getattr(limits, what):,}; ask for "
                f"less, or set Limits({what}={count})."
            )
    return levels


def _measured(reply: Reply) -> dict[str, Any]:
    assert reply.ttft is not None and reply.tpot is not None and reply.output is not None
    tokens = {"prompt": reply.prompt, "output": reply.output, "batch": reply.concurrency}
    last = reply.last if reply.chunks <= reply.output else reply.ttft + reply.tpot * (reply.output - 1)
    return {"name": reply.name, **tokens, "ttft": reply.ttft, "seconds": last}


def _said(replies: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each problem and note of the replies once, with the number of replies that it holds for."""
    texts = [text for reply in replies for text in (reply["problem"], *reply["notes"]) if text]
    return [f"{texts.count(text)} of {len(replies)} replies: {text}" for text in dict.fromkeys(texts)]


def _line(name: str, level: int, stage: Sequence[Reply]) -> str:
    """What a stage gave: medians, and each thing that is said of its replies."""
    parts = []
    for what in ("ttft", "tpot"):
        values = [value for reply in stage if (value := getattr(reply, what)) is not None]
        parts += [f"{what.upper()} {format_seconds(median(values)) if values else 'not known'}"]
    return f"{name}, concurrency {level}: {'; '.join([*parts, *_said([asdict(reply) for reply in stage])])}"


def _stage(
    client: Client, name: str, level: int, rounds: int, shape: tuple[int, int], replies: list[Reply]
) -> list[Reply]:
    """`level` senders at once, each with `rounds` requests in turn. Each reply is kept as soon as it is there."""
    before = len(replies)

    def sender() -> None:
        for _ in range(rounds):
            replies.append(client.ask(name, level, *shape))

    with ThreadPoolExecutor(level) as pool:
        futures = [pool.submit(sender) for _ in range(level)]
        try:
            wait(futures)
        except BaseException:
            client.stopped.set()  # the senders end at their next line, and what they have is kept
            raise
    for future in futures:
        future.result()
    return replies[before:]


# ---- beside a prediction


def _usable(record: Record) -> list[MeasuredRequest]:
    return [one for one in record.requests if one.output > 1 and one.seconds > one.ttft]


def _tpot(one: MeasuredRequest) -> float:
    return (one.seconds - one.ttft) / (one.output - 1)


def _running_context(one: MeasuredRequest) -> float:
    """Cached tokens of all running requests, on average over the steps: n_in + (n_out - 2) / 2 for each."""
    return one.batch * (one.prompt + (one.output - 2) / 2)


def step_fit(record: Record) -> StepFit | None:
    """The two numbers with the least relative squares to the TPOTs of a record.

    None where its contexts differ by less than a factor of 2, for then the two cannot be told apart.
    """
    ones = _usable(record)
    tpots, contexts = (np.array([of(one) for one in ones]) for of in (_tpot, _running_context))
    if not ones or contexts.max() < 2 * contexts.min():
        return None
    (seconds, slope), *_ = np.linalg.lstsq(np.stack([1 / tpots, contexts / tpots], 1), np.ones(len(ones)), rcond=None)
    return StepFit(float(seconds), float(slope), len(ones))


def server_predictions(record: Record, deployment: Deployment) -> list[dict[str, Any]]:
    """Measured beside predicted: for each kind of request and concurrency its TTFT and its TPOT, medians in seconds.

    Predicted is `request_cost(deployment, request, batch=concurrency)`: a floor with the default Efficiency, and TTFT
    that of a prompt alone, without network or queue. `fitted` is the record's own `step_fit`, NaN where there is none.
    `refused` says why there is no prediction.
    """
    fit = step_fit(record)
    groups: dict[tuple[str, int], list[MeasuredRequest]] = {}
    for one in _usable(record):
        groups.setdefault((one.name, one.batch), []).append(one)
    rows = []
    for (name, level), ones in groups.items():
        refused, ttft, tpot = "", [math.nan] * len(ones), [math.nan] * len(ones)
        try:
            costs = [request_cost(deployment, Request(one.prompt, one.output), level) for one in ones]
            ttft, tpot = [cost.ttft for cost in costs], [cost.tpot for cost in costs]
        except LessonError as error:
            refused = str(error)
        fitted = math.nan if fit is None else median(fit.seconds + fit.slope * _running_context(one) for one in ones)
        for what, seconds, expected, own in (
            ("TTFT", [one.ttft for one in ones], ttft, math.nan),
            ("TPOT", [_tpot(one) for one in ones], tpot, fitted),
        ):
            ratios = [mine / floor for mine, floor in zip(seconds, expected, strict=True)]
            row = {"what": f"{name}, concurrency {level}: {what}", "measured": median(seconds), "fitted": own}
            row |= {"predicted": median(expected), "refused": refused, "ratio": median(ratios)}
            rows.append(row | {"lowest_ratio": min(ratios), "highest_ratio": max(ratios)})
    return rows


def _latencies(replies: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each kind of request and concurrency: percentiles of the time between chunks, medians over replies."""
    groups: dict[str, list[Mapping[str, float]]] = {}
    for reply in replies:
        if reply["gaps"]:
            groups.setdefault(f"{reply['name']}, concurrency {reply['concurrency']}", []).append(reply["gaps"])
    lines = [
        f"{label:<34}" + "".join(f"{key:>5} {median(gaps[key] for gaps in group):.4g} s" for key in group[0])
        for label, group in groups.items()
    ]
    said = (
        "Time between chunks, percentiles: inter-token latency, but where a line below says that chunks are no tokens."
    )
    return [said, *lines] if lines else []


def server_report(record: Record, deployment: Deployment) -> str:
    """The rows of `server_predictions` as text, the fit, times between chunks, what is to be said of replies."""
    rows, fit, conditions = server_predictions(record, deployment), step_fit(record), record.conditions
    lines = [
        f"{conditions['model']}, {record.when}; predicted: {deployment.model.name} on {deployment.accelerator.name}"
    ]
    lines += [f"{'':<34}{'measured':>11}{'predicted':>11}{'ratio':>7}{'fitted':>11}"]
    for row in rows:
        own = "" if math.isnan(row["fitted"]) else f"{row['fitted']:>9.4g} s"
        lines += [f"{row['what']:<34}{row['measured']:>9.4g} s{row['predicted']:>9.4g} s{row['ratio']:>7.2f}{own}"]
    lines += dict.fromkeys(f"No prediction: {row['refused']}" for row in rows if row["refused"])
    if fit is not None:
        step = f"{format_seconds(fit.seconds)} + {fit.slope:.3g} s x cached tokens of all running requests"
        lines += [f"Fitted to these {fit.requests} requests themselves: a step takes {step}."]
    else:
        lines += ["Nothing is fitted: that needs contexts that differ by a factor of 2."]
    lines += _latencies(conditions["replies"])
    return "\n".join([*lines, *_said(conditions["replies"]), *filter(None, [conditions["ended"]])])
