"""Servers that are odd and not wrong, and servers that fail in an odd place: what is read of them, and what is said."""

import gzip
import json
import zlib

import pytest
from helpers import serving
from test_timing_server import SECRET, WARM_UP, Handler, replies_of, timed
from test_timing_server_faults import PROMPT, START, STEP, read, words

from lessonlib.measured.timing.server import ServerTimingError
from lessonlib.measured.timing.server_key import Key
from lessonlib.measured.timing.server_reply import Reply, reply_of
from lessonlib.measured.timing.server_stream import Stream

USAGE = {"prompt_tokens": 100, "completion_tokens": 40}


def streamed(lines, asked=40):
    """The Reply of lines of a stream, each with the moment when it comes, and the Stream."""
    stream = Stream(asked)
    stream.sent = 0.0
    for line, now in lines:
        stream.take(line, now)
    return reply_of(stream, PROMPT, Reply(name="x", concurrency=1, asked=asked), "", Key("KEY", "").clean), stream


def event(choices=(), **more):
    return b"data: " + json.dumps({"choices": list(choices), **more}).encode() + b"\n"


def tokens(count=40, index=0, **more):
    one = event([{"index": index, "delta": {"content": " word"}}], **more)
    return [(one, START + STEP * i) for i in range(count)]


END = [(event([{"index": 0, "delta": {}, "finish_reason": "length"}]), 9.0), (event(usage=USAGE), 9.0)]
SPLIT = [
    (line, now)
    for _, now in tokens()
    for line in (b'data: {"choices":\n', b'data: [{"delta": {"content": " word"}}]}\n', b"\n")
]
ODD = {
    "an empty error": [*tokens(error={}), *END],
    "no error": [*tokens(error=False), *END],
    "usage in two events": [
        (event(usage={"prompt_tokens": 100}), 0.0),
        *tokens(),
        (event(usage={"completion_tokens": 40}), 9.0),
    ],
    "usage that ends with null": [*tokens(), *END, (event(usage=None), 9.0)],
    "usage with null in it": [*tokens(), *END, (event(usage={"prompt_tokens": None, "completion_tokens": 40}), 9.0)],
    "whole numbers as floats": [*tokens(), (event(usage={"prompt_tokens": 100.0, "completion_tokens": 40.0}), 9.0)],
    "data in two lines": [*SPLIT, *END],
    "another choice first": [
        *(
            (event([{"index": 1, "delta": {}}, {"index": 0, "delta": {"content": " word"}}]), now)
            for _, now in tokens()
        ),
        *END,
    ],
    "pings as events": [(b"event: ping\n", 0.0), (b'data: {"type": "ping"}\n', 0.0), (b"\n", 0.0), *tokens(), *END],
}


@pytest.mark.parametrize("lines", ODD.values(), ids=ODD)
def test_an_odd_stream_is_read_as_any(lines):
    reply, stream = streamed(lines)
    assert (reply.chunks, reply.prompt, reply.output, stream.error or None) == (40, 100, 40, None)
    assert reply.ttft == pytest.approx(START) and reply.tpot == pytest.approx(STEP) and reply.notes == ()


def test_a_second_answer_is_not_taken_for_the_first():
    both = [one for pair in zip(tokens(), tokens(index=1), strict=True) for one in pair]
    reply, _ = streamed([*both, (event(usage=USAGE | {"completion_tokens": 80}), 9.0)])
    assert (reply.chunks, reply.tpot) == (40, None)  # usage counts both: nothing is divided by it
    assert any("more than were asked for" in note for note in reply.notes)


ERRORS = {
    "in a choice": (event([{"delta": {}, "finish_reason": "error", "error": {"message": "it died"}}]), "it died"),
    "as the end": (event([{"delta": {}, "finish_reason": "error"}]), "no more is said"),
    "by the event's name": (b'event: error\ndata: {"message": "it died"}\n', "it died"),
    "in plain words": (b"event: error\ndata: it died\n", "it died"),
}


@pytest.mark.parametrize("lines, says", ERRORS.values(), ids=ERRORS)
def test_an_error_in_a_stream_is_found(lines, says):
    _, stream = streamed([*tokens(5), *((line + b"\n", 1.0) for line in lines.splitlines())])
    assert says in str(stream.error)


def test_events_that_never_end_are_not_kept():
    _, stream = streamed([(b"data: [[\n", 0.0)] * 1000)
    assert len(stream.rest) < 1000 and stream.garbage >= 60
    _, stream = streamed([(b'data: {"a\n', 0.0), (b"\n", 0.0), *tokens(1)])
    assert stream.garbage == 1 and len(stream.times) == 1


def test_the_last_token_that_ends_a_text_has_none():
    chunks = [(n, words(1), None) for n in range(1, 11)]
    assert read(chunks, usage={"completion_tokens": 11}, finish="stop").tpot == pytest.approx(STEP)


@pytest.mark.parametrize(
    "usage, prompt, cached",
    [
        ({"prompt_tokens_details": {"cached_tokens": 60}}, 100, 60),
        ({"prompt_cache_hit_tokens": 60, "prompt_cache_miss_tokens": 40}, 100, 60),
        ({"cached_tokens": 60, "prompt_tokens_details": None}, 100, 60),
        ({"prompt_tokens": 4, "cache_read_input_tokens": 96}, 100, 96),
        ({"prompt_tokens": 40, "total_tokens": 140, "cache_read_input_tokens": 60}, 100, 60),
    ],
)
def test_a_cache_is_found_where_servers_put_it(usage, prompt, cached):
    reply = read([(n, words(1), None) for n in range(1, 41)], usage={"completion_tokens": 40, **usage})
    assert (reply.prompt, reply.cached, reply.output) == (prompt, cached, 40)
    assert any("TTFT is without its prefill" in note for note in reply.notes)


def test_a_cache_beyond_the_prompt_that_was_sent_is_not_believed():
    details = {"prompt_tokens_details": {"cached_tokens": 300}}
    for total in ({}, {"total_tokens": 140}):
        reply = read([(n, words(1), None) for n in range(1, 41)], usage=USAGE | details | total)
        assert reply.prompt is None and any("prompt or cached tokens that cannot be" in note for note in reply.notes)


class Odd(Handler):
    """Over a socket: what a proxy does, and refusals."""

    def packs_its_stream(self):
        self.send_response(200)
        for key, value in {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}.items():
            self.send_header(key, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        packer = zlib.compressobj(wbits=31)
        self.raw(packer.compress(tokens(1)[0][0]) + packer.flush())
        self.wfile.write(b"0\r\n\r\n")

    def packs_its_error(self):
        body = gzip.compress(json.dumps({"error": {"message": f"it is full, {SECRET}"}}).encode())
        self.send_response(400)
        for key, value in {"Content-Encoding": "gzip", "Content-Length": len(body)}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def asks_for_patience(self):
        self.whole(429, "application/json", '{"error": {"message": "slow down"}}', **{"Retry-After": "17"})

    def asks_for_patience_with_the_key(self):
        self.whole(503, "text/plain", "busy", **{"Retry-After": SECRET})

    def dies_in_a_choice(self):
        self.start()
        for _ in range(3):
            self.token()
        self.event(
            choices=[{"index": 0, "delta": {}, "finish_reason": "error", "error": {"message": f"died {SECRET}"}}]
        )
        self.raw(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def names_the_parameter(self):
        if "max_tokens" in self.body:
            said = {"message": "Unsupported parameter.", "param": "max_tokens", "code": "unsupported_parameter"}
            self.whole(400, "application/json", json.dumps({"error": said}))
        else:
            self.good()


@pytest.fixture(scope="module")
def base():
    with serving(Odd) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(Handler, "bodies", [])
    monkeypatch.setattr(Handler, "keys", [])
    monkeypatch.setenv("LESSONLIB_SERVER_KEY", SECRET)


@pytest.mark.parametrize(
    "name, says",
    [
        ("packs_its_stream", "the server packed its stream (gzip), which hides when a token came"),
        ("packs_its_error", 'the server answered 400: "it is full, [key]"'),
        ("asks_for_patience", '429: "slow down"; it says to ask again after 17 s'),
        ("asks_for_patience_with_the_key", '503: "busy"; it says to ask again after [key]'),
        ("dies_in_a_choice", 'the server reported an error in its stream: "died [key]"'),
    ],
)
def test_what_went_wrong_is_said_and_the_key_is_not(base, name, says):
    said = []
    record = timed(f"{base}/{name}", said)
    problems = [reply["problem"] for reply in replies_of(record)]
    assert problems and all(says in problem for problem in problems) and record.requests == ()
    assert SECRET not in str(problems) + str(said)
    with pytest.raises(ServerTimingError) as caught:
        timed(f"{base}/early_{name}")
    assert says in str(caught.value)


def test_a_parameter_at_fault_is_enough_to_try_the_other_name(base):
    record = timed(f"{base}/early_names_the_parameter")
    assert record.conditions["max_tokens_field"] == "max_completion_tokens" and len(record.requests) == 2
    asked = [body.get("max_completion_tokens") for _, body in Handler.bodies]
    assert asked[:2] == [None, WARM_UP]
