"""No answer stands before its question: not above it, not in an earlier notebook, not in the README.

Every value of an exercise is looked for in all that a learner has read by then: a number of three figures or more,
within 0.5 %, with its unit; of what is counted, without a unit too. Of a value with fewer figures, the number with its
unit. Of a choice, the words of the right option. Numbers that are inputs are exempt: they stand in data/.
"""

import re
from functools import cache

import pytest
from reading import NUMERAL, figures, passages

from lessonlib.face.exercises.asking import all_exercises
from lessonlib.face.exercises.exercises import NumberExercise, number
from lessonlib.facts.catalogue import accelerator_names, load_accelerator, load_model, model_names
from lessonlib.facts.tables import load_table

BOOK = all_exercises()
NEAR = 0.005
# Units that say one thing: the unit of an exercise to how many of the base it is. What is counted has no other unit.
UNITS = {
    "s": ("s", 1.0),
    "seconds": ("s", 1.0),
    "ms": ("s", 1e-3),
    "us": ("s", 1e-6),
    "bytes": ("B", 1.0),
    "B": ("B", 1.0),
    "kB": ("B", 1e3),
    "MB": ("B", 1e6),
    "GB": ("B", 1e9),
    "TB": ("B", 1e12),
    "%": ("%", 1.0),
    "percent": ("%", 1.0),
    "per cent": ("%", 1.0),
}
# What follows a numeral and makes it another quantity than the same number with no unit.
FOLLOWS = re.compile(r"\s*(%|per cent|percent|ms|us|s|seconds|bytes|B|kB|MB|GB|TB|GiB|MiB|TFLOP|GFLOP|FLOP)\b|\s*(%)")
# Values that stand before their question for a reason: (key, page) to the reason.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("eight-devices", "README.md"): "3.11 to 3.13 are versions of Python",
    ("eight-devices", "06_which_lever.ipynb"): "3.14 tokens are what a round of drafts yields",
    ("quiz-cache-passes-weights", "04_what_batching_can_pay_for.ipynb"): "4,302 tokens a second of another model",
}


@cache
def inputs() -> set[float]:
    """Numbers of data/ that the lesson starts from: sizes of models, rates of devices, lengths of workloads."""
    found: set[float] = set()
    for table in ("accelerators", "workloads", "workload_quantiles"):
        for row in load_table(table):
            found |= {float(value) for value in row.values() if isinstance(value, int | float)}
    for name in model_names():
        model = load_model(name)
        found |= {float(model.parameters), float(model.width), float(model.vocabulary), float(model.layers)}
    for name in accelerator_names():
        accelerator = load_accelerator(name)
        found |= {accelerator.memory, accelerator.bandwidth, *accelerator.peaks.values()}
    return found


def spoils(exercise: NumberExercise, text: str) -> list[str]:
    """Numerals of the text that give the exercise's value away."""
    base, size = UNITS.get(exercise.unit, (exercise.unit, 1.0))
    value = exercise.answer.value * size
    found = []
    for match in NUMERAL.finditer(text):
        number, after = float(match[0].replace(",", "")), text[match.end() :]
        unit = FOLLOWS.match(after)
        own, factor = UNITS.get((unit[1] or unit[2]) if unit else "", ("", 1.0))
        if own != (base if base in ("s", "B", "%") else "") or (unit and not own):
            continue
        enough = figures(match[0]) >= 3
        counted = number == round(value) == value and after.lstrip().startswith(exercise.unit.split()[0])
        if (enough and abs(number * factor - value) <= NEAR * value and number not in inputs()) or counted:
            found.append(text[max(0, match.start() - 40) : match.end() + 25].replace("\n", " "))
    return found


def asked_in(code: str) -> list[str]:
    return re.findall(r"\b(?:ask|check)\(\s*[\"']([^\"']+)", code)


@cache
def given_away() -> dict[str, list[str]]:
    """Each exercise to the places before its question that give its answer away."""
    seen, found = [], {}
    for passage in passages():
        if passage.kind != "code":
            seen.append(passage)
            continue
        for key in asked_in(passage.text):
            exercise = BOOK[key]
            before = [one for one in seen if (key, one.page) not in EXCEPTIONS]
            if isinstance(exercise, NumberExercise):
                places = [
                    f"{one.page} cell {one.cell}: {words}" for one in before for words in spoils(exercise, one.text)
                ]
            else:
                option = " ".join(exercise.options[exercise.right].split())
                long = len(option.split()) >= 5
                places = [f"{one.page} cell {one.cell}: {option}" for one in before if long and option in one.text]
            found.setdefault(key, places)
    return found


@pytest.mark.parametrize("key", BOOK)
def test_no_answer_stands_before_its_question(key):
    assert key in given_away(), f"{key}: no notebook asks it"
    places = given_away()[key]
    assert not places, f"{key} ({BOOK[key].answer}) is given away: " + "; ".join(places[:6])


def test_exceptions_are_of_exercises_and_have_a_reason():
    assert all(key in BOOK and reason for (key, _), reason in EXCEPTIONS.items())


def sample(unit, value):
    @number(unit)
    def question(answer):
        """How much?

        - Look.
        """
        answer.value = value
        return f"{answer}."

    return question


def test_what_gives_a_value_away():
    counted = sample("chat requests", 102.8)
    assert spoils(counted, "it takes 103 times as long") and spoils(counted, "| ratio | 102.8 |")
    assert not spoils(counted, "102.8 GB") and not spoils(counted, "100") and not spoils(counted, "version 1.0.102")
    seconds = sample("seconds", 60.62)
    assert spoils(seconds, "60.6 s") and spoils(seconds, "60,620 ms") and not spoils(seconds, "60.6 %")
    assert not spoils(seconds, "61 s") and not spoils(seconds, "60.6")
    few = sample("requests", 71)
    assert spoils(few, "71 requests fit") and not spoils(few, "71 GB") and not spoils(few, "71")
