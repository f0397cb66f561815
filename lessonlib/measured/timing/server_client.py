"""One streaming request to an OpenAI-compatible endpoint, timed on the wire: what server.py sends many of.

A `Client` never raises for what a server does: a reply that fails is a Reply with its problem, and with all that came
before. The key goes into one header, to the one host that the URL names (no redirect and no proxy is followed), and is
taken out of all that the server echoes. What a server sends is data: it is cut, quoted, and never executed.
"""

import contextlib
import http.client
import json
import random
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from lessonlib.base.checks import ABOVE_ZERO, Checked, between, count, text
from lessonlib.measured.timing.server_address import Address, address_of, require
from lessonlib.measured.timing.server_key import Key, key_of
from lessonlib.measured.timing.server_reply import Reply, reply_of
from lessonlib.measured.timing.server_stream import Stream

WORDS = "river stone cloud house light paper green seven music table north bread glass horse winter garden".split()
TOLD = " Write a very long story with all of these words, and never stop."
SLACK = 16  # chunks beyond the tokens asked for: some servers send empty text, or the end, in chunks of their own
CHUNK = 4096  # bytes that one token may take in the stream, with all that is around it
LINE, BODY = 2**18, 2**16  # the most of a line, and of an error's body
MOST_TOKENS = ("max_tokens", "max_completion_tokens")  # the names of one field; some servers want the second
OURS = ("messages", "model", "n", "stream", *MOST_TOKENS)
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


def _is_body(extra: Any) -> bool:
    """Whether these fields can be sent: names, with what JSON has."""
    try:
        json.dumps(dict(extra), allow_nan=False)
        return isinstance(extra, Mapping) and all(isinstance(name, str) for name in extra)
    except (TypeError, ValueError, RecursionError):
        return False


def client_of(
    url: str, model: str, limits: Limits, key_variable: str, allow_plain_http: bool, extra: Mapping[str, Any]
) -> "Client":
    """The client of a checked URL. Its errors quote neither the key nor a part of the URL that may hold one."""
    key = key_of(key_variable)
    address = address_of(url, allow_plain_http, key.variable)
    text("'my-model'")("time_server", "model", model)
    require(_is_body(extra), "extra is not a JSON object; expected such as {'ignore_eos': True}, or None")
    require(not set(extra) & set(OURS), f"extra may not hold {', '.join(OURS)}, which the timing sets itself")
    return Client(address, model, limits, time.perf_counter() + limits.seconds, dict(extra), key)


class Wire:
    """The socket of one request, which another thread may hang up at any moment."""

    def __init__(self) -> None:
        self.lock, self.hung_up = threading.Lock(), False
        self.socket: socket.socket | None = None

    def hold(self, wire: socket.socket) -> None:
        with self.lock:
            self.socket = wire
            if self.hung_up:
                wire.close()
                raise ConnectionAbortedError

    def hang_up(self) -> None:
        """Whoever waits for this socket waits no longer."""
        with self.lock, contextlib.suppress(OSError):  # it may be closed already, or not be connected yet
            self.hung_up = True
            if self.socket is not None:
                socket.socket.shutdown(self.socket, socket.SHUT_RDWR)  # an SSLSocket's own is for one thread alone

    def connect(self, connection: http.client.HTTPConnection, tls: ssl.SSLContext | None) -> None:
        """Open a connection step by step, so that each step can be hung up: http.client shows the socket at the end."""
        found = socket.getaddrinfo(connection.host, connection.port, type=socket.SOCK_STREAM)
        for i, (family, kind, protocol, _, place) in enumerate(found):
            wire = socket.socket(family, kind, protocol)
            try:
                self.hold(wire)
                wire.settimeout(connection.timeout)
                wire.connect(place)
                break
            except OSError:
                wire.close()
                if self.hung_up or i + 1 == len(found):
                    raise
        connection.sock = wire
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            connection.sock = tls.wrap_socket(wire, server_hostname=connection.host, do_handshake_on_connect=False)
            self.hold(connection.sock)
            connection.sock.do_handshake()


@dataclass
class Client:
    """Sends requests, one at a time for each caller; the senders share it."""

    address: Address
    model: str
    limits: Limits
    deadline: float
    extra: dict[str, Any] = field(repr=False)  # it may hold what is nobody else's business
    key: Key
    most_tokens: str = MOST_TOKENS[0]  # the field that bounds the output
    refused_field: bool = False  # whether the last refusal named such a field
    software: str = "not said"
    stopped: threading.Event = field(default_factory=threading.Event, repr=False)
    wires: set[Wire] = field(default_factory=set, repr=False)

    def clean(self, text: Any) -> str:
        """A server's words as a line may quote them."""
        return self.key.clean(text)

    def stop(self) -> None:
        """Hang up at once on whatever is under way; nothing is sent any more, and what came is kept."""
        self.stopped.set()
        for wire in list(self.wires):
            wire.hang_up()

    def ask(self, name: str, concurrency: int, words: int, asked: int) -> Reply:
        """One request with a prompt of `words` words and at most `asked` output tokens, to its end or its problem."""
        left = self.deadline - time.perf_counter()
        reply = Reply(name=name, concurrency=concurrency, asked=asked)
        wire, stream, problem = Wire(), Stream(asked), ""
        self.wires.add(wire)
        if self.stopped.is_set() or left <= 0:  # looked at after the wire is known, so that no stop misses it
            return replace(reply, problem="it was not sent, for the timing was over")
        # Other words each time, from the first on, so that no prefix cache spares the server its prefill.
        sent = " ".join(random.SystemRandom().choices(WORDS, k=max(1, words - len(TOLD.split())))) + TOLD
        connection, tls = _connection(self.address, min(left, self.limits.silence))
        # A socket's timeout starts anew with each byte; this ends a reply that only drips.
        watchdog = threading.Timer(left + 0.01, wire.hang_up)
        watchdog.daemon = True
        watchdog.start()
        try:
            wire.connect(connection, tls)
            problem = self._exchange(connection, stream, self._body(sent, asked))
        except (OSError, http.client.HTTPException, ValueError, OverflowError, RecursionError) as error:
            problem = "" if stream.finish else self._why(error)  # after the end of the text only usage can be missing
        finally:
            watchdog.cancel()
            connection.close()
            self.wires.discard(wire)
        if not (stream.finish or stream.done):
            if self.stopped.is_set():
                problem = "it was interrupted"
            elif time.perf_counter() >= self.deadline:
                problem = f"it was cut off after the {self.limits.seconds:g} s of the timing"
        return reply_of(stream, sent, reply, problem, self.clean)

    def _body(self, sent: str, asked: int) -> bytes:
        body = {"model": self.model, "messages": [{"role": "user", "content": sent}], self.most_tokens: asked}
        body |= {"stream": True, "stream_options": {"include_usage": True}} | self.extra
        return json.dumps({name: value for name, value in body.items() if value is not None}).encode()

    def _exchange(self, connection: http.client.HTTPConnection, stream: Stream, body: bytes) -> str:
        """Send, and read the answer into `stream`; the problem, or "" for a stream that came to its end."""
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if self.key.value:
            headers["Authorization"] = f"Bearer {self.key.value}"
        stream.sent = time.perf_counter()
        connection.request("POST", self.address.path, body, headers)
        response = connection.getresponse()
        self.software = self.clean(response.getheader("Server", "not said"))
        form = response.getheader("Content-Type", "nothing")
        if response.status in (401, 403):  # its words often hold a part of the key
            return f"the server answered {response.status}: it wants another key in {self.key.variable}"
        if 300 <= response.status < 400:
            return f"the server answered {response.status}, a redirect, which is not followed; give the URL itself"
        if response.status != 200:
            body = _unpacked(response.read(BODY))
            self.refused_field = response.status in (400, 422) and _names_field(body.decode(errors="replace"))
            later = response.getheader("Retry-After", "")
            later = f"; it says to ask again after {self.clean(later)}" + " s" * later.isdigit() if later else ""
            return f'the server answered {response.status}: "{self.clean(_message(body))}"{later}'
        if (packed := response.getheader("Content-Encoding", "identity").lower()) not in ("identity", ""):
            return f"the server packed its stream ({self.clean(packed)}), which hides when a token came; turn that off"
        if "event-stream" not in form.lower():
            return f'the server sent {self.clean(form)}, no stream: "{self.clean(_message(response.read(BODY)))}"'
        return self._read(response, stream)

    def _read(self, response: http.client.HTTPResponse, stream: Stream) -> str:
        read = 0
        while line := response.readline(LINE):
            read += len(line)
            stream.take(line, time.perf_counter())
            if stream.error:
                self.refused_field = _names_field(json.dumps(stream.error))
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
        where = self.address.where
        for kind, words in (
            (TimeoutError, f"nothing came from {where} for {self.limits.silence:g} s"),
            (ConnectionRefusedError, f"{where} refused the connection; no server seems to run on this port"),
            (socket.gaierror, f"the name {self.address.host} leads nowhere"),
            (ssl.SSLCertVerificationError, f"the certificate of {where} is not valid here"),
            (ssl.SSLError, f"{where} does not speak TLS as expected; perhaps it is http"),
            ((http.client.IncompleteRead, ConnectionError), f"{where} closed the connection in the middle"),
        ):
            if isinstance(error, kind):
                return words
        return f"{where} does not speak HTTP as expected ({type(error).__name__})"


def _connection(address: Address, patience: float) -> tuple[http.client.HTTPConnection, ssl.SSLContext | None]:
    host, port = address.host, address.port  # told no port, http.client would take the end of ::1 for it
    if not address.tls:
        return http.client.HTTPConnection(host, port or http.client.HTTP_PORT, timeout=patience), None
    tls = ssl.create_default_context()
    tls.set_alpn_protocols(["http/1.1"])
    return http.client.HTTPSConnection(host, port or http.client.HTTPS_PORT, timeout=patience, context=tls), tls


def _names_field(text: str) -> bool:
    """Whether a refusal speaks of the field that bounds the output: in its message, or as the parameter at fault."""
    return any(name in text for name in MOST_TOKENS)


def _unpacked(body: bytes) -> bytes:
    """An error's body, unpacked where a proxy has packed it by gzip."""
    try:
        return zlib.decompressobj(wbits=31).decompress(body, BODY) if body[:2] == b"\x1f\x8b" else body
    except zlib.error:
        return body


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
