"""A simulated learner: what a browser asks of the hub, of the server and of the kernel, without a browser.

Logs in by the form, starts a server, opens a notebook, and runs its cells over the WebSocket of the kernel's channels.
"""

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest, HTTPResponse
from tornado.websocket import WebSocketClientConnection, websocket_connect

AsyncHTTPClient.configure(None, max_clients=200, defaults={"request_timeout": 600, "connect_timeout": 120})
MOST_BYTES = 2**28


class LearnerFailedError(Exception):
    """An answer that was not the expected one; the message says to what, and what it was."""


@dataclass
class Ran:
    """What came of one cell: how it ended (`ok` or `error`), the text that it printed, and the error's words."""

    status: str
    text: str = ""
    error: str = ""


class Kernel:
    """A kernel's channels, open; `session`: the session that its server keeps."""

    def __init__(self, socket: WebSocketClientConnection, session: dict[str, Any]) -> None:
        self.socket, self.session = socket, session
        self.id: str = session["kernel"]["id"]

    async def run(self, code: str) -> Ran:
        """Run one cell: until the kernel has answered, and is idle again."""
        asked = uuid.uuid4().hex
        header = {"msg_id": asked, "username": "", "session": asked, "msg_type": "execute_request", "version": "5.3"}
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
        await self.socket.write_message(json.dumps(message | {"channel": "shell", "buffers": []}))
        ran, idle = Ran(""), False
        while not (ran.status and idle):
            text = await self.socket.read_message()
            if text is None:
                raise LearnerFailedError("The connection to the kernel was closed while a cell ran.")
            if isinstance(text, bytes):
                continue  # data of a widget
            said = json.loads(text)
            kind, content = said["header"]["msg_type"], said["content"]
            if kind == "status" and content["execution_state"] in ("restarting", "dead"):
                raise LearnerFailedError(f"The kernel is {content['execution_state']}.")
            if said["parent_header"].get("msg_id") != asked:
                continue
            if kind == "execute_reply":
                ran.status = content["status"]
                ran.error = f"{content.get('ename', '')}: {content.get('evalue', '')}" if ran.status != "ok" else ""
            elif kind == "stream":
                ran.text += content["text"]
            elif kind == "status":
                idle = content["execution_state"] == "idle"
        return ran

    def close(self) -> None:
        self.socket.close()


@dataclass
class Learner:
    """One learner of a hub at `url`: `name`, the room's `password`, and after the login an own `token` and cookies."""

    url: str
    name: str
    password: str
    token: str = ""
    cookies: dict[str, str] = field(default_factory=dict)

    @property
    def server(self) -> str:
        return f"/user/{self.name}"

    async def ask(self, method: str, path: str, body: str | None = None, **more: Any) -> HTTPResponse:
        """One request, with the token; no answer is an error here."""
        headers = {"Content-Type": "application/json"} if body is not None else {}
        headers |= {"Authorization": f"token {self.token}"} if self.token else {}
        headers |= more.pop("headers", {})
        allow = method in ("POST", "PUT", "PATCH") and body is None
        request = HTTPRequest(
            self.url + path, method, headers, body, follow_redirects=False, allow_nonstandard_methods=allow, **more
        )
        return await AsyncHTTPClient().fetch(request, raise_error=False)

    async def server_answers(self) -> bool:
        """Whether the learner's server is there; False also where no proxy answers."""
        try:
            return (await self.ask("GET", f"{self.server}/api/status")).code == 200
        except (OSError, HTTPClientError):
            return False

    async def expect(self, status: tuple[int, ...], method: str, path: str, body: Any = None, **more: Any) -> Any:
        """What a request answers, as JSON where it is; LearnerFailedError for another status than these."""
        answer = await self.ask(method, path, None if body is None else json.dumps(body), **more)
        if answer.code not in status:
            said = (answer.body or b"").decode(errors="replace")[:300] or answer.reason
            raise LearnerFailedError(f"{method} {path} answered {answer.code}, expected {status}: {said}")
        is_json = answer.headers.get("Content-Type", "").startswith("application/json")
        return json.loads(answer.body) if is_json and answer.body else answer.body

    def _kept(self, answer: HTTPResponse) -> dict[str, str]:
        """The headers of the next request of the browser, with the cookies that this answer left."""
        for line in answer.headers.get_list("Set-Cookie"):
            for name, morsel in SimpleCookie(line).items():
                if morsel["path"] in ("/", "/hub/"):
                    self.cookies[name] = morsel.coded_value
        return {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}

    async def login(self, password: str | None = None) -> bool:
        """Log in by the form, as a browser does, and make an own token; whether the hub let the learner in."""
        self.cookies, self.token = {}, ""
        browser = self._kept(await self.ask("GET", "/hub/login"))
        fields = {"username": self.name, "password": password or self.password, "_xsrf": self.cookies["_xsrf"]}
        form = browser | {"Content-Type": "application/x-www-form-urlencoded"}
        answer = await self.ask("POST", "/hub/login", urlencode(fields), headers=form)
        if answer.code != 302:
            return False
        browser = self._kept(await self.ask("GET", "/hub/token", headers=self._kept(answer)))
        own = browser | {"X-XSRFToken": self.cookies["_xsrf"], "Referer": f"{self.url}/hub/token"}
        made = await self.expect((201,), "POST", f"/hub/api/users/{self.name}/tokens", {"note": "room"}, headers=own)
        self.token = made["token"]
        return True

    async def start(self) -> None:
        """Start the learner's server, and wait until it answers."""
        path = f"/hub/api/users/{self.name}/server"
        await self.expect((201, 202), "POST", path)
        events = (await self.expect((200,), "GET", f"{path}/progress")).decode()
        last = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: ")][-1]
        if not last.get("ready"):
            raise LearnerFailedError(f"The server of {self.name} did not start: {last.get('message')}")

    async def has_server(self) -> bool:
        """Whether the hub has a server of this learner."""
        return bool((await self.expect((200,), "GET", f"/hub/api/users/{self.name}"))["servers"])

    async def stop(self) -> None:
        await self.expect((202, 204, 404), "DELETE", f"/hub/api/users/{self.name}/server")

    async def read(self, path: str) -> Any:
        """A file of the learner's, by the server; a notebook as its JSON."""
        return (await self.expect((200,), "GET", f"{self.server}/api/contents/{path}"))["content"]

    async def save(self, path: str, content: Any, kind: str = "notebook") -> None:
        body = {"type": kind, "content": content} | ({"format": "text"} if kind == "file" else {})
        await self.expect((200, 201), "PUT", f"{self.server}/api/contents/{path}", body)

    async def open(self, path: str) -> Kernel:
        """Open a notebook as JupyterLab does: its page, its session, the channels of its kernel."""
        await self.expect((200,), "GET", f"{self.server}/lab/tree/{path}")
        asked = {"path": path, "name": path, "type": "notebook", "kernel": {"name": "python3"}}
        return await self.connect(await self.expect((201,), "POST", f"{self.server}/api/sessions", asked))

    async def connect(self, session: dict[str, Any]) -> Kernel:
        """The channels of a kernel that is there."""
        address = f"ws{self.url[4:]}{self.server}/api/kernels/{session['kernel']['id']}/channels"
        request = HTTPRequest(address, headers={"Authorization": f"token {self.token}"}, request_timeout=600)
        return Kernel(await websocket_connect(request, max_message_size=MOST_BYTES), session)

    async def run_all(self, kernel: Kernel, cells: list[dict[str, Any]], done: Callable[[], None]) -> list[str]:
        """Run the code cells one after another; `done` after each. Errors of cells that are not meant to fail."""
        errors = []
        for cell in cells:
            if cell["cell_type"] == "code":
                ran = await kernel.run("".join(cell["source"]))
                done()
                if ran.status != "ok" and "raises-exception" not in cell["metadata"].get("tags", []):
                    errors.append(ran.error)
        return errors


@dataclass
class Visit:
    """One learner's first visit, in seconds from the first click: server ready, first cell, all cells; what failed."""

    learner: Learner
    server: float = 0.0
    cells: list[float] = field(default_factory=list)
    failed: str = ""
    kernel: Kernel | None = None


async def visit(learner: Learner, notebook: str) -> Visit:
    """Log in, start a server, open a notebook and run all of its cells; the kernel stays open."""
    came, this = time.monotonic(), Visit(learner)
    try:
        if not await learner.login():
            raise LearnerFailedError(f"The hub did not let {learner.name} in.")
        await learner.start()
        this.server = time.monotonic() - came
        cells = (await learner.read(notebook))["cells"]
        this.kernel = await learner.open(notebook)
        errors = await learner.run_all(this.kernel, cells, lambda: this.cells.append(time.monotonic() - came))
        this.failed = "; ".join(errors)
    except (LearnerFailedError, OSError, HTTPClientError) as error:
        this.failed = str(error)
    return this
