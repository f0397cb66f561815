"""One streaming request to an OpenAI-compatible endpoint, timed on the wire: what server.py sends many of.

A `Client` never raises for what a server does: a reply that fails is a Reply with its problem, and with all that came
before. The key goes into one header, to the one host that the URL names (no redirect and no proxy is followed), and is
taken out of all that the server echoes. What a server sends is data: it is cut, quoted, and never executed.
"""

import contextlib
import html
import http.client
import ipaddress
import json
import math
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

import numpy as np

from lessonlib.base.checks import ABOVE_ZERO, Checked, between, count, text
from lessonlib.base.errors import InvalidInputError
from lessonlib.measured.timing.record import PERCENTILES

WORDS = "river stone cloud house light paper green seven music table north bread glass horse winter garden".split()
TOLD = " Write a very long story with all of these words, and never stop."
SLACK = 16  # chunks beyond the tokens asked for: some servers send empty text, or the end, in chunks of their own
CHUNK = 4096  # bytes that one token may take in the stream, with all that is around it
LINE, BODY, QUOTE = 2**18, 2**16, 200  # the most of a line, of an error's body, and of a quotation
AT_ONCE = 1e-4  # seconds between chunks, below which they were not sent one by one
FEW = 8  # chunks, of which a pause of this machine may have joined most
OURS = ("messages", "model", "n", "stream", "max_tokens", "max_completion_tokens")
UP_TO_A_DAY = replace(between(ABOVE_ZERO, 86_400.0, "seconds"), expected="more than 0 and at most 86,400 s, a day")


@dataclass(frozen=True, kw_only=True)
class Limits(Checked):
    """What a timing may take: requests, output tokens and seconds in all; seconds of silence before giving up.

    Both of the seconds are at most a day.
    """

    requests: int = 100
    tokens: int = 20_000
    seconds: float = 300.0
    silence: float = 60.0

    rules: ClassVar = {
        **dict.fromkeys(("requests", "tokens"), count()),
        **dict.fromkeys(("seconds", "silence"), UP_TO_A_DAY),
    }


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What came back for one request, whole or not. Seconds from the moment of sending; None is "not known".

    `asked`: output tokens at most. `prompt`, `output`, `cached`: tokens as the server's usage counts them. `chunks`:
    those with text. `first_answer`: the first chunk that is no thought. `gaps`: percentiles of the seconds between
    chunks. `problem`: why the reply is not whole, or "". `notes`: what its numbers do not mean.
    """

    name: str
    concurrency: int
    asked: int
    chunks: int = 0
    ttft: float | None = None
    first_answer: float | None = None
    last: float | None = None
    tpot: float | None = None
    prompt: int | None = None
    output: int | None = None
    cached: int | None = None
    gaps: dict[str, float] = field(default_factory=dict)
    finish: str = ""
    problem: str = ""
    notes: tuple[str, ...] = ()


def is_loopback(host: str) -> bool:
    """Whether a host's name is this machine's own."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_body(extra: Any) -> bool:
    """Whether these fields can be sent: names, with what JSON has."""
    try:
        json.dumps(dict(extra), allow_nan=False)
        return isinstance(extra, Mapping) and all(isinstance(name, str) for name in extra)
    except (TypeError, ValueError, RecursionError):
        return False


def _require(holds: Any, words: str) -> None:
    """InvalidInputError of these words: those of `wrong` would quote the value, which may hold a secret."""
    if not holds:
        raise InvalidInputError(f"time_server: {words}.")


def client_of(
    url: str, model: str, limits: Limits, key_variable: str, allow_plain_http: bool, extra: Mapping[str, Any]
) -> "Client":
    """The client of a checked URL. Its errors quote neither the key nor a part of the URL that may hold one."""
    named = isinstance(key_variable, str) and key_variable and key_variable.isprintable()
    _require(named, "key_variable is not a name; expected that of an environment variable, such as MY_KEY")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except (ValueError, TypeError, AttributeError):
        host = None
    if not isinstance(url, str) or not host or parts.scheme not in ("http", "https"):
        raise InvalidInputError("time_server: url is not a web address; expected one such as http://localhost:8000/v1.")
    remedy = f"leave them out. A key belongs into the environment variable {key_variable}"
    bare = "@" not in parts.netloc and not parts.query and not parts.fragment
    _require(bare, f"the URL of {host} holds a user, a query or a fragment; {remedy}")
    remedy = "take https, or say allow_plain_http=True"
    private = parts.scheme == "https" or allow_plain_http or is_loopback(host)
    _require(private, f"plain http to {host} shows key and prompts to the network; {remedy}")
    text("'my-model'")("time_server", "model", model)
    _require(_is_body(extra), "extra is not a JSON object; expected such as {'ignore_eos': True}, or None")
    _require(not set(extra) & set(OURS), f"extra may not hold {', '.join(OURS)}, which the timing sets itself")
    key = os.environ.get(key_variable, "")
    plain = all("!" <= character <= "~" for character in key)
    _require(plain, f"{key_variable} holds characters that no key has; set it again")
    path = quote(parts.path.rstrip("/") or "/v1", safe="/%:@~")
    path = path if path.endswith("/chat/completions") else f"{path}/chat/completions"
    deadline = time.perf_counter() + limits.seconds
    return Client(host, port, path, parts.scheme == "https", model, limits, deadline, dict(extra), key, key_variable)


@dataclass
class Client:
    """Sends requests, one at a time for each caller; the senders share it."""

    host: str
    port: int | None
    path: str
    tls: bool
    model: str
    limits: Limits
    deadline: float
    extra: dict[str, Any]
    key: str = field(repr=False)
    key_variable: str
    software: str = "not said"
    stopped: threading.Event = field(default_factory=threading.Event, repr=False)

    def clean(self, text: Any) -> str:
        """A server's words as a line may quote them: without the key, cut, control characters escaped."""
        text = str(text)
        if self.key:
            for form in (self.key, json.dumps(self.key)[1:-1], html.escape(self.key), quote(self.key, safe="")):
                text = text.replace(form, "[key]")
        text = " ".join(text.split())
        return repr(text if len(text) <= QUOTE else f"{text[:QUOTE]}...")[1:-1]

    def ask(self, name: str, concurrency: int, words: int, asked: int) -> Reply:
        """One request with a prompt of `words` words and at most `asked` output tokens, to its end or its problem."""
        left = self.deadline - time.perf_counter()
        if self.stopped.is_set() or left <= 0:
            problem = "it was not sent, for the timing was over"
            return Reply(name=name, concurrency=concurrency, asked=asked, problem=problem)
        kind = http.client.HTTPSConnection if self.tls else http.client.HTTPConnection
        connection = kind(self.host, self.port, timeout=min(left, self.limits.silence))
        stream, problem = Stream(asked), ""
        try:
            connection.connect()
            problem = self._exchange(connection, stream, self._body(words, asked))
        except (OSError, http.client.HTTPException, ValueError, OverflowError, RecursionError) as error:
            problem = "" if stream.finish else self._why(error)  # after the end of the text only usage can be missing
        finally:
            connection.close()
        if time.perf_counter() >= self.deadline and not (stream.finish or stream.done):
            problem = f"it was cut off after the {self.limits.seconds:g} s of the timing"
        return stream.reply(self.clean, problem, Reply(name=name, concurrency=concurrency, asked=asked))

    def _body(self, words: int, asked: int) -> bytes:
        # Other words each time, from the first on, so that no prefix cache spares the server its prefill.
        text = " ".join(random.SystemRandom().choices(WORDS, k=max(1, words - len(TOLD.split())))) + TOLD
        body = {"model": self.model, "messages": [{"role": "user", "content": text}], "max_tokens": asked}
        body |= {"stream": True, "stream_options": {"include_usage": True}} | self.extra
        return json.dumps({name: value for name, value in body.items() if value is not None}).encode()

    def _exchange(self, connection: http.client.HTTPConnection, stream: "Stream", body: bytes) -> str:
        """Send, and read the answer into `stream`; the problem, or "" for a stream that came to its end."""
        # A socket's timeout starts anew with each byte; this ends a reply that only drips.
        watchdog = threading.Timer(max(0.0, self.deadline - time.perf_counter()) + 0.01, _hang_up, [connection.sock])
        watchdog.daemon = True
        watchdog.start()
        try:
            headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
            if self.key:
                headers["Authorization"] = f"Bearer {self.key}"
            stream.sent = time.perf_counter()
            connection.request("POST", self.path, body, headers)
            response = connection.getresponse()
            self.software = self.clean(response.getheader("Server", "not said"))
            form = response.getheader("Content-Type", "nothing")
            if response.status in (401, 403):  # its words often hold a part of the key
                return f"the server answered {response.status}: it wants another key in {self.key_variable}"
            if 300 <= response.status < 400:
                return f"the server answered {response.status}, a redirect, which is not followed; give the URL itself"
            if response.status != 200:
                return f'the server answered {response.status}: "{self.clean(_message(response.read(BODY)))}"'
            if "event-stream" not in form.lower():
                return f'the server sent {self.clean(form)}, no stream: "{self.clean(_message(response.read(BODY)))}"'
            return self._read(response, stream)
        finally:
            watchdog.cancel()

    def _read(self, response: http.client.HTTPResponse, stream: "Stream") -> str:
        read = 0
        while line := response.readline(LINE):
            read += len(line)
            stream.take(line, time.perf_counter())
            if stream.error is not None:
                return f'the server reported an error in its stream: "{self.clean(_said(stream.error))}"'
            if stream.done:
                break
            if len(stream.times) > stream.asked + SLACK or read > CHUNK * (stream.asked + SLACK):
                return "it was cut off, for it went on beyond the tokens asked for"
            if self.stopped.is_set():
                return "it was interrupted"
        return "" if stream.done or stream.finish else "the stream was cut in the middle: it closed without an end"

    def _why(self, error: Exception) -> str:
        """One line for what went wrong on the way. It quotes no text of the error, which may hold what was sent."""
        where = f"{self.host}{'' if self.port is None else f':{self.port}'}"
        for kind, words in (
            (TimeoutError, f"nothing came from {where} for {self.limits.silence:g} s"),
            (ConnectionRefusedError, f"{where} refused the connection; no server seems to run on this port"),
            (socket.gaierror, f"the name {self.host} leads nowhere"),
            (ssl.SSLCertVerificationError, f"the certificate of {where} is not valid here"),
            (ssl.SSLError, f"{where} does not speak TLS as expected; perhaps it is http"),
            ((http.client.IncompleteRead, ConnectionError), f"{where} closed the connection in the middle"),
        ):
            if isinstance(error, kind):
                return words
        return f"{where} does not speak HTTP as expected ({type(error).__name__})"


def _hang_up(wire: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it may be closed already
        socket.socket.shutdown(wire, socket.SHUT_RDWR)


def _message(body: bytes) -> str:
    """The message of an error's body: JSON's, or the text as it is."""
    text = body.decode(errors="replace")
    try:
        return _said(json.loads(text)) or text
    except (ValueError, RecursionError):
        return text


def _said(data: Any) -> str:
    for name in ("error", "message", "detail"):
        data = data.get(name, data) if isinstance(data, dict) else data
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


class Stream:
    """What has arrived of one reply so far."""

    def __init__(self, asked: int):
        self.asked, self.sent = asked, math.nan
        self.times: list[float] = []
        self.first_answer: float | None = None
        self.thought = self.done = False
        self.usage: dict[str, Any] = {}
        self.error: Any = None
        self.finish = ""
        self.garbage = 0

    def take(self, line: bytes, now: float) -> None:
        """One line of the event stream, which arrived at `now`."""
        line = line.removeprefix(b"\xef\xbb\xbf")  # a byte order mark, which some put before the first event
        if not line.startswith(b"data:"):
            self.garbage += bool(line.strip()) and not line.startswith((b":", b"event:", b"id:", b"retry:"))
            return
        self.done = line[5:].strip() == b"[DONE]"
        try:
            chunk = {} if self.done else json.loads(line[5:])
        except (ValueError, RecursionError):
            chunk = None
        if not isinstance(chunk, dict):
            self.garbage += 1
            return
        self.error = chunk if chunk.get("object") == "error" else chunk.get("error")
        self.usage = _dict(chunk.get("usage")) or self.usage
        choices = chunk.get("choices")
        choice = _dict(choices[0]) if isinstance(choices, list) and choices else {}
        delta = _dict(choice.get("delta"))
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        answer = delta.get("content") or delta.get("tool_calls")
        if thought or answer:
            self.times.append(now)
            self.thought = self.thought or bool(thought)
        if answer and self.first_answer is None:
            self.first_answer = now
        self.finish = str(choice.get("finish_reason") or self.finish)

    def counted(self, *names: str) -> int | None:
        """A count of the usage, by its path; None where it is none."""
        value: Any = self.usage
        for name in names:
            value = _dict(value).get(name)
        return value if type(value) is int and 0 <= value < 2**31 else None

    def reply(self, clean: Callable[[Any], str], problem: str, asked: Reply) -> Reply:
        """`asked` with what came, and with notes on what its numbers do not mean."""
        output, chunks = self.counted("completion_tokens"), len(self.times)
        cached = self.counted("prompt_tokens_details", "cached_tokens")
        gaps = np.diff(self.times)
        # One chunk more than tokens is a last bit of text: then the gaps are the steps, and there is one for each.
        counted = output is not None and output > 1 and chunks > 1
        tpot = float(gaps.sum()) / (max(output or 0, chunks) - 1) if counted else None
        in_bursts = chunks >= FEW and np.median(gaps) < AT_ONCE
        notes = []
        if not chunks:
            problem = problem or "the stream ended without any text"
        elif output is None:
            notes.append("usage gives no number of tokens: it is unknown, so is TPOT, and gaps are between chunks")
        elif not chunks - 1 <= output <= self.asked:
            notes.append("usage counts fewer tokens than chunks came, or more than were asked for: no TPOT")
            output = None
        elif not self.thought and self.counted("completion_tokens_details", "reasoning_tokens"):
            notes.append("thought was counted and not sent: TTFT includes it, and there is no TPOT")
            tpot = None
        elif chunks == 1 < output:
            notes.append("all tokens came in one chunk: there is no time between tokens, and no TPOT")
        elif tpot is not None and (tpot < AT_ONCE or (in_bursts and np.sum(gaps >= AT_ONCE) <= 2)):
            notes.append("all chunks came at once, held back on the way: TTFT is too late, and there is no TPOT")
            tpot = None
        elif chunks > output:
            notes.append("there was one chunk more than tokens: TPOT is the mean time between chunks")
        elif chunks < output - 1:
            notes.append("there were fewer chunks than tokens: gaps are between chunks, not tokens")
        elif in_bursts:
            notes.append("chunks came in bursts: gaps are not times between tokens")
        if output is not None and output < self.asked and not problem:
            notes.append("the model ended before the tokens asked for")
        if chunks and output is not None and not self.counted("prompt_tokens"):
            notes.append("usage gives no prompt tokens: it is left out of the record's requests, and is not predicted")
        if cached:
            notes.append("a part of the prompt was cached: TTFT is without its prefill")
        if self.garbage:
            notes.append("lines of the stream were no events and were skipped")
        percentiles = np.percentile(gaps, list(PERCENTILES.values())).tolist() if chunks > 1 else []
        return replace(
            asked,
            chunks=chunks,
            ttft=self.times[0] - self.sent if chunks else None,
            first_answer=None if self.first_answer is None else self.first_answer - self.sent,
            last=self.times[-1] - self.sent if chunks else None,
            tpot=None if problem or output is None else tpot,
            prompt=self.counted("prompt_tokens"),
            output=output,
            cached=cached,
            gaps=dict(zip(PERCENTILES, percentiles, strict=False)),
            finish=clean(self.finish),
            problem=problem,
            notes=tuple(notes),
        )
