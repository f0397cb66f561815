"""Build the lesson as a site that runs in the browser, with nothing to install: JupyterLite with the Pyodide kernel.

    make lite                      build build/lite from Pyodide's files, fetched once and kept in .venv-lite/pyodide
    make lite PYODIDE=folder       take files from a folder first, as far as it has them
    make lite ARGS=serve           build it and serve it on localhost (ARGS="serve --port 8001")

Each file is held to the sha256 of Pyodide's own lock file, and that file and the wheels of PyPI to those in
deploy/lite/pyodide.json: from wherever a file comes, it is the one that is meant or it is refused. The site lists what
it serves and asks no other host for anything. Run in .venv-lite (deploy/lite/requirements.txt). Ends with 3 where a
file is not to be had.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterable
from http.client import HTTPException
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(ROOT))

from sites import serve, size_of  # noqa: E402
from working_copy import bare  # noqa: E402

PLAN = ROOT / "deploy" / "lite"
KEPT = ROOT / ".venv-lite" / "pyodide"
SITE = ROOT / "build" / "lite"
FOLDER = "my_notebooks"  # where the copies lie, as after make lab
LOCK = "pyodide-lock.json"
SECONDS = 60  # for an answer of another host
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
MISSING = 3


class NotToBeHadError(Exception):
    """A file that no source has; the message says which were asked, and what to do."""


def is_whole(path: Path, sha256: str) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256


class Pyodide:
    """The files of one version of Pyodide and the wheels beside them, each taken where it is found first.

    `folders` are looked through first, then `kept`. What is in neither is fetched into `kept`: the core from npm's
    package where npm is at hand, the wheels from PyPI, all else from Pyodide's distribution.
    """

    def __init__(self, plan: dict[str, Any], folders: Iterable[Path], kept: Path) -> None:
        self.plan, self.kept = plan, kept
        self.folders = [*folders, kept]
        kept.mkdir(parents=True, exist_ok=True)
        self.asked_npm = False

    def file(self, name: str, sha256: str) -> Path:
        """The path of that file. Raises NotToBeHadError where no source has it with this sha256."""
        if (found := self._found(name, sha256)) is None and name in self.plan["core"] and not self.asked_npm:
            self.asked_npm = True
            self._from_npm()
            found = self._found(name, sha256)
        return found or self._from_distribution(name, sha256)

    def _found(self, name: str, sha256: str) -> Path | None:
        return next((folder / name for folder in self.folders if is_whole(folder / name, sha256)), None)

    def wheel(self, name: str) -> Path:
        """The path of a wheel of PyPI, in the version of requirements.txt. Raises NotToBeHadError as `file` does."""
        file, sha256 = (self.plan["wheels"][name][key] for key in ("file", "sha256"))
        if (found := self._found(file, sha256)) is not None:
            return found
        version = file.split("-")[1]
        anywhere = ["--only-binary", ":all:", "--platform", "any", "--implementation", "py", "--abi", "none"]
        wanted = [*anywhere, "--python-version", "3.12", "--dest", str(self.kept), f"{name}=={version}"]
        got = subprocess.run([*PIP, "download", "--no-deps", *wanted], capture_output=True, text=True, check=False)
        if is_whole(self.kept / file, sha256):
            return self.kept / file
        (self.kept / file).unlink(missing_ok=True)
        why = got.stderr.strip().splitlines()[-1:] or ["its sha256 differs"]
        raise NotToBeHadError(f"{file} is in none of {self._named()}, and PyPI did not give it ({why[0]}).")

    def _named(self) -> str:
        return ", ".join(
            str(folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder) for folder in self.folders
        )

    def _from_npm(self) -> None:
        """Keep the core files of npm's package, where npm is there and has it."""
        npm = shutil.which("npm")
        if npm is None:
            return
        with tempfile.TemporaryDirectory() as folder:
            packed = [npm, "pack", "--silent", f"pyodide@{self.plan['version']}"]
            try:
                subprocess.run(packed, cwd=folder, capture_output=True, check=True, timeout=2 * SECONDS)
            except (OSError, subprocess.SubprocessError):
                return  # the distribution has all that npm has
            for archive in Path(folder).glob("*.tgz"):
                with tarfile.open(archive) as files:
                    for name in set(files.getnames()) & {f"package/{name}" for name in self.plan["core"]}:
                        if (content := files.extractfile(name)) is not None:
                            (self.kept / Path(name).name).write_bytes(content.read())

    def _from_distribution(self, name: str, sha256: str) -> Path:
        address = self.plan["distribution"] + name
        try:
            with urllib.request.urlopen(address, timeout=SECONDS) as answer:
                content = answer.read()
        except (OSError, HTTPException) as error:  # of HTTP: an answer that is cut short
            raise NotToBeHadError(
                f"{name} of Pyodide {self.plan['version']} is in none of {self._named()}, and "
                f"{address} could not be read ({error}). Name a folder that has it: make lite PYODIDE=folder."
            ) from None
        (self.kept / name).write_bytes(content)
        if not is_whole(self.kept / name, sha256):
            (self.kept / name).unlink()
            raise NotToBeHadError(
                f"{address} is not what the lock of Pyodide {self.plan['version']} names: its sha256 differs. "
                "Name a folder that has the file: make lite PYODIDE=folder."
            )
        return self.kept / name

    def packages(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The lock's entries of these packages and of all that they need, by name."""
        lock = json.loads(self.file(LOCK, self.plan["core"][LOCK]).read_text(encoding="utf-8"))
        found: dict[str, dict[str, Any]] = {}
        left = list(names)
        while left:
            name = re.sub(r"[-_.]+", "-", left.pop()).lower()
            if name not in found:
                found[name] = lock["packages"][name]
                left += found[name]["depends"]
        return found


def lesson_wheel(folder: Path) -> Path:
    """The lesson's own wheel, built in `folder`. What it asks of NumPy and Matplotlib is not looked at here."""
    subprocess.run([*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)], check=True)
    return next(folder.glob("lessonlib-*.whl"))


def own_entry(name: str, wheel: Path, depends: list[str]) -> dict[str, Any]:
    """The entry of a wheel of ours in the site's lock."""
    return {
        "name": name.replace("_", "-"),
        "version": wheel.name.split("-")[1],
        "file_name": wheel.name,
        "install_dir": "site",
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "package_type": "package",
        "imports": [name],
        "depends": depends,
        "unvendored_tests": False,
        "shared_library": False,
    }


def put_pyodide(pyodide: Pyodide, out: Path) -> None:
    """The Pyodide of the site: its core, the packages and wheels of the plan, and a lock that lists these alone."""
    out.mkdir(parents=True)
    plan = pyodide.plan
    for name, sha256 in plan["core"].items():
        shutil.copyfile(pyodide.file(name, sha256), out / name)
    packages = pyodide.packages(plan["packages"])
    for entry in packages.values():
        shutil.copyfile(pyodide.file(entry["file_name"], entry["sha256"]), out / entry["file_name"])
    with tempfile.TemporaryDirectory() as folder:
        for name, entry in plan["wheels"].items():
            wheel = pyodide.wheel(name) if "file" in entry else lesson_wheel(Path(folder))
            shutil.copyfile(wheel, out / wheel.name)
            packages[name.replace("_", "-")] = own_entry(name, wheel, entry["needs"])
    lock = json.loads((out / LOCK).read_text(encoding="utf-8"))
    (out / LOCK).write_text(json.dumps({"info": lock["info"], "packages": packages}, indent=1), encoding="utf-8")


def put_files(out: Path) -> None:
    """What the learner finds there: copies of the notebooks without outputs, and the pages to which they link."""
    (out / FOLDER).mkdir(parents=True)
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        (out / FOLDER / path.name).write_text(bare(path.read_text(encoding="utf-8")), encoding="utf-8")
    shutil.copytree(ROOT / "docs", out / "docs")
    shutil.copyfile(ROOT / "README.md", out / "README.md")


def build(folders: list[Path], site: Path = SITE) -> None:
    """Build the site at `site`. What was there stays until the new one is whole."""
    begun = time.perf_counter()
    plan = json.loads((PLAN / "pyodide.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        put_pyodide(Pyodide(plan, folders, KEPT), work / "static" / "pyodide")
        put_files(work / "files")
        for name in ("jupyter-lite.json", "overrides.json"):
            shutil.copyfile(PLAN / name, work / name)
        options = "lite build --contents files --output-dir site --no-sourcemaps --apps lab"
        built = subprocess.run(
            [sys.executable, "-m", "jupyter", *options.split()],
            cwd=work,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"},
            check=False,
        )
        if built.returncode:
            sys.exit(f"{built.stdout}\njupyter lite build failed (above).")
        shutil.rmtree(site, ignore_errors=True)
        site.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(work / "site", site)
    print(f"{site.relative_to(ROOT)}: {size_of(site) / 1e6:,.0f} MB, built in {time.perf_counter() - begun:.0f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("build", "serve"), default="build")
    parser.add_argument("--port", type=int, default=8000)
    chosen = parser.parse_args()
    folders = [Path(folder) for folder in os.environ.get("PYODIDE", "").split(os.pathsep) if folder]
    if wrong := [str(folder) for folder in folders if not folder.is_dir()]:
        sys.exit(f"PYODIDE names {', '.join(wrong)}, which is no folder; expected one that has Pyodide's files.")
    try:
        build(folders)
    except NotToBeHadError as error:
        print(error, file=sys.stderr)
        return MISSING
    if chosen.what == "serve":
        serve(SITE, chosen.port, f"lab/index.html?path={FOLDER}/00_start_here.ipynb")
    return 0


if __name__ == "__main__":
    sys.exit(main())
