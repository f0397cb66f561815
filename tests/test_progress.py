"""What a learner has answered: kept in a working copy alone, whole or not at all, and never a reason to fail."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lessonlib.base.errors import InvalidInputError
from lessonlib.face.exercises.__main__ import main
from lessonlib.face.exercises.asking import all_exercises, check, find, hint, solution, standing
from lessonlib.face.exercises.exercises import ChoiceExercise
from lessonlib.face.exercises.progress import NAME, SCHEMA, Progress, read_progress


@pytest.fixture
def copy(tmp_path, monkeypatch):
    folder = tmp_path / "my_notebooks"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_nothing_is_kept_elsewhere(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    check("decode-steps", 3)
    hint("decode-steps")
    assert list(tmp_path.iterdir()) == [] and Progress.here().entries == {}


def test_tries_hints_slips_and_solutions_are_kept(copy, capsys):
    check("decode-steps", None)
    check("decode-steps", "three")
    assert not (copy / NAME).exists()  # no guess yet
    check("decode-steps", 12_800)
    hint("decode-steps", 2)
    hint("decode-steps", 1)
    check("decode-steps", 12_799)
    check("decode-steps", 5)  # play
    solution("decode-steps")
    check("prefill-over-a-tenth", "d")
    solution("free-prefill")
    kept = read_progress(copy / NAME)
    slip = kept["decode-steps"].pop("slips")
    assert kept["decode-steps"] == {"tries": 2, "right": True, "first": False, "hints": 2, "looked": False}
    assert "one too many" in slip[0]
    assert kept["prefill-over-a-tenth"]["first"] and kept["prefill-over-a-tenth"]["tries"] == 1
    assert kept["free-prefill"]["looked"] and not kept["free-prefill"]["right"]
    assert sorted(path.name for path in copy.iterdir()) == [NAME]
    capsys.readouterr()
    standing("00")
    assert capsys.readouterr().out == "00: 2 of 3 right, one with help. Left: chat-answers.\n"


def test_a_quiz_has_a_score_and_says_what_to_read_again(copy, capsys):
    keys = [key for key, exercise in all_exercises().items() if exercise.notebook == "09"]
    numbers = {path.name[:2] for path in (Path(__file__).parent.parent / "notebooks").glob("*.ipynb")}
    assert {find(key).again for key in keys} < numbers - {"09", "10"}  # each question names a notebook before it
    standing("09")
    assert capsys.readouterr().out == f"09: 0 of {len(keys)} right.\n"

    def answer(key, right=True):
        wanted = find(key)
        guess = wanted.right if isinstance(wanted, ChoiceExercise) else wanted.answer.value
        other = next((letter for letter in wanted.options if letter != guess), 1e9)
        check(key, guess if right else other)

    wrong, looked, late, *others = keys
    answer(wrong, right=False)
    solution(looked)
    answer(late, right=False)
    for key in [looked, late, *others]:
        answer(key)
    capsys.readouterr()
    standing("09")
    again = ", ".join(sorted({find(key).again for key in (wrong, looked, late)}))
    score = f"Score: {len(keys) - 3} of {len(keys)} at the first try; read again: {again}."
    right = f"09: {len(keys) - 1} of {len(keys)} right, one with help. Left: {wrong}."
    assert capsys.readouterr().out == f"{right} {score}\n"


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"schema": "x", "exercises": {}}', "\udcff", "0" * 5_000_000])
def test_a_damaged_file_is_left_as_it_is(copy, damage, capsys):
    content = damage.encode("utf-8", "surrogateescape")
    (copy / NAME).write_bytes(content)
    check("decode-steps", 3)
    standing("00")
    assert (copy / NAME).read_bytes() == content
    with pytest.raises(InvalidInputError, match=NAME):
        read_progress(copy / NAME)


@pytest.mark.parametrize("entry", [3, {}, {"tries": -1}, {"tries": "many"}, {"slips": [3]}, {"right": 1}])
def test_an_entry_of_another_form_is_refused(tmp_path, entry):
    sound = {"tries": 1, "right": True, "first": True, "hints": 0, "looked": False, "slips": []}
    path = tmp_path / NAME
    path.write_text(json.dumps({"schema": SCHEMA, "exercises": {"decode-steps": sound}}))
    assert read_progress(path)["decode-steps"] == sound
    changed = sound | entry if isinstance(entry, dict) and entry else entry
    path.write_text(json.dumps({"schema": SCHEMA, "exercises": {"decode-steps": changed}}))
    with pytest.raises(InvalidInputError, match="is not what the notebooks keep"):
        read_progress(path)


def test_a_place_that_cannot_be_written_is_no_reason_to_fail(copy, capsys):
    (copy / NAME).mkdir()
    check("decode-steps", 3)
    standing("00")
    assert "Not yet" in capsys.readouterr().out and list((copy / NAME).iterdir()) == []


def test_notebooks_that_keep_at_once_lose_nothing(copy):
    progress = Progress(copy / NAME)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: progress.tried(f"key-{i % 5}", False, f"slip {i}"), range(40)))
    kept = read_progress(copy / NAME)
    assert {key: entry["tries"] for key, entry in kept.items()} == {f"key-{i}": 8 for i in range(5)}


def test_the_table_of_a_class(tmp_path, monkeypatch, capsys):
    guesses = {"ada": [12_800, 12_799], "ben": [12_799], "eve": [12_800]}
    for name, tries in guesses.items():
        folder = tmp_path / name / "my_notebooks"
        folder.mkdir(parents=True)
        monkeypatch.chdir(folder)
        for guess in tries:
            check("decode-steps", guess)
    capsys.readouterr()
    assert main([str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("3 learners\n")
    (row,) = [line for line in said.splitlines() if line.startswith("| decode-steps")]
    assert [cell.strip() for cell in row.split("|")][2:8] == ["3", "1", "2", "1", "0", "0"]
    assert "one too many" in row
    assert main([str(tmp_path / "nowhere")]) == 1 and "no progress file" in capsys.readouterr().err
    (tmp_path / "other.json").write_text("{}")
    assert main([str(tmp_path)]) == 1 and "other.json" in capsys.readouterr().err


def test_the_command(capsys):
    command = [sys.executable, "-m", "lessonlib.face.exercises"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2 and "FOLDER" in run.stderr
    assert main(["--export"]) == 0
    assert len(json.loads(capsys.readouterr().out)) > 50
