"""Every notebook runs to its end in the browser, asks no other host for anything, and prints what is stored.

What differs, and why, is data: differences.json. Two texts are the same where its rules make them so.
"""

import json
import re
from functools import cache
from pathlib import Path

import nbformat
import pytest
from in_browser import SiteNotebook, failed, printed
from lab import ROOT

import lite
from sites import size_of

RULES = json.loads((Path(__file__).parent / "differences.json").read_text(encoding="utf-8"))
TIMES: dict[str, str] = {}


@pytest.fixture(scope="module")
def ran(name, browser, address, shots):
    """The notebook, opened, its cells run once."""
    notebook = SiteNotebook(browser, address, name)
    notebook.run_all()
    TIMES[name] = ", ".join(f"{what} {seconds:.1f} s" for what, seconds in notebook.seconds.items())
    TIMES[name] += f", {notebook.loaded(address) / 1e6:.0f} MB loaded"
    notebook.page.screenshot(path=shots / f"{Path(name).stem}.png")
    (shots / name).write_text(json.dumps(notebook.content), encoding="utf-8")
    yield notebook
    notebook.close()


@cache
def stored(name):
    """The cells of the notebook as they are stored, by their id."""
    return {cell["id"]: cell for cell in nbformat.read(ROOT / "notebooks" / name, as_version=4).cells}


def code_cells(notebook):
    return [cell for cell in notebook.content["cells"] if cell["cell_type"] == "code"]


def evened(text, tags):
    """The text by the rules that apply to a cell with these tags."""
    for rule in RULES:
        if rule.get("tag") is None or rule["tag"] in tags:
            text = re.sub(rule["stored"], rule["now"], text)
    return text.strip()


def test_it_runs_to_its_end(ran, name):
    cells = code_cells(ran)
    assert [cell["id"] for cell in cells] == [key for key, cell in stored(name).items() if cell.cell_type == "code"]
    meant = {key for key, cell in stored(name).items() if "raises-exception" in cell.metadata.get("tags", ())}
    assert {cell["id"]: failed(cell) for cell in cells if failed(cell) and cell["id"] not in meant} == {}
    assert {cell["id"] for cell in cells if failed(cell)} == {key for key in meant if failed(stored(name)[key])}
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))


def test_it_prints_what_is_stored(ran, name):
    differ = []
    for cell in code_cells(ran):
        kept = stored(name)[cell["id"]]
        tags = kept.metadata.get("tags", ())
        before, now = (evened(printed(one), tags) for one in (kept, cell))
        if before != now:
            at = next((i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), 0)
            beginning = cell["source"].partition("\n")[0]
            differ.append(f"{beginning}\n- {before[max(0, at - 60) : at + 90]!r}\n+ {now[max(0, at - 60) : at + 90]!r}")
    cells = sum(bool(printed(cell)) for cell in code_cells(ran))
    same = sum(printed(cell) == printed(stored(name)[cell["id"]]) for cell in code_cells(ran) if printed(cell))
    print(
        f"{name}: {cells} cells print, {same} to the letter what is stored; {len(differ)} differ for no listed reason"
    )
    assert not differ, "\n".join(differ)


def test_the_rules_hide_no_number(name):
    """Another digit in what a cell prints is seen, but for the versions of packages."""
    for cell in stored(name).values():
        tags, text = cell.metadata.get("tags", ()), printed(cell)
        for digit in [found for found in re.finditer(r"\d", text) if "environment" not in tags][
            :: max(1, len(text) // 40)
        ]:
            other = text[: digit.start()] + str((int(digit[0]) + 1) % 10) + text[digit.end() :]
            assert evened(other, tags) != evened(text, tags), (cell.source, digit.start())


def test_it_asks_no_other_host_for_anything(ran, address):
    assert ran.away(address) == []


def test_each_reason_is_a_sentence():
    for rule in RULES:
        assert re.fullmatch(r"[A-Z].{20,}\.", rule["reason"]) and re.compile(rule["stored"])


def test_size_and_times_are_printed(capsys):
    parts = {"the whole site": size_of(lite.SITE), "of it Pyodide": size_of(lite.SITE / "static" / "pyodide")}
    with capsys.disabled():
        print("\n" + ", ".join(f"{what} {size / 1e6:.0f} MB" for what, size in parts.items()))
        print(*(f"{name}: {said}" for name, said in TIMES.items()), sep="\n")
    assert 0 < parts["of it Pyodide"] < parts["the whole site"]
