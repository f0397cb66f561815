"""Timing a server over a real socket: what is measured, each way in which a server fails, and where the key stays.

The server here is a real one on 127.0.0.1, which speaks chunked HTTP and misbehaves by the first part of the path. No
test looks at how many seconds something took, but at which took longer.
"""

import html
import json
import os
import signal
import socket
import statistics
import threading
import time
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler
from typing import ClassVar
from urllib.parse import quote

import pytest
from helpers import refuses, serving
from helpers import server as llama_on_h100

from lessonlib import InvalidInputError, Request, request_cost
from lessonlib.measured.timing.predictions import predictions, step_fit, timing_report
from lessonlib.measured.timing.record import MeasuredRequest, read_record, record_from, write_record
from lessonlib.measured.timing.server import ServerTimingError, time_server
from lessonlib.measured.timing.server_client import Limits, client_of

SECRET = "sk-Tok+en/with\"every'kind&of<sign>-0123456789"
SHAPES = {"chat": (40, 5), "reasoning": (10, 20)}
STEP = 0.005  # seconds of a step of this server, the same for all that it serves
WARM_UP = 2  # output tokens of the small request that comes first
released = threading.Event()  # set when the tests are over, so that no silent server stays behind


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine = threading.Lock()  # one step at a time
    elsewhere = ""
    bodies: ClassVar[list] = []
    keys: ClassVar[list] = []
    interrupts: ClassVar[list] = []

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.bodies.append((self.path, body))
        self.keys.append(self.headers.get("Authorization"))
        self.body, self.asked = body, body.get("max_tokens", body.get("max_completion_tokens"))
        self.prompt = len(body["messages"][0]["content"].split())
        name = self.path.split("/")[1]
        early = name.startswith("early_")
        try:
            if self.asked == WARM_UP and not early:
                self.good()
            else:
                getattr(self, name.removeprefix("early_"))()
        except OSError:  # the client hung up
            self.close_connection = True

    # ---- the wire

    def whole(self, status, form, text, **headers):
        data = text.encode()
        self.send_response(status)
        for key, value in {"Content-Type": form, "Content-Length": len(data), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data)

    def start(self, form="text/event-stream"):
        self.send_response(200)
        self.send_header("Content-Type", form)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def raw(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def event(self, **chunk):
        self.raw(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    def token(self, key="content", text=" word"):
        with self.engine:
            time.sleep(STEP)
        self.event(choices=[{"index": 0, "delta": {key: text}}])

    def prefill(self):
        self.event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}])
        time.sleep(STEP * (2 + self.prompt / 4))

    def end(self, output=None, finish="length", **details):
        self.event(choices=[{"index": 0, "delta": {}, "finish_reason": finish}])
        if output is not None:
            usage = {"prompt_tokens": self.prompt, "completion_tokens": output, **details}
            self.event(choices=[], usage=usage)
        self.raw(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    # ---- ways to answer

    def good(self):
        self.start()
        self.prefill()
        for _ in range(self.asked):
            self.token()
        self.end(self.asked)

    def thinks(self):
        self.start()
        self.prefill()
        for i in range(self.asked):
            self.token("content" if i + 3 > self.asked else "reasoning_content")
        self.end(self.asked)

    def hides_its_thought(self):
        self.start()
        for _ in range(3):
            self.token()
        self.end(self.asked, completion_tokens_details={"reasoning_tokens": self.asked - 3})

    def caches(self):
        self.start()
        for _ in range(self.asked):
            self.token()
        self.end(self.asked, prompt_tokens_details={"cached_tokens": self.prompt // 2})

    def without_usage(self):
        self.start()
        for _ in range(self.asked):
            self.token()
        self.end()

    def without_done(self):
        self.start()
        for _ in range(self.asked):
            self.token()
        usage = {"prompt_tokens": self.prompt, "completion_tokens": self.asked}
        self.event(choices=[{"delta": {}, "finish_reason": "length"}], usage=usage)
        self.wfile.write(b"0\r\n\r\n")

    def counts_no_prompt(self):
        self.start()
        for _ in range(self.asked):
            self.token()
        self.end(self.asked, prompt_tokens=0)

    def speaks_up(self):
        self.start("Text/Event-Stream; charset=UTF-8")
        self.wfile.write(b"3\r\n\xef\xbb\xbf\r\n")
        for _ in range(self.asked):
            self.token()
        self.end(self.asked)

    def one_chunk(self):
        self.start()
        self.token(text=" word" * self.asked)
        self.end(self.asked)

    def pairs(self):
        self.start()
        for _ in range(0, self.asked, 2):
            self.token(text=" word word")
        self.end(self.asked)

    def held_back(self, tokens):
        """Tokens in one write, as a proxy sends them that waits for more."""
        self.raw(b'data: {"choices": [{"delta": {"content": " word"}}]}\n\n' * tokens)

    def all_at_once(self):
        self.start()
        self.held_back(self.asked)
        self.end(self.asked)

    def bursts(self):
        self.start()
        for _ in range(5):
            time.sleep(2 * STEP)
            self.held_back(self.asked // 5)
        self.end(self.asked)

    def ends_early(self):
        self.start()
        for _ in range(3):
            self.token()
        self.end(3, finish="stop")

    def miscounts(self):
        self.start()
        for _ in range(self.asked):
            self.token()
        self.end(10**6)

    def counts_absurdly(self):
        self.start()
        for _ in range(self.asked):
            self.token()
        self.end(10**400)

    def counts_two_fewer(self):
        self.start()
        for _ in range(self.asked):
            self.token()
        self.end(self.asked - 2)

    def counts_sixteen_more(self):
        self.start()
        for _ in range(self.asked):
            self.token()
        self.end(self.asked + 16)

    def sends_one_chunk_more(self):
        self.start()
        for _ in range(self.asked):
            self.token()
        self.end(self.asked - 1)

    def counts_too_few(self):
        self.start()
        for _ in range(self.asked):
            self.token()
        self.end(1)

    def garbles(self):
        self.start()
        for junk in (b"\xff\xfe\x00", b"data: {", b"data: [1]", b"data: " + b"[" * 9_000, b": a comment"):
            self.raw(junk + b"\n\n")
        self.event(choices="none", usage=[])
        self.event(choices=[None], usage={"completion_tokens": True})
        for _ in range(self.asked):
            self.token()
        self.end(self.asked)

    def nothing(self):
        self.start()
        self.end(0)

    def falls_silent(self):
        self.start()
        self.token()
        self.token()
        released.wait()

    def never_answers(self):
        released.wait()

    def cuts(self):
        self.start()
        for _ in range(3):
            self.token()
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def stops_without_an_end(self):
        self.start()
        for _ in range(3):
            self.token()
        self.wfile.write(b"0\r\n\r\n")

    def states_a_huge_chunk(self):
        self.start()
        self.token()
        self.wfile.write(b"f" * 16 + b"\r\ndata: \n\n")
        self.close_connection = True

    def never_ends(self):
        self.start()
        while not released.is_set():
            self.event(choices=[{"delta": {"content": "x"}}])

    def floods(self):
        self.start()
        while not released.is_set():
            self.raw(b"x" * 4096)

    def drips(self):
        self.start()
        self.token()
        while not released.is_set():
            time.sleep(STEP)
            self.raw(b"x")

    def breaks_down(self):
        self.start()
        self.token()
        self.event(error={"message": f"out of memory, {SECRET}"})

    def breaks_down_in_another_form(self):
        self.start()
        self.token()
        self.event(object="error", message="out of memory")
        self.raw(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def fails_in_json(self):
        self.whole(500, "application/json", json.dumps({"error": {"message": f"no such model; your key {SECRET}"}}))

    def fails_in_html(self):
        page = f"<html><script>alert(1)</script>\x1b[31m{SECRET} {'filler ' * 200}</html>"
        self.whole(503, "text/html", page, Server=f"proxy of {SECRET}")

    def limits_the_rate(self):
        self.whole(429, "application/json", json.dumps({"detail": "slow down"}))

    def wants_a_key(self):
        self.whole(401, "application/json", json.dumps({"error": {"message": f"Incorrect key {SECRET[:9]}***"}}))

    def redirects(self):
        self.whole(307, "text/html", "moved", Location=self.elsewhere)

    def sends_json(self):
        self.whole(200, "application/json", json.dumps({"choices": [{"message": {"content": SECRET}}]}))

    def interrupts_us(self):
        self.start()
        for i in range(self.asked):
            self.token()
            if i == 3 and not self.interrupts:
                self.interrupts.append(True)
                os.kill(os.getpid(), signal.SIGINT)
        self.end(self.asked)


@pytest.fixture(scope="module")
def base():
    with serving(Handler) as port:
        yield f"http://127.0.0.1:{port}"
        released.set()


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(Handler, "bodies", [])
    monkeypatch.setattr(Handler, "keys", [])
    monkeypatch.setenv("LESSONLIB_SERVER_KEY", SECRET)


def timed(url, said=None, **changes):
    options = {"concurrency": (1,), "requests": SHAPES, "limits": Limits(silence=5.0, seconds=60.0)}
    return time_server(url, "toy", **(options | changes), say=(said if said is not None else []).append)


def replies_of(record):
    return record.conditions["replies"]


@pytest.fixture(scope="module")
def measured(base):
    return timed(f"{base}/good", concurrency=(1, 4))


# ---- what is measured


def test_each_shape_is_sent_at_each_concurrency(measured, tmp_path):
    sent = [(one.name, one.batch, one.output) for one in measured.requests]
    assert sorted(sent) == [("chat", 1, 5)] + [("chat", 4, 5)] * 4 + [("reasoning", 1, 20)] + [("reasoning", 4, 20)] * 4
    assert {(one.name, one.prompt) for one in measured.requests} == {("chat", 40), ("reasoning", 14)}
    assert measured.what == "server" and measured.points == () and measured.yardsticks == {}
    assert read_record(write_record(measured, tmp_path)) == measured


@pytest.mark.parametrize(
    ("key", "value"),
    [("model", None), ("ended", None), ("replies", None), ("replies", [{"name": "chat"}]), ("replies", 5)],
)
def test_what_the_report_reads_of_a_record_is_needed(measured, key, value):
    data = json.loads(json.dumps(asdict(measured)))
    data["conditions"][key] = value
    with pytest.raises(InvalidInputError, match=f"'{key}' of its conditions"):
        record_from(data)
    data = json.loads(json.dumps(asdict(measured)))
    data["conditions"]["replies"][0]["gaps"] = {"p50": 1.0}
    with pytest.raises(InvalidInputError, match="'replies' of its conditions"):
        record_from(data)


def test_times_are_in_their_order(measured):
    for reply in replies_of(measured):
        assert (reply["problem"], reply["notes"], reply["finish"]) == ("", [], "length")
        assert 0 < reply["ttft"] == reply["first_answer"] < reply["last"]
        assert 0 < reply["gaps"]["p50"] <= reply["gaps"]["p90"] <= reply["gaps"]["p99"] <= reply["gaps"]["max"]
        assert 0 < reply["tpot"] <= reply["gaps"]["max"]  # a mean of the gaps
        # The server slept through a prefill and through each step: no clock that is right can show less.
        assert reply["ttft"] > STEP * (3 + reply["prompt"] / 4)
        assert reply["last"] > STEP * (2 + reply["prompt"] / 4 + reply["output"])
        assert reply["tpot"] == pytest.approx((reply["last"] - reply["ttft"]) / (reply["output"] - 1))
    # It takes one step at a time, so that four senders wait for each other's 80 steps.
    crowded = [reply for reply in replies_of(measured) if (reply["name"], reply["concurrency"]) == ("reasoning", 4)]
    assert max(reply["last"] for reply in crowded) > 40 * STEP


def test_what_is_sent_is_a_bounded_stream_and_no_prefix_repeats(base):
    timed(f"{base}/good/v1/", rounds=3.0, extra={"ignore_eos": True, "stream_options": None})
    assert {path for path, _ in Handler.bodies} == {"/good/v1/chat/completions"}
    bodies = [body for _, body in Handler.bodies]
    assert [body["max_tokens"] for body in bodies] == [WARM_UP] + [5] * 3 + [20] * 3
    assert all(body["stream"] and body["ignore_eos"] and "stream_options" not in body for body in bodies)
    prompts = [body["messages"][0]["content"].split() for body in bodies]
    starts = [" ".join(words[:20]) for words in prompts if len(words) == 40]
    assert len(starts) == len(set(starts)) == 3


def test_usage_is_asked_for(base):
    timed(f"{base}/good")
    assert all(body["stream_options"] == {"include_usage": True} for _, body in Handler.bodies)


def test_a_thought_comes_before_the_first_answer(base):
    reply = replies_of(timed(f"{base}/thinks"))[1]
    assert reply["ttft"] < reply["first_answer"] < reply["last"] and reply["tpot"] > 0


def test_a_stream_may_end_without_done(base):
    record = timed(f"{base}/without_done")
    assert [one.output for one in record.requests] == [5, 20]


# ---- numbers that do not mean what they seem to


@pytest.mark.parametrize(
    ("name", "words", "output", "chunks"),
    [
        ("without_usage", "usage does not say how many tokens came: there is no TPOT", None, 20),
        ("counts_absurdly", "usage does not say how many tokens came: there is no TPOT", None, 20),
        ("one_chunk", "all tokens came in one chunk: there is no time between tokens", 20, 1),
        ("all_at_once", "all chunks came at once, held back on the way", 20, 20),
        ("hides_its_thought", "thought was counted and not sent: TTFT includes it", 20, 3),
        ("miscounts", "more than were asked for: there is no TPOT", None, 20),
        ("counts_too_few", "usage counts fewer tokens than chunks or words came", None, 20),
        ("counts_two_fewer", "usage counts fewer tokens than chunks or words came", None, 20),
        ("counts_sixteen_more", "or more than were asked for: there is no TPOT", None, 20),
    ],
)
def test_what_cannot_be_known_is_left_out_and_said(base, name, words, output, chunks):
    for _ in range(4):  # a busy machine may hold chunks apart that came at once
        said = []
        record = timed(f"{base}/{name}", said)
        if not record.requests:
            break
    reply = replies_of(record)[1]
    assert any(words in note for note in reply["notes"]) and any(words in line for line in said)
    assert (reply["tpot"], reply["output"], reply["chunks"], reply["problem"]) == (None, output, chunks, "")
    assert reply["ttft"] > 0 and record.requests == ()
    assert "TPOT not known" in said[0] and "TTFT not known" not in said[0]
    assert "Nothing is fitted" in timing_report(record, llama_on_h100())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pairs", "there were fewer chunks than tokens: gaps are between chunks, not tokens"),
        ("bursts", "chunks came in bursts: gaps are not times between tokens"),
        ("ends_early", "the model ended before the tokens that were asked for"),
        ("caches", "a part of the prompt was cached: TTFT is without its prefill"),
        ("garbles", "some lines of the stream were not events and were skipped"),
    ],
)
def test_what_a_number_leaves_out_is_said(base, name, words):
    for _ in range(4):  # a busy machine may hold chunks back by itself, and then another note is right
        record = timed(f"{base}/{name}")
        assert [one.name for one in record.requests] == ["chat", "reasoning"]
        said = [note for note in replies_of(record)[1]["notes"] if words in note]
        if said:
            break
    assert said
    assert f"of 2 replies: {words}" in timing_report(record, llama_on_h100())


def test_one_chunk_more_than_tokens_does_not_raise_tpot(base):
    record = timed(f"{base}/sends_one_chunk_more", requests={"chat": (40, 4)})
    (reply,), (one,) = replies_of(record), record.requests
    assert (reply["chunks"], reply["output"], one.output) == (4, 3, 3)
    assert reply["tpot"] == pytest.approx((reply["last"] - reply["ttft"]) / 3)
    assert (one.seconds - one.ttft) / (one.output - 1) == pytest.approx(reply["tpot"])
    assert any("one chunk more than tokens" in note for note in reply["notes"])


def test_a_reply_without_prompt_tokens_is_left_out_and_said(base):
    record = timed(f"{base}/counts_no_prompt")
    assert record.requests == () and [reply["output"] for reply in replies_of(record)] == [5, 20]
    assert "of 2 replies: usage gives no prompt tokens: the reply is left out" in timing_report(record, llama_on_h100())


def test_a_byte_order_mark_and_capitals_lose_nothing(base):
    record = timed(f"{base}/speaks_up")
    assert [(reply["chunks"], reply["problem"], reply["notes"]) for reply in replies_of(record)] == [
        (5, "", []),
        (20, "", []),
    ]


# ---- servers that fail


@pytest.mark.parametrize(
    ("name", "words", "chunks"),
    [
        ("cuts", "the stream was cut in the middle: it closed without an end", 3),
        ("stops_without_an_end", "the stream was cut in the middle", 3),
        ("breaks_down", 'reported an error in its stream: "out of memory, [key]"', 1),
        ("breaks_down_in_another_form", 'reported an error in its stream: "out of memory"', 1),
        ("nothing", "the stream ended without any text", 0),
        ("fails_in_json", 'the server answered 500: "no such model; your key [key]"', 0),
        ("fails_in_html", 'the server answered 503: "<html><script>alert(1)</script>\\x1b[31m[key] filler', 0),
        ("limits_the_rate", 'the server answered 429: "slow down"', 0),
        ("wants_a_key", "the server answered 401: it wants another key in LESSONLIB_SERVER_KEY", 0),
        ("sends_json", "the server sent application/json, no stream", 0),
        ("never_ends", "it was cut off, for it went on beyond the tokens asked for", 22),
        ("floods", "it was cut off, for it went on beyond the tokens asked for", 0),
        ("states_a_huge_chunk", "(OverflowError)", 1),
    ],
)
def test_a_problem_is_one_clear_line_and_what_came_is_kept(base, name, words, chunks):
    said = []
    record = timed(f"{base}/{name}", said)
    reply = replies_of(record)[0]
    assert words in reply["problem"] and "\n" not in reply["problem"] and len(reply["problem"]) < 300
    assert (reply["chunks"], reply["tpot"], record.requests) == (chunks, None, ())
    assert (reply["ttft"] is not None) == (chunks > 0)
    # All failed, so nothing more was sent; and both lines say it.
    assert len(replies_of(record)) == 1
    assert record.conditions["ended"] == "The timing ended at chat, concurrency 1, where no reply came whole."
    assert words in said[0] and said[1:] == [record.conditions["ended"]]
    assert SECRET not in json.dumps(asdict(record)) + "".join(said) + timing_report(record, llama_on_h100())


def test_silence_is_bounded(base):
    for name, chunks in (("falls_silent", 2), ("never_answers", 0)):
        reply = replies_of(timed(f"{base}/{name}", limits=Limits(silence=0.3)))[0]
        assert reply["problem"].startswith("nothing came from 127.0.0.1:") and reply["problem"].endswith("for 0.3 s")
        assert reply["chunks"] == chunks


@pytest.mark.parametrize("name", ["drips", "never_answers"])
def test_the_time_of_all_is_bounded_whatever_drips(base, name):
    record = timed(f"{base}/{name}", limits=Limits(seconds=0.8, silence=30.0), concurrency=(2,), rounds=2)
    problems = [reply["problem"] for reply in replies_of(record)]
    assert problems.count("it was cut off after the 0.8 s of the timing") == 2
    assert problems.count("it was not sent, for the timing was over") == 2


def test_stages_before_a_failure_are_kept(base):
    record = timed(f"{base}/good", limits=Limits(seconds=0.5), requests=SHAPES | {"endless": (10, 500)})
    assert [one.name for one in record.requests] == ["chat", "reasoning"]
    assert [reply["name"] for reply in replies_of(record)] == ["chat", "reasoning", "endless"]
    assert 0 < replies_of(record)[-1]["chunks"] < 500
    assert "The timing ended at endless" in timing_report(record, llama_on_h100())


def test_an_interruption_keeps_what_came(base):
    Handler.interrupts.clear()
    record = timed(f"{base}/interrupts_us", requests={"chat": (10, 400)})
    assert record.conditions["ended"] == "The timing was interrupted."
    (reply,) = replies_of(record)
    assert reply["problem"] == "it was interrupted" and 4 <= reply["chunks"] < 400 and reply["ttft"] > 0


@pytest.mark.parametrize("name", ["fails_in_json", "wants_a_key", "never_ends", "cuts"])
def test_a_server_that_fails_at_once_is_one_sentence(base, name):
    with pytest.raises(ServerTimingError) as caught:
        timed(f"{base}/early_{name}")
    assert str(caught.value).startswith("No server was timed: ") and SECRET not in str(caught.value)
    assert len(Handler.bodies) == 1


def test_no_server_or_none_that_speaks_http():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ServerTimingError, match=f"127.0.0.1:{port} refused the connection; no server seems to run"):
        timed(f"http://127.0.0.1:{port}")
    for greeting, scheme, words in (
        (b"SSH-2.0-OpenSSH_9.2\r\n", "http", r"does not speak HTTP .*\(BadStatusLine\)"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "https", "does not speak TLS .*; perhaps it is http"),
        (b"", "http", "closed the connection in the middle"),
    ):
        with socket.create_server(("127.0.0.1", 0)) as other:

            def greet(other=other, greeting=greeting):
                wire, _ = other.accept()
                with wire:
                    wire.recv(2**16)
                    wire.sendall(greeting)

            thread = threading.Thread(target=greet)
            thread.start()
            with pytest.raises(ServerTimingError, match=words):
                timed(f"{scheme}://127.0.0.1:{other.getsockname()[1]}")
            thread.join()


# ---- the key


def test_the_key_goes_to_the_server_and_nowhere_else(base, tmp_path, capsys):
    said = []
    record = timed(f"{base}/good", said)
    assert set(Handler.keys) == {f"Bearer {SECRET}"}
    text = (
        write_record(record, tmp_path).read_text()
        + repr(record)
        + timing_report(record, llama_on_h100())
        + "".join(said)
    )
    assert SECRET not in text and SECRET[:8] not in text
    assert SECRET not in "".join(capsys.readouterr())


def test_no_key_is_sent_where_none_is_set(base, monkeypatch):
    monkeypatch.delenv("LESSONLIB_SERVER_KEY")
    timed(f"{base}/good")
    monkeypatch.setenv("OTHER_KEY", "other")
    timed(f"{base}/good", key_variable="OTHER_KEY")
    assert set(Handler.keys) == {None, "Bearer other"}


def test_an_echo_of_the_key_is_taken_out_in_each_of_its_forms(base):
    client = client_of(f"{base}/good", "toy", Limits(), "LESSONLIB_SERVER_KEY", False, {})
    assert SECRET not in repr(client)
    for form in (SECRET, json.dumps(SECRET)[1:-1], html.escape(SECRET), quote(SECRET, safe="")):
        assert client.clean(f"your key {form}, refused") == "your key [key], refused"
    assert client.clean("a\x1b[2J\u202eb") == "a\\x1b[2J\\u202eb"
    assert len(client.clean("x" * 10**6)) < 300


def test_a_redirect_is_not_followed(base):
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0)
        Handler.elsewhere = f"http://127.0.0.1:{other.getsockname()[1]}/v1/chat/completions"
        with pytest.raises(ServerTimingError, match="answered 307, a redirect, which is not followed"):
            timed(f"{base}/early_redirects")
        with pytest.raises(BlockingIOError):  # nobody came
            other.accept()


@pytest.mark.parametrize("key", ["sk-two words", "sk-line\r\nHost: evil", "sk-\N{GREEK SMALL LETTER ALPHA}", "\x7f"])
def test_a_key_that_no_header_holds_is_refused_without_showing_it(base, monkeypatch, key):
    monkeypatch.setenv("LESSONLIB_SERVER_KEY", key)
    with pytest.raises(InvalidInputError, match="LESSONLIB_SERVER_KEY holds characters") as caught:
        timed(f"{base}/good")
    assert key not in str(caught.value) and Handler.bodies == []


# ---- what is refused before anything is sent


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://models.example.com/v1", "plain http to models.example.com"),
        ("http://127.0.0.1.example.com/v1", "plain http to 127.0.0.1.example.com"),
        ("http://10.0.0.7:8000/v1", "plain http to 10.0.0.7"),
        (f"https://user:{SECRET.split('/')[0]}@example.com/v1", "the URL of example.com holds a user"),
        ("https://example.com/v1?api_key=secret", "the URL of example.com holds a user, a query"),
        ("ftp://example.com/v1", "url is not"),
        ("localhost:8000", "url is not"),
        ("http://localhost:port", "url is not"),
        ("http://[", "url is not"),
        (None, "url is not"),
    ],
)
def test_a_url_that_should_not_be_used_is_refused(url, words):
    with pytest.raises(InvalidInputError) as caught:
        timed(url)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value) and "sk-" not in str(caught.value)


def test_loopback_and_a_plain_host_by_consent():
    def client(url, plain=False):
        return client_of(url, "toy", Limits(), "LESSONLIB_SERVER_KEY", plain, {})

    for url in ("http://localhost", "http://127.8.8.8:1/v1", "http://[::1]:8000/v1", "https://example.com/v1"):
        assert not client(url).address.tls or url.startswith("https")
    assert client("http://10.0.0.7/v1", plain=True).address.path == "/v1/chat/completions"
    assert client("http://localhost:8000").address.path == "/v1/chat/completions"
    assert client("http://localhost:8000/api/v1/chat/completions").address.path == "/api/v1/chat/completions"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"requests": {"reasoning": (128, 20_000)}},
            r"takes 20,002 tokens, and the limit is 20,000; .* Limits\(tokens=",
        ),
        ({"rounds": 99}, r"takes 199 requests, and the limit is 100; ask for less, or set Limits\(requests=199\)"),
        ({"concurrency": (1, 65)}, r"concurrency\[1\] is 65; .* from 1 to 64"),
        ({"concurrency": (0,)}, r"concurrency\[0\] is 0"),
        ({"concurrency": ()}, r"concurrency is \(\)"),
        ({"requests": {}}, r"requests is {}"),
        ({"requests": {"chat": (0, 5)}}, r"time_server: requests\['chat'\] is \(0, 5\)"),
        ({"rounds": 0.5}, "rounds is 0.5"),
        ({"extra": {"n": 8}}, "extra may not hold messages, model, n, stream"),
        ({"extra": {"max_tokens": 10**6}}, "extra may not hold .*max_tokens"),
        ({"extra": {"max_completion_tokens": 10**6}}, "extra may not hold .*max_completion_tokens"),
        ({"extra": 5}, "extra is not a JSON object"),
        ({"extra": [("a", 1)]}, "extra is not a JSON object"),
        ({"extra": {"a": {1}}}, "extra is not a JSON object"),
        ({"extra": {"a": float("nan")}}, "extra is not a JSON object"),
        ({"extra": {5: 1}}, "extra is not a JSON object"),
        ({"concurrency": 5}, "concurrency is 5"),
        ({"requests": {5: (40, 3)}}, "requests is {5: "),
        ({"requests": {"a": 5}}, r"requests\['a'\] is 5"),
        ({"requests": {"a": (1,)}}, r"requests\['a'\] is \(1,\)"),
        ({"requests": {"a": (40.0, 3)}}, r"requests\['a'\] is \(40.0, 3\)"),
        ({"requests": [("a", (40, 3))]}, r"requests is \["),
        ({"limits": "x"}, "limits is 'x'"),
        ({"key_variable": 5}, "key_variable is not"),
        ({"allow_plain_http": "no"}, "allow_plain_http is 'no'"),
    ],
)
def test_a_plan_without_bounds_is_refused(base, changes, words):
    with pytest.raises(InvalidInputError, match=words):
        timed(f"{base}/good", **({"limits": Limits()} | changes))
    assert Handler.bodies == []


def test_a_teller_that_is_none_is_refused(base):
    with pytest.raises(InvalidInputError, match="say is None"):
        time_server(f"{base}/good", "toy", say=None)
    assert Handler.bodies == []


def test_limits_are_checked():
    for name in ("seconds", "silence"):
        refuses(lambda name=name: Limits(**{name: 1e300}), f"Limits: {name}", "1e+300", "86,400")
    with pytest.raises(InvalidInputError, match="Limits: seconds is inf"):
        Limits(seconds=float("inf"))
    with pytest.raises(InvalidInputError, match="Limits: tokens is 0"):
        Limits(tokens=0)
    with pytest.raises(InvalidInputError, match="model is ''"):
        client_of("http://localhost", "", Limits(), "LESSONLIB_SERVER_KEY", False, {})


# ---- beside a prediction


def test_the_prediction_is_request_cost(measured):
    deployment = llama_on_h100()
    rows = {row.what: row for row in predictions(measured, deployment)}
    assert len(rows) == 8
    cost = request_cost(deployment, Request(14, 20), 4)
    assert rows["reasoning, concurrency 4: TTFT"].predicted == cost.ttft
    assert rows["reasoning, concurrency 4: TPOT"].predicted == cost.tpot
    for row in rows.values():
        assert row.lowest_ratio <= row.ratio <= row.highest_ratio and row.refused == ""
        assert row.lowest_ratio <= row.measured / row.predicted <= row.highest_ratio
    text = timing_report(measured, deployment)
    assert "predicted: llama-3.1-8b on" in text
    assert all(what in text for what in rows)
    crowd = [one["gaps"] for one in replies_of(measured) if (one["name"], one["concurrency"]) == ("reasoning", 4)]
    p50, p99 = (statistics.median(gaps[key] for gaps in crowd) for key in ("p50", "p99"))
    line = next(line for line in text.splitlines() if line.startswith("reasoning, concurrency 4  "))
    assert f"p50 {p50:.4g} s" in line and f"p99 {p99:.4g} s" in line


def made(measured, seconds_of):
    """The record with requests of which a step takes what `seconds_of` says of all running contexts."""
    ones = []
    for batch, prompt, output in ((1, 100, 11), (1, 1000, 101), (4, 100, 501), (4, 2000, 51)):
        tpot = seconds_of(batch * (prompt + (output - 2) / 2))
        seconds = 0.5 + tpot * (output - 1)
        ones.append(MeasuredRequest(name="x", prompt=prompt, output=output, batch=batch, ttft=0.5, seconds=seconds))
    return replace(measured, requests=tuple(ones))


def test_the_fit_finds_the_two_numbers_of_a_server_that_has_two(measured):
    record = made(measured, lambda context: 0.007 + 2e-7 * context)
    fit = step_fit(record)
    assert (fit.seconds, fit.slope, fit.requests) == (pytest.approx(0.007), pytest.approx(2e-7), 4)
    rows = predictions(record, llama_on_h100())
    assert rows[1].fitted == pytest.approx(rows[1].measured) and rows[0].fitted != rows[0].fitted
    assert "a step takes 7.000 ms + 2e-07 s x cached tokens of all running requests" in timing_report(
        record, llama_on_h100()
    )


def test_a_server_is_predicted_as_the_deployment_that_is_named(measured):
    for call in (predictions, timing_report):
        with pytest.raises(InvalidInputError, match="predictions: deployment is None"):
            call(measured)


def test_two_numbers_are_not_fitted_to_one_context(measured):
    record = made(measured, lambda context: 0.007)
    assert step_fit(replace(record, requests=record.requests[:1] * 2)) is None
    assert step_fit(replace(record, requests=())) is None


def test_a_request_that_does_not_fit_has_no_prediction_and_says_why(measured):
    record = replace(measured, requests=(replace(measured.requests[0], prompt=2_000_000),))
    rows = predictions(record, llama_on_h100())
    assert all(row.predicted != row.predicted and "positions" in row.refused for row in rows)
    assert "No prediction: Request: prompt 2,000,000" in timing_report(record, llama_on_h100())
