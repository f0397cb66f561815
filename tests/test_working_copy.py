"""A learner's working copies: made where absent, never overwritten, taken anew on request, and found by every link."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest

from working_copy import MADE, WorkingCopy, bare, digest

ROOT = Path(__file__).parent.parent
NAMES = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture
def root(tmp_path):
    (tmp_path / "notebooks").mkdir()
    for name in NAMES[:3]:
        shutil.copy(ROOT / "notebooks" / name, tmp_path / "notebooks" / name)
    return tmp_path


def edit(path, words="my_guess = 42"):
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[2].source += f"\n{words}"
    nbformat.write(notebook, path)


def run(path):
    """What running a notebook leaves in it."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count = 7
            cell.outputs = [nbformat.v4.new_output("stream", text="mine")]
    nbformat.write(notebook, path)


def test_copies_have_all_cells_and_no_outputs(root):
    assert list(WorkingCopy(root).make()) == []
    for name in NAMES[:3]:
        copy = nbformat.read(root / "my_notebooks" / name, as_version=4)
        notebook = nbformat.read(root / "notebooks" / name, as_version=4)
        nbformat.validate(copy)
        assert [cell.source for cell in copy.cells] == [cell.source for cell in notebook.cells]
        code = [cell for cell in copy.cells if cell.cell_type == "code"]
        assert code and not any(cell.outputs or cell.execution_count for cell in code)
        assert "widgets" not in copy.metadata and copy.metadata.kernelspec.name == "python3"


def test_what_is_there_is_never_overwritten(root):
    list(WorkingCopy(root).make())
    copy = root / "my_notebooks" / NAMES[1]
    edit(copy)
    mine = copy.read_bytes()
    assert list(WorkingCopy(root).make()) == []
    assert copy.read_bytes() == mine


def test_a_notebook_that_changed_since_is_said(root):
    list(WorkingCopy(root).make())
    edit(root / "notebooks" / NAMES[1], "print('a newer version')")
    (line,) = WorkingCopy(root).make()
    assert line.startswith(f"{NAMES[1]}: the notebook has changed") and f"make fresh NB={NAMES[1][:2]}" in line


def test_fresh_takes_what_is_untouched_and_leaves_what_is_not(root):
    list(WorkingCopy(root).make())
    copies = [root / "my_notebooks" / name for name in NAMES[:3]]
    edit(copies[0])
    run(copies[1])
    mine = copies[0].read_bytes()
    said = list(WorkingCopy(root).fresh())
    assert [words.split(": ")[1][:5] for words in said] == ["stays", "taken", "is as"]
    assert copies[0].read_bytes() == mine
    assert copies[1].read_text() == bare((root / "notebooks" / NAMES[1]).read_text())


@pytest.mark.parametrize("asked", ["00", "0", NAMES[0]])
def test_fresh_of_one_keeps_the_old_one_beside_it(root, asked):
    list(WorkingCopy(root).make())
    copy = root / "my_notebooks" / NAMES[0]
    for number in (1, 2):
        edit(copy, f"mine = {number}")
        mine = copy.read_bytes()
        (line,) = WorkingCopy(root).fresh(asked)
        kept = copy.with_name(f"{copy.stem}-{number}.ipynb")
        assert kept.read_bytes() == mine and kept.name in line
        assert copy.read_text() == bare((root / "notebooks" / NAMES[0]).read_text())


def test_fresh_of_what_is_no_notebook(root):
    (line,) = WorkingCopy(root).fresh("77")
    assert "'77'" in line and "00, 01, 02" in line


@pytest.mark.parametrize("damage", ["", "[]", '{"cells": 3}', "\0\xff", "{"])
def test_a_damaged_record_or_copy_loses_nothing(root, damage):
    list(WorkingCopy(root).make())
    folder = root / "my_notebooks"
    (folder / MADE).write_text(damage)
    (folder / NAMES[0]).write_text(damage)
    mine = (folder / NAMES[0]).read_bytes()
    list(WorkingCopy(root).make())
    list(WorkingCopy(root).fresh())
    assert (folder / NAMES[0]).read_bytes() == mine
    list(WorkingCopy(root).fresh(NAMES[0][:2]))
    assert (folder / f"{NAMES[0][:-6]}-1.ipynb").read_bytes() == mine
    assert json.loads((folder / MADE).read_text())[NAMES[0]] == digest((folder / NAMES[0]).read_text())


def test_git_never_meets_them():
    said = subprocess.run(["git", "check-ignore", "my_notebooks/00_start_here.ipynb"], cwd=ROOT, capture_output=True)
    if said.returncode == 128:
        pytest.skip("this is no checkout of git, or git is not installed")
    assert said.returncode == 0


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere_from_both_places(name):
    """The folders lie side by side: a link is good in both unless it names one of them, or a file beside only one."""
    notebook = nbformat.read(ROOT / "notebooks" / name, as_version=4)
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    targets = {target.split("#")[0] for target in re.findall(r"\]\(([^)]+)\)", prose) if "://" not in target}
    assert targets
    for target in targets - {""}:
        assert target in NAMES or (target.startswith("../") and (ROOT / target[3:]).exists()), target
        assert not target.startswith("../notebooks")
