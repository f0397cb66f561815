"""Write what a learner's home holds at first: the working copy, the pages that it links to, the list of fonts.

Run by tools/hub_env.py with the environment of the hub. The hub unpacks it in each home, as the learner, and never over
what is there already. JupyterLab's settings for all learners are written, too.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from hub_env import ENVIRONMENT, HOME, ROOT
from working_copy import WorkingCopy

PAGES = ("README.md", "docs", "data", "notebooks")
# JupyterLab as it comes, but that it asks neither a server for news nor the learner whether it should.
SETTINGS = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}


def fonts() -> Path:
    """matplotlib's list of the machine's fonts: without it each first figure takes seconds to make one."""
    folder = ENVIRONMENT / "fonts"
    if not list(folder.glob("fontlist-*.json")):
        named = {**os.environ, "MPLCONFIGDIR": str(folder)}
        subprocess.run([sys.executable, "-c", "import matplotlib.font_manager"], env=named, check=True)
    return next(folder.glob("fontlist-*.json"))


def home() -> bytes:
    """The archive, the same bytes for the same files."""
    written = io.BytesIO()
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(fileobj=written, mode="w") as archive:
        folder = Path(scratch)
        for _ in WorkingCopy(ROOT, folder / "lesson" / "my_notebooks").make():
            pass
        for name in PAGES:
            if (ROOT / name).is_dir():
                shutil.copytree(
                    ROOT / name, folder / "lesson" / name, ignore=shutil.ignore_patterns(".*", "__pycache__")
                )
            else:
                shutil.copy(ROOT / name, folder / "lesson" / name)
        cache = folder / ".cache" / "matplotlib"
        cache.mkdir(parents=True)
        shutil.copy(fonts(), cache)
        for path in sorted(folder.rglob("*")):
            entry = archive.gettarinfo(path, path.relative_to(folder))
            entry.mode, entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime = 0o700, 0, 0, "", "", 0
            if path.is_file():
                entry.mode = 0o600
                archive.addfile(entry, io.BytesIO(path.read_bytes()))
            else:
                archive.addfile(entry)
    return written.getvalue()


if __name__ == "__main__":
    settings = ENVIRONMENT / "share" / "jupyter" / "lab" / "settings"
    settings.mkdir(parents=True, exist_ok=True)
    (settings / "overrides.json").write_text(json.dumps(SETTINGS, indent=1) + "\n", encoding="utf-8")
    (ENVIRONMENT / HOME).write_bytes(home())
