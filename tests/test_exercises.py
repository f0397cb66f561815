"""Every exercise of the book: its answer is right, each slip gets its own words, no text has a gap left to fill."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from lessonlib.base.errors import InvalidInputError, UnknownNameError
from lessonlib.face.exercises.asking import all_exercises, ask, check, find, hint, solution
from lessonlib.face.exercises.exercises import ChoiceExercise, NumberExercise

HUGE = 10**5000  # a number that Python refuses to print
BOOK = all_exercises()
NUMBERS = [key for key, exercise in BOOK.items() if isinstance(exercise, NumberExercise)]
CHOICES = [key for key, exercise in BOOK.items() if isinstance(exercise, ChoiceExercise)]


def said(call, *arguments, capsys):
    call(*arguments)
    return capsys.readouterr().out.strip()


@pytest.mark.parametrize("key", BOOK)
def test_texts_are_whole(key, capsys):
    exercise = BOOK[key]
    assert exercise.hints and exercise.question.endswith("?")
    assert said(check, key, None, capsys=capsys).startswith("Not answered yet")
    lines = said(ask, key, capsys=capsys).splitlines()
    assert lines[0] == exercise.question and len(lines) == 1 + len(getattr(exercise, "options", {}))
    for number, text in enumerate(exercise.hints, start=1):
        assert said(hint, key, number, capsys=capsys) == f"Hint {number} of {len(exercise.hints)}: {text}"
    answer = said(solution, key, capsys=capsys)
    assert answer and not set("{}") & set(answer) and "nan" not in answer.split()


@pytest.mark.parametrize("key", NUMBERS)
def test_the_answer_is_right_and_each_slip_is_named(key):
    exercise = find(key)
    expected = exercise.expected()
    assert math.isfinite(expected) and expected > 0
    assert exercise.feedback(expected).startswith("Right")
    assert exercise.feedback(expected * (1 + 0.9 * exercise.tolerance)).startswith("Right")
    for slip in exercise.slips:
        assert exercise.feedback(slip.value()) == f"Not yet. {slip.feedback}", slip.feedback
    assert "is not a number" in exercise.feedback("twelve")
    assert "too high" in exercise.feedback(expected * 5.3e4) and "too low" in exercise.feedback(expected / 5.3e4)
    assert "1,000: look at the prefix" in exercise.feedback(expected * 1e3)


BINARY = {"MB": 2**20 / 1e6, "GB": 2**30 / 1e9, "TB": 2**40 / 1e12, "bytes": 2**30 / 1e9, "ms": 2**30 / 1e9}
BINARY |= {"seconds": 2**30 / 1e9, "s": 2**30 / 1e9}


@pytest.mark.parametrize("unit", BINARY)
def test_binary_prefixes_for_decimal_ones_are_named_in_each_unit(unit):
    asked = [BOOK[key] for key in NUMBERS if BOOK[key].unit == unit]
    assert asked
    letter = unit[0] if unit[0] in "MT" else "G"
    for exercise in asked:
        for guess in (exercise.expected() * BINARY[unit], exercise.expected() / BINARY[unit]):
            assert f"in {letter}iB and the other in {letter}B" in exercise.feedback(guess), exercise.key


@pytest.mark.parametrize("key", NUMBERS)
def test_a_solution_ends_in_the_answer(key):
    exercise = find(key)
    assert exercise.in_words(exercise.expected()) in exercise.solution_text()


def test_of_two_slips_the_nearest_is_named():
    exercise = find("impossible-row")
    (embedding,) = (slip.value() for slip in exercise.slips)
    binary = exercise.expected() * 2**30 / 1e9
    assert abs(embedding / binary - 1) < exercise.tolerance  # both are near each other
    assert "input embedding" in exercise.feedback(embedding) and "GiB" in exercise.feedback(binary)


def test_a_factor_of_two_is_named_where_something_is_counted_only():
    assert "a factor 2 too many" in find("cache-per-token").feedback(find("cache-per-token").expected() * 2.002)
    assert find("eight-devices").feedback(6).startswith("Not yet: 6 is too high.")  # measured: no factor was forgotten


@pytest.mark.parametrize("key", CHOICES)
def test_each_option_has_its_own_words(key):
    exercise = find(key)
    words = {letter: exercise.feedback(letter) for letter in exercise.options}
    assert [letter for letter, text in words.items() if text.startswith("Right.")] == [exercise.right]
    assert len(set(words.values())) == len(words)
    assert not any(set("{}") & set(text) for text in words.values())
    assert exercise.feedback(f" {exercise.right.upper()} ") == words[exercise.right]
    assert "is not one of the options" in exercise.feedback("z")
    assert "is not one of the options" in exercise.feedback(3)


def test_any_kind_of_number_is_a_guess(capsys):
    for guess in (Fraction(1, 3), np.int8(5), np.float32(5), 10**300):
        assert "Not yet" in said(check, "cache-per-token", guess, capsys=capsys)
    assert "too long to print is not a number" in said(check, "cache-per-token", HUGE, capsys=capsys)
    assert "too long to print is not one of the options" in find(CHOICES[0]).feedback(HUGE)


@pytest.mark.parametrize("call", [ask, hint, solution, find, partial(check, guess=1)])
@pytest.mark.parametrize("key", [HUGE, "x" * 5000, [], None], ids=["huge", "long", "list", "None"])
def test_a_key_that_is_none_is_said_in_few_words(call, key):
    with pytest.raises(UnknownNameError, match="is not known") as caught:
        call(key)
    assert len(str(caught.value)) < 300 + len(", ".join(BOOK))


def test_what_is_asked_for_in_vain_is_said(capsys):
    with pytest.raises(UnknownNameError, match=r"exercise 'decode-step'.*decode-steps"):
        check("decode-step", 1)
    assert "There are" in said(hint, "decode-steps", 99, capsys=capsys)


def test_a_choice_without_words_for_each_option_is_refused():
    with pytest.raises(InvalidInputError, match="'sample'"):
        ChoiceExercise(
            key="sample",
            notebook="",
            question="",
            options={"a": "", "b": ""},
            right="a",
            because={"a": ""},
            hints=(),
            solution="",
        )
