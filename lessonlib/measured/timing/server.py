"""Time a real server from outside, by its OpenAI-compatible streaming endpoint.

    record = time_server("http://localhost:8000/v1", "my-model", concurrency=(1, 4))
    print(timing_report(record, Deployment(load_model("llama-3.1-8b"), load_accelerator("h100-sxm"))))

Chat-shaped and reasoning-shaped requests run to their last tokens, c at a time. The clock starts when a request is
sent, on a connection that is open already. TTFT is the first chunk with text; TPOT = (last - first) / (n_out - 1), with
n_out as the server's own usage counts it: where thought is paid for and not sent, TPOT would come out too small, and
from outside this shows only where the usage tells it or the text is far too short. Seconds between chunks are
inter-token latencies only where a chunk is a token. What cannot be known is left out, and a note says why.

How one request is sent is in server_client.py (server_address.py, server_key.py), how it is read in server_stream.py,
and what a reply means in server_reply.py.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import asdict
from statistics import median
from typing import Any

from lessonlib.base.checks import REFUSED, Rule, a, checked, choice, count, flag, items, named, optional
from lessonlib.base.errors import InvalidInputError, LessonError, printable
from lessonlib.base.units import format_seconds
from lessonlib.measured.timing.browser import refuse_in_browser
from lessonlib.measured.timing.predictions import remarks
from lessonlib.measured.timing.record import LARGEST, Record, content_of, head, record_from
from lessonlib.measured.timing.server_address import is_loopback, require
from lessonlib.measured.timing.server_client import MOST_TOKENS, Client, Limits, client_of
from lessonlib.measured.timing.server_key import KEY, QUOTE
from lessonlib.measured.timing.server_reply import Reply, largest_reply

REQUESTS = {"chat": (1024, 128), "reasoning": (128, 1280)}  # words of the prompt, output tokens at most
MOST_AT_ONCE = 64
HANG_UP = 2.0  # seconds that an interrupted sender has to hand in what came; only looking up a name takes longer
INTERRUPTED = "The timing was interrupted."


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
    max_tokens_field=optional(choice(MOST_TOKENS)),
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
    max_tokens_field: str | None = None,
    say: Callable[[str], None] = print,
) -> Record:
    """Time `model` behind `url` (its base, such as http://localhost:8000/v1); returns the checked Record.

    Each of `requests` (prompt words, output tokens) is sent `rounds` times by each of c senders, for each c of
    `concurrency`; a small request comes first and is not counted. Plain http goes to this machine alone unless
    `allow_plain_http`. A reply that fails is kept with its problem; a stage in which all fail, or an interrupt, ends
    the timing. Raises InvalidInputError before anything is sent, also for a plan whose record would be too large to
    keep; ServerTimingError when the small request fails.

    `extra`: more fields of the body, such as {"ignore_eos": True} for vLLM, without which a model may end early; None
    leaves a field out. {"stream_options": {"include_usage": True, "continuous_usage_stats": True}} has vLLM say in each
    chunk how many tokens came so far, hidden thought included. `max_tokens_field`: the field that bounds the output,
    "max_tokens" or "max_completion_tokens"; by default the first, and once the second, where the server refuses the
    small request with a message that names such a field. The record says which.
    """
    refuse_in_browser("time_server", "show a recorded run", ServerTimingError)
    limits = Limits() if limits is None else limits
    client = client_of(url, model, limits, key_variable, allow_plain_http, {} if extra is None else extra)
    client.most_tokens = max_tokens_field or client.most_tokens
    for name in (model, *requests):
        require(name.isprintable(), f"{name!r} is not a name that can be printed; give this model or request another")
    sent = rounds * sum(concurrency)
    planned = {"requests": sent * len(requests) + 1, "tokens": sent * sum(shape[1] for shape in requests.values()) + 2}
    for what, number in planned.items():
        if number > (most := getattr(limits, what)):
            words = f"this plan takes {number:,} {what}, and the limit is {most:,}"
            raise InvalidInputError(f"time_server: {words}; ask for less, or set Limits({what}={number}).")
    asked = {name: list(shape) for name, shape in requests.items()}
    plan = {"model": model, "concurrency": list(concurrency), "rounds": rounds, "asked": asked}
    _must_be_storable(client, plan, sent)
    _warm_up(client, max_tokens_field is None)
    replies: list[Reply] = []
    ended = ""
    try:
        for level, (name, shape) in ((level, item) for level in concurrency for item in requests.items()):
            stage = _stage(client, name, level, rounds, shape, replies)
            say(_line(name, level, stage))
            if all(reply.problem for reply in stage):
                ended = _nothing_came(name, level)
                break
    except KeyboardInterrupt:
        ended = INTERRUPTED
    if ended:
        say(ended)
    return _record(client, plan, replies, ended)


def _nothing_came(name: str, level: int) -> str:
    return f"The timing ended at {name}, concurrency {level}, where no reply came whole."


def _warm_up(client: Client, either_field: bool) -> None:
    """The small request, which is not counted; with the other name of max_tokens, where the server asks for that."""
    problems: list[str] = []
    for name in MOST_TOKENS if either_field else (client.most_tokens,):
        client.most_tokens = name
        (small,) = _together(client, [lambda: client.ask("warm-up", 1, 16, 2)])
        problems = [small.problem, *problems] if small.problem else []
        if not (small.problem and client.refused_field):
            break
    if problems:
        raise ServerTimingError(f"No server was timed: {'; and before, with another field, '.join(problems)}.")


def _record(client: Client, plan: Mapping[str, Any], replies: Sequence[Reply], ended: str) -> Record:
    conditions = {**plan, "extra": sorted(client.extra), "max_tokens_field": client.most_tokens}
    conditions |= {"limits": asdict(client.limits), "loopback": is_loopback(client.address.host)}
    conditions |= {"tls": client.address.tls, "ended": ended}
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
    return {"name": reply.name, **tokens, "ttft": reply.ttft, "seconds": last, "tpot": reply.tpot}


def _must_be_storable(client: Client, plan: Mapping[str, Any], sent: int) -> None:
    """InvalidInputError where the record of a plan, with `sent` requests of each kind, may be too large to be kept."""
    one_of_each = [largest_reply(name, shape[1]) for name, shape in plan["asked"].items()]
    ended = _nothing_came(max(plan["asked"], key=len), MOST_AT_ONCE)
    # A quotation of a server takes at most 3 QUOTE bytes: its name is put aside as one.
    first, second = (len(content_of(_record(client, plan, one_of_each * n, ended))) + 3 * QUOTE for n in (1, 2))
    size = first + (sent - 1) * (second - first)
    if size > LARGEST:
        most = (1 + (LARGEST - first) // (second - first)) * len(one_of_each)
        words = f"this plan takes {sent * len(one_of_each):,} requests, whose record may take {size:,} bytes"
        remedy = f"ask for at most {most:,} requests at a time" if first <= LARGEST else "give them shorter names"
        raise InvalidInputError(f"time_server: {words}, and one file holds {LARGEST:,}; {remedy}.")


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

    _together(client, [sender] * level)
    return replies[before:]


def _together(client: Client, senders: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each sender returns, each in a thread of its own. An interrupt hangs up on all of them at once."""
    futures: list[Future[Any]] = [Future() for _ in senders]

    def run(future: Future[Any], sender: Callable[[], Any]) -> None:
        try:
            future.set_result(sender())
        except BaseException as error:  # a fault of ours: it is raised in the thread of the caller
            future.set_exception(error)

    try:
        for pair in zip(futures, senders, strict=True):
            threading.Thread(target=run, args=pair, daemon=True).start()
        return [future.result() for future in futures]
    except BaseException:
        client.stop()
        wait(futures, HANG_UP)
        raise
