"""What servers do that would make a number wrong without a word, let a key out, or hang: each small, and its siblings.

Streams with times of their own are read without a socket, so that the right number is exact; all else goes through a
real socket, to a server that misbehaves by the first part of the path.
"""

import base64
import html
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import traceback
from dataclasses import asdict, replace
from http.server import ThreadingHTTPServer
from urllib.parse import quote

import numpy as np
import pytest
from helpers import EVERY, serving
from helpers import server as llama_on_h100
from hypothesis import given
from hypothesis import strategies as st
from test_timing_server import SECRET, SHAPES, Handler, made, replies_of, timed

from lessonlib import InvalidInputError, LessonError
from lessonlib.measured.timing.predictions import predictions, step_fit, timing_report
from lessonlib.measured.timing.record import LARGEST, content_of, read_record, write_record
from lessonlib.measured.timing.server import ServerTimingError, time_server
from lessonlib.measured.timing.server_address import address_of
from lessonlib.measured.timing.server_client import Limits, client_of
from lessonlib.measured.timing.server_key import WITHHELD, Key
from lessonlib.measured.timing.server_reply import FINISH, PACE, Reply, largest_reply, reply_of
from lessonlib.measured.timing.server_stream import Stream

PROMPT = " ".join(["river"] * 100)  # 599 characters
START, STEP = 0.05, 0.004  # seconds to the first token, and from one to the next


def read(chunks, asked=40, usage=None, finish="length", key=""):
    """The Reply of a stream of (tokens so far, delta, usage of the chunk or None), each sent when its tokens are there.

    `usage`: of the last event, beside 100 prompt tokens.
    """
    stream = Stream(asked)
    stream.sent = 0.0
    for tokens, delta, own in chunks:
        event = {"choices": [{"delta": delta}]} | ({"usage": {"prompt_tokens": 100, **own}} if own else {})
        stream.take(b"data: " + json.dumps(event).encode(), START + STEP * (tokens - 1))
    last = {"choices": [{"delta": {}, "finish_reason": finish}], "usage": {"prompt_tokens": 100, **(usage or {})}}
    stream.take(b"data: " + json.dumps(last).encode(), 9.0)
    return reply_of(stream, PROMPT, Reply(name="x", concurrency=1, asked=asked), "", Key("KEY", key).clean)


def said(reply, *names):
    return [note for note in reply.notes if note in [PACE[name] for name in names]]


def words(count, key="content"):
    return {key: " word" * count}


# ---- D1: thought that is paid for and not sent


def visible(hidden, key="content"):
    return [(tokens, words(1, key), None) for tokens in range(hidden + 1, 41)]


def test_hidden_thought_that_usage_does_not_tell_leaves_no_tpot():
    reply = read(visible(30), usage={"completion_tokens": 40})
    assert (reply.tpot, reply.output, reply.chunks) == (None, 40, 10)
    assert said(reply, "thin") and "thought is probably hidden, and TPOT is undefined" in " ".join(reply.notes)
    # Nothing hidden: each token a chunk.
    assert read(visible(0), usage={"completion_tokens": 40}).tpot == pytest.approx(STEP)
    assert read(visible(0), usage={"completion_tokens": 40}).notes == ()


@pytest.mark.parametrize(
    "told", [{}, {"completion_tokens_details": {"reasoning_tokens": 30}}, {"reasoning_tokens": 30}]
)
def test_a_total_beyond_the_sum_is_hidden_thought(told):
    reply = read(visible(30), usage={"completion_tokens": 10, "total_tokens": 140, **told})
    assert (reply.tpot, reply.output) == (None, 10) and said(reply, "hidden")
    assert read(visible(30), usage={"completion_tokens": 10, "total_tokens": 110}).tpot == pytest.approx(STEP)


def test_a_total_beyond_the_sum_is_not_hidden_where_thought_was_sent():
    chunks = visible(0, "reasoning")[:30] + visible(30)
    for told in ({}, {"completion_tokens_details": {"reasoning_tokens": 30}}):
        reply = read(chunks, usage={"completion_tokens": 10, "total_tokens": 140, **told})
        assert (reply.tpot, reply.output, reply.notes) == (pytest.approx(STEP), 40, ())


def test_a_total_beyond_the_sum_may_be_a_cache_that_is_counted_beside_the_prompt():
    usage = {"completion_tokens": 40, "total_tokens": 540, "prompt_tokens_details": {"cached_tokens": 400}}
    reply = read(visible(0), usage=usage)
    assert (reply.prompt, reply.cached, reply.output, reply.tpot) == (500, 400, 40, pytest.approx(STEP))


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "gAAAA" * 40}]},
        {"thinking_blocks": [{"type": "redacted_thinking", "data": "EmwKAh" * 40}]},
    ],
)
def test_thought_that_is_sent_sealed_is_hidden(delta):
    reply = read([(30, delta, None), *visible(30)], usage={"completion_tokens": 40})
    assert (reply.tpot, reply.chunks) == (None, 10) and said(reply, "hidden")
    assert reply.ttft == pytest.approx(START + 30 * STEP)  # the first text, not the first sealed bytes


def test_a_summary_of_thought_is_not_the_thought():
    chunks = [(30, words(2, "reasoning"), None), *visible(30)]
    told = {"completion_tokens": 40, "completion_tokens_details": {"reasoning_tokens": 30}}
    assert read(chunks, usage=told).tpot is None and said(read(chunks, usage=told), "hidden")
    whole = [(30, words(30, "reasoning"), None), *visible(30)]
    assert read(whole, usage=told).tpot == pytest.approx(STEP)


@pytest.mark.parametrize("each", [2, 4, 8])
def test_tokens_that_come_several_at_a_time_are_not_taken_for_hidden_thought(each):
    chunks = [(tokens, words(each), None) for tokens in range(each, 41, each)]
    reply = read(chunks, usage={"completion_tokens": 40})
    # The first chunk's tokens are its share of the text, so that the time is that of the tokens after it.
    assert reply.tpot == pytest.approx(STEP) and said(reply, "fewer")
    assert "too small if thought was withheld" in reply.notes[0]


@pytest.mark.parametrize("word", [" word", "\u4e00\u4e2a", " \u0441\u043b\u043e\u0432\u043e", "    ", "\U0001f600"])
def test_other_scripts_are_not_taken_for_hidden_thought(word):
    chunks = [(tokens, {"content": word * 2}, None) for tokens in range(2, 41, 2)]
    assert read(chunks, usage={"completion_tokens": 40}).tpot == pytest.approx(STEP)


# ---- D2: the usage of each chunk


def test_tokens_in_the_first_chunk_are_counted_by_its_own_usage():
    chunks = [(16, words(16), {"completion_tokens": 16})]
    chunks += [(tokens, words(1), {"completion_tokens": tokens}) for tokens in range(17, 41)]
    reply = read(chunks, usage={"completion_tokens": 40})
    assert reply.tpot == pytest.approx(STEP) and said(reply, "counted") and reply.output == 40
    # The first chunk's text may be as short as it likes, for its usage says what was paid: so may thought be hidden.
    chunks[0] = (16, words(1), {"completion_tokens": 16})
    told = {"completion_tokens": 40, "completion_tokens_details": {"reasoning_tokens": 15}}
    assert read(chunks, usage=told).tpot == pytest.approx(STEP)
    # Only the first chunk says it, and the end.
    reply = read([chunks[0], *((*chunk[:2], None) for chunk in chunks[1:])], usage={"completion_tokens": 40})
    assert reply.tpot == pytest.approx(STEP)


@pytest.mark.parametrize("own", [lambda n: 0, lambda n: 40, lambda n: 41 - n, lambda n: n + 7, lambda n: True, str])
def test_usage_of_chunks_that_cannot_be_is_not_used(own):
    chunks = [(tokens, words(1), {"completion_tokens": own(tokens)}) for tokens in range(1, 41)]
    reply = read(chunks, usage={"completion_tokens": 40})
    assert reply.tpot == pytest.approx(STEP) and reply.notes == ()


@given(st.lists(st.integers(1, 9), min_size=2, max_size=30))
def test_tpot_is_the_step_however_the_tokens_are_grouped(groups):
    ends = np.cumsum(groups).tolist()
    chunks = [(end, words(size), {"completion_tokens": end}) for end, size in zip(ends, groups, strict=True)]
    reply = read(chunks, asked=ends[-1], usage={"completion_tokens": ends[-1]})
    assert reply.tpot == pytest.approx(STEP)
    if len(groups) == ends[-1] - 1:  # one chunk less than tokens is taken for an end without text
        return
    blind = read([(*chunk[:2], None) for chunk in chunks], asked=ends[-1], usage={"completion_tokens": ends[-1]})
    assert blind.tpot == pytest.approx(STEP)


# ---- D3: where text may stand


ANSWERS = [
    {"content": " word"},
    {"content": [{"type": "text", "text": " word"}]},
    {"content": [{"type": "output_text", "text": " "}, {"type": "text", "text": "word"}]},
    {"content": {"type": "text", "text": " word"}},
    {"content": [{"index": 0, "type": "text", "text": {"value": " word", "annotations": []}}]},
    {"refusal": " word"},
    {"tool_calls": [{"index": 0, "type": "function", "function": {"name": "f", "arguments": '{"a":'}}]},
    {"tool_calls": [{"index": 0, "custom": 5}]},
]
THOUGHTS = [
    *({name: " word"} for name in ("reasoning", "reasoning_content", "thinking")),
    {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": " word"}]}]},
    {"reasoning": " word", "reasoning_details": [{"type": "reasoning.text", "text": " word"}]},
    {"reasoning_details": [{"type": "reasoning.summary", "summary": " word"}], "content": ""},
    {"thinking_blocks": [{"type": "thinking", "thinking": " word", "signature": "x"}], "content": None},
]


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("thought", THOUGHTS)
def test_text_is_found_where_servers_put_it(answer, thought):
    chunks = [(tokens, thought if tokens <= 30 else answer, None) for tokens in range(1, 41)]
    reply = read(chunks, usage={"completion_tokens": 40})
    assert (reply.chunks, reply.tpot, reply.problem) == (40, pytest.approx(STEP), "")
    assert reply.ttft == pytest.approx(START) and reply.first_answer == pytest.approx(START + 30 * STEP)


@pytest.mark.parametrize("opened", [True, False])
def test_thought_between_tags_is_thought(opened):
    """Without a parser of thought, a server leaves it in the answer; some templates open the tag in the prompt."""
    texts = ["<think>" if opened else "So", *[" word"] * 28, "</think>", *[" word"] * 10]
    chunks = [(tokens, {"content": text}, None) for tokens, text in enumerate(texts, 1)]
    usage = {"completion_tokens": 40, "completion_tokens_details": {"reasoning_tokens": 30}}
    reply = read(chunks, usage=usage)
    assert (reply.tpot, reply.notes) == (pytest.approx(STEP), ())
    assert reply.first_answer == pytest.approx(START + 30 * STEP)
    if opened:  # it never comes to an answer
        assert read(chunks[:20], asked=20, usage={"completion_tokens": 20}).first_answer is None


@pytest.mark.parametrize(
    "nothing",
    [{"content": value} for value in ("", None, [], [[]], [{}], [{"type": "text", "text": ""}], 5, True, [None, 5])]
    + [{"content": [[[[[[[[[[{"text": "deep"}]]]]]]]]]]}, {"role": "assistant"}, {"content": {"text": {"text": 5}}}],
)
def test_what_has_no_text_is_no_chunk(nothing):
    assert read([(1, nothing, None), *visible(20)], usage={"completion_tokens": 20}).chunks == 20


@pytest.mark.parametrize("place", ["choice", "x_groq"])
def test_usage_is_found_where_servers_put_it(place):
    stream = Stream(5)
    usage = {"completion_tokens": 5, "prompt_tokens": 100}
    event = {"choices": [{"delta": {}, "usage": usage}]} if place == "choice" else {"x_groq": {"usage": usage}}
    stream.take(b"data: " + json.dumps(event).encode(), 1.0)
    assert stream.counted("completion_tokens") == 5


# ---- D10: counts that cannot be


@pytest.mark.parametrize(
    ("prompt", "believed"), [(1, None), (49, None), (50, 50), (100, 100), (599, 599), (10**6, None)]
)
def test_prompt_tokens_that_cannot_be_those_of_the_words_are_not_believed(prompt, believed):
    reply = read(visible(0), usage={"completion_tokens": 40, "prompt_tokens": prompt})
    assert (reply.prompt, reply.tpot) == (believed, pytest.approx(STEP))
    assert any("cannot be those of the words sent" in note for note in reply.notes) == (believed is None)


def test_output_tokens_that_cannot_be_those_of_the_words_are_not_believed():
    chunks = [(tokens, words(4), None) for tokens in range(4, 41, 4)]
    reply = read(chunks, usage={"completion_tokens": 10})  # this server counts its chunks
    assert (reply.tpot, reply.output) == (None, None) and said(reply, "miscounted")
    split = [(tokens, {"content": "wo" if tokens % 2 else "rd"}, None) for tokens in range(1, 41)]
    assert read(split, usage={"completion_tokens": 40}).tpot == pytest.approx(STEP)  # one word in many pieces


# ---- through a socket


class Other(Handler):
    """More ways to misbehave."""

    forms = {}  # noqa: RUF012 - what a server says of the key, by name
    closed = threading.Event()

    def withholds(self):
        self.start()
        for i in range(self.asked):
            if i < self.asked * 3 // 4:
                threading.Event().wait(0.002)
            else:
                self.token()
        self.end(self.asked)

    def counts_each_chunk(self):
        self.start()
        for i in range(4, self.asked + 1):
            threading.Event().wait(0.002)
            usage = {"prompt_tokens": self.prompt, "completion_tokens": i}
            self.event(choices=[{"delta": {"content": " word" * (4 if i == 4 else 1)}}], usage=usage)
        self.end(self.asked)

    def sends_parts(self):
        self.start()
        for _ in range(self.asked):
            self.token(text=[{"type": "text", "text": " word"}])
        self.end(self.asked)

    def counts_one_prompt_token(self):
        self.start()
        for _ in range(self.asked):
            self.token()
        self.end(self.asked, prompt_tokens=1)

    def wants_the_other_name(self):
        if "max_tokens" in self.body:
            said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'."
            self.whole(400, "application/json", json.dumps({"error": {"message": said}}))
        else:
            self.good()

    def wants_the_other_name_in_many_words(self):
        if "max_tokens" in self.body:
            said = [{"type": "extra_forbidden", "input": "x" * 900, "loc": ["body", "max_tokens"]}]
            self.whole(422, "application/json", json.dumps({"detail": said}))
        else:
            self.good()

    def wants_the_other_name_in_a_stream(self):
        if "max_tokens" in self.body:
            self.start()
            self.event(error={"message": "please set max_completion_tokens", "code": 400})
        else:
            self.good()

    def wants_neither_name(self):
        name = next(name for name in ("max_tokens", "max_completion_tokens") if name in self.body)
        self.whole(400, "application/json", json.dumps({"error": {"message": f"no {name} here"}}))

    def wants_another_model(self):
        self.whole(400, "application/json", json.dumps({"error": {"message": "no such model"}}))

    def echoes(self):
        form = self.forms[self.path.split("/")[2]]
        self.whole(500, "text/plain", f"Your key is {form}, which is wrong", Server=self.in_a_header(form))

    def echoes_in_its_stream(self):
        form = self.forms[self.path.split("/")[2]]
        self.start()
        self.token()
        self.event(error={"message": {"key": form}})

    def echoes_as_the_end(self):
        self.start()
        for _ in range(self.asked):
            self.token()
        self.end(self.asked, finish=self.forms[self.path.split("/")[2]])

    def echoes_as_its_form(self):
        form = self.in_a_header(self.forms[self.path.split("/")[2]])
        self.whole(200, form, "no stream", Server=form)

    @staticmethod
    def in_a_header(form):
        return "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in form)

    def interrupts_and_is_silent(self):
        self.start()
        self.token()
        self.wait_to_be_closed()

    def interrupts_and_never_answers(self):
        self.wait_to_be_closed()

    def wait_to_be_closed(self):
        os.kill(os.getpid(), signal.SIGINT)
        self.connection.settimeout(30)
        if self.connection.recv(1) == b"":
            self.closed.set()
        self.close_connection = True


@pytest.fixture(scope="module")
def base():
    with serving(Other) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(Handler, "bodies", [])
    monkeypatch.setattr(Handler, "keys", [])
    monkeypatch.setattr(Other, "closed", threading.Event())
    monkeypatch.setenv("LESSONLIB_SERVER_KEY", SECRET)


def test_hidden_thought_is_said_and_not_predicted(base):
    record = timed(f"{base}/withholds", requests={"reasoning": (40, 40)})
    (reply,) = replies_of(record)
    assert (reply["tpot"], reply["output"], reply["chunks"], record.requests) == (None, 40, 10, ())
    assert "thought is probably hidden" in timing_report(record, llama_on_h100())


def test_the_report_takes_tpot_from_the_tokens_after_the_first_chunk(base, tmp_path):
    record = timed(f"{base}/counts_each_chunk", requests={"reasoning": (40, 20)})
    (reply,), (one,) = replies_of(record), record.requests
    assert reply["tpot"] == pytest.approx((reply["last"] - reply["ttft"]) / 16) == one.tpot
    assert one.seconds == reply["last"]
    rows = {row.what: row.measured for row in predictions(record, llama_on_h100())}
    assert rows["reasoning, concurrency 1: TPOT"] == reply["tpot"]
    assert read_record(write_record(record, tmp_path)) == record


def test_a_stream_of_parts_is_timed(base):
    assert [one.output for one in timed(f"{base}/sends_parts").requests] == [5, 20]


def test_a_prompt_that_is_not_believed_is_not_predicted(base):
    record = timed(f"{base}/counts_one_prompt_token", requests={"chat": (1000, 5)})
    assert record.requests == () and replies_of(record)[0]["prompt"] is None
    assert "cannot be those of the words sent" in timing_report(record, llama_on_h100())


# ---- D4: the other name of max_tokens


@pytest.mark.parametrize("name", [f"wants_the_other_name{how}" for how in ("", "_in_many_words", "_in_a_stream")])
def test_the_other_name_of_max_tokens_is_tried_once_and_recorded(base, name):
    record = timed(f"{base}/early_{name}")
    assert record.conditions["max_tokens_field"] == "max_completion_tokens" and len(record.requests) == 2
    names = [sorted({"max_tokens", "max_completion_tokens"} & set(body)) for _, body in Handler.bodies]
    assert names == [["max_tokens"]] + [["max_completion_tokens"]] * 3


def test_the_name_of_max_tokens_may_be_said(base):
    for name in ("max_tokens", "max_completion_tokens"):
        Handler.bodies.clear()
        assert timed(f"{base}/good", max_tokens_field=name).conditions["max_tokens_field"] == name
        assert all(name in body for _, body in Handler.bodies) and len(Handler.bodies) == 3
    assert timed(f"{base}/good").conditions["max_tokens_field"] == "max_tokens"
    with pytest.raises(InvalidInputError, match="max_tokens_field is 'n'"):
        timed(f"{base}/good", max_tokens_field="n")


@pytest.mark.parametrize(
    ("name", "field", "sent"),
    [("neither_name", None, 2), ("neither_name", "max_tokens", 1), ("another_model", None, 1)],
)
def test_a_refusal_is_not_asked_again_and_again(base, name, field, sent):
    with pytest.raises(ServerTimingError) as caught:
        timed(f"{base}/early_wants_{name}", max_tokens_field=field)
    assert len(Handler.bodies) == sent and str(caught.value).count("answered 400") == sent


# ---- D5: the key


def forms_of(key):
    """Ways in which a key may be written."""
    data, cut = key.encode(), lambda size: [key[i : i + size] for i in range(0, len(key), size)]

    def each(form):
        return "".join(form.format(ord(letter)) for letter in key)

    halves = json.dumps({"first": key[: len(key) // 2], "second": key[len(key) // 2 :]})
    encoded = base64.b64encode(data).decode()
    return {
        "plain": key,
        "a part": key[:12],
        "the end": f"***{key[-9:]}",
        "percent": quote(key, safe=""),
        "percent twice": quote(quote(key, safe=""), safe=""),
        "percent of all": each("%{:02x}"),
        "percent of all, capitals": each("%{:02X}"),
        "JSON": json.dumps(key),
        "JSON in JSON": json.dumps(json.dumps(key)),
        "escaped": each("\\u{:04x}"),
        "escaped twice": each("\\\\u{:04X}"),
        "escaped in braces": each("\\u{{{:x}}}"),
        "escaped in bytes": each("\\x{:02x}"),
        "octal": each("\\{:03o}"),
        "quoted-printable": each("={:02X}"),
        "HTML": html.escape(key),
        "HTML, decimal": each("&#{};"),
        "HTML, hex": each("&#x{:x};"),
        "base64": encoded,
        "base64 of the header": base64.b64encode(b"Bearer " + data).decode(),
        "base64 of a user": base64.urlsafe_b64encode(b"me:" + data).decode().rstrip("="),
        "base64, split": " ".join(encoded[i : i + 5] for i in range(0, len(encoded), 5)),
        "base64, reversed": encoded[::-1],
        "hex": data.hex(),
        "hex, split": data.hex(" ").upper(),
        "codes": str(list(data)),
        "spaced": " ".join(key),
        "dashed": "-".join(key),
        "dotted invisibly": "\u200b".join(key),
        "lines": "\n".join(cut(4)),
        "halves": halves,
        "capitals": key.upper(),
        "small letters": key.lower(),
        "swapped": key.swapcase(),
        "wide": "".join(chr(ord(letter) + 0xFEE0) for letter in key),
        "reversed": key[::-1],
        "chunks reversed": "".join(cut(4)[::-1]),
        "small chunks reversed": "".join(cut(3)[::-1]),
        "each chunk reversed": "".join(part[::-1] for part in cut(4)),
    }


KEYS = (SECRET, "sk-proj-a8Fh3kLq92ZxVb71nmQwErTy", "0123456789abcdef0123456789abcdef", "hf_AbCdEfGhIjKlMnOpQr")


@pytest.mark.parametrize("key", KEYS)
def test_no_form_of_the_key_is_quoted(key):
    for name, form in forms_of(key).items():
        quoted = Key("KEY", key).clean(f"Your key is {form}, which is wrong")
        bare = re.sub(r'["\\]', "", quoted)  # what JSON puts around it
        assert bare in ("Your key is [key], which is wrong", WITHHELD), name


@pytest.mark.parametrize("key", [*KEYS, "token-abc123", "EMPTY", "ollama", "lm-studio", ""])
@pytest.mark.parametrize(
    "text",
    [
        "The model `gpt-5` does not exist or you do not have access to it.",
        "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.",
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
        "Invalid token: 0x1f at 12:30, see https://example.com/docs?page=7%20of%209",
    ],
)
def test_what_has_nothing_of_the_key_is_quoted(key, text):
    assert Key("KEY", key).clean(text) == text


WAYS = ["echoes", "echoes_in_its_stream", "echoes_as_the_end", "echoes_as_its_form"]


@pytest.mark.parametrize(
    "every", [pytest.param(len(WAYS), id="some"), *EVERY[1:]]
)  # some: each form by one of the ways
@pytest.mark.parametrize("way", WAYS)
def test_no_form_of_the_key_leaves_by_any_way(base, tmp_path, capsys, way, every):
    forms = forms_of(SECRET)
    Other.forms = {str(i): form for i, form in enumerate(forms.values())}
    for i, name in [*enumerate(forms)][WAYS.index(way) % every :: every]:
        lines, texts = [], []
        for early in ("", "early_"):
            try:
                record = timed(f"{base}/{early}{way}/{i}", lines, requests={"chat": (40, 5)})
                texts += [repr(record), json.dumps(asdict(record)), timing_report(record, llama_on_h100())]
                texts += [write_record(record, tmp_path).read_text()]
            except ServerTimingError as error:
                texts += ["".join(traceback.format_exception(error)), repr(error)]
                shown = traceback.TracebackException.from_exception(error, capture_locals=True)
                # This test's own variables hold the key; those of the library may not.
                texts += [str(frame.locals) for frame in shown.stack if "lessonlib" in frame.filename]
        text = "".join([*texts, *lines, *capsys.readouterr()])
        assert forms[name] not in text and json.dumps(forms[name])[1:-1] not in text, name
        letters = re.sub(r"[\W_]", "", text.lower())
        assert not any(SECRET[k : k + 6].lower() in text.lower() for k in range(len(SECRET) - 5)), name
        assert "witheverykind" not in letters and "0123456789" not in letters, name


@pytest.mark.parametrize(
    "key", [SECRET, "sk_live_0123456789abcdef", "A1b2C3d4E5f6A7b8", "", "x" * 500, "\0", "\ud800", "A=B"]
)
def test_a_key_in_the_place_of_its_variable_is_not_quoted(base, key):
    with pytest.raises(LessonError) as caught:
        timed(f"{base}/early_wants_a_key", key_variable=key)
    assert "key_variable is not the name of an environment variable that is set" in str(caught.value)
    assert not key or key not in "".join(traceback.format_exception(caught.value))
    assert Handler.bodies == []


# ---- D6: a record that could not be kept


def test_a_plan_whose_record_could_not_be_kept_is_refused_before_anything_is_sent(base):
    generous = Limits(requests=10**4, tokens=10**6)
    with pytest.raises(InvalidInputError, match=r"takes 2,000 requests, whose record may take [\d,]+ bytes") as caught:
        timed(f"{base}/good", rounds=1000, limits=generous)
    assert Handler.bodies == []
    most = int(re.search(r"at most ([\d,]+) requests at a time", str(caught.value))[1].replace(",", ""))
    with pytest.raises(InvalidInputError, match="whose record"):
        timed(f"{base}/good", rounds=most // 2 + 1, limits=generous)
    assert Handler.bodies == [] and 200 < most < 2000
    with pytest.raises(InvalidInputError, match="give them shorter names"):
        timed(f"{base}/good", requests={"x" * LARGEST: (10, 5)})


def test_the_largest_plan_that_is_taken_can_be_kept(base, tmp_path):
    size = LARGEST // 20  # names so long that a few replies fill a record
    shapes = {"\N{GRINNING FACE}" * (size // 12): (10, 3)}
    taken = 0
    for rounds in range(1, 20):
        try:
            record = timed(f"{base}/echoes_as_the_end/0", requests=shapes, rounds=rounds)
        except InvalidInputError as error:
            assert "ask for at most" in str(error)
            break
        taken = rounds
        assert read_record(write_record(record, tmp_path)) == record
    assert 2 <= taken < 19
    assert len(content_of(record)) > LARGEST / 2  # it is no bound that nothing comes near


@given(st.text(max_size=400), st.text(max_size=80), st.sampled_from(["", SECRET]))
def test_no_reply_takes_more_room_than_the_largest(message, finish, key):
    clean = Key("KEY", key).clean
    reply = read(visible(0), usage={"completion_tokens": 40, "prompt_tokens": 1}, finish=finish, key=key)
    reply = replace(
        reply, problem=f'the server answered 500: "{clean(message * 9)}"', notes=largest_reply("x", 40).notes
    )
    sizes = [len(json.dumps(asdict(one), indent=1)) for one in (reply, largest_reply("x", 40))]
    assert sizes[0] <= sizes[1] and len(reply.finish) <= FINISH


@pytest.mark.parametrize("name", ["\ud800", "a\nb", "\x1b[2J"])
def test_a_name_that_could_not_be_printed_is_refused_before_anything_is_sent(base, name):
    """Printing the first stage would end the timing, and lose it."""
    with pytest.raises(InvalidInputError, match="not a name that can be printed"):
        timed(f"{base}/good", requests={name: (10, 5)})
    with pytest.raises(InvalidInputError, match="not a name that can be printed"):
        time_server(f"{base}/good", name)
    assert Handler.bodies == []


# ---- D7: an interrupt


@pytest.mark.parametrize("name", ["is_silent", "never_answers"])
def test_an_interrupt_hangs_up_on_a_silent_server(base, name):
    record = timed(f"{base}/interrupts_and_{name}", limits=Limits(silence=3600.0, seconds=3600.0))
    (reply,) = replies_of(record)
    assert (reply["problem"], reply["tpot"]) == ("it was interrupted", None)
    assert record.conditions["ended"] == "The timing was interrupted."
    assert Other.closed.wait(30)  # the server saw the end of the connection


def test_an_interrupt_of_the_small_request_hangs_up_too(base):
    with pytest.raises(KeyboardInterrupt) as caught:
        timed(f"{base}/early_interrupts_and_never_answers", limits=Limits(silence=3600.0, seconds=3600.0))
    assert Other.closed.wait(30)
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert not any(SECRET in str(frame.locals) for frame in shown.stack if "lessonlib" in frame.filename)


def test_an_interrupt_hangs_up_on_a_server_that_does_not_finish_its_handshake():
    closed = threading.Event()

    def silent(listener):
        wire, _ = listener.accept()
        with wire:
            wire.settimeout(30)
            wire.recv(2**16)  # the hello
            os.kill(os.getpid(), signal.SIGINT)
            if wire.recv(1) == b"":
                closed.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=silent, args=(listener,))
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            timed(f"https://127.0.0.1:{listener.getsockname()[1]}", limits=Limits(silence=3600.0, seconds=3600.0))
        thread.join()
    assert closed.is_set()


def test_a_client_that_was_stopped_sends_nothing(base):
    client = client_of(f"{base}/good", "toy", Limits(), "LESSONLIB_SERVER_KEY", False, {})
    client.stop()
    assert client.ask("chat", 1, 20, 5).problem == "it was not sent, for the timing was over"
    assert Handler.bodies == []


# ---- D8: web addresses


@pytest.mark.parametrize(
    "url",
    [
        "https://ex ample/v1",
        " https://example.com/v1",
        "https://example.com/v1\n",
        "https://exam\tple.com/v1",
        "https://example.com/\x00v1",
        "https://example.com/\x7f",
        "https://example.com/\u2028",
        "https://example.com/\ud800",
        "https://ex\u00a0ample.com",
        "https://exa\u200bmple.com",
        "https:///v1",
        "https://:8000/v1",
        "https://.",
        "https://.example.com",
        "https://a..b/v1",
        "https://-example.com",
        f"https://{'a' * 64}.com",
        f"https://{'a.' * 130}com",
        "https://exa_mple!.com",
        "https://exa%20mple.com",
        "https://exa<mple>.com",
        "https://[::1",
        "https://[::1]x:80",
        "https://[1::2::3]/v1",
        "https://[example.com]/v1",
        "https://::1/v1",
        "https://localhost:0",
        "https://localhost:65536",
        "https://localhost:-1",
        "https://localhost:8o",
        "https://localhost:\u0668\u0660",
        "https://localhost:80:80",
        "https://\u2100.com",
        f"https://{chr(0xFC) * 64}.de",
        "https:/example.com",
        "example.com/v1",
        "file:///etc/passwd",
        "",
        b"https://example.com",
        5,
    ],
)
def test_what_is_no_web_address_is_refused_by_lessonlib(url):
    with pytest.raises(InvalidInputError, match="url is not a web address") as caught:
        timed(url)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("https://example.com", "example.com", None, "/v1/chat/completions"),
        ("https://example.com.:443/v1/", "example.com.", 443, "/v1/chat/completions"),
        ("https://m\u00fcnchen.example/v1", "xn--mnchen-3ya.example", None, "/v1/chat/completions"),
        ("https://my_box:8000/caf\u00e9", "my_box", 8000, "/caf%C3%A9/chat/completions"),
        ("http://[::1]/v1", "::1", None, "/v1/chat/completions"),
        ("HTTPS://LOCALHOST:1/v1", "localhost", 1, "/v1/chat/completions"),
    ],
)
def test_a_web_address_is_read(url, host, port, path):
    address = address_of(url, False, "KEY")
    assert (address.host, address.port, address.path) == (host, port, path)


@given(st.text(max_size=30), st.sampled_from(["https://", "http://", "https://[", ""]), st.text(max_size=10))
def test_no_web_address_ends_in_an_error_of_another_kind(host, scheme, path):
    try:
        address = address_of(f"{scheme}{host}/{path}", True, "KEY")
    except InvalidInputError:
        return
    assert address.host.isascii() and address.path.isascii() and " " not in address.host


def test_the_port_of_an_address_of_colons_is_that_of_http():
    """Told no port, http.client takes [::1] for the host ":" and the port 1."""
    try:
        http = ThreadingHTTPServer.__new__(ThreadingHTTPServer)
        http.address_family = socket.AF_INET6
        ThreadingHTTPServer.__init__(http, ("::1", 0), Other)
    except OSError as error:
        pytest.skip(f"no IPv6 on this machine: {error}")
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    try:
        assert len(timed(f"http://[::1]:{http.server_port}/good").requests) == len(SHAPES)
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
    said = client_of("http://[::1]/v1", "toy", Limits(seconds=5.0), "LESSONLIB_SERVER_KEY", False, {}).ask("x", 1, 9, 2)
    assert "for [::1] " in f"for {said.problem} " or "[::1] refused the connection" in said.problem


# ---- D9: a fit that cannot be


@pytest.mark.parametrize(
    ("seconds_of", "words"),
    [
        (lambda context: 0.02 - 1e-6 * context, "the nearest line is 0.02 s + -1e-06 s x cached tokens"),
        (lambda context: 1e-5 * context - 5e-4, "no step can take that"),
    ],
)
def test_a_line_that_no_server_can_follow_is_not_a_fit(base, seconds_of, words):
    record = made(timed(f"{base}/good"), seconds_of)
    assert step_fit(record) is None
    report = timing_report(record, llama_on_h100())
    assert words in report and "Nothing is fitted: " in report and "Fitted to" not in report
    assert all(np.isnan(row.fitted) for row in predictions(record, llama_on_h100()))


def test_a_fit_says_how_far_it_is_from_what_it_is_fitted_to(base):
    near, far = (
        made(timed(f"{base}/good"), lambda context, by=by: (0.007 + 2e-7 * context) * (1 + by * (context > 500)))
        for by in (0.0, 0.5)
    )
    assert step_fit(near).miss == pytest.approx(0, abs=1e-9) and step_fit(far).miss > 0.05
    assert f"It misses their TPOTs by {step_fit(far).miss:.0%}." in timing_report(far, llama_on_h100())


def test_a_step_that_the_cache_does_not_lengthen_is_a_fit(base):
    fit = step_fit(made(timed(f"{base}/good"), lambda context: 0.007))
    assert (fit.seconds, fit.slope) == (pytest.approx(0.007), 0.0)


def test_two_requests_are_no_fit(base):
    record = made(timed(f"{base}/good"), lambda context: 0.007 + 2e-7 * context)
    for many in range(3):
        few = replace(record, requests=record.requests[:many])
        assert step_fit(few) is None
        assert f"that needs 3 requests with a TPOT, and there are {many}" in timing_report(few, llama_on_h100())
    assert step_fit(record) is not None


# ---- TLS, which is opened step by step so that it can be hung up


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    if not shutil.which("openssl"):
        pytest.skip("no openssl here to make a certificate with")
    folder = tmp_path_factory.mktemp("certificate")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    command += " -addext subjectAltName=DNS:localhost -keyout key.pem -out certificate.pem"
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def secure(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "certificate.pem", certificate / "key.pem")
    with serving(Other, lambda socket: context.wrap_socket(socket, server_side=True)) as port:
        yield f":{port}"


def test_a_certificate_is_checked_and_so_is_its_name(secure, certificate, monkeypatch):
    with pytest.raises(ServerTimingError, match=f"the certificate of localhost{secure} is not valid here"):
        timed(f"https://localhost{secure}/good")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "certificate.pem"))
    with pytest.raises(ServerTimingError, match=f"the certificate of 127.0.0.1{secure} is not valid here"):
        timed(f"https://127.0.0.1{secure}/good")
    assert Handler.keys == []
    record = timed(f"https://localhost{secure}/good")
    assert len(record.requests) == len(SHAPES) and record.conditions["tls"]


def test_an_interrupt_hangs_up_on_a_silent_server_behind_tls(secure, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "certificate.pem"))
    record = timed(f"https://localhost{secure}/interrupts_and_is_silent", limits=Limits(silence=3600.0, seconds=3600.0))
    assert [reply["problem"] for reply in replies_of(record)] == ["it was interrupted"]


def test_a_name_that_leads_nowhere_is_one_sentence():
    with pytest.raises(ServerTimingError, match=r"No server was timed: the name nowhere\.invalid leads nowhere\."):
        timed("https://nowhere.invalid/v1")
