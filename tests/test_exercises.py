"""Every exercise of the book: its answer is right, each slip gets its own words, no text has a gap left to fill."""

import json
import math
import re
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lessonlib.base.errors import InvalidInputError, UnknownNameError
from lessonlib.base.text import plain_markdown
from lessonlib.face.exercises.asking import all_exercises, ask, check, exported, find, hint, solution, standing
from lessonlib.face.exercises.exercises import OF_BYTES, SHARES, ChoiceExercise, NumberExercise, choice, number, predict

HUGE = 10**5000  # a number that Python refuses to print
BOOK = all_exercises()
NUMBERS = [key for key, exercise in BOOK.items() if isinstance(exercise, NumberExercise)]
CHOICES = [key for key, exercise in BOOK.items() if isinstance(exercise, ChoiceExercise)]


def said(call, *arguments, capsys):
    call(*arguments)
    return capsys.readouterr().out.strip()


def words(key, guess):
    return find(key).judge(guess).words


@pytest.mark.parametrize("key", BOOK)
def test_texts_are_whole(key, capsys):
    exercise = BOOK[key]
    asked = re.sub(r" \(Right within (15|30) %\.\)$", "", exercise.question)
    assert exercise.hints and asked.endswith("?")
    assert said(check, key, None, capsys=capsys).startswith("Not answered yet")
    text = said(ask, key, capsys=capsys)
    assert plain_markdown(exercise.question) in text and f'check("{key}"' in text
    assert all(f"- **{letter}** {plain_markdown(option)}" in text for letter, option in exercise.options.items())
    for place, hinted in enumerate(exercise.hints, start=1):
        assert said(hint, key, place, capsys=capsys) == f"Hint {place} of {len(exercise.hints)}: {hinted}"
    answer = said(solution, key, capsys=capsys)
    assert answer and not set("{}") & set(answer) and "nan" not in answer.split()


@pytest.mark.parametrize("key", NUMBERS)
def test_the_answer_is_right_and_each_slip_is_named(key):
    exercise = find(key)
    expected = exercise.answer.value
    assert math.isfinite(expected) and expected > 0
    assert exercise.judge(expected).right and exercise.judge(expected).words.startswith("Right")
    assert exercise.judge(expected * (1 + 0.9 * exercise.tolerance)).right
    for value, named in exercise.answer.slips:
        verdict = exercise.judge(value)
        assert verdict.right is False and named in verdict.words, named
    assert exercise.judge("twelve").right is None and "is not a number" in words(key, "twelve")
    if not exercise.predicted:
        assert "too high" in words(key, expected * 5.3e4) and "too low" in words(key, expected / 5.3e4)


def test_a_slip_is_named_only_where_it_explains_the_number_and_can_be_made():
    """A factor of two is forgotten where bytes are counted; a guess near a slip is not it."""
    assert "a factor 2 too many" in words("cache-per-token", 2 * find("cache-per-token").answer.value)
    for key, guess in (("chat-answers", 200), ("chat-answers", 206), ("experts-at-32", 50), ("eight-devices", 6)):
        assert "factor" not in words(key, guess)
    for key in NUMBERS:
        exercise = find(key)
        prefixes = any("prefix of your unit" in said for _, said in exercise.slips)
        assert prefixes == (exercise.unit in OF_BYTES)
        assert any("share and a percentage" in said for _, said in exercise.slips) == (exercise.unit in SHARES)


def test_what_the_value_is_rounded_to_is_right():
    assert find("last-over-first").judge(4.4).right and find("last-over-first").judge(4.5).right
    assert not find("last-over-first").judge(4.3).right and not find("last-over-first").judge(4).right
    assert not find("last-over-first").judge(5).right  # one digit says too little


def test_the_sparse_step_by_hand():
    """Numbers of a layer at 12,926 cached tokens: a latent of 512 + 64, an index key of 128, 2,048 chosen."""
    dense, sparse = 576 * 12_926, 576 * 2_048 + 128 * 12_926
    assert find("sparse-step").answer.value == pytest.approx(dense / sparse, rel=1e-12)


def test_a_prediction_is_answered_with_its_reason_whatever_was_guessed():
    @predict("s")
    def sample(answer):
        """How long?

        - Long.
        """
        answer.value = 10.0
        answer.slip(40.0, "That is four times as long.")
        return f"It takes {answer}, for it does."

    assert sample.question == "How long? (Right within 15 %.)"
    unslipped = predict("s")(sample.work)
    unslipped.answer.slips.clear()
    assert unslipped.judge(30).words == "Not within 15 %. It takes 10 s, for it does."
    assert [sample.judge(guess).right for guess in (8.4, 8.6, 11.4, 11.6)] == [False, True, True, False]
    assert sample.judge(11).words == "Right within 15 %. It takes 10 s, for it does."
    assert sample.judge(30).words == "Not within 15 %. It takes 10 s, for it does."
    assert sample.judge(40).words == "Not within 15 %. That is four times as long. It takes 10 s, for it does."


BINARY = {"MB": 2**20 / 1e6, "GB": 2**30 / 1e9, "TB": 2**40 / 1e12, "bytes": 2**30 / 1e9, "ms": 2**30 / 1e9}
BINARY |= {"s": 2**30 / 1e9}


@pytest.mark.parametrize("unit", BINARY)
def test_binary_prefixes_for_decimal_ones_are_named_in_each_unit(unit):
    asked = [BOOK[key] for key in NUMBERS if BOOK[key].unit == unit and not BOOK[key].predicted]
    assert asked
    letter = unit[0] if unit[0] in "MT" else "G"
    for exercise in asked:
        for guess in (exercise.answer.value * BINARY[unit], exercise.answer.value / BINARY[unit]):
            assert f"in {letter}iB and the other in {letter}B" in exercise.judge(guess).words, exercise.key


@pytest.mark.parametrize("key", NUMBERS)
def test_a_solution_ends_in_the_answer(key):
    exercise = find(key)
    assert str(exercise.answer) in exercise.answer.solution


def test_of_two_slips_the_nearest_is_named():
    exercise = find("impossible-row")
    ((embedding, _),) = exercise.answer.slips
    binary = exercise.answer.value * 2**30 / 1e9
    assert abs(embedding / binary - 1) < 0.01  # both are near each other
    assert "input embedding" in exercise.judge(embedding).words and "GiB" in exercise.judge(binary).words


@pytest.mark.parametrize("key", CHOICES)
def test_each_option_has_its_own_words(key):
    exercise = find(key)
    verdicts = {letter: exercise.judge(letter) for letter in exercise.options}
    assert [letter for letter, verdict in verdicts.items() if verdict.right] == [exercise.right]
    assert verdicts[exercise.right].words.startswith("Right.") and len(set(verdicts.values())) == len(verdicts)
    assert not any(set("{}") & set(verdict.words) for verdict in verdicts.values())
    assert exercise.judge(f" {exercise.right.upper()} ") == verdicts[exercise.right]
    for wrong in ("z", 3, HUGE):
        assert exercise.judge(wrong).right is None and "is not one of the options" in exercise.judge(wrong).words


def test_any_kind_of_number_is_a_guess(capsys):
    for guess in (Fraction(1, 3), np.int8(5), np.float32(5), 10**300):
        assert "Not yet" in said(check, "cache-per-token", guess, capsys=capsys)
    assert "too long to print is not a number" in said(check, "cache-per-token", HUGE, capsys=capsys)


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
    def sample(answer):
        """Which?

        a: this
        b: that
        """
        answer.says(a="")
        return ""

    with pytest.raises(InvalidInputError, match="'sample'"):
        choice("a")(sample).judge("a")


def test_the_docstring_is_what_a_learner_reads_first():
    @number("GB")
    def one_and_only(answer):
        """What is it, over two
        lines?

        - One hint, a little longer
          than a line.
        - The other: b: no option.
        """
        answer.value = 2e9
        return f"{answer}, {answer.value / 1e9:.1f}"

    assert (one_and_only.key, one_and_only.question) == ("one-and-only", "What is it, over two lines?")
    assert one_and_only.hints == ("One hint, a little longer than a line.", "The other: b: no option.")
    assert one_and_only.options == {} and one_and_only.answer.solution == "2,000,000,000 GB, 2.0"


CALLED = re.compile(r"\b(check|ask|hint|solution)\(\s*[\"']([^\"']+)")


def test_every_exercise_is_asked_in_its_notebook_and_none_that_is_not_in_the_book():
    checked, named = {}, {}
    for path in (Path(__file__).parent.parent / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        number = path.name[:2]
        named[number] = {key for _, key in CALLED.findall(code)}
        checked[number] = {key for call, key in CALLED.findall(code) if call in ("ask", "check")}
    of_module = {key: exercise.work.__module__[-2:] for key, exercise in BOOK.items()}  # "notebook_01" ends in 01
    book = {number: {key for key, of in of_module.items() if of == number} for number in checked}
    assert checked == book and named == book
    assert set(of_module.values()) <= set(book)


def test_an_exercise_is_exported_as_json_with_all_that_answers_a_guess():
    for key, exercise in BOOK.items():
        found = json.loads(json.dumps(exported(key), allow_nan=False))
        assert (found["key"], found["notebook"]) == (key, exercise.work.__module__[-2:])
        assert found["solution"] == exercise.answer.solution and found["says"] == exercise.says
        assert found["again"] == exercise.again
        if found["kind"] == "number":
            assert found["value"] == exercise.answer.value and found["slips"] == [list(slip) for slip in exercise.slips]
        else:
            assert found["right"] in found["options"] and set(found["options"]) < set(found["says"])


def test_where_one_stands_outside_of_a_working_copy(capsys):
    standing("00")
    assert "my_notebooks" in capsys.readouterr().out
    standing()
    (line,) = capsys.readouterr().out.splitlines()  # one sentence for all notebooks, and how many each asks
    assert line.count("my_notebooks") == 1
    for notebook in {exercise.notebook for exercise in BOOK.values()}:
        assert f"{notebook}: {sum(exercise.notebook == notebook for exercise in BOOK.values())}" in line
    with pytest.raises(UnknownNameError, match="'77'"):
        standing("77")
