"""The test of the test: a changed number in any stored output turns exactly its own cell red under strict nbval.

One nbval run a notebook: in a copy, one digit is changed in each untagged code cell whose stored text, outside picture
data, holds one. Every such cell must fail and no other may: the latter also shows that nbval looks at each cell alone.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import nbformat
import pytest

import notebooks

ROOT = notebooks.FOLDER.parent
SANITIZE = Path(__file__).with_name("nbval_sanitize.cfg")
FILES = sorted(notebooks.FOLDER.glob("*.ipynb"))
# A digit that no picture holds: a picture is matched whole, and first, so that its digits are never met.
DIGIT = re.compile(r"data:image/[a-z+]+;base64,[A-Za-z0-9+/=]+|(?s:<svg\b.*?</svg>)|(?P<digit>[0-9])")


def text_places(cell):
    """Where a cell stores text that nbval compares: (mapping, key) pairs."""
    for output in cell.outputs:
        if output.output_type == "stream":
            yield output, "text"
        for kind in output.get("data", {}):
            if kind.startswith("text/"):
                yield output.data, kind


def change_one_digit(cell) -> bool:
    """Change one digit of the cell's stored text, anywhere in it; False if it holds none.

    Which digit is drawn from the cell's source: the same on each run, and not always the first.
    """
    places = [
        (where, key, match.start())
        for where, key in text_places(cell)
        for match in DIGIT.finditer(where[key])
        if match["digit"]
    ]
    if not places:
        return False
    draw = int.from_bytes(hashlib.sha256(cell.source.encode()).digest()[:8], "big")
    where, key, at = places[draw % len(places)]
    where[key] = f"{where[key][:at]}{(int(where[key][at]) + 1) % 10}{where[key][at + 1 :]}"
    return True


def change_numbers(path: Path) -> set[str]:
    """Change one digit in each untagged code cell that stores one; the names that nbval gives to these cells."""
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    changed = {f"Cell {n}" for n, cell in enumerate(code) if not cell.metadata.get("tags") and change_one_digit(cell)}
    nbformat.write(notebook, path)
    return changed


def red_cells(*paths: Path) -> list[tuple[set[str], set[str]]]:
    """Of each notebook, all in one folder: the cells that strict nbval fails, and all that it ran, by nbval's names."""
    report = paths[0].with_suffix(".xml")
    options = ["--nbval", f"--nbval-sanitize-with={SANITIZE}", "--nbval-cell-timeout=120", f"--junitxml={report}"]
    without = [part for name in ("randomly", "cacheprovider", "hypothesispytest") for part in ("-p", f"no:{name}")]
    first = ["-p", "tools.quick_schemas", *without]
    command = [sys.executable, "-m", "pytest", "-q", *first, *options, *map(str, paths)]
    where = {"cwd": paths[0].parent, "env": os.environ | {"PYTHONPATH": str(ROOT)}}
    run = subprocess.run(command, **where, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    found = []
    for path in paths:
        its = [case for case in cases if path.stem in case.get("classname", "")]
        red = {case.get("name") for case in its if case.find("failure") is not None or case.find("error") is not None}
        found.append((red, {case.get("name") for case in its}))
    return found


def test_a_changed_sample_is_red_where_it_was_changed_and_green_with_another_picture(tmp_path, sample_text):
    changed, stored = tmp_path / "changed.ipynb", tmp_path / "stored.ipynb"
    assert "base64,iVBOR" in sample_text
    stored.write_text(sample_text.replace("base64,iVBOR", "base64,jWCPS"), encoding="utf-8")
    changed.write_text(sample_text, encoding="utf-8")
    # Of the eight code cells one shows a picture, one prints no number, and two are tagged.
    assert change_numbers(changed) == {"Cell 0", "Cell 1", "Cell 3", "Cell 4"}
    of_changed, of_stored = red_cells(changed, stored)
    assert of_changed[0] == {"Cell 0", "Cell 1", "Cell 3", "Cell 4"}
    assert of_stored[0] == set()
    assert len(of_stored[1]) == len(of_changed[1]) == 8


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_changed_notebook_is_red_where_it_was_changed(file, tmp_path):
    # Beside the notebooks lies data/, which they may open by its relative path.
    for folder in ("notebooks", "data"):
        if (ROOT / folder).exists():
            shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    copy = tmp_path / "notebooks" / file.name
    changed = change_numbers(copy)
    assert changed, "no untagged cell of this notebook stores a number"
    assert red_cells(copy)[0][0] == changed
