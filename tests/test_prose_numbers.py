"""Every number in the prose of a notebook is held to what the library computes.

A numeral in a Markdown cell is either in a phrase of tests/prose/NOTEBOOK.py, whose HELD maps the phrase as printed
to a function that makes it from the library, or one of GIVEN: an input of the lesson, not a result. Numbers that a
cell prints are held by nbval.
"""

import importlib.util
import re
from pathlib import Path

import nbformat
import pytest

HERE = Path(__file__).parent
NOTEBOOKS = sorted((HERE.parent / "notebooks").glob("*.ipynb"))

# Inputs: token counts of the workloads, batch sizes, block and dtype sizes, and the counting words of a text.
GIVEN = {"1,024", "128", "12,800", "32", "100", "2,048", "8,192", "16", "20", "1,000"} | {str(i) for i in range(13)}
LEFT_OUT = re.compile(
    r"`[^`]*`|\]\([^)]*\)|https?://\S+|\b(arXiv )?\d{4}\.\d{4,5}\b|(?<![\d.,])\b((19|20)\d\d|0\d)\b|<[^>]*>"
    r"|\d+ minutes to read, \d+ with its exercises"  # held by tests/test_readme.py
)
NUMERAL = re.compile(r"\d[\d,]*\d(?:\.\d+)?|\d(?:\.\d+)?")
SOURCES = re.compile(r"^#+ Sources.*?(?=^#+ |\Z)", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"\b[A-Z][A-Za-z]*[-.]?[A-Za-z]*-?\d[\w.-]*|\b[A-Z]+\d+\b")  # H100, Llama-3.1-8B, Qwen3-30B-A3B


def prose_of(path: Path) -> str:
    notebook = nbformat.read(path, as_version=4)
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def held_of(path: Path) -> dict:
    file = HERE / "prose" / f"{path.stem}.py"
    if not file.exists():
        return {}
    spec = importlib.util.spec_from_file_location(f"prose_{path.stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.HELD


def loose_numerals(prose: str, held) -> list[str]:
    """Numerals of `prose` that neither a held phrase nor GIVEN explains."""
    for phrase in held:
        prose = prose.replace(phrase, " ")
    for pattern in (SOURCES, LEFT_OUT, NAME):
        prose = pattern.sub(" ", prose)
    return [numeral for numeral in NUMERAL.findall(prose) if numeral not in GIVEN]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_number_in_prose_is_held(path):
    held = held_of(path)
    prose = prose_of(path)
    for phrase, computed in held.items():
        assert phrase in prose, f"{path.name}: the phrase {phrase!r} is held but no longer in the prose"
        assert computed() == phrase, f"{path.name}: the prose says {phrase!r}, the library {computed()!r}"
    loose = loose_numerals(prose, held)
    assert not loose, f"{path.name}: numbers in prose that nothing holds: {loose}; print them or add to tests/prose/"


def test_a_loose_number_is_found():
    assert loose_numerals("It takes 60.6 s on an H100 with 12,800 tokens.", {}) == ["60.6"]
    assert loose_numerals("It takes 60.6 s.", {"It takes 60.6 s": None}) == []
    assert loose_numerals("As 03 said in 2026, it has 8.03 billion parameters.", {}) == ["8.03"]


def test_no_held_file_without_its_notebook():
    stems = {path.stem for path in NOTEBOOKS}
    assert {file.stem for file in (HERE / "prose").glob("*.py")} <= stems
