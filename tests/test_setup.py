"""The set-up: what the two commands do before anything else runs."""

import tomllib
from pathlib import Path

import lessonlib

ROOT = Path(__file__).parent.parent


def test_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert lessonlib.__version__ == project["version"]
