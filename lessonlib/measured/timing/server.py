"""Time a real server from outside, by its OpenAI-compatible streaming endpoint.

    record = time_server("http://localhost:8000/v1", "my-model", concurrency=(1, 4))
    print(timing_report(record, Deployment(load_model("llama-3.1-8b"), load_accelerator("h100-sxm"))))

Chat-shaped and reasoning-shaped requests run to their last tokens, c at a time. The clock starts when a request is
sent, on a connection that is open already. TTFT is the first chunk with text; TPOT = (last - first) / (n_out - 1), with
n_out as the server's own usage counts it. Seconds between chunks are inter-token latencies only where a chunk is a
token. What cannot be known is left out, and a note says why. How one request is sent and read is in server_client.py.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict
from statistics import median
from typing import Any

from lessonlib.base.checks import count
from lessonlib.base.errors import InvalidInputError, LessonError, shown
from lessonlib.base.units import format_seconds
from lessonlib.measured.timing.predictions import remarks
from lessonlib.measured.timing.record import Record, head, record_from
from lessonlib.measured.timing.server_client import Client, Limits, Reply, client_of, is_loopback

REQUESTS = {"chat": (1024, 128), "reasoning": (128, 1280)}  # words of the prompt, output tokens at most
KEY = "LESSONLIB_SERVER_KEY"
MOST_AT_ONCE = 64


class ServerTimingError(LessonError):
    """The server could not be timed at all; the message says why, in one line."""


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
    rounds = count()("time_server", "rounds", rounds)
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
    asked = {name: list(shape) for name, shape in requests.items()}
    conditions = {
        "model": model,
        "concurrency": levels,
        "rounds": rounds,
        "asked": asked,
        "extra": sorted(client.extra),
    }
    conditions |= {"limits": asdict(limits), "loopback": is_loopback(client.host), "tls": client.tls, "ended": ended}
    found = {
        "device": {"name": "a server, seen from outside"},
        "conditions": conditions | {"replies": [asdict(reply) | {"notes": list(reply.notes)} for reply in replies]},
        "yardsticks": {},  # neither ceilings nor single passes are seen from outside
        "points": [],
        "requests": [_measured(reply) for reply in replies if reply.tpot is not None and reply.prompt],
    }
    return record_from(head("server", server=client.software) | found, "of this server")


def _checked_plan(
    concurrency: Sequence[int], requests: Mapping[str, tuple[int, int]], rounds: int, limits: Limits
) -> list[int]:
    """The levels of concurrency, when the plan stays within the limits."""
    if not isinstance(concurrency, Sequence) or isinstance(concurrency, str | bytes):
        raise InvalidInputError(f"time_server: concurrency is {shown(concurrency)}; expected several, such as (1, 4).")
    levels = [count()("time_server", "concurrency", level) for level in concurrency]
    if not levels or max(levels) > MOST_AT_ONCE or not requests:
        raise InvalidInputError(f"time_server: give at least one request, and concurrency from 1 to {MOST_AT_ONCE}.")
    for name, shape in requests.items() if isinstance(requests, Mapping) else [(None, None)]:
        if not isinstance(name, str) or not isinstance(shape, tuple | list) or len(shape) != 2:
            raise InvalidInputError(
                f"time_server: requests is {shown(requests)}; expected names with prompt words and output tokens, such "
                'as {"chat": (1024, 128)}.'
            )
        for what, number in zip(("prompt words", "output tokens"), shape, strict=True):
            if type(count()(f"time_server: {name}", what, number)) is not type(number):
                raise InvalidInputError(f"time_server: {name}: {what} is {shown(number)}; expected it as an int.")
    sent = rounds * sum(levels)
    planned = {"requests": sent * len(requests) + 1, "tokens": sent * sum(shape[1] for shape in requests.values()) + 2}
    for what, number in planned.items():
        if number > getattr(limits, what):
            raise InvalidInputError(
                f"time_server: this plan takes {number:,} {what}, and the limit is {getattr(limits, what):,}; ask for "
                f"less, or set Limits({what}={number})."
            )
    return levels


def _measured(reply: Reply) -> dict[str, Any]:
    assert reply.ttft is not None and reply.tpot is not None and reply.output is not None
    tokens = {"prompt": reply.prompt, "output": reply.output, "batch": reply.concurrency}
    last = reply.last if reply.chunks <= reply.output else reply.ttft + reply.tpot * (reply.output - 1)
    return {"name": reply.name, **tokens, "ttft": reply.ttft, "seconds": last}


def _line(name: str, level: int, stage: Sequence[Reply]) -> str:
    """What a stage gave: medians, and each thing that is said of its replies."""
    parts = []
    for what in ("ttft", "tpot"):
        values = [value for reply in stage if (value := getattr(reply, what)) is not None]
        parts += [f"{what.upper()} {format_seconds(median(values)) if values else 'not known'}"]
    return f"{name}, concurrency {level}: {'; '.join([*parts, *remarks([asdict(reply) for reply in stage])])}"


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
