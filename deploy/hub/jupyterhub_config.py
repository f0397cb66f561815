"""A room of learners on one machine: the whole configuration of its JupyterHub. docs/hub.md says how to use it.

    make hub        starts it, as root; what can be set stands below, as variables of the environment

Each learner is a Unix user, made at the first login, with a home that nobody else can enter. The environment and the
lesson are root's: all can read them, and no learner can change them.
"""

import asyncio
import os
import pwd
import re
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from jupyterhub.spawner import LocalProcessSpawner
from jupyterhub.utils import random_port

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = Path(sys.prefix)
sys.path.insert(0, str(ROOT / "tools"))

from hub_env import HOME, PROXY, closed_to_others  # noqa: E402


def whole(name: str, usual: int, most: int | None = None) -> int:
    """A setting that is a whole number of at least 1, and of at most `most` where that is given."""
    words = os.environ.get(name, str(usual))
    if not re.fullmatch("[0-9]+", words) or int(words) < 1 or int(words) > (most or int(words)):
        numbers = "of at least 1" if most is None else f"from 1 to {most}"
        raise SystemExit(f"{name} is {words!r}; expected a whole number {numbers}, such as {usual}.")
    return int(words)


def memory(name: str, usual: str) -> str:
    """A setting that is a number of bytes with its unit, as JupyterHub takes it, and enough for a server to start."""
    words = os.environ.get(name, usual)
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([MGT])", words)
    if not found or float(found[1]) * 1024 ** (" KMGT".index(found[2])) < LEAST_MEMORY:
        least = f"{LEAST_MEMORY >> 20}M"
        raise SystemExit(f"{name} is {words!r}; expected a number with M or G, at least {least}, such as {usual}.")
    return words


def address(name: str, usual: str) -> str:
    """A setting that is the address at which a server answers."""
    words = os.environ.get(name, usual)
    found = re.fullmatch(r"https?://[^/\s:@]*(?::([0-9]{1,5}))?(?:/[^\s?#]*)?", words)
    if not found or not 0 < int(found[1] or 80) < 65536:
        raise SystemExit(f"{name} is {words!r}; expected http://, a name or nothing, and a port, such as {usual}.")
    return words


def secret(name: str, whose: str, least: int) -> str:
    """A password, which JupyterHub takes only where it is long enough."""
    words = os.environ.get(name, "")
    if len(words.strip()) < least:
        said = f"has {len(words.strip())} characters" if words else "is not set"
        raise SystemExit(f"{name} {said}: expected the password of {whose}, {least} characters or more.")
    return words


LEAST_MEMORY = 1 << 30  # bytes of address space: with less, a server or its first kernel ends before it answers

# What can be set. Passwords have no default.
ADDRESS = address("HUB_ADDRESS", "http://127.0.0.1:8000")  # http://:8000 for all that reach the machine
STATE = Path(os.environ.get("HUB_STATE", "/var/lib/lesson-hub"))  # database, secrets: root's alone
HOMES = Path(os.environ.get("HUB_HOMES", "/home"))
PREFIX = os.environ.get("HUB_PREFIX", "learner-")  # of the Unix users: none that the machine has is ever a learner's
LEARNERS = set(os.environ.get("HUB_LEARNERS", "").split())  # their names; none: any name may come
ROOM = whole("HUB_ROOM", 60)  # servers at once
MEMORY = memory("HUB_MEMORY", "2G")  # address space of one process; with systemd, memory of one learner
IDLE = whole("HUB_IDLE", 3600)  # seconds without activity, after which a server is stopped
LOGIN = os.environ.get("HUB_LOGIN", "shared-password")  # firstuse: the first password of a name becomes its own
SPAWNER = os.environ.get("HUB_SPAWNER", "local")  # systemd, where that runs the machine
PORT, PROXY_PORT = whole("HUB_PORT", 8081, 65535), whole("HUB_PROXY_PORT", 8001, 65535)  # on this machine alone
LONGEST_NAME = 20
LONGEST_SOCKET = 107  # characters that Linux takes for the path of a socket
SOCKET = ".run/kernel-01234567-0123-0123-0123-0123456789ab-ipc-5"

c = get_config()  # noqa: F821

for path in (ROOT / "lessonlib", ENVIRONMENT, Path(sys.executable).resolve()):
    if closed := closed_to_others(path):
        raise SystemExit(
            f"Learners are other Unix users, and {closed} is closed to them, so they could not read {path}. Put the "
            "lesson where all can read it, such as /srv/lesson, and run make hub there."
        )
if len(str(HOMES / f"{PREFIX}{'x' * LONGEST_NAME}" / SOCKET)) > LONGEST_SOCKET:
    raise SystemExit(f"HUB_HOMES is {str(HOMES)!r}: too long for the sockets of kernels below it; name a shorter one.")
if SPAWNER not in ("local", "systemd"):
    raise SystemExit(f"HUB_SPAWNER is {SPAWNER!r}; expected local or systemd.")
if LOGIN not in ("shared-password", "firstuse"):
    raise SystemExit(f"HUB_LOGIN is {LOGIN!r}; expected shared-password or firstuse.")
# Without one a learner could take the name of a user of the machine.
if not re.fullmatch(r"[a-z][a-z0-9-]{0,11}", PREFIX):
    raise SystemExit(f"HUB_PREFIX is {PREFIX!r}; expected 1 to 12 small letters, digits, hyphens, such as learner-.")
for name, path in {"HUB_STATE": STATE, "HUB_HOMES": HOMES}.items():
    if not path.is_absolute():
        raise SystemExit(f"{name} is {str(path)!r}; expected a whole path, such as /srv/{path.name}.")
if bool(os.environ.get("HUB_TLS_KEY")) != bool(os.environ.get("HUB_TLS_CERTIFICATE")):
    raise SystemExit("One of HUB_TLS_KEY and HUB_TLS_CERTIFICATE is not set: expected both, or none.")
if len(named := {urlsplit(ADDRESS).port, PORT, PROXY_PORT}) < 3:
    raise SystemExit(f"HUB_ADDRESS, HUB_PORT and HUB_PROXY_PORT name {sorted(named, key=str)}; expected three ports.")
PASSWORD = secret("HUB_PASSWORD", "the room", 8) if LOGIN == "shared-password" else ""
if ADMIN_PASSWORD := os.environ.get("HUB_ADMIN_PASSWORD", ""):
    secret("HUB_ADMIN_PASSWORD", "the instructor", 32)
if os.geteuid() != 0:
    raise SystemExit("The hub makes a Unix user for each learner, so it runs as root: sudo make hub.")
os.umask(0o077)
STATE.mkdir(parents=True, exist_ok=True)
STATE.chmod(0o700)
if not HOMES.exists():
    HOMES.mkdir(mode=0o755)
    HOMES.chmod(0o711)


# A Unix user for each learner


def unix_name(name: str) -> str:
    return PREFIX + name


def user_of(home: Path) -> pwd.struct_passwd:
    """The Unix user of a home; made where it is not there, and of a home that is there, with its owner's number."""
    try:
        found = pwd.getpwnam(home.name)
    except KeyError:
        command = ["useradd", "--no-create-home", "--home-dir", str(home), "--user-group", "--no-log-init"]
        command += ["--shell", "/usr/sbin/nologin", "--comment", "a learner of the hub"]
        command += ["--uid", str(home.lstat().st_uid)] if home.exists() else []
        subprocess.run([*command, home.name], check=True, capture_output=True, text=True)
        found = pwd.getpwnam(home.name)
    if Path(found.pw_dir) != home or found.pw_uid < 1000:
        raise RuntimeError(f"The Unix user {home.name} is not this hub's: set another HUB_PREFIX.")
    return found


def make_user(name: str) -> pwd.struct_passwd:
    """The learner's Unix user, with a home.

    A container that is made anew has homes without users. These get theirs first, so that nobody who is new gets the
    number of one who was there before, and with it the files.
    """
    home = HOMES / unix_name(name)
    for other in HOMES.glob(f"{PREFIX}*"):
        with suppress(subprocess.CalledProcessError, RuntimeError):
            user_of(other)
    found = user_of(home)
    if not home.exists():
        home.mkdir(mode=0o700)
        os.chown(home, found.pw_uid, found.pw_gid)
    if home.lstat().st_uid != found.pw_uid:
        raise RuntimeError(f"{home} belongs to another user: its owner's number is not that of {home.name}.")
    return found


def fill_home(user: pwd.struct_passwd) -> None:
    """What a home holds at first, as the learner: what is there already stays, and no link leads root anywhere."""
    command = ["tar", "--extract", "--file", str(ENVIRONMENT / HOME), "--skip-old-files", "--no-same-owner"]
    command += ["--touch"]  # files of now, not of the archive
    who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "umask": 0o077}
    bare = {"PATH": "/usr/bin:/bin", "HOME": user.pw_dir}
    subprocess.run(command, cwd=user.pw_dir, env=bare, check=True, capture_output=True, text=True, **who)


one_at_a_time = asyncio.Lock()  # the files of users are locked while one is made


async def make_ready(spawner: LocalProcessSpawner) -> None:
    """Before each start of a server: the learner's Unix user, and the working copy."""
    try:
        async with one_at_a_time:
            user = await asyncio.to_thread(make_user, spawner.user.name)
        await asyncio.to_thread(fill_home, user)
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"{error.cmd[0]} failed for {spawner.user.name}: {error.stderr.strip()}") from error


ports: dict[str, int] = {}  # of each learner's server, as it was started last


class LearnerSpawner(LocalProcessSpawner):
    """A server as a process of the learner's own Unix user, with limits that its kernels inherit."""

    async def start(self):
        """On a port that no other learner has: of many that start at once, two would else find the same one free."""
        others = {port for name, port in ports.items() if name != self.user.name}
        self.port = random_port()
        while self.port in others:
            self.port = random_port()
        ports[self.user.name] = self.port
        return await super().start()

    def make_preexec_fn(self, name: str):
        become = super().make_preexec_fn(unix_name(name))
        limits = {resource.RLIMIT_AS: self.mem_limit, resource.RLIMIT_NPROC: 400, resource.RLIMIT_CORE: 0}

        def preexec() -> None:
            os.umask(0o077)
            for what, most in limits.items():
                if most is not None:
                    resource.setrlimit(what, (most, most))
            become()

        return preexec

    def user_env(self, env: dict[str, str]) -> dict[str, str]:
        user = pwd.getpwnam(unix_name(self.user.name))
        return env | {"USER": user.pw_name, "LOGNAME": user.pw_name, "HOME": user.pw_dir, "SHELL": "/bin/sh"}


# Who may come

c.JupyterHub.authenticator_class = LOGIN
c.Authenticator.username_pattern = rf"[a-z][a-z0-9-]{{0,{LONGEST_NAME - 1}}}\Z"
c.Authenticator.admin_users = set()  # one needs a password of its own, which firstuse would give to the first who comes
c.Authenticator.allowed_users = LEARNERS
c.Authenticator.allow_all = not LEARNERS
if LOGIN == "shared-password":
    c.SharedPasswordAuthenticator.user_password = PASSWORD
    if ADMIN_PASSWORD:
        c.SharedPasswordAuthenticator.admin_password = ADMIN_PASSWORD
        c.Authenticator.admin_users = {"instructor"}
elif LOGIN == "firstuse":
    c.FirstUseAuthenticator.dbm_path = str(STATE / "passwords")
    c.FirstUseAuthenticator.min_password_length = 8

# The hub, and the proxy that it starts, watches and starts again

c.JupyterHub.bind_url = ADDRESS
if os.environ.get("HUB_TLS_KEY"):
    c.JupyterHub.ssl_key, c.JupyterHub.ssl_cert = os.environ["HUB_TLS_KEY"], os.environ["HUB_TLS_CERTIFICATE"]
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{PORT}"
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{PROXY_PORT}"
c.ConfigurableHTTPProxy.command = [str(ENVIRONMENT / PROXY)]
c.ConfigurableHTTPProxy.pid_file = str(STATE / "proxy.pid")
c.ConfigurableHTTPProxy.check_running_interval = 5
c.JupyterHub.db_url = f"sqlite:///{STATE / 'hub.sqlite'}"
c.JupyterHub.cookie_secret_file = str(STATE / "cookie_secret")
c.JupyterHub.cleanup_servers = False  # a hub that is started again finds the servers as they were
c.JupyterHub.concurrent_spawn_limit = ROOM + 10  # a whole room starts at once; past the limit, learners are sent away
c.JupyterHub.active_server_limit = ROOM
c.JupyterHub.load_roles = [
    {
        "name": "stops-idle-servers",
        "services": ["idle"],
        "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"],
    }
]
cull = ["setpriv", "--pdeathsig", "TERM"]  # a hub that is killed takes it along
cull += [sys.executable, "-m", "jupyterhub_idle_culler", f"--timeout={IDLE}", f"--cull-every={max(1, IDLE // 10)}"]
c.JupyterHub.services = [{"name": "idle", "command": cull, "user": "nobody", "cwd": "/"}]

# A server for each learner

c.Spawner.pre_spawn_hook = make_ready
c.Spawner.cmd = [str(ENVIRONMENT / "bin" / "jupyterhub-singleuser")]
c.Spawner.args = [
    "--ServerApp.terminals_enabled=False",
    "--KernelManager.transport=ipc",  # sockets in the home: on a port, every user of the machine could listen in
    "--MappingKernelManager.cull_idle_timeout=1800",
    "--LabApp.extension_manager=readonly",
    "--LanguageServerManager.autodetect=False",  # it starts Node twice for each learner, and finds nothing here
]
c.Spawner.notebook_dir = "~/lesson"
c.Spawner.default_url = "/lab/tree/my_notebooks/00_start_here.ipynb"
c.Spawner.disable_user_config = True
c.Spawner.env_keep = ["PATH", "LANG", "LC_ALL"]  # of the hub's own environment, which holds the passwords
c.Spawner.environment = {
    "JUPYTER_RUNTIME_DIR": lambda spawner: str(HOMES / unix_name(spawner.user.name) / ".run"),
    "MALLOC_ARENA_MAX": "2",  # each arena reserves 64 MiB of address space
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
c.Spawner.mem_limit = MEMORY
c.Spawner.start_timeout = c.Spawner.http_timeout = 300  # thirty that start at once wait for each other
if SPAWNER == "systemd":  # limits of memory, processor and files by control groups; needs systemd as the first process
    c.JupyterHub.spawner_class = "systemd"
    c.SystemdSpawner.username_template = unix_name("{USERNAME}")
    c.SystemdSpawner.user_workingdir = str(HOMES / unix_name("{USERNAME}"))
    c.SystemdSpawner.cpu_limit = 1.0
    c.SystemdSpawner.isolate_tmp = True
    c.SystemdSpawner.isolate_devices = True
    c.SystemdSpawner.disable_user_sudo = True
    c.SystemdSpawner.unit_extra_properties = {"UMask": "0077", "ProtectProc": "invisible", "TasksMax": "400"}
else:
    c.JupyterHub.spawner_class = LearnerSpawner
