"""What the pages name is there: files and folders, modules and names of lessonlib, targets of make."""

import re
from importlib import import_module
from pathlib import Path

import pytest

import counts

ROOT = Path(__file__).parent.parent
PAGES = [
    *"README.md CONTRIBUTING.md CHANGELOG.md data/README.md data/timings/README.md tests/data/README.md".split(),
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
FOLDERS = ("lessonlib/", "tests/", "tools/", "data/", "docs/", "notebooks/", "deploy/", ".github/", ".ci/")
PLACEHOLDER = re.compile(r"NAME|NN|[*]")


def spans(page: str, text: str) -> list[str]:
    """What stands in code: between marks, or in a block. Of CHANGELOG.md only what is, not what was."""
    text = (
        re.sub(r"^\| .*? \| ", "| ", counts.newest(page, text), flags=re.MULTILINE) if page == "CHANGELOG.md" else text
    )
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`]+)`", text) + [line for block in blocks for line in block.splitlines()]


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or a name in one."""
    try:
        import_module(name)
    except ModuleNotFoundError:
        module, _, last = name.rpartition(".")
        return bool(module) and exists(module) and hasattr(import_module(module), last)
    return True


def missing(page: str, text: str) -> list[str]:
    found = []
    for span in spans(page, text):
        words = [word.strip(",;:()") for word in span.split()]
        paths = [word for word in words if word.startswith(FOLDERS) and not PLACEHOLDER.search(word)]
        found += [path for path in paths if not (ROOT / path).exists()]
        found += [name for name in re.findall(r"\blessonlib(?:\.\w+)+", span) if not exists(name)]
        found += [f"make {name}" for name in re.findall(r"^make ([a-z-]+)", span) if name not in TARGETS]
    return found


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page):
    assert missing(page, (ROOT / page).read_text(encoding="utf-8")) == []


def test_what_is_not_there_is_seen():
    text = (
        "`lessonlib/cache.py` or `lessonlib.cache`; `lessonlib.policy.rho`, `make it`\n```\nmake lab\nmake tea\n```\n"
    )
    assert missing("README.md", text) == ["lessonlib/cache.py", "lessonlib.cache", "make it", "make tea"]
    moved = (
        "## 2\n\n| was | is |\n| --- | --- |\n| `lessonlib.cache` | `lessonlib.rooms` |\n\n## 1\n\n`lessonlib.levers`\n"
    )
    assert missing("CHANGELOG.md", moved) == ["lessonlib.rooms"]
