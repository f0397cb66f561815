"""The set-up: what the two commands do before anything else runs."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import lessonlib
import setup_env

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
ALL_THERE = {"venv": True, "ensurepip": True}
PYPROJECT = """
[project]
name = "sample"
version = "1"
[project.optional-dependencies]
test = []
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
# A whole build backend, so that a real pip can install a real project without any network.
BACKEND = """
import zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(f"{folder}/sample-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("sample.py", "")
        about = "sample-1.dist-info"
        metadata = "Metadata-Version: 2.1\\nName: sample\\nVersion: 1\\nProvides-Extra: test\\n"
        wheel.writestr(f"{about}/METADATA", metadata)
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{about}/RECORD", "")
    return "sample-1-py3-none-any.whl"
"""


def test_one_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert lessonlib.__version__ == version
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == version
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s:]+)\)", (ROOT / page).read_text(encoding="utf-8")):
        assert (ROOT / target.partition("#")[0]).exists(), target


# What a Python must be


@pytest.mark.parametrize("version", [(3, 6, 15), (3, 10, 13)])
def test_a_python_too_old_is_told_what_to_install(version):
    said = setup_env.python_problem(version, ALL_THERE)
    assert f"Python 3.{version[1]} is too old" in said and "install Python 3.11 to 3.13" in said
    assert "\n" not in said


def test_tested_pythons_pass_and_a_newer_one_is_warned_of():
    for minor in (11, 12, 13):
        assert setup_env.python_problem((3, minor, 0), ALL_THERE) is None
        assert setup_env.newer_warning((3, minor, 9)) is None
    assert setup_env.python_problem((3, 14, 0), ALL_THERE) is None
    assert "3.14 is newer than 3.13" in setup_env.newer_warning((3, 14, 0))


def test_an_old_python_can_read_the_setup_file():
    ast.parse((ROOT / "tools" / "setup_env.py").read_text(encoding="utf-8"), feature_version=(3, 6))


# The set-up as a process, on a project that needs no network


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "a project"
    (folder / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "setup_env.py", folder / "tools")
    (folder / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    (folder / "backend.py").write_text(BACKEND, encoding="utf-8")
    (folder / "constraints.txt").write_text("", encoding="utf-8")
    return folder


def set_up(folder, prelude="", **environment):
    """Run the set-up of the project in `folder`, `prelude` before it, with no package index to be had."""
    code = f"{prelude}\nimport runpy; runpy.run_path({str(folder / 'tools' / 'setup_env.py')!r}, run_name='__main__')"
    offline = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    environment = {**os.environ, "LESSONLIB_INSTALLER": "", **offline, **environment}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def has_sample(folder):
    return subprocess.call([setup_env.venv_python(str(folder / ".venv")), "-c", "import sample"]) == 0


@pytest.mark.parametrize(
    ("prelude", "says"),
    [
        ("import sys; sys.version_info = (3, 9, 18)", "Python 3.9 is too old: install Python 3.11 to 3.13"),
        ("import sys; sys.modules['ensurepip'] = None", "has no ensurepip module"),
        ("import sys; sys.modules['venv'] = None", "apt install python3-venv"),
    ],
)
def test_one_line_says_what_to_install_before_anything_is_made(prelude, says, project):
    before = sorted(project.iterdir())
    run = set_up(project, prelude)
    assert run.returncode == 1
    assert says in run.stderr and run.stderr.count("\n") == 1 and run.stdout == ""
    assert sorted(project.iterdir()) == before


@pytest.mark.slow
def test_made_once_reused_refreshed_and_recovered(project):
    kept = project / ".venv" / "kept.txt"

    # No index: uv cannot be had, and pip takes over.
    run = set_up(project)
    assert run.returncode == 0, run.stderr
    assert "Making .venv" in run.stdout and "pip installs the packages instead" in run.stdout
    assert has_sample(project)
    kept.touch()

    assert set_up(project).stdout == ""

    with (project / "constraints.txt").open("a", encoding="utf-8") as file:
        file.write("# another\n")
    run = set_up(project, LESSONLIB_INSTALLER="pip")
    assert run.returncode == 0 and "Installing" in run.stdout
    assert "Making .venv" not in run.stdout and "instead" not in run.stdout
    assert kept.exists()

    # A project that cannot be installed: what is left in the environment cannot be trusted, and goes with the next run.
    (project / "pyproject.toml").write_text(PYPROJECT.replace('"backend"', '"no_such_backend"'), encoding="utf-8")
    run = set_up(project, LESSONLIB_INSTALLER="pip")
    assert run.returncode == 1
    assert "no_such_backend" in run.stderr and "could not be installed" in run.stderr
    (project / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    run = set_up(project, LESSONLIB_INSTALLER="pip")
    assert run.returncode == 0 and "Making .venv" in run.stdout
    assert not kept.exists() and has_sample(project)


@pytest.mark.parametrize(
    ("stamp", "works", "does"),
    [
        ("Python 3.12 in here\nfiles 2\n", True, "reuse"),
        ("Python 3.12 in here\nfiles 1\n", True, "refresh"),
        (None, True, "refresh"),  # somebody's own, made by hand
        ("Python 3.12 in there\nfiles 2\n", True, "make"),  # the folder was moved
        ("Python 3.11 in here\nfiles 2\n", True, "make"),
        (setup_env.UNFINISHED, True, "make"),
        ("Python 3.12 in here\nfiles 2\n", False, "make"),  # its Python is gone
        (None, False, "leave"),  # uv's, which has no pip; of another Python; of another user
        ("Python 3.12 in here\nfiles 2\n" + setup_env.FILLED, True, "reuse"),
        ("Python 3.11 in there\nfiles 1\n" + setup_env.FILLED, True, "refresh"),
        ("Python 3.12 in here\nfiles 2\n" + setup_env.FILLED, False, "leave"),
        (setup_env.UNFINISHED + setup_env.FILLED, True, "refresh"),
        (setup_env.UNFINISHED + setup_env.FILLED, False, "leave"),
    ],
)
def test_what_is_done_with_an_environment(stamp, works, does):
    assert setup_env.plan(stamp, "Python 3.12 in here\nfiles 2\n", works) == does


def python_without_pip(venv):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)


def uv_venv(venv):
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if uv is None:
        pytest.skip("uv is not installed here: pip made this environment")
    subprocess.run([uv, "venv", "--quiet", "--offline", "--python", sys.executable, venv], check=True)


def another_python(venv):
    venv.mkdir()
    (venv / "pyvenv.cfg").write_text("version = 3.10", encoding="utf-8")


@pytest.mark.parametrize(
    "made",
    [python_without_pip, uv_venv, another_python, Path.touch, lambda venv: venv.symlink_to("gone")],
    ids=["without pip", "uv", "another Python", "a file", "a link to nowhere"],
)
def test_an_environment_that_was_not_made_here_stays_and_one_line_says_what_to_do(made, project):
    venv = project / ".venv"
    made(venv)
    before = sorted((path, path.lstat().st_mtime_ns) for path in [venv, *venv.rglob("*")])
    run = set_up(project)
    assert run.returncode == 1 and run.stdout == "" and run.stderr.count("\n") == 1
    assert run.stderr.startswith(".venv was not made by this set-up, so it stays") and "move it" in run.stderr
    assert sorted((path, path.lstat().st_mtime_ns) for path in [venv, *venv.rglob("*")]) == before


@pytest.mark.slow
def test_an_environment_made_by_hand_is_filled_and_never_deleted(project):
    venv = project / ".venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    (venv / "kept.txt").touch()
    run = set_up(project, LESSONLIB_INSTALLER="pip")
    assert run.returncode == 0 and "Making .venv" not in run.stdout and has_sample(project)
    assert set_up(project).stdout == ""
    run = set_up(project, "import sys; sys.version_info = (3, 12 if sys.version_info[1] != 12 else 13, 0)")
    assert run.returncode == 1 and run.stderr.startswith(".venv was not made by this set-up, so it stays")
    assert (venv / "kept.txt").exists() and has_sample(project)


@pytest.mark.slow
def test_an_empty_folder_is_filled_and_an_interruption_leaves_one_that_can_be_made_anew(project):
    venv = project / ".venv"
    venv.mkdir()
    stop = "import subprocess\ndef call(*_, **__): raise KeyboardInterrupt\nsubprocess.call = call"
    for _ in range(2):
        assert set_up(project, stop).returncode != 0
        assert setup_env.read_stamp(venv) == setup_env.UNFINISHED
    assert set_up(project, LESSONLIB_INSTALLER="pip").returncode == 0 and has_sample(project)


NO_RIGHT = """
import builtins, os, shutil
def denied(path, *_, **__): raise PermissionError(13, "Permission denied", path)
"""


@pytest.mark.parametrize(
    "denied",
    [
        "shutil.rmtree = denied",
        "os.listdir = denied",
        "os.makedirs = denied",
        "kept = open\nbuiltins.open = lambda path, how='r', **to: (denied if how == 'w' else kept)(path, how, **to)",
    ],
)
def test_an_environment_of_another_user_ends_in_one_line(denied, project):
    (project / ".venv" / "lib").mkdir(parents=True)
    setup_env.write_stamp(project / ".venv", setup_env.UNFINISHED)
    run = set_up(project, NO_RIGHT + denied)
    assert run.returncode == 1 and run.stderr.count("\n") == 1
    assert run.stderr.startswith(".venv cannot be made or changed (Permission denied: '")
    assert str(project / ".venv") in run.stderr and "Delete it as its owner" in run.stderr


def test_the_stamp_changes_with_all_that_the_environment_depends_on(project):
    def stamp(folder=project, version=(3, 12, 1)):
        return setup_env.fingerprint(str(project), str(folder / ".venv"), version)

    first = stamp()
    assert stamp(version=(3, 12, 7)) == first
    others = {stamp(version=(3, 13, 0)), stamp(folder=project / "moved")}
    for name in ("pyproject.toml", "constraints.txt"):
        with (project / name).open("a", encoding="utf-8") as file:
            file.write("# changed\n")
        others.add(stamp())
    assert len(others) == 4 and first not in others


@pytest.mark.parametrize("broken", ["uv is not to be had", "uv fails"])
def test_pip_takes_over_from_uv(broken, capsys):
    commands = []

    def run(command):
        commands.append(command)
        by_uv = command[1:3] == ["-m", "uv"]
        return not (by_uv if broken == "uv fails" else command[-1] == "uv")

    assert setup_env.install(".venv", run=run)
    assert commands[-1][1:4] == ["-m", "pip", "install"]
    assert commands[-1][-4:] == ["--constraint", "constraints.txt", "--editable", ".[test]"]
    assert "pip installs the packages instead" in capsys.readouterr().out


# The Makefile


def make(*arguments):
    if shutil.which("make") is None:
        pytest.skip("make is not installed on this machine")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    options = {"cwd": ROOT, "env": environment, "stdin": subprocess.DEVNULL}
    return subprocess.run(["make", *arguments], **options, capture_output=True, text=True, check=False)


def test_help_is_the_default_and_lists_every_target():
    targets = re.search(r"^\.PHONY: (.*)$", MAKEFILE, flags=re.MULTILINE)[1].split()
    assert set(targets) == set(re.findall(r"^([a-z-]+):", MAKEFILE, flags=re.MULTILINE))
    run = make()
    assert run.returncode == 0, run.stderr
    described = dict(re.findall(r"^  ([a-z-]+) +(\S.*)$", run.stdout, flags=re.MULTILINE))
    assert set(described) == set(targets)


def test_lab_takes_a_free_port_and_passes_arguments_on():
    said = make("-n", "lab", "ARGS=--no-browser --ip=0.0.0.0").stdout.replace("\\\n", " ")
    (line,) = [line for line in said.splitlines() if "-m jupyterlab" in line]
    assert "port_retries=" in line
    assert "=/lab/tree/my_notebooks/00_start_here.ipynb " in line
    assert said.index("tools/working_copy.py") < said.index("-m jupyterlab")
    assert line.split()[-2:] == ["--no-browser", "--ip=0.0.0.0"]
    as_root = hasattr(os, "getuid") and os.getuid() == 0
    assert ("--allow-root" in line) == as_root


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "python",
    [
        "",  # not there at all
        "echo 'pyenv: python3.12: command not found' >&2; exit 127",  # a shim of pyenv: there, but the version is not
        "echo 'Python was not found; run without arguments to install'; exit 9",  # the one that comes with Windows
        f'exec "{sys.executable}" -c "import sys; sys.version_info = (2, 7); exec(sys.argv[2])" "$@"',
    ],
)
def test_a_python_that_is_missing_does_not_run_or_is_of_another_age_is_named(python, tmp_path):
    path = script(tmp_path / "python3.12", python) if python else "no-such-python"
    run = make("env", f"PYTHON={path}")
    assert run.returncode != 0 and run.stdout == ""
    assert run.stderr.splitlines()[0].startswith(
        f"{path} is not there, or does not run, or is too old: install Python 3"
    )


def test_an_environment_for_pytorch_that_was_not_made_here_stays(tmp_path):
    (tmp_path / "tests" / "with_torch").mkdir(parents=True)
    (tmp_path / "tests" / "with_torch" / "requirements.txt").touch()
    (tmp_path / ".venv-torch").mkdir()
    (tmp_path / ".venv-torch" / "kept.txt").touch()
    torch = ["-f", ROOT / "Makefile", "-C", tmp_path, ".venv-torch/made", f"TORCH_PYTHON={sys.executable}"]
    run = make(*torch)
    assert (
        run.returncode != 0 and "was not made here" in run.stderr and (tmp_path / ".venv-torch" / "kept.txt").exists()
    )
    (tmp_path / ".venv-torch" / "begun").touch()
    make(*torch, f"TORCH_PYTHON={script(tmp_path / 'python', 'exit 0')}")
    assert sorted(path.name for path in (tmp_path / ".venv-torch").iterdir()) == ["begun"]


def test_a_missing_python_for_pytorch_is_named():
    run = make("-W", "tests/with_torch/requirements.txt", "test-torch", "TORCH_PYTHON=no-such-python")
    assert run.returncode != 0
    assert run.stderr.startswith("make test-torch: no-such-python with its venv module is not there: install Python 3")
    assert run.stdout == ""


@pytest.mark.parametrize(
    ("stamp", "goes"), [(None, False), ("x\n" + setup_env.FILLED, False), ("x\n", True), (setup_env.UNFINISHED, True)]
)
def test_clean_removes_the_environments_that_were_made_here(stamp, goes, tmp_path):
    for name, mark in ((".venv", setup_env.STAMP), (".venv-torch", "begun")):
        (tmp_path / name).mkdir()
        if stamp is not None:
            (tmp_path / name / mark).write_text(stamp, encoding="utf-8")
    run = make("-f", ROOT / "Makefile", "-C", tmp_path, "clean")
    assert run.returncode == 0 and (tmp_path / ".venv").exists() == (not goes)
    assert (".venv was not made here, so it stays" in run.stdout) == (not goes)
    assert (tmp_path / ".venv-torch").exists() == (stamp is None)


def test_ci_runs_the_command_of_the_readme():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    more = ("", "-slow", "-torch", "-wheel", "-browser", "-book", "-lite NB=00,02,07", "-engine", "-hub N=5")
    assert script.splitlines()[-9:] == [f"make test{what}" for what in more]
    assert "\nmake test " in (ROOT / "README.md").read_text(encoding="utf-8")
