"""What a log may be packed, encoded and parted in, and what its columns mean: each case by hand."""

import gzip
import itertools
import json
import random

import pytest
from helpers import examples
from hypothesis import given
from hypothesis import strategies as st

from lessonlib.base.errors import InvalidInputError, LessonError
from lessonlib.face.widgets import choosers
from lessonlib.facts import own_traffic
from lessonlib.facts.own_traffic import read_traffic
from lessonlib.facts.traffic import read as reading

TITLES = ("note", "prompt_tokens", "output_tokens")
ROWS = [("a", 1, 2), ("b", 3, 4), ("c", 50_000, 600)]
EXPECTED = ([1, 3, 50_000], [2, 4, 600])


def both(traffic):
    return traffic.prompt.tolist(), traffic.output.tolist()


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_every_way_to_write_a_table(delimiter, end, encoding):
    for separator, packed in itertools.product(
        (f"sep={delimiter}", f'"sep={delimiter}"', None), (bytes, gzip.compress)
    ):
        table = [separator] if separator else []
        table += [delimiter.join(map(str, row)) for row in (TITLES, *ROWS)]
        content = (end.join(table) + end).encode(encoding)
        assert both(read_traffic(packed(content))) == EXPECTED


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_every_way_to_write_json(encoding, packed):
    records = [dict(zip(TITLES, row, strict=True)) for row in ROWS]
    nested = [{"id": 1, "usage": record} for record in records]
    columns = {title: [record[title] for record in records] for title in TITLES}
    texts = [json.dumps(records), json.dumps(records, indent=2), json.dumps(columns), json.dumps(columns, indent=1)]
    texts += [json.dumps({key: nested, "n": 3}) for key in ("data", "requests", "results")]
    texts += [json.dumps({"page": {"items": records}}), json.dumps([*records])]
    for every in (records, nested):
        texts += ["".join(json.dumps(record) + end for record in every) for end in ("\n", "\r\n", "\n\n")]
        texts += ["\n".join(json.dumps(record, indent=2) for record in every)]
    for text in texts:
        assert both(read_traffic(packed(text.encode(encoding)))) == EXPECTED


def test_a_long_array_is_read_a_piece_at_a_time(monkeypatch):
    monkeypatch.setattr("lessonlib.facts.traffic.json_values.PIECE", 7)
    monkeypatch.setattr(reading, "MOST_LINE", 5)
    records = [{"prompt_tokens": n + 1, "output_tokens": n + 2, "text": "]}{[,\\" * n} for n in range(50)]
    for indent in (None, 1):
        traffic = read_traffic(json.dumps(records, indent=indent).encode())
        assert both(traffic) == ([n + 1 for n in range(50)], [n + 2 for n in range(50)])


def test_the_delimiter_is_the_one_that_names_the_columns():
    for text in (
        'prompt_tokens,output_tokens,"a;b;c;d"\n1,2,x\n',
        'prompt_tokens;output_tokens;"a,b,c,d"\n1;2;x\n',
        '"a,b,c;d;e"|prompt_tokens|output_tokens\nx|1|2\n',
        "a;b;c,prompt_tokens,output_tokens\nx;y;z,1,2\n",
    ):
        assert both(read_traffic(text)) == ([1], [2])
    assert both(read_traffic("a;b,c;d\n5;x;6\n", "a", "d")) == ([5], [6])


def test_numbers_that_commas_part_are_refused_or_said():
    head = "prompt_tokens,output_tokens,latency_ms\n"
    for text in (head + "1,024,512\n", head + "5,6,7\n12,007,512\n", "prompt_tokens,x,output_tokens\n1,024,512\n"):
        with pytest.raises(InvalidInputError, match=r"'0\d\d' seems to be the rest of 12?,0"):
            read_traffic(text)
    (note,) = read_traffic(head + "12,345,678\n1,124,512\n").notes
    assert "commas between thousands" in note
    assert read_traffic(head + "12,345,678\n1,124,51\n").notes == ()
    assert both(read_traffic(head.replace(",", ";") + "1;024;512\n")) == ([1], [24])


THOUGHT = "prompt_tokens,output_tokens,reasoning_tokens,total_tokens\n"


def test_the_total_says_what_thought_tokens_are_row_by_row():
    assert read_traffic(THOUGHT + "10,20,5,30\n").output.tolist() == [20]
    assert read_traffic(THOUGHT + "10,20,5,35\n").output.tolist() == [25]
    mixed = read_traffic(THOUGHT + "10,20,5,30\n10,20,5,35\n10,20,0,30\n")
    assert mixed.output.tolist() == [20, 25, 20] and "in 1 of 2 rows" in mixed.notes[0]
    assert read_traffic(THOUGHT + "10,20,5,35\n10,20,5,\n").output.tolist() == [25, 25]
    assert read_traffic(THOUGHT + "10,2,50,\n10,20,5,\n").output.tolist() == [52, 25]  # more thought than output
    assert read_traffic(THOUGHT + "10,20,0,\n10,20,,\n").output.tolist() == [20, 20]


@pytest.mark.parametrize("rows", ["10,20,5,\n", "10,20,5,99\n", "10,20,5,30\n10,20,5,35\n10,20,5,\n"])
def test_where_nothing_says_the_reader_is_asked(rows):
    with pytest.raises(InvalidInputError, match=r"thought='within' .* thought='beside'"):
        read_traffic(THOUGHT + rows)
    assert read_traffic(THOUGHT + rows, thought="within").output[-1] == 20
    assert read_traffic(THOUGHT + rows, thought="beside").output[-1] == 25
    with pytest.raises(InvalidInputError, match="read_traffic: thought is 'inside'"):
        read_traffic(THOUGHT + rows, thought="inside")


def test_a_total_that_is_more_is_said():
    traffic = read_traffic("promptTokens,completionTokens,totalTokens\n264,104,1357\n5,6,11\n")
    assert (
        "In 1 rows the total 'totalTokens' is not prompt + output: line 2 has 1,357 for 264 + 104." in traffic.notes[0]
    )
    assert traffic.said()[-1] == traffic.notes[0] and str(traffic).endswith(traffic.notes[0])


def test_what_the_prompt_means_where_a_cache_is_counted():
    def read(rows, head="input_tokens,cache_creation_input_tokens,cache_read_input_tokens,output_tokens\n", **options):
        traffic = read_traffic(head + rows, **options)
        return traffic.prompt.tolist(), traffic.cached.tolist()

    assert read("7,120,10240,310\n") == ([10_367], [10_240])
    assert read("7,120,10240,310\n500,0,100,9\n") == ([10_367, 600], [10_240, 100])
    plain = "n_in,cached_tokens,n_out,total_tokens\n"
    assert read("7,100,10,\n9,4,10,\n", plain) == ([107, 13], [100, 4])  # a part larger than its whole stands beside it
    assert read("100,40,10,110\n", plain) == ([100], [40])
    assert read("100,40,10,150\n", plain) == ([140], [40])
    assert read("1000,500,10,1010\n7,10240,10,10257\n", plain) == ([1000, 10_247], [500, 10_240])
    assert read("7,10240,10,17\n500,100,10,510\n", plain) == ([10_247, 600], [10_240, 100])  # totals without caches
    assert read("100,40,10,\n", plain) == ([100], [0])  # nothing says: not read
    assert read_traffic(plain + "100,40,10,\n").unread == ("cached_tokens",)
    assert read("100,40,10,\n", plain, cache="beside") == ([140], [40])
    assert read("100,40,10,\n", plain, cached_column="cached_tokens") == ([100], [40])
    with pytest.raises(InvalidInputError, match=r"100 cached of 100 prompt tokens; .*cache='beside'"):
        read("100,100,10,110\n", plain)


FAILED = {
    "error": ("timed out", "", "None", "0"),
    "error_code": ("429", "", "0", "null"),
    "status": ("failure", "success", "stop", "200"),
    "status_code": ("503", "200", "204", ""),
    "errors": ("1", "0", "", "none"),
    "finish_reason": ("abort", "stop", "length", ""),
    "success": ("False", "True", "true", "1"),
    "level": ("ERROR", "DEFAULT", "WARNING", ""),
}


@pytest.mark.parametrize("column", FAILED)
def test_failed_requests_are_left_out_and_counted(column):
    cells = FAILED[column]
    text = f"prompt_tokens,output_tokens,{column}\n" + "".join(f"{n},5,{cell}\n" for n, cell in enumerate(cells, 1))
    traffic = read_traffic(text + f",,{cells[0]}\n")
    assert traffic.prompt.tolist() == [2, 3, 4]
    assert traffic.left_out == {f"failed, by the column {column}": 2}
    assert f"Left out: 2 of 5 rows, failed, by the column {column}." in str(traffic)


def test_steps_of_a_trace_that_sum_calls_are_left_out():
    rows = "chain,30,3\nllm,10,1\nllm,20,2\ntool,,\n"
    for title in ("run_type", "span_kind", "observation_type"):
        traffic = read_traffic(f"{title},prompt_tokens,completion_tokens\n{rows}")
        assert traffic.prompt.tolist() == [10, 20]
        assert traffic.left_out == {f"no call of a model, by the column {title}": 2}
    count = {"llm.token_count.prompt": 30, "llm.token_count.completion": 5}
    spans = lines(*({"attributes": {"openinference.span.kind": kind} | count} for kind in ("CHAIN", "LLM", "AGENT")))
    assert len(read_traffic(spans)) == 1


def test_a_cache_hit_is_an_answer_from_a_cache_where_it_is_known_to_be():
    text = "prompt_tokens,output_tokens,cache_hit\n5,6,True\n7,8,False\n"
    assert len(read_traffic(text)) == 2
    spend = (
        text.replace("output", "completion").replace("cache_hit", "cache_hit,call_type,spend").replace("e\n", "e,a,1\n")
    )
    assert read_traffic(spend).left_out == {"answered from a cache of answers, by the column cache_hit": 1}
    batch = [{"response": {"status_code": code, "body": {"usage": GOOD}}, "error": None} for code in (200, 500)]
    assert read_traffic(lines(*batch)).left_out == {"failed, by the column response.status_code": 1}


def test_rows_without_output_are_left_out_and_counted():
    traffic = read_traffic("prompt_tokens,output_tokens\n5,6\n7,0\n0,0\n,\n8,9\n")
    assert both(traffic) == ([5, 8], [6, 9])
    assert traffic.left_out == {"without an output token (failed or cancelled)": 2, "without token counts": 1}


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


GOOD = {"prompt_tokens": 1, "output_tokens": 2}
MANY = lines(*[GOOD] * 1500)
# Each: what is wrong, a text or bytes, and what its error must say.
REFUSED = {
    "a bad line": (MANY + "{bad}\n" + lines(GOOD), "line 1,501: it is not JSON"),
    "a name twice": (
        MANY + '{"prompt_tokens": 1, "prompt_tokens": 7, "output_tokens": 2}\n',
        "line 1,501: .*stands twice",
    ),
    "a name twice at once": (
        '{"prompt_tokens": 1, "prompt_tokens": 7, "output_tokens": 2}\n',
        "line 1: .*stands twice",
    ),
    "a list among lines": (MANY + "[1]\n", r"line 1,501: \[1\] is not a JSON object"),
    "true": (
        MANY + lines(GOOD | {"output_tokens": True}),
        r"Line 1,501 \(row 1,501\), column 'output_tokens': True is not",
    ),
    "NaN": (MANY + lines(GOOD | {"output_tokens": float("nan")}), "Line 1,501 .*: nan is not a number"),
    "Infinity": (lines(GOOD | {"output_tokens": float("inf")}), "inf is not a number"),
    "1e400": ('{"prompt_tokens": 1e400, "output_tokens": 2}\n', "inf is not a number"),
    "negative": (lines(GOOD, GOOD | {"output_tokens": -2}), "Line 2 .*: -2 is negative"),
    "a fraction": (lines(GOOD | {"output_tokens": 2.5}), "2.5 is not a whole number"),
    "huge": (lines(GOOD | {"output_tokens": 10**30}), "is too large for a number of tokens"),
    "thousands of digits": ('{"prompt_tokens": ' + "9" * 5000 + ', "output_tokens": 2}\n', "thousands of digits"),
    "deep": ('{"a":' * 5000 + "1" + "}" * 5000, "nested too deeply"),
    "deep lists": ('{"prompt_tokens": 1, "x": ' + "[" * 50_000, "nested too deeply"),
    "arrays": ("[[1, 2], [3, 4]]", r"\[1, 2\] is not a JSON object"),
    "numbers": ("[1, 2]", "1 is not a JSON object"),
    "an empty object": ("{}", "no named numbers"),
    "an empty array": ("[]", "holds no request"),
    "a cut array": ('[{"prompt_tokens": 1, "output_tokens": 2},', "not closed"),
    "a cut object": ('[{"prompt_tokens": 1, "output_tokens": 2},\n{"prompt_to', "line 2: it is not JSON"),
    "lists of two lengths": (
        json.dumps({"prompt_tokens": [1, 2], "output_tokens": [3]}),
        "'output_tokens' has 1 values",
    ),
    "a list and a number": (json.dumps({"prompt_tokens": [1, 2], "output_tokens": 3}), "'output_tokens' has no list"),
    "two lists": (json.dumps({"a": [GOOD], "b": [GOOD]}), r"2 lists may hold the requests \('a', 'b'\)"),
    "a dotted name twice": (lines({"u.prompt_tokens": 1, "u": GOOD}), "2 columns may hold the prompt tokens"),
    "1,500 names": (lines({**{f"c{n}": n for n in range(1500)}, **GOOD}), "1,502 columns"),
    "an unknown separator": ("sep=x\nprompt_tokensxoutput_tokens\n1x2\n", "sep= names 'x';"),
    "a separator alone": ("sep=;\n", "is empty"),
    "a long first line": (b"a" * (2**22 + 1), "over 4,194,304 characters"),
    "cut gzip": (gzip.compress(b"prompt_tokens,output_tokens\n" + b"1,2\n" * 9)[:-9], "cannot be unpacked whole"),
    "damaged gzip": (gzip.compress(random.Random(1).randbytes(9999))[:50] + b"\0" * 5000, "cannot be unpacked whole"),
    "gzip twice": (gzip.compress(gzip.compress(b"a")), "compressed twice"),
    "empty gzip": (gzip.compress(b""), "is empty"),
    "zstd": (b"\x28\xb5\x2f\xfd...", "compressed by zstd"),
    "two encodings": (
        b"prompt_tokens,output_tokens\n" + b"1,2\n" * 50_000 + b"\xe9,3\n",
        r"line 50,002 \(about row 50,001",
    ),
    "zeros packed": (gzip.compress(bytes(10**8)), "zero bytes"),
}


@pytest.mark.parametrize("source, says", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(source, says):
    with pytest.raises(InvalidInputError, match=says) as error:
        read_traffic(source)
    assert len(str(error.value)) < 700


def test_a_bomb_is_refused_before_it_is_unpacked(monkeypatch):
    monkeypatch.setattr(own_traffic, "LARGEST_TRAFFIC", 2**20)
    for content in (b"prompt_tokens,output_tokens\n" + b"1,2\n" * 2**20, b"{" + b" " * 2**23, b"[" + b" " * 2**23):
        packed = gzip.compress(content)
        assert len(packed) < 2**20
        with pytest.raises(InvalidInputError, match="is over 1,048,576 bytes"):
            read_traffic(packed)
    monkeypatch.setattr(reading, "MOST_ROWS", 1000)
    with pytest.raises(InvalidInputError, match="over 1,000 rows"):
        read_traffic("prompt_tokens,output_tokens\n" + "1,2\n" * 5000)


def test_an_object_without_counts_is_counted_and_attributes_may_be_pairs_or_not():
    traffic = read_traffic(MANY + '{}\n{"prompt_tokens": null}\n')
    assert len(traffic) == 1500 and traffic.left_out == {"without token counts": 2}
    nested = lines(*[{"usage": GOOD}] * 3, {"usage": 5}, {"usage": [1]}, {"usage": None})
    assert read_traffic(nested).left_out == {"without token counts": 3}


def test_a_part_that_comes_up_late_is_taken_in():
    plain = {"usage": {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}}
    late = {"usage": {**plain["usage"], "total_tokens": 35, "completion_tokens_details": {"reasoning_tokens": 5}}}
    for before in (1500, 7000):
        traffic = read_traffic(lines(*[plain] * before, late, plain))
        assert traffic.output.tolist() == [20] * before + [25, 20]
        assert traffic.columns["thought"] == "usage.completion_tokens_details.reasoning_tokens"
    flat = {"usage": {"prompt_tokens": 10, "completion_tokens": 20, "reasoning_tokens": 5}}
    with pytest.raises(InvalidInputError, match=r"line 1,501: new names, 'usage\.completion_tokens_details\.reasoning"):
        read_traffic(lines(*[flat] * 1501, late))


def test_a_cache_that_is_beside_some_prompts_and_unsaid_of_others_is_asked_for():
    text = "n_in,cached_tokens,n_out,total_tokens\n1000,500,10,1010\n7,10240,10,10257\n100,40,10,\n"
    with pytest.raises(InvalidInputError, match=r"cache='within' .* cache='beside'"):
        read_traffic(text)
    assert read_traffic(text, cache="beside").prompt.tolist() == [1500, 10_247, 140]


def test_text_that_is_no_unicode_and_rows_that_are_no_objects():
    odd = '{"prompt": "\\ud800", "prompt_tokens": 5, "output_tokens": 6}\n'
    assert both(read_traffic(odd)) == ([5], [6])
    with pytest.raises(InvalidInputError, match="5 is not a JSON object"):
        read_traffic(json.dumps({"data": [GOOD, 5]}))


def test_progress_is_heard_and_ends_at_one(tmp_path):
    content = b"prompt_tokens,output_tokens\n" + b"1,2\n" * 300_000
    for name, data in (("a.csv", content), ("a.csv.gz", gzip.compress(content))):
        (tmp_path / name).write_bytes(data)
        heard = []
        read_traffic(tmp_path / name, progress=heard.append)
        assert heard == sorted(heard) and heard[-1] == 1.0 and heard[0] > 0
    assert len(heard) > 1


def test_a_long_log_says_how_far_it_is_and_a_wrong_one_leaves_no_trace(monkeypatch, tmp_path):
    (tmp_path / "a.csv").write_text("prompt_tokens,output_tokens\n5,6\n", encoding="utf-8")
    monkeypatch.setattr(choosers, "PATIENCE", -1.0)
    chooser = choosers.choose_traffic(tmp_path / "a.csv")
    before, seen = chooser.said.value, []
    chooser.said.observe(lambda change: seen.append(change["new"]), "value")
    chooser.take(b"prompt_tokens,output_tokens\n1,2\n")
    assert "Reading: #################### 100%" in seen[0] and "Read: 1 requests" in seen[-1]
    chooser.said.value = before
    chooser.take(b"prompt_tokens,output_tokens\n1,x\n")
    assert chooser.said.value == before


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**60) | st.floats() | st.text("ab,_\n", max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["prompt_tokens", "output_tokens", "total_tokens", "usage", "error", "x.y"]), inner
        )
    ),
    max_leaves=20,
)


@examples(300)
@given(st.lists(TREES, max_size=4), st.sampled_from(["\n", " ", ",", ""]), st.booleans())
def test_whatever_json_is_given_is_read_or_refused(trees, between, listed):
    text = between.join(json.dumps(tree) for tree in trees)
    for source in (f"[{text}]" if listed else text, (f"[{text}]" if listed else text).encode()):
        try:
            traffic = read_traffic(source)
        except LessonError:
            continue
        assert traffic.prompt.min() >= 1 and traffic.output.min() >= 1 and (traffic.cached < traffic.prompt).all()


@examples(200)
@given(
    st.lists(
        st.tuples(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 10**6), st.booleans()),
        min_size=1,
        max_size=8,
    )
)
def test_totals_decide_for_each_row_alone(rows):
    """By hand, of rows whose thought tokens are part of the output or not, as a coin falls."""
    text = "prompt_tokens,output_tokens,thinking_tokens,total_tokens\n"
    expected = []
    for prompt, output, thought, beside in rows:
        said = output if beside else output + thought
        text += f"{prompt},{said},{thought},{prompt + output + thought}\n"
        expected.append(output + thought)
    assert read_traffic(text).output.tolist() == expected


USAGE = """id;usage;"two
lines"
1;"{""prompt_tokens"": 100, ""completion_tokens"": 20,
 ""total_tokens"": 120}";x
2;"{""prompt_tokens"": 200, ""completion_tokens"": 30, ""total_tokens"": 230}";

3;;z
"""


def test_objects_in_the_cells_of_a_table_are_unpacked_and_rows_keep_their_lines():
    traffic = read_traffic(USAGE.encode())
    assert [list(traffic.request.prompt), list(traffic.request.output)] == [[100, 200], [20, 30]]
    assert "1 of 3 rows, without token counts" in str(traffic)
    wrong = USAGE[: USAGE.index("3;;")] + '3;"{""prompt_tokens"": 1, ""completion_tokens"": ""x""}";'
    for text, says in {
        USAGE.replace("3;;", "3;{cut;"): r"line 7: 'usage' is '{cut'; .*a whole JSON object",
        wrong: r"Line 7 \(row 3\), column 'usage.completion_tokens': 'x' is not a number",
        'id,usage\n1,"{""a"": 1}"\n': r"line 2: no column is known .*; choose one of 'id', 'usage.a' with",
        'id,usage\n1,"{""prompt_tokens"": 1, ""completion_tokens"": 3}"\n1,2,3\n': "line 3 has 3 fields, the line of",
        'id,usage\n1,"{""prompt_tokens"": 1, ""completion_tokens"": 3}"\n1,"2\n",3\n': "line 3 has 3 fields",
        lines({"a": {"usage": GOOD}}, {"a": '{"usage'}): r"line 2: 'a' is '{\"usage'; ",
        'id,note\n1,"a {"\n': "line 1: no column is known",
        'id,usage,usage\n1,"{""prompt_tokens"": 1, ""completion_tokens"": 3}",2\n': "line 1: no column is known",
    }.items():
        with pytest.raises(InvalidInputError, match=says):
            read_traffic(text.encode())
