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

from lessonlib.base.checks import REFUSED, Rule, a, checked, count, flag, items, named, optional
from lessonlib.base.errors import InvalidInputError, LessonError, printable
from lessonlib.base.units import format_seconds
from lessonlib.measured.timing.predictions import remarks
from lessonlib.measured.timing.record import Record, head, record_from
from lessonlib.measured.timing.server_client import Client, Limits, Reply, client_of, is_loopback

REQUESTS = {"chat": (1024, 128), "reasoning": (128, 1280)}  # words of the prompt, output tokens at most
KEY = "LESSONLIB_SERVER_KEY"
MOST_AT_ONCE = 64


def _shape(value: Any) -> Any:
    counts = value if isinstance(value, tuple | list) and len(value) == 2 else ()
    return tuple(value) if counts and all(type(number) is int and number > 0 for number in counts) else REFUSED


SHAPE = Rule("words of the prompt and output tokens, two ints of at least 1", _shape)


class ServerTimingError(LessonError):
    """The server could not be timed at all; the message says why, in one line."""


@checked(
    concurrency=items(count(most=MOST_AT_ONCE), least=1),
    requests=named(SHAPE, '{"chat": (1024, 128)}'),
    rounds=count(),
    limits=optional(a(Limits)),
    allow_plain_http=flag(),
    say=a(Callable, "print"),  # type: ignore[arg-type]
)
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
    client = client_of(url, model, limits, key_variable, allow_plain_http, {} if extra is None else extra)
    sent = rounds * sum(concurrency)
    planned = {"requests": sent * len(requests) + 1, "tokens": sent * sum(shape[1] for shape in requests.values()) + 2}
    for what, number in planned.items():
        if number > (most := getattr(limits, what)):
            words = f"this plan takes {number:,} {what}, and the limit is {most:,}"
            raise InvalidInputError(f"time_server: {words}; ask for less, or set Limits({what}={number}).")
    small = client.ask("warm-up", 1, 16, 2)
    if small.problem:
        raise ServerTimingError(f"No server was timed: {small.problem}.")
    replies: list[Reply] = []
    ended = ""
    try:
        for level, (name, shape) in ((level, item) for level in concurrency for item in requests.items()):
            stage = _stage(client, name, level, rounds, shape, replies)
            say(_line(name, level, stage))
            if all(reply.problem for reply in stage):
                ended = f"The timing ended at {name}, concurrency {level}, where no reply came whole."
                break
    except KeyboardInterrupt:
        ended = "The timing was interrupted."
    if ended:
        say(ended)
    conditions = {"model": model, "concurrency": list(concurrency), "rounds": rounds, "extra": sorted(client.extra)}
    conditions |= {"asked": {name: list(shape) for name, shape in requests.items()}}
    conditions |= {"limits": asdict(limits), "loopback": is_loopback(client.host), "tls": client.tls, "ended": ended}
    found = {
        "device": {"name": "a server, seen from outside"},
        "conditions": conditions | {"replies": [asdict(reply) | {"notes": list(reply.notes)} for reply in replies]},
        "yardsticks": {},  # neither ceilings nor single passes are seen from outside
        "points": [],
        "requests": [_measured(reply) for reply in replies if reply.tpot is not None and reply.prompt],
    }
    return record_from(head("server", server=client.software) | found, "of this server")


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
    said = "; ".join([*parts, *remarks([asdict(reply) for reply in stage])])
    return printable(f"{name}, concurrency {level}: {said}")


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
