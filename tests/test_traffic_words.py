"""Names that no table has: what columns and rows of a log mean by their words, where the cells agree."""

import json

import pytest

from lessonlib.base.errors import InvalidInputError
from lessonlib.facts.own_traffic import read_traffic
from lessonlib.facts.traffic.columns import MANY
from lessonlib.facts.traffic.words import counts_requests, part_of, sums_among

HEAD = "prompt_tokens,output_tokens"


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def lengths(traffic):
    return traffic.prompt.tolist(), traffic.output.tolist(), traffic.cached.tolist()


THOUGHT = (
    "tokens_reasoning reasoning thoughts thinking_token_count outputTokens.reasoning tokens.thinking n_thought_tokens"
)
CACHED = "cache_read tokens.cache.read cachedInput prompt_details.cache_read native_tokens_cached inputTokens.cacheRead"
WRITTEN = "cache_write prompt_cache_write_tokens cache_creation.ephemeral_5m_input_tokens tokens.cache.write"
NEITHER = (
    "reasoning_effort thinking_budget_tokens reasoning_time_ms finish_reason cache_hit_rate cache_size cache_key "
    "prompt_cache_miss_tokens input_uncached_tokens inputTokens.noCache cost.total reasoning_score thinking.type"
)


@pytest.mark.parametrize(
    "names, kind", [(THOUGHT, "thought"), (CACHED, "cached"), (WRITTEN, "written"), ("total usage.total", "total")]
)
def test_parts_are_known_by_their_words(names, kind):
    assert {name: part_of(name) for name in names.split()} == dict.fromkeys(names.split(), kind)


def test_what_is_no_count_of_tokens_is_no_part():
    assert {name: part_of(name) for name in NEITHER.split()} == dict.fromkeys(NEITHER.split())


@pytest.mark.parametrize("title", ["reasoning", "thoughts", "thinking_token_count", "tokens_reasoning"])
def test_thought_under_any_name_is_added_left_or_asked_for(title):
    head = f"{HEAD},{title},total\n"
    assert read_traffic(head + "10,20,300,330\n10,20,5,35\n").output.tolist() == [320, 25]
    assert read_traffic(head + "10,20,5,30\n").output.tolist() == [20]
    with pytest.raises(
        InvalidInputError, match=f"the thought tokens '{title}' count either within .* thought='within'"
    ):
        read_traffic(f"{HEAD},{title}\n10,20,5\n")


@pytest.mark.parametrize("cells", [("because", "so"), ("true", "false"), ("0", "1"), ("0.5", "2.5")])
def test_a_column_of_thought_that_holds_no_counts_is_no_part(cells):
    rows = "".join(f"10,20,{cell}\n" for cell in cells)
    assert read_traffic(f"{HEAD},reasoning\n{rows}").output.tolist() == [20, 20]


def test_nested_usage_of_other_tools():
    tokens = {"input": 7, "output": 20, "reasoning": 300, "cache": {"read": 1000, "write": 50}}
    assert lengths(read_traffic(lines({"tokens": tokens}))) == ([1057], [320], [1000])
    details = {"input_token_details": {"cache_read": 100}, "output_token_details": {"reasoning": 200}}
    usage = {"input_tokens": 350, "output_tokens": 240, "total_tokens": 590, **details}
    assert lengths(read_traffic(lines({"usage_metadata": usage}))) == ([350], [240], [100])
    usage = {"inputTokens": {"total": 100, "noCache": 40, "cacheRead": 60}, "outputTokens": {"total": 50}}
    assert lengths(read_traffic(lines({"usage": usage}), cache="within")) == ([100], [50], [60])
    assert lengths(read_traffic("input,cache_read,cache_write,output\n7,10240,120,310\n")) == (
        [10_367],
        [310],
        [10_240],
    )
    late = {"tokens": {"input": 7, "output": 20, "reasoning": 300}}
    plain = {"tokens": {"input": 7, "output": 20, "thought": 0}}
    traffic = read_traffic(lines(*[{"tokens": {"input": 7, "output": 20}}] * 1500, late))
    assert traffic.output.tolist()[-2:] == [20, 320]
    assert read_traffic(lines(*[plain] * 7)).output.tolist() == [20] * 7


def test_a_part_that_comes_up_late_leaves_those_found_by_their_words():
    plain = {"tokens": {"input": 7, "output": 20, "reasoning": 300}}
    late = {"tokens": {"input": 7, "output": 20, "cached_tokens": 900}}
    traffic = read_traffic(lines(*[plain] * 1500, late))
    assert traffic.output.tolist()[-2:] == [320, 20] and traffic.prompt.tolist()[-2:] == [7, 907]


def usage(**counts):
    return lines({"usage": counts})


@pytest.mark.parametrize(
    "text",
    [
        usage(prompt_tokens=7, completion_tokens=310, prompt_tokens_details={"cached_tokens": 10_240}),
        usage(prompt_tokens=7, completion_tokens=3, total_tokens=10, prompt_tokens_details={"cached_tokens": 10_240}),
        usage(prompt_tokens=7, completion_tokens=3, prompt_cache_hit_tokens=10_240),
        lines({"usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3, "cachedContentTokenCount": 10_240}}),
        lines(
            {
                "gen_ai.usage.input_tokens": 7,
                "gen_ai.usage.output_tokens": 3,
                "gen_ai.usage.cache_read.input_tokens": 10_240,
            }
        ),
    ],
)
def test_a_cache_beyond_a_prompt_that_counts_it_is_a_contradiction(text):
    with pytest.raises(
        InvalidInputError, match=r"Line 1 \(row 1\): 10,240 cached of 7 prompt tokens; .*cache='beside'"
    ):
        read_traffic(text)
    assert read_traffic(text, cache="beside").prompt.tolist() == [10_247]


def test_a_total_tells_where_a_cache_stands_whatever_the_kind_of_log():
    cached = {"prompt_tokens_details": {"cached_tokens": 10_240}}
    assert read_traffic(usage(prompt_tokens=7, completion_tokens=3, total_tokens=10_250, **cached)).prompt.tolist() == [
        10_247
    ]


def test_thought_beyond_an_output_that_counts_it_is_a_contradiction():
    text = usage(input_tokens=32, output_tokens=9, total_tokens=41, output_tokens_details={"reasoning_tokens": 94})
    with pytest.raises(InvalidInputError, match=r"94 thought tokens within 9 output tokens. .*thought='beside'"):
        read_traffic(text)
    assert read_traffic(text, thought="beside").output.tolist() == [103]


def test_a_prompt_that_says_uncached_is_without_its_cache():
    text = "uncached_input_tokens,cache_read_input_tokens,output_tokens\n1500,200,50\n"
    assert lengths(read_traffic(text, "uncached_input_tokens")) == ([1700], [50], [200])
    text = "prompt_cache_miss_tokens,prompt_cache_hit_tokens,completion_tokens\n70,10,3\n"
    assert lengths(read_traffic(text, "prompt_cache_miss_tokens")) == ([80], [3], [10])


SEVERAL = [
    *("total_requests", "number of requests", "Count of requests", "# requests", "Request Count", "n_calls", "hits"),
    *(
        "llm_requests",
        "requests_total",
        "cnt",
        "freq",
        "repetitions",
        "Anzahl Anfragen",
        "requêtes",
        "请求数",
        "queries",
    ),
]
SINGLE = "request_id request_number request call_type tool_calls running_requests max_requests messages n batch".split()


def test_counts_of_requests_are_known_by_their_words():
    assert all(map(counts_requests, SEVERAL)) and not any(map(counts_requests, [*SINGLE, "token count", *MANY]))


@pytest.mark.parametrize("title", [*SEVERAL, *sorted(MANY)])
@pytest.mark.parametrize("cell, number", [("412", "412"), ("412.0", "412"), ('"1,412"', "1,412")])
def test_one_row_for_many_requests_is_refused(title, cell, number):
    with pytest.raises(InvalidInputError, match=f"Line 3, column '{title}': {number} requests in one row"):
        read_traffic(f"{title},{HEAD}\n1,5,6\n{cell},100,200\n")


def test_counts_of_requests_are_found_beside_nested_counts():
    used = {"prompt_tokens": 10, "completion_tokens": 5, "requests": 3}
    with pytest.raises(InvalidInputError, match=r"column 'usage.gpt-4o.requests': 3 requests in one row"):
        read_traffic(lines({"usage": {"gpt-4o": used}}))
    assert (
        len(read_traffic(usage(prompt_tokens=1, completion_tokens=2, server_tool_use={"web_search_requests": 3}))) == 1
    )


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"daily": [{"inputTokens": 277, "outputTokens": 31_456}]}),
        lines({"totals": {"inputTokens": 277, "outputTokens": 31_456}}),
        lines({"summary": {"usage": {"inputTokens": 277, "outputTokens": 31_456}}}),
    ],
)
def test_names_of_sums_are_said(text):
    assert "by this name a row sums many requests" in read_traffic(text).notes[0]


@pytest.mark.parametrize(
    "title, days", [("date", "2025-01-01 2025-01-02"), ("Month", "Jan Feb"), ("day", "1.2.25 2.2.25")]
)
def test_a_row_for_each_day_is_said(title, days):
    first, second = days.split()
    assert "has a" in read_traffic(f"{title},{HEAD}\n{first},5,6\n{second},7,8\n").notes[0]
    assert read_traffic(f"{title},{HEAD}\n{first},5,6\n{second},7,8\n{second},9,9\n").notes == ()
    assert read_traffic(f"{title},{HEAD}\n{first},5,6\n").notes == ()


LABELS = [
    "TOTAL:",
    "total ",
    "Total (3)",
    "GRAND TOTAL:",
    "Gesamt",
    "Summe",
    "Somme",
    "Total général",
    "合计",
    "Итого",
    "Σ",
]


@pytest.mark.parametrize("label", [*LABELS, "Sum of all", "Subtotal Mon", "Overall", "Mittelwert", "p99"])
def test_a_row_of_totals_is_left_out_under_any_name(label):
    for text in (
        f"team,{HEAD}\na,5,6\nb,7,8\n{label},12,14\n",
        f"{HEAD},team\n5,6,a\n7,8,b\n12,14,{label}\n",
        f"id,team,{HEAD},note\n1,a,5,6,x\n2,b,7,8,x\n,{label},12,14,x\n",
    ):
        traffic = read_traffic(text)
        assert traffic.prompt.tolist() == [5, 7] and traffic.left_out == {"a total, not a request": 1}


def test_a_name_that_only_sounds_like_a_total_is_a_request():
    labels = [
        "totally new",
        "Sum the numbers of a list",
        "max",
        "count",
        "Mean time to failure",
        "50%",
        "1",
        "",
        "gpt-4",
    ]
    assert not any(sums_among(labels))
    rows = "".join(f"{label},{n},{n * n}\n" for n, label in enumerate(labels, 3))
    assert len(read_traffic(f"model,{HEAD}\n{rows}")) == len(labels)
    assert len(read_traffic(f"id,op,{HEAD}\n1,sum,5,6\n2,mean,7,9\n")) == 2  # of the middle, where nothing is empty


def test_a_description_of_a_table_is_no_log():
    rows = "".join(f"{name},3,4\n" for name in "count mean std min 25% 50% 75% max".split())
    with pytest.raises(InvalidInputError, match="not one is a request that was served: 8 a total"):
        read_traffic(f",{HEAD}\n{rows}")


def test_a_row_without_a_name_that_sums_the_others_is_refused_or_said():
    rows = "5,6\n7,8\n1,1\n2,2\n"
    for text, line in (
        (f"{rows}15,17\n", 6),
        (f"15,17\n{rows}", 2),
        (f"{rows}15,17\n4,4\n", 6),  # and a mean behind it
        (f"{rows}9,0\n24,17\n", 7),  # a failed request is in the sum
    ):
        with pytest.raises(
            InvalidInputError, match=rf"Line {line} .* is the sum of all rows (above|below) it; leave it out"
        ):
            read_traffic(f"{HEAD}\n{text}")
    (note,) = read_traffic(f"{HEAD}\n5,6\n7,8\n12,14\n").notes
    assert "Line 4 (row 3) is the sum of all rows above it: if it is a total" in note
    assert read_traffic(f"{HEAD}\n5,6\n5,6\n").notes == ()


def test_more_tokens_than_any_model_takes_are_said():
    (note,) = read_traffic(f"{HEAD}\n123456789,2345678\n5,6\n").notes
    assert "1 rows have more tokens than any model takes, as line 2 with 125,802,467" in note


FAILED = {
    **dict.fromkeys(
        ("is_error", "has_error", "failed", "failure", "cancelled", "aborted", "timed_out", "hasFailed"), "true"
    ),
    **dict.fromkeys(("ok", "successful", "is_success", "completed"), "false"),
    **dict.fromkeys(("http_code", "response_code", "code", "http_status"), "429"),
    **dict.fromkeys(("state", "outcome", "response_status", "status"), "client_error"),
    "err": "refused",
    "status_code": "503 Service Unavailable",
}


@pytest.mark.parametrize("column", FAILED)
def test_a_failed_request_is_known_by_the_words_of_a_column(column):
    good = {"true": "false", "false": "true"}.get(FAILED[column], "")
    traffic = read_traffic(f"{HEAD},{column}\n5,6,{FAILED[column]}\n7,8,{good}\n9,3,\n")
    assert traffic.prompt.tolist() == [7, 9] and traffic.left_out == {f"failed, by the column {column}": 1}


@pytest.mark.parametrize(
    "column, cell",
    [
        ("timeout", "60"),
        ("code", "200"),
        ("finish_reason", "1"),
        ("status", "no errors"),
        ("error", "no error"),
        ("code", "12345"),
    ],
)
def test_a_cell_that_tells_of_no_failure_is_none(column, cell):
    assert read_traffic(f"{HEAD},{column}\n5,6,{cell}\n7,8,\n").left_out == {}


@pytest.mark.parametrize(
    "code, failed", [(2, True), ("STATUS_CODE_ERROR", True), (1, False), ("OK", False), (None, False)]
)
def test_a_span_that_failed_is_left_out(code, failed):
    counts = {"gen_ai.usage.input_tokens": 9, "gen_ai.usage.output_tokens": 3}
    spans = [{"status": {"code": code}, "attributes": counts}, {"status": {"code": 0}, "attributes": counts}]
    assert len(read_traffic(lines(*spans))) == 2 - failed


def test_rows_of_one_id_are_said():
    chunk = {"id": "c1", "usage": {"prompt_tokens": 5, "completion_tokens": 1}}
    (note,) = read_traffic(lines(*[chunk] * 5, chunk | {"id": "c2"})).notes
    assert note.startswith("In 4 rows 'id' is that of another row, too")
    assert "2 rows 'message.id'" in str(
        read_traffic(lines(*[{"id": n, "message": {"id": "m", "usage": chunk["usage"]}} for n in range(3)]))
    )
    assert read_traffic(f"id,{HEAD}\na,5,6\nb,7,8\n,9,1\n,9,1\n").notes == ()
    assert read_traffic(f"request_id,{HEAD}\na,5,0\na,5,6\n").notes == ()  # a try that failed


@pytest.mark.parametrize("title", ["text", "messages", "question", "note"])
def test_lengths_of_any_text_beside_them_are_no_tokens(title):
    texts = ["how are you there my friend", "über alle Berge und Täler \N{GRINNING FACE}", "one two three four five"]
    for unit, length in (
        ("characters", len),
        ("bytes", lambda text: len(text.encode())),
        ("UTF-16 units", lambda text: len(text.encode("utf-16-le")) // 2),
        ("words", lambda text: len(text.split())),
    ):
        rows = "".join(f"{text},{length(text)},10\n" for text in texts * 3)
        with pytest.raises(InvalidInputError, match=f"counts the {unit} of '{title}', not tokens"):
            read_traffic(f"{title},prompt_len,output_len\n{rows * 2}abc d,77,10\n")  # one was cut
    times = "".join(f"2023-11-16 18:17:{n},19,{n}\n" for n in range(10, 30))
    assert len(read_traffic(f"when,prompt_len,output_len\n{times}")) == 20  # always as long, and not that


def test_a_unit_beside_lengths_is_said_or_refused():
    with pytest.raises(
        InvalidInputError, match="'prompt_length' has the numbers of 'prompt_bytes', which are not tokens"
    ):
        read_traffic("prompt_length,output_length,prompt_bytes\n27,10,27\n")
    for text in ("input_length,output_length,unit\n27,10,bytes\n", "input_length,output_length,chars\n27,10,99\n"):
        assert "it is not tokens" in " ".join(read_traffic(text).notes)
    assert read_traffic("prompt_tokens,output_tokens,prompt_chars\n27,10,99\n").notes == ()


@pytest.mark.parametrize("name", ["cost", "latency", "pricing", "price_usd"])
def test_costs_and_times_are_not_read_as_tokens(name):
    with pytest.raises(InvalidInputError, match="no column is known to hold the prompt tokens"):
        read_traffic(lines(*[{name: {"input": 1, "output": 2}, "id": "a"}] * 2))
    both = {name: {"input": 1, "output": 2}, "tokens": {"input": 100, "output": 20}}
    assert lengths(read_traffic(lines(both, both))) == ([100, 100], [20, 20], [0, 0])


@pytest.mark.parametrize("cell", ["n.a.", "#N/A", "\\N", "—", "NULL", "--", "undefined", ""])
def test_a_part_that_is_not_there_is_none(cell):
    assert lengths(read_traffic(f"{HEAD},cached_tokens,total_tokens\n10,5,{cell},15\n20,5,8,25\n")) == (
        [10, 20],
        [5, 5],
        [0, 8],
    )


@pytest.mark.parametrize("cell", ["1\u2019024", "1\u2009024", "1,02,400", "1.024,00", "1,024.0"])
def test_marks_between_thousands_are_named(cell):
    with pytest.raises(InvalidInputError, match="has marks between its thousands"):
        read_traffic(f"prompt_tokens;output_tokens\n{cell};7\n")
