"""The README says what is so: its numbers are computed, its commands exist, its example prints what it says."""

import contextlib
import inspect
import io
import re
import tomllib
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from PIL import Image
from test_prose_numbers import loose_numerals

import counts
import readme_picture
from lessonlib.face.exercises.book.common import CHAT, REASONING, cost_of, server
from lessonlib.face.figures.plane import plane
from lessonlib.policy.estimates import omega, rho

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCED = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)


def prefill_share(request, batch):
    return 1 - cost_of(request, batch).decode_share


BATCHES = inspect.signature(plane).parameters["batches"].default
TEXT_LICENCE = (ROOT / "LICENSE-TEXT").read_text(encoding="utf-8")
HELD = {
    "size (1, 32 and 256)": lambda: "size ({}, {} and {})".format(*BATCHES),
    "that of batch 256": lambda: f"that of batch {BATCHES[-1]}",
    "CC BY 4.0": lambda: f"CC BY {re.search(r'Attribution ([0-9.]+)', TEXT_LICENCE)[1]}",
}


def test_every_number_is_held():
    """What is counted is held by tests/test_counts.py."""
    prose = " ".join(FENCED.sub(" ", README).split())  # a phrase may go over the end of a line
    for phrase, computed in HELD.items():
        assert phrase in prose, f"the phrase {phrase!r} is held but no longer in the README"
        assert computed() == phrase
    prose = re.sub(r"\| \d+ \| \d+ \|", "|", prose)  # minutes: held by the test of the table
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = [name.rpartition(" ")[2] for name in project["classifiers"] if re.search(r":: 3\.\d+$", name)]
    explained = (*HELD, *counts.phrases("README.md"))
    loose = [numeral for numeral in loose_numerals(prose, explained) if numeral not in pythons]
    assert not loose, f"numbers in the README that nothing holds: {loose}"


def test_what_the_alternative_text_says_of_the_picture():
    share = inspect.signature(plane).parameters["prefill_share"].default
    assert f"less than {100 * share:.0f} % of GPU time" in README
    assert prefill_share(CHAT, BATCHES[0]) < share < prefill_share(CHAT, BATCHES[1])
    assert rho(server(), REASONING, BATCHES[2]) < share / 2
    assert omega(server(), REASONING) > 1


def test_the_table_has_every_notebook_and_its_minutes():
    rows = re.findall(r"^\| \[[^\]]+\]\(notebooks/(\w+\.ipynb)\) \| (\d+) \| (\d+) \|", README, flags=re.MULTILINE)
    files = sorted((ROOT / "notebooks").glob("*.ipynb"))
    assert [name for name, *_ in rows] == [file.name for file in files]
    for (_, read, done), file in zip(rows, files, strict=True):
        assert f"{read} minutes to read, {done} with its exercises" in file.read_text(encoding="utf-8"), file.name


def test_the_example_prints_what_it_says():
    (example,) = (text for language, text in FENCED.findall(README) if language == "python")
    assert len([line for line in example.splitlines() if line]) == 5
    said = [line.partition("  # ")[2] for line in example.splitlines() if "  # " in line]
    printed = io.StringIO()
    names: dict = {}
    with contextlib.redirect_stdout(printed):
        exec(example, names)
    assert printed.getvalue().splitlines() == said and said
    # What the sentences after it promise of the result.
    assert all(part in str(names["cost"]) for part in ("FLOP", "GB", "memory", "Roofline floor"))
    assert "max(" in names["cost"].equations()


def test_the_commands_are_targets_of_the_makefile():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)\b", README, flags=re.MULTILINE))
    assert {"lab", "test"} <= named <= targets


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGBA")).astype(int)


def test_the_picture_is_what_its_tool_draws(capsys):
    stored, drawn = readme_picture.PICTURE.read_bytes(), readme_picture.picture()
    assert stored[:8] == b"\x89PNG\r\n\x1a\n" and len(stored) < 150_000
    pinned = re.search(r"^matplotlib==(\d+\.\d+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    if matplotlib.__version__.startswith(f"{pinned[1]}."):
        # Another kind of processor rounds a curve differently in its last digits: a few pixels of an edge change shade.
        apart = np.abs(pixels(drawn) - pixels(stored)).max(axis=2)
        changed = f"{(apart > 0).sum()} pixels differ, by at most {apart.max()} of 255"
        message = f"docs/plane.png is not what tools/readme_picture.py draws ({changed}): run it"
        assert apart.max() <= 96 and (apart > 0).mean() < 0.001, message
    else:
        with capsys.disabled():
            print(f"\ndocs/plane.png: compared by its size only, for matplotlib is not {pinned[1]}, the pinned one")
        assert pixels(drawn).shape == pixels(stored).shape


@pytest.mark.parametrize("picture", re.findall(r"!\[([^\]]*)\]\(", README))
def test_each_picture_has_alternative_text(picture):
    assert len(picture.split()) > 20
