"""Make .venv-hub, JupyterHub with its proxy and the lesson, for a room: what `make hub` and `make test-hub` run first.

    python3 tools/hub_env.py             make or refresh it
    python3 tools/hub_env.py --tests     the same, with what the tests need
    python3 tools/hub_env.py --reasons   print why it cannot be made or tested here; nothing where it can

Needs Python's standard library, Node with npm, and pip's index. Learners are other Unix users, so it takes a Python
that all can read, and says where there is none. `deploy/hub/` has the exact versions.
"""

import hashlib
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

from setup_env import NEWEST, OLDEST, dotted

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ROOT / ".venv-hub"
DEPLOY = ROOT / "deploy" / "hub"
TESTS = ROOT / "tests" / "with_hub" / "requirements.txt"
HOME = Path("home.tar")  # what a learner's home holds at first, in the environment
PROXY = Path("proxy/node_modules/.bin/configurable-http-proxy")  # likewise
BEGUN, MADE = "begun", "made"  # stamps: this tool began to make the environment; what it was made from
NEEDED = {
    "node": "Node (Debian: apt install nodejs)",
    "npm": "npm (Debian: apt install npm)",
    "useradd": "useradd (Debian: apt install passwd)",
    "tar": "tar",
    "setpriv": "setpriv (Debian: apt install util-linux)",
}


def closed_to_others(path: Path) -> Path | None:
    """The first folder on the way to `path`, or the thing itself, that other Unix users cannot enter or read."""
    path = path.resolve()
    for step in [*reversed(path.parents), path]:
        mode = step.stat().st_mode
        enters = mode & stat.S_IXOTH or not step.is_dir()
        if not enters or (step == path and not mode & stat.S_IROTH):
            return step
    return None


def usable(python: str) -> str | None:
    """Why this Python cannot be the hub's; None if it can."""
    code = "import ensurepip, os, sys, venv; print(*sys.version_info[:2], os.path.realpath(sys.executable))"
    try:
        run = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return f"{python} is not there, or has no venv module"
    major, minor, real = run.stdout.split(maxsplit=2)
    if not OLDEST <= (int(major), int(minor)) <= NEWEST:
        return f"{python} is Python {major}.{minor}"
    if closed := closed_to_others(Path(real.strip())):
        return f"{python} lies below {closed}, which is closed to other users"
    return None


def python_for_all(wanted: str) -> tuple[str | None, str]:
    """A Python that every user can read: the wanted one, or the system's; and else why there is none."""
    said = []
    for python in dict.fromkeys([wanted, "/usr/bin/python3", "/usr/local/bin/python3"]):
        why = usable(python)
        if why is None:
            return python, ""
        said.append(why)
    expected = f"Python {dotted(OLDEST)} to {dotted(NEWEST)} with its venv module, readable by all users"
    return None, f"{'; '.join(said)}: expected {expected} (Debian: apt install python3 python3-venv)"


def reasons(python: str) -> list[str]:
    """Why a hub cannot be made and run here; nothing where it can."""
    if not sys.platform.startswith("linux"):
        return ["a hub of Unix users needs Linux"]
    found = [f"{what} is not installed" for name, what in NEEDED.items() if shutil.which(name) is None]
    if os.geteuid() != 0:
        found.append("only root can make Unix users")
    if closed := closed_to_others(ROOT):
        found.append(f"the lesson lies below {closed}, which is closed to other users: put it where all can read it")
    _, why = python_for_all(python)
    return found + ([why] if why else [])


def fingerprint(python: str, tests: bool) -> str:
    """What the environment depends on: the Python, the folder, the files that name versions."""
    files = [DEPLOY / "requirements.txt", DEPLOY / "package-lock.json", ROOT / "constraints.txt"]
    files += [TESTS] if tests else []
    digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
    return f"{python} in {ROOT}\nfiles {digest}\n"


def make(python: str, tests: bool) -> None:
    """The environment, anew: pip's packages, the lesson itself, and the proxy beside them."""
    if ENVIRONMENT.exists() and not (ENVIRONMENT / BEGUN).exists():
        raise OSError(f"{ENVIRONMENT} was not made here, so it stays as it is: move it away or delete it")
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    ENVIRONMENT.mkdir()
    (ENVIRONMENT / BEGUN).touch()
    print(f"Making {ENVIRONMENT.name} with {python}: JupyterHub, its proxy and the lesson, 500 MB", flush=True)
    run = ENVIRONMENT / "bin" / "python"
    subprocess.run([python, "-m", "venv", ENVIRONMENT], check=True)
    wanted = ["-r", DEPLOY / "requirements.txt", *(["-r", TESTS] if tests else []), "-e", "."]
    install = [run, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
    subprocess.run(install, cwd=ROOT, check=True)
    proxy = ENVIRONMENT / PROXY.parts[0]
    proxy.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(DEPLOY / name, proxy)
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=proxy, check=True)
    # Learners cannot write compiled modules beside the lesson's own.
    subprocess.run([run, "-m", "compileall", "-q", ROOT / "lessonlib"], check=True)


def main(arguments: list[str]) -> int:
    os.umask(0o022)
    wanted = os.environ.get("HUB_PYTHON") or sys.executable
    if arguments == ["--reasons"]:
        print("; ".join(reasons(wanted)))
        return 0
    tests = arguments == ["--tests"]
    if arguments and not tests:
        print(__doc__, file=sys.stderr)
        return 2
    python, why = python_for_all(wanted)
    if python is None:
        print(f"No environment for a hub: {why}.", file=sys.stderr)
        return 1
    stamp = ENVIRONMENT / MADE
    enough = {fingerprint(python, True), fingerprint(python, tests)}
    try:
        if not stamp.exists() or stamp.read_text(encoding="utf-8") not in enough:
            make(python, tests)
            stamp.write_text(fingerprint(python, tests), encoding="utf-8")
        subprocess.run([ENVIRONMENT / "bin" / "python", ROOT / "tools" / "hub_home.py"], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"The environment of the hub could not be made: {error}; what it said stands above.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
