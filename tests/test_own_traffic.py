"""A learner's own CSV: what is read, what is refused, and in which words."""

import random

import numpy as np
import pytest
from helpers import examples
from hypothesis import given
from hypothesis import strategies as st

import sample_traffic
from lessonlib.base.errors import InvalidInputError, LessonError
from lessonlib.facts import own_traffic
from lessonlib.facts.config_file import read_config
from lessonlib.facts.own_traffic import OwnTraffic, read_traffic
from lessonlib.facts.tables import load_table
from lessonlib.facts.workloads import load_lengths

HEAD = "prompt_tokens,output_tokens\n"


def both(traffic):
    return traffic.prompt.tolist(), traffic.output.tolist()


@pytest.mark.parametrize(
    "text",
    [
        "prompt_tokens,output_tokens\n1,2\n3,4\n",
        "\ufeffprompt_tokens,output_tokens\r\n1,2\r\n3,4",
        "Input Tokens;Completion-Tokens\n1;2\n3;4\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,1,2\n2023-11-16 18:17:04.03,3,4\n",
        "usage.prompt_tokens\tusage.completion_tokens\r1\t2\r3\t4\r",
        "input_length|output_length\n 1 | 2 \n\n3.0|4.\n",
        '"note","prompt_tokens","output_tokens"\n"a\nb, ""c""","1","2"\n,"3","4"\n',
        "\n\noutput_tokens,prompt_tokens\n2,1\n4,3\n",
        "prompt,completion\n1,2\n3,4\n",
        "prompt,prompt_tokens,output,output_tokens\nhello,1,there,2\n=1+1,3,<b>,4\n",
    ],
)
def test_columns_delimiters_quotes_and_line_ends_are_recognised(text, tmp_path):
    assert both(read_traffic(text)) == ([1, 3], [2, 4])
    assert both(read_traffic(text.encode())) == ([1, 3], [2, 4])
    assert both(read_traffic(memoryview(text.encode("utf-8-sig")))) == ([1, 3], [2, 4])
    path = tmp_path / "own.csv"
    path.write_bytes(text.encode())
    assert both(read_traffic(path)) == both(read_traffic(str(path))) == ([1, 3], [2, 4])
    assert read_traffic(path).name == "own.csv"


def test_columns_may_be_chosen_and_cached_tokens_are_read_only_when_named():
    text = "a,b,cached_tokens,b2\n10,5,4,6\n20,7,0,8\n"
    chosen = read_traffic(text, "a", "b2", "cached_tokens")
    assert (*both(chosen), chosen.cached.tolist()) == ([10, 20], [6, 8], [4, 0])
    assert chosen.columns == {"prompt": "a", "output": "b2", "cached": "cached_tokens"} and chosen.unread == ()
    unread = read_traffic(text, "a", "b")
    assert unread.cached.tolist() == [0, 0] and unread.unread == ("cached_tokens",)
    assert unread.request.prompt.tolist() == [10, 20]


# Each: what is wrong, the CSV, and what its error must say.
REFUSED = {
    "empty": (b"", ["empty"]),
    "empty quotes": ('""\n""\n', ["is empty"]),
    "a space that does not break": ("\u00a0\n", ["is empty"]),
    "a vertical tab": ("\x0b\n", ["is empty"]),
    "blank": ("\n \n,,\n", ["empty"]),
    "only a header": (HEAD, ["no row", "after line 1"]),
    "negative": (HEAD + "1,2\n3,-4\n", ["Line 3 (row 2)", "'output_tokens'", "'-4' is negative"]),
    "zero": (HEAD + "1,2\n0,4\n", ["Line 3 (row 2)", "'prompt_tokens'", "at least 1"]),
    "no output at all": (HEAD + "1,0\n3,0\n", ["of its 2 rows not one", "2 without an output token"]),
    "NaN": (HEAD + "1,NaN\n", ["Line 2 (row 1)", "'NaN' is not a number"]),
    "infinite": (HEAD + "inf,1\n", ["Line 2 (row 1)", "is not a number"]),
    "null": (HEAD + "1,null\n", ["is not a number"]),
    "missing": (HEAD + "1,2\n,2\n", ["Line 3 (row 2)", "'' is empty"]),
    "text": (HEAD + "1,2\n1,many\n", ["Line 3 (row 2)", "'many' is not a number"]),
    "digits of another script": (HEAD + "1,١٢\n", ["is not a number"]),
    "an underscore": (HEAD + "1,1_0\n", ["is not a number"]),
    "a fraction": (HEAD + "1,2.5\n", ["'2.5' is not written as a whole number"]),
    "an exponent": (HEAD + "1,1e3\n", ["'1e3' is not written as a whole number"]),
    "thousands": (HEAD + '1,"1,024"\n', ["'1,024' has marks between its thousands"]),
    "thousands or decimals": (HEAD + "1.0,2\n1.000,2\n", ["Line 3 (row 2)", "may be 1 or 1 thousand", "1 or 1000"]),
    "more thousands or decimals": (HEAD + "1,120.000\n", ["may be 120 or 120 thousand"]),
    "huge": (HEAD + f"1,{2**53 + 1}\n", ["is too large"]),
    "thousands of digits": (HEAD + f"1,{'9' * 100_000}\n", ["is too large", "(100002 characters)"]),
    "a formula": (HEAD + "1,=cmd|' /C calc'!A0\n", ["is a formula, which stays text"]),
    "a longer row": (HEAD + "1,2\n1,2,3\n", ["Line 3 (row 2) has 3 fields", "2"]),
    "a shorter row": (HEAD + "1\n", ["Line 2 (row 1) has 1 fields"]),
    "a row of a million fields": (HEAD + "1," * 1_000_000 + "\n", ["Line 2 (row 1) has 1,000,001 fields"]),
    "a million columns": ("a," * 1_000_000 + "\n1\n", ["line 1", "1,000,000 columns", "line break"]),
    "without a header": ("1,2\n3,4\n", ["line 1", "'1', a number", "add a first line"]),
    "without a header, a date first": ("2023-11-16,374,44\n", ["line 1", "'374', a number", "add a first line"]),
    "unknown columns": ("a,b\n1,2\n", ["line 1", "'a', 'b'", "prompt_column="]),
    "one column": ("prompt_tokens\n1\n", ["one column", "comma"]),
    "another delimiter": ("prompt_tokens output_tokens\n1 2\n", ["one column", "semicolon"]),
    "two columns for one": ("prompt_tokens,input_tokens,output\n1,2,3\n", ["2 columns may hold the prompt tokens"]),
    "a name twice": ("prompt_tokens,prompt_tokens,output_tokens\n1,2,3\n", ["2 columns may hold"]),
    "a quote never closed": (HEAD + '1,2\n3,"4\n5,6\n', ["line 3", "quote", "never closed"]),
    "a long quote never closed": (HEAD + '3,"4\n' + "5,6\n" * 100_000, ["line 2", "never closed"]),
    "text after a quote": (HEAD + '1,"2"3\n', ["line 2", "closing quote"]),
    "UTF-16 cut short": ((HEAD + "1,2\n").encode("utf-16") + b"1", ["is UTF-16 at its start", "UTF-8"]),
    "zero bytes": (b"\0\0\0\0", ["is not text", "zero bytes"]),
    "a zero byte": (HEAD.encode() + b"1,2\n3,\x004\n", ["Line 3 (row 2)", "'\\x004' is not a number"]),
    "Latin-1": ((HEAD + "1,2\n3,é\n").encode("latin-1"), ["not UTF-8", "line 3 (about row 2)", "0xe9", "UTF-8"]),
    "JSON": ('\n[{"prompt_tokens": 1}]\n', ["line 2", "one column, 'prompt_tokens'"]),
    "JSON lines": ('{"prompt_tokens": 1}\n{"prompt_tokens": 2}\n', ["line 1", "one column"]),
    "a spreadsheet": (b"PK\x03\x04rest", ["spreadsheet"]),
    "a zip of one file": (b"\x1f\x8brest", ["compressed"]),
    "no file": ("nowhere.csv", ["'nowhere.csv' does not exist"]),
    "a path with a zero": ("a\0b", ["Traffic file"]),
    "a number": (3, ["source is 3"]),
    "None": (None, ["source is None"]),
}


@pytest.mark.parametrize("source, says", REFUSED.values(), ids=REFUSED)
def test_what_is_refused_and_in_which_words(source, says):
    with pytest.raises(InvalidInputError) as error:
        read_traffic(source)
    message = str(error.value)
    assert all(words in message for words in says), message
    assert len(message) < 900


def test_a_line_is_named_behind_blank_lines_quoted_breaks_and_many_rows():
    for text, line, row in (
        (HEAD + "1,2\n\n\n3,x\n", 5, 2),
        ('note,prompt_tokens,output_tokens\n"a\n\nb",1,2\nc,3,x\n', 5, 2),
        (HEAD + "1,2\n" * 20_000 + "3,x\n", 20_002, 20_001),
    ):
        with pytest.raises(InvalidInputError, match=rf"Line {line:,} \(row {row:,}\)"):
            read_traffic(text)


def test_three_wrong_lines_are_shown_and_the_others_counted():
    with pytest.raises(InvalidInputError) as error:
        read_traffic(HEAD + "1,2\n" + "1,x\n" * 30_000)
    assert str(error.value).count("Line ") == 3 and "And 29,997 more such lines" in str(error.value)


def test_chosen_columns_that_are_not_there_or_are_one():
    with pytest.raises(InvalidInputError, match="no column 'tokens'; the columns are 'a', 'b'"):
        read_traffic("a,b\n1,2\n", "tokens", "b")
    with pytest.raises(InvalidInputError, match="chosen for two things"):
        read_traffic("a,b\n1,2\n", "a", "a")
    with pytest.raises(InvalidInputError, match="prompt_column is 0"):
        read_traffic("a,b\n1,2\n", 0, "b")
    with pytest.raises(InvalidInputError, match="4 cached of 4 prompt tokens"):
        read_traffic("a,b,c\n9,1,3\n4,1,4\n", "a", "b", "c")


def test_a_folder_and_a_file_that_is_too_large(tmp_path, monkeypatch):
    with pytest.raises(InvalidInputError, match="is a folder"):
        read_traffic(tmp_path)
    monkeypatch.setattr(own_traffic, "LARGEST_TRAFFIC", 10)
    (tmp_path / "big.csv").write_text(HEAD + "1,2\n", encoding="utf-8")
    for source in (tmp_path / "big.csv", (HEAD + "1,2\n").encode()):
        with pytest.raises(InvalidInputError, match="over 10 bytes"):
            read_traffic(source)


@examples(200)
@given(st.one_of(st.binary(max_size=200), st.text(alphabet='prompt_tokens,ou\n";1-.e\té', max_size=80)))
def test_whatever_is_given_is_read_or_refused(source):
    for given_source in (source, HEAD.encode() + source if isinstance(source, bytes) else HEAD + source):
        try:
            traffic = read_traffic(given_source)
        except LessonError:
            continue
        assert traffic.prompt.min() >= 1 and traffic.output.min() >= 1 and len(traffic) >= 1


def test_digits_spaces_quotes_and_floats_of_whole_numbers_are_read_alike():
    numbers = random.Random(3)
    rows = [(numbers.randint(1, 10**6), numbers.randint(1, 10**6)) for _ in range(20_000)]
    plain = HEAD + "".join(f"{p},{o}\n" for p, o in rows)
    spaced = HEAD + "".join(f" {p},{o}.0\n" for p, o in rows)
    quoted = HEAD + "".join(f'"{p}","{o}"\n' for p, o in rows)
    floats = HEAD + "".join(f"{p}.0,{o}.0\n" for p, o in rows)
    expected = tuple(map(list, zip(*rows, strict=True)))
    assert both(read_traffic(plain)) == both(read_traffic(spaced)) == both(read_traffic(quoted)) == expected
    assert both(read_traffic(floats)) == expected
    assert both(read_traffic(floats + "1234.000,5.\n")) == ([*expected[0], 1234], [*expected[1], 5])


def test_traffic_checks_itself_and_cannot_be_written_to():
    one = np.array([1])
    for prompt, output, cached in ((one, one, one), (one, 0 * one, 0 * one), (one, np.array([1, 2]), 0 * one)):
        with pytest.raises(InvalidInputError, match="OwnTraffic"):
            OwnTraffic("x", prompt, output, cached)
    with pytest.raises(ValueError, match="read-only"):
        read_traffic(HEAD + "1,2\n").prompt[0] = 5
    assert repr(read_traffic(HEAD + "1,2\n")).startswith("1 requests of 'text'; medians 1 prompt and 2 output")


def test_the_sample_is_what_its_tool_draws_and_follows_the_published_quantiles():
    assert sample_traffic.PATH.read_text(encoding="utf-8") == sample_traffic.sample()
    traffic = read_traffic(sample_traffic.PATH)
    assert len(traffic) == sample_traffic.REQUESTS == 1000
    for kind in ("prompt", "output"):
        lengths = load_lengths("production-reasoning", kind)
        drawn = getattr(traffic, kind)
        assert drawn.max() <= lengths.lengths[-1]
        for probability in (0.25, 0.5, 0.75):
            published = np.exp(np.interp(probability, lengths.probabilities, np.log(lengths.lengths)))
            assert abs((drawn <= published).mean() - probability) < 0.05
    (row,) = (
        row
        for row in load_table("workload_quantiles")
        if (row["workload"], row["quantity"]) == ("production-reasoning", "prompt")
    )
    text = (sample_traffic.PATH.parent / "README.md").read_text(encoding="utf-8")
    assert "`sample_traffic.csv`" in text and row["licence"] in text


def test_a_config_may_be_uploaded():
    assert read_config(b'{"model_type": "llama"}') == {"model_type": "llama"}
    for content, says in ((b"\xff", "UTF-8"), (b"[1]", "a list"), (b"{", "not JSON"), (b" " * 2**25, "over")):
        with pytest.raises(InvalidInputError, match="'upload'") as error:
            read_config(content)
        assert says in str(error.value)
