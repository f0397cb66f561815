"""A real hub on 127.0.0.1 for tests and measurements: started with a folder of its own, and nothing of it left behind.

Its Unix users begin with a prefix that no other user has. They, their processes and their homes go when it is closed,
and those of a hub that was killed go when the next one starts.
"""

import ctypes
import fcntl
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from hub_env import DEPLOY, ENVIRONMENT, PROXY, ROOT

PREFIX, FOLDER = "lessonroom-", "hub-"
LOCK = Path("/run/lessonroom.lock")  # where root alone writes: it names a folder that is removed
SECONDS = 120


class HubFailedError(Exception):
    """The hub did not do what it should; the message says what, and shows the end of its log."""


def users() -> list[pwd.struct_passwd]:
    """The Unix users that a hub of this tool made, and nobody else."""
    return [user for user in pwd.getpwall() if user.pw_name.startswith(PREFIX) and user.pw_uid >= 1000]


def processes(uids: set[int]) -> list[psutil.Process]:
    """What runs as one of these users."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.uids().real in uids:
                found.append(process)
    return found


def end(running: list[psutil.Process]) -> None:
    """Stop these processes, by force where they do not stop by themselves, and wait until they are gone."""
    for process in running:
        with suppress(psutil.Error):
            process.terminate()
    for process in psutil.wait_procs(running, 5)[1]:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(running, 20)


def remove_users() -> None:
    """Take away every user of this tool with all that runs as one."""
    found = users()
    while running := processes({user.pw_uid for user in found}):
        end(running)
    for user in found:
        subprocess.run(["userdel", user.pw_name], check=True, capture_output=True)


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [taken.getsockname()[1] for taken in sockets]
    for taken in sockets:
        taken.close()
    return ports


class Hub:
    """JupyterHub with deploy/hub/jupyterhub_config.py, as `with Hub() as hub`; `settings`: variables of that file."""

    def __init__(self, **settings: str) -> None:
        self.lock = LOCK.open("a+")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise HubFailedError("Another hub of this tool runs on this machine: wait until it is done.") from error
        remove_users()
        self.lock.seek(0)
        if Path(left := self.lock.read()).name.startswith(FOLDER):  # by one that was killed
            shutil.rmtree(left, ignore_errors=True)
        self.folder = Path(tempfile.mkdtemp(prefix=FOLDER))
        self.folder.chmod(0o711)
        self._remember(str(self.folder))
        self.state, self.homes, self.log = self.folder / "state", self.folder / "h", self.folder / "log"
        self.password, self.admin_password = secrets.token_urlsafe(12), secrets.token_urlsafe(32)
        public, hub, proxy = free_ports(3)
        self.url, self.api, self.proxy_api = (f"http://127.0.0.1:{port}" for port in (public, hub, proxy))
        own = {
            "HUB_ADDRESS": self.url,
            "HUB_PORT": str(hub),
            "HUB_PROXY_PORT": str(proxy),
            "HUB_STATE": str(self.state),
            "HUB_HOMES": str(self.homes),
            "HUB_PREFIX": PREFIX,
            "HUB_PASSWORD": self.password,
            "HUB_ADMIN_PASSWORD": self.admin_password,
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HUB_", "JUPYTER"))}
        self.environment = kept | own | settings
        self.process: subprocess.Popen | None = None

    def __enter__(self) -> "Hub":
        # A signal that would end this process ends the block instead, and with it the hub and its users.
        self.before = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP)}
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the hub, or start it again with what it has kept, and wait until it answers."""
        python = str(ENVIRONMENT / "bin" / "python")
        subprocess.run([python, ROOT / "tools" / "hub_home.py"], check=True)  # with the notebooks as they are now
        command = [python, "-m", "jupyterhub", "-f", str(DEPLOY / "jupyterhub_config.py")]
        with self.log.open("ab") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self.process = subprocess.Popen(
                command, env=self.environment, cwd=self.folder, preexec_fn=_end_with_parent, **streams
            )
        self.wait(f"{self.url}/hub/api/ does not answer", self._answers)

    def _answers(self) -> bool:
        with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            urllib.request.urlopen(f"{self.url}/hub/api/", timeout=10).close()
            return True
        return False

    def stop(self) -> None:
        """Stop the hub and its proxy; the learners' servers go on."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def wait(self, what: str, done: Callable[[], bool], seconds: float = SECONDS) -> None:
        """Wait until it is done; HubFailedError says what is not, where the time is up or the hub has ended."""
        end_of_time = time.monotonic() + seconds
        while not done():
            if self.process is None or self.process.poll() is not None:
                self.fail(f"the hub has ended ({what})")
            if time.monotonic() > end_of_time:
                self.fail(f"{what} after {seconds:.0f} s")
            time.sleep(0.2)

    def fail(self, what: str) -> None:
        raise HubFailedError(f"{what}\n{self.log.read_text(encoding='utf-8', errors='replace')[-6000:]}")

    def proxies(self) -> list[psutil.Process]:
        """The proxy that this hub started, where it runs."""
        found = psutil.Process(self.process.pid).children(recursive=True) if self.process is not None else []
        name = Path(PROXY).name
        return [child for child in found if any(name in word for word in child.cmdline())]

    def uid(self, learner: str) -> int:
        return pwd.getpwnam(PREFIX + learner).pw_uid

    def home(self, learner: str) -> Path:
        return self.homes / (PREFIX + learner)

    def running(self, learner: str, word: str) -> list[psutil.Process]:
        """The learner's processes in whose command line this word stands."""
        found = []
        for process in processes({self.uid(learner)}):
            with suppress(psutil.Error):
                if any(word in part for part in process.cmdline()):
                    found.append(process)
        return found

    def _remember(self, folder: str) -> None:
        """Keep in the lock's file which folder is to be removed."""
        self.lock.truncate(0)
        self.lock.write(folder)
        self.lock.flush()

    def close(self) -> None:
        """Stop everything, and take away users, homes and the folder."""
        started: list[psutil.Process] = []
        with suppress(psutil.Error):
            started = psutil.Process(self.process.pid).children(recursive=True) if self.process else []
        try:
            self.stop()
            end(started)
            remove_users()
            shutil.rmtree(self.folder, ignore_errors=True)
            self._remember("")
        finally:
            for number, handler in self.before.items():
                signal.signal(number, handler)
            self.lock.close()


def _end_with_parent() -> None:
    """Let Linux end the hub where this tool is killed and cannot."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _leave(number: int, _: object) -> None:
    raise SystemExit(128 + number)
