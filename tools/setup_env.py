"""Make or refresh ``.venv``: the set-up behind every target of the Makefile, and the whole of it without make.

    python3 tools/setup_env.py            (Windows: py tools\\setup_env.py)

Needs nothing but Python's standard library. The environment is reused as long as pyproject.toml, constraints.txt, the
Python and the folder are those that it was made with; a stamp inside ``.venv`` says so. One that was not made here, but
by ``uv run`` or by hand, is filled where that can be done, and never deleted. uv installs the packages; where uv cannot
be had or fails, or with LESSONLIB_INSTALLER=pip, pip does.

This file keeps to the syntax of Python 3.6, so that a Python that is too old can still say what is missing.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys

OLDEST = (3, 11)
NEWEST = (3, 13)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STAMP = "lessonlib-setup.txt"
UNFINISHED = "unfinished\n"
FILLED = "filled, not made\n"  # what the stamp of an environment that was there before ends in


def dotted(version):
    return f"{version[0]}.{version[1]}"


def python_problem(version, modules_found):
    """One line that says what to install before anything can be made, or None if this Python will do."""
    wanted = f"Python {dotted(OLDEST)} to {dotted(NEWEST)}"
    if tuple(version[:2]) < OLDEST:
        return (
            f"Python {dotted(version)} is too old: install {wanted} and run this again, naming it if it is not python3 "
            f"(for example: make lab PYTHON=python{dotted(NEWEST)})."
        )
    missing = [name for name in ("venv", "ensurepip") if not modules_found[name]]
    if missing:
        return (
            f"Python {dotted(version)} has no {missing[0]} module, so it cannot make a virtual environment: install it "
            "(Debian and Ubuntu: apt install python3-venv) and run this again."
        )
    return None


def newer_warning(version):
    """A line for a Python newer than those tested, or None."""
    if tuple(version[:2]) <= NEWEST:
        return None
    return f"Warning: Python {dotted(version)} is newer than {dotted(NEWEST)}, the newest tested. Trying it anyway."


def fingerprint(root, venv, version):
    """What the environment depends on, in two lines: the Python and the folder (its scripts name it); the two files."""
    digest = hashlib.sha256()
    for name in ("pyproject.toml", "constraints.txt"):
        with open(os.path.join(root, name), "rb") as file:
            # Without carriage returns: the same text has the same stamp under Windows.
            digest.update(file.read().replace(b"\r", b"") + b"\0")
    return f"Python {dotted(version)} in {os.path.abspath(venv)}\nfiles {digest.hexdigest()}\n"


def venv_python(venv):
    return os.path.join(venv, "Scripts", "python.exe") if os.name == "nt" else os.path.join(venv, "bin", "python")


def read_stamp(venv):
    """What the last set-up left in the environment: its fingerprint, ``unfinished``, or None."""
    try:
        with open(os.path.join(venv, STAMP), encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return None


def write_stamp(venv, text):
    with open(os.path.join(venv, STAMP), "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)


def is_own(stamp):
    """Whether the set-up made the environment with this stamp: one without is somebody's own, by uv or by hand."""
    return stamp is not None and not stamp.endswith(FILLED)


def plan(stamp, wanted, works):
    """What to do with the environment: ``reuse`` it, ``refresh`` its packages, ``make`` it anew, or ``leave`` it.

    ``works`` says whether the environment's Python is the wanted one and can run pip. Of those made here, one whose
    set-up was interrupted, or that was moved or made with another Python, is thrown away. Any other is filled where it
    works, and else left alone.
    """
    if stamp in (wanted, wanted + FILLED) and works:
        return "reuse"
    if not is_own(stamp):
        return "refresh" if works else "leave"
    return "refresh" if works and stamp.splitlines()[:1] == wanted.splitlines()[:1] else "make"


def not_made_here(version):
    """Why the environment that is there stays, and what to do."""
    return (
        ".venv was not made by this set-up, so it stays as it is; but it has no pip (as uv makes it), or a Python that "
        f"is not {dotted(version)}, or cannot be read. Work in it as before (with uv: uv run jupyter lab), or move it "
        "away or delete it, and run this again: that makes a new one."
    )


def cannot_be_changed(error):
    """What to do where a file of the environment is another user's, or in use."""
    why = str(error).partition("] ")[2] or error
    return (
        f".venv cannot be made or changed ({why}). Is it another user's, or in use? Delete it as its owner, or work in "
        "a copy of this folder that is yours; then run this again."
    )


def works(venv, version):
    """Whether the environment has a running Python of this version, with pip."""
    code = f"import sys, pip; sys.exit(sys.version_info[:2] != {tuple(version[:2])})"
    try:
        return subprocess.call([venv_python(venv), "-c", code], stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def run(command):
    """Run a command, its output to the terminal; True if it ended well."""
    try:
        return subprocess.call(command, cwd=ROOT) == 0
    except OSError as error:
        print(f"{command[0]}: {error}", flush=True)
        return False


def install(venv, installer="", run=run):
    """Put the packages into the environment by uv, or by pip where uv cannot be had or fails; True if it went well."""
    python = venv_python(venv)
    packages = ["--quiet", "--constraint", "constraints.txt", "--editable", ".[test]"]
    if installer != "pip":
        if run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv"]) and run(
            [python, "-m", "uv", "pip", "install", "--python", python, *packages]
        ):
            return True
        print("uv did not do it; pip installs the packages instead (a minute or so).", flush=True)
    return run([python, "-m", "pip", "install", "--disable-pip-version-check", *packages])


def base_python():
    """The Python to make an environment with: not the one inside the environment that may have to go."""
    return getattr(sys, "_base_executable", None) or sys.executable


def make(venv):
    """A new environment in place of the one of ours that may be there; True if it went well."""
    print(f"Making .venv with Python {dotted(sys.version_info)}", flush=True)
    if os.path.islink(venv):
        os.remove(venv)
    os.makedirs(venv, exist_ok=True)
    write_stamp(venv, UNFINISHED)  # it comes first and stays to the end: an environment without is never deleted
    for name in os.listdir(venv):
        path = os.path.join(venv, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif name != STAMP:
            os.remove(path)
    return run([base_python(), "-m", "venv", venv])


def main():
    try:
        return set_up()
    except OSError as error:
        print(cannot_be_changed(error), file=sys.stderr)
        return 1


def set_up():
    modules_found = {name: importlib.util.find_spec(name) is not None for name in ("venv", "ensurepip")}
    problem = python_problem(sys.version_info, modules_found)
    if problem:
        print(problem, file=sys.stderr)
        return 1
    venv = os.path.join(ROOT, ".venv")
    wanted = fingerprint(ROOT, venv, sys.version_info)
    stamp = read_stamp(venv)
    if stamp in (wanted, wanted + FILLED) and os.path.exists(venv_python(venv)):
        return 0
    warning = newer_warning(sys.version_info)
    if warning:
        print(warning, file=sys.stderr)
    there = os.path.lexists(venv) and not (os.path.isdir(venv) and not os.listdir(venv))
    doing = plan(stamp, wanted, works(venv, sys.version_info)) if there else "make"
    if doing == "leave":
        print(not_made_here(sys.version_info), file=sys.stderr)
        return 1
    if doing == "make" and not make(venv):
        print("Python's venv module could not make .venv: its message stands above.", file=sys.stderr)
        return 1
    filled = "" if doing == "make" or is_own(stamp) else FILLED
    write_stamp(venv, UNFINISHED + filled)
    print("Installing the packages of pyproject.toml, at the versions of constraints.txt", flush=True)
    if not install(venv, os.environ.get("LESSONLIB_INSTALLER", "")):
        print("The packages could not be installed: the message above says why. Run this again.", file=sys.stderr)
        return 1
    # The first import lists the machine's fonts, and on a slow one says so: not in the reader's first cell.
    subprocess.call([venv_python(venv), "-c", "import matplotlib.font_manager"], stderr=subprocess.DEVNULL)
    write_stamp(venv, wanted + filled)
    return 0


if __name__ == "__main__":
    sys.exit(main())
