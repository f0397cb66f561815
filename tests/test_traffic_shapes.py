"""The known kinds of log: a small sample of our own for each, and what its columns come to."""

import json
from datetime import date

import pytest

import traffic_page
from lessonlib.base.errors import InvalidInputError
from lessonlib.facts.own_traffic import read_traffic
from lessonlib.facts.tables import load_table
from lessonlib.facts.traffic.columns import KINDS, NAMES, plain, shapes

ROWS = {row["name"]: row for row in load_table("traffic_shapes")}


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def usage(**counts):
    return {"id": "one", "model": "m", "usage": counts}


def span(**attributes):
    return {
        "name": "chat",
        "attributes": [{"key": key, "value": {"intValue": str(n)}} for key, n in attributes.items()],
    }


OTEL = "gen_ai.usage."
# Each: a sample, then the prompt, output and cached tokens of its requests, and how many rows are none.
SAMPLES = {
    "Azure multimodal inference trace (2025)": (
        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15 00:01,2,1500,40\n2024-10-15 00:02,0,90,7\n",
        ([1500, 90], [40, 7], [0, 0], 0),
    ),
    "Azure LLM inference traces (2023, 2024)": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,4808,10\n2023-11-16 18:15:50.99,3180,8\n",
        ([4808, 3180], [10, 8], [0, 0], 0),
    ),
    "BurstGPT": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,0,1087,API log\n50,GPT-4,0,0,0,API log\n",
        ([472], [18], [0], 2),
    ),
    "Qwen-Bailian traces": (
        lines(
            {
                "chat_id": 1,
                "parent_chat_id": -1,
                "timestamp": 0.1,
                "input_length": 52,
                "output_length": 13,
                "type": "text",
                "turn": 1,
                "hash_ids": [1, 2],
            },
            {
                "chat_id": 2,
                "parent_chat_id": 1,
                "timestamp": 0.2,
                "input_length": 80,
                "output_length": 14,
                "type": "text",
                "turn": 2,
                "hash_ids": [1, 3],
            },
        ),
        ([52, 80], [13, 14], [0, 0], 0),
    ),
    "Mooncake traces": (
        lines({"timestamp": 27, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}),
        ([6955], [52], [0], 0),
    ),
    "ServeGen offline traces": (
        lines({"request_id": 0, "type": "text", "input_length": 61, "output_length": 2370, "duration": 14000}),
        ([61], [2370], [0], 0),
    ),
    "vLLM bench serve (--save-detailed)": (
        json.dumps(
            {
                "date": "20260101",
                "completed": 2,
                "failed": 1,
                "total_input_tokens": 30,
                "total_output_tokens": 12,
                "request_goodput": None,
                "input_lens": [10, 20, 30],
                "output_lens": [5, 7, 0],
                "ttfts": [0.1, 0.2, 0.0],
                "itls": [[0.1], [0.2], []],
                "start_times": [1.0, 2.0, 3.0],
                "errors": ["", "", "timed out"],
            }
        ),
        ([10, 20], [5, 7], [0, 0], 1),
    ),
    "SGLang bench_serving (--output-details)": (
        lines(
            {
                "backend": "sglang",
                "mean_e2e_latency_ms": 3.5,
                "input_lens": [10, 20],
                "output_lens": [5, 7],
                "errors": ["", ""],
            },
            {"backend": "sglang", "mean_e2e_latency_ms": 3.5, "input_lens": [11], "output_lens": [6], "errors": [""]},
        ),
        ([10, 20, 11], [5, 7, 6], [0, 0, 0], 0),
    ),
    "Text Generation Inference stream details": (
        lines(
            {"index": 1, "token": {"id": 3, "text": "a"}, "details": None},
            {
                "index": 2,
                "token": {"id": 4, "text": "b"},
                "details": {"finish_reason": "length", "generated_tokens": 20, "input_length": 11, "seed": None},
            },
        ),
        ([11], [20], [0], 1),
    ),
    "GuideLLM": (
        json.dumps(
            {
                "benchmarks": [
                    {
                        "requests": {
                            "successful": [
                                {
                                    "prompt_tokens": 100,
                                    "cached_tokens": 64,
                                    "output_tokens": 50,
                                    "total_tokens": 150,
                                    "time_per_output_token_ms": 9.5,
                                }
                            ],
                            "errored": [{"prompt_tokens": 100, "output_tokens": None}],
                            "incomplete": [],
                        }
                    },
                    {"requests": {"successful": [{"prompt_tokens": 101, "output_tokens": 51, "total_tokens": 152}]}},
                ]
            }
        ),
        ([100, 101], [50, 51], [64, 0], 1),
    ),
    "AIPerf profile_export.jsonl": (
        lines(
            {
                "metadata": {"request_start_ns": 1, "was_cancelled": False},
                "error": None,
                "metrics": {
                    "input_sequence_length": {"value": 550, "unit": "tokens"},
                    "reasoning_token_count": {"value": 30, "unit": "tokens"},
                    "output_token_count": {"value": 9, "unit": "tokens"},
                    "output_sequence_length": {"value": 39, "unit": "tokens"},
                },
            },
            {
                "metadata": {"request_start_ns": 2, "was_cancelled": True},
                "metrics": {"error_isl": {"value": 550, "unit": "tokens"}},
                "error": {"code": 499, "type": "RequestCancellationError", "message": "cancelled"},
            },
        ),
        ([550], [39], [0], 1),
    ),
    "LLMPerf individual responses": (
        json.dumps(
            [
                {
                    "error_code": None,
                    "error_msg": "",
                    "number_input_tokens": 41,
                    "number_output_tokens": 12,
                    "number_total_tokens": 53,
                    "end_to_end_latency_s": 1.0,
                },
                {
                    "error_code": 429,
                    "error_msg": "busy",
                    "number_input_tokens": 41,
                    "number_output_tokens": 0,
                    "number_total_tokens": 41,
                    "end_to_end_latency_s": 0,
                },
            ],
            indent=4,
        ),
        ([41], [12], [0], 1),
    ),
    "LiteLLM spend logs": (
        "request_id,call_type,spend,total_tokens,prompt_tokens,completion_tokens,startTime,status,cache_hit\n"
        "a,acompletion,0.1,110,100,10,2026-01-01,success,False\n"
        "b,acompletion,0.0,0,0,0,2026-01-01,failure,\n"
        "c,acompletion,0.0,110,100,10,2026-01-01,success,True\n",
        ([100], [10], [0], 2),
    ),
    "Langfuse observations": (
        lines(
            {
                "id": "1",
                "type": "GENERATION",
                "level": "DEFAULT",
                "usage_details": {
                    "input": 10,
                    "input_cached_tokens": 20,
                    "output": 4,
                    "output_reasoning_tokens": 6,
                    "total": 40,
                },
            },
            {"id": "2", "type": "SPAN", "level": "DEFAULT", "usage_details": {}},
            {"id": "3", "type": "GENERATION", "level": "ERROR", "usage_details": {"input": 9, "output": 0, "total": 9}},
        ),
        ([30], [10], [20], 2),
    ),
    "OpenTelemetry gen_ai spans": (
        json.dumps(
            {
                "resourceSpans": [
                    {
                        "resource": {"attributes": []},
                        "scopeSpans": [
                            {
                                "scope": {"name": "s"},
                                "spans": [
                                    span(
                                        **{
                                            f"{OTEL}input_tokens": 100,
                                            f"{OTEL}output_tokens": 180,
                                            f"{OTEL}cache_read.input_tokens": 50,
                                            f"{OTEL}cache_creation.input_tokens": 25,
                                            f"{OTEL}reasoning.output_tokens": 60,
                                        }
                                    ),
                                    {
                                        "name": "execute_tool",
                                        "attributes": [{"key": "gen_ai.tool.name", "value": {"stringValue": "x"}}],
                                    },
                                    span(**{f"{OTEL}input_tokens": 9, f"{OTEL}output_tokens": 1, "error.type": 500}),
                                ],
                            }
                        ],
                    }
                ]
            }
        ),
        ([100], [180], [50], 2),
    ),
    "DeepSeek usage": (
        lines(
            usage(
                prompt_tokens=214,
                completion_tokens=40,
                prompt_cache_hit_tokens=128,
                prompt_cache_miss_tokens=86,
                completion_tokens_details={"reasoning_tokens": 30},
            )
        ),
        ([214], [40], [128], 0),
    ),
    "xAI usage": (
        lines(
            usage(
                prompt_tokens=32,
                completion_tokens=9,
                total_tokens=135,
                num_sources_used=0,
                prompt_tokens_details={"cached_tokens": 6},
                completion_tokens_details={"reasoning_tokens": 94},
            )
        ),
        ([32], [103], [6], 0),
    ),
    "OpenAI chat completions usage": (
        lines(
            {
                "response": {
                    "body": usage(
                        prompt_tokens=2006,
                        completion_tokens=300,
                        total_tokens=2306,
                        prompt_tokens_details={"cached_tokens": 1920},
                        completion_tokens_details={"reasoning_tokens": 250},
                    )
                },
                "error": None,
            },
            {"response": None, "error": {"code": "expired"}},
        ),
        ([2006], [300], [1920], 1),
    ),
    "OpenAI responses usage": (
        lines(
            usage(
                input_tokens=75,
                output_tokens=1186,
                total_tokens=1261,
                input_tokens_details={"cached_tokens": 70},
                output_tokens_details={"reasoning_tokens": 1024},
            )
        ),
        ([75], [1186], [70], 0),
    ),
    "Bedrock Converse usage": (
        lines(
            usage(inputTokens=12, outputTokens=5, totalTokens=1217, cacheReadInputTokens=1200, cacheWriteInputTokens=0)
        ),
        ([1212], [5], [1200], 0),
    ),
    "Anthropic usage": (
        lines(
            usage(input_tokens=7, cache_creation_input_tokens=120, cache_read_input_tokens=10240, output_tokens=310),
            usage(input_tokens=500, cache_creation_input_tokens=0, cache_read_input_tokens=100, output_tokens=10),
        ),
        ([10367, 600], [310, 10], [10240, 100], 0),
    ),
    "Bedrock invocation log": (
        lines(
            {
                "timestamp": "t",
                "modelId": "m",
                "input": {"inputTokenCount": 3, "cacheReadInputTokenCount": 25037, "cacheWriteInputTokenCount": 0},
                "output": {"outputTokenCount": 13},
            }
        ),
        ([25040], [13], [25037], 0),
    ),
    "Gemini usageMetadata": (
        lines(
            {
                "candidates": [{"index": 0}],
                "usageMetadata": {
                    "promptTokenCount": 264,
                    "cachedContentTokenCount": 200,
                    "candidatesTokenCount": 104,
                    "thoughtsTokenCount": 989,
                    "toolUsePromptTokenCount": 36,
                    "totalTokenCount": 1393,
                },
            }
        ),
        ([300], [1093], [200], 0),
    ),
    "Gemini interactions usage": (
        lines(
            {
                "usage": {
                    "total_input_tokens": 10,
                    "total_output_tokens": 20,
                    "total_thought_tokens": 30,
                    "total_tokens": 60,
                }
            }
        ),
        ([10], [50], [0], 0),
    ),
}


def read(traffic):
    return traffic.prompt.tolist(), traffic.output.tolist(), traffic.cached.tolist(), sum(traffic.left_out.values())


def test_each_known_shape_has_a_sample():
    assert SAMPLES.keys() == ROWS.keys()


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_of_each_shape_is_known_and_read(name):
    text, expected = SAMPLES[name]
    traffic = read_traffic(text)
    assert (read(traffic), traffic.notes[0]) == (expected, f"Known as: {name}.")
    assert read(read_traffic(text.encode())) == expected


ONE_A_LINE = [name for name, (text, _) in SAMPLES.items() if text[0] == "{" and "[{" not in text and "lens" not in text]


@pytest.mark.parametrize("name", ONE_A_LINE)
def test_a_flat_table_of_a_shape_reads_the_same(name):
    """As a table of a data frame names what is nested: with dots, or with underscores."""
    text, expected = SAMPLES[name]
    records = [flat(json.loads(line)) for line in text.splitlines()]
    titles = list(dict.fromkeys(title for record in records for title in record))
    for mark in (".", "_"):
        head = ",".join(title.replace(".", mark) for title in titles)
        table = [
            head,
            *(",".join(str("" if record.get(t) is None else record[t]) for t in titles) for record in records),
        ]
        assert read(read_traffic("\n".join(table) + "\n")) == expected


def flat(record, before=""):
    found = {}
    for key, value in record.items():
        if isinstance(value, dict):
            found |= flat(value, f"{before}{key}.")
        elif not isinstance(value, list):
            found[before + key] = value
    return found


def test_the_table_has_a_source_and_a_day_for_each_and_words_that_are_known():
    for row in ROWS.values():
        assert row["source_url"].startswith("https://") and date.fromisoformat(row["retrieved"])
        assert row["prompt"] and row["output"] and row["sign"]
        assert {row["cache"], row["thinking"]} <= {None, "within", "beside"}
    assert all(set(shape.names) == set(KINDS) == set(NAMES) for shape in shapes())


def test_the_page_of_shapes_is_what_its_tool_writes():
    assert traffic_page.PAGE.read_text(encoding="utf-8") == traffic_page.updated()


def test_names_are_compared_without_punctuation():
    assert plain("gen_ai.usage.Input-Tokens") == "genaiusageinputtokens"
    with pytest.raises(InvalidInputError, match=r"no column is known .*read_traffic\(path, prompt_column="):
        read_traffic("when,how\n1,2\n")


def test_sums_and_statistics_are_not_taken_for_requests():
    for text in (
        '{"total_input_tokens": 100, "total_output_tokens": 200, "completed": 4}',
        "run,mean_input_tokens,mean_output_tokens\na,5,6\n",
    ):
        with pytest.raises(InvalidInputError, match="a row a request"):
            read_traffic(text)
    for column in ("requests", "num_requests", "num_model_requests", "count"):
        with pytest.raises(InvalidInputError, match=f"Line 3, column '{column}': 412 requests in one row"):
            read_traffic(f"day,{column},prompt_tokens,output_tokens\nMon,1,5,6\nTue,412,100,200\n")
    assert len(read_traffic("day,requests,prompt_tokens,output_tokens\nMon,1,5,6\n")) == 1


def test_a_row_of_totals_is_left_out_or_refused():
    head = "team,prompt_tokens,output_tokens\n"
    traffic = read_traffic(head + "a,5,6\nb,7,8\nTotal,12,14\n")
    assert traffic.prompt.tolist() == [5, 7] and traffic.left_out == {"a total, not a request": 1}
    rows = [(5, 6), (7, 8), (1, 2), (3, 9)]
    assert len(read_traffic("prompt_tokens,output_tokens,team\n5,6,a\n7,8,b\n12,14,TOTAL\n")) == 2
    summed = [*rows, tuple(map(sum, zip(*rows, strict=True)))]
    with pytest.raises(InvalidInputError, match=r"Line 6 \(row 5\) is the sum of all rows above it"):
        read_traffic("prompt_tokens,output_tokens\n" + "".join(f"{p},{o}\n" for p, o in summed))


def test_characters_are_not_tokens():
    for text in (
        "prompt,prompt_length,output_length\nhow are you there my friend,27,10\n",
        "prompt,input_length,output_length\nüber alle Berge und Täler,27,10\n",
    ):
        with pytest.raises(InvalidInputError, match=r"counts the (characters|bytes) of 'prompt', not tokens"):
            read_traffic(text)
    with pytest.raises(InvalidInputError, match="'prompt_chars' does not count tokens"):
        read_traffic("prompt_chars,output_chars\n3,4\n")
    with pytest.raises(InvalidInputError, match="does not count tokens"):
        read_traffic("prompt_chars,n_out\n3,4\n", prompt_column="prompt_chars")
    assert len(read_traffic("prompt,prompt_length,output_length\nhow are you there my friend,7,10\n")) == 1


def test_the_columns_of_a_csv_with_json_in_a_cell_are_listed():
    with pytest.raises(InvalidInputError, match=r"'usage_details.input'"):
        read_traffic('id,usage_details\n1,"{""input"": 3}"\n')


def test_a_csv_with_json_in_a_cell_is_read_as_strictly_as_json_lines():
    cells = '"{""prompt_tokens"": %s, ""completion_tokens"": 4}"'
    failed = read_traffic(f"id,usage\n\n1,\n2,\n3,{cells % 3}\n")  # the first requests may have failed
    assert failed.prompt.tolist() == [3] and sum(failed.left_out.values()) == 2
    twice = cells % '5, ""prompt_tokens"": 3'
    for rows, line in ((twice, 2), (f"{cells % 3}\n2,{twice}", 3), (f"{cells % 3}\n\n2,{twice}", 4)):
        with pytest.raises(InvalidInputError, match=f"line {line}: .*'prompt_tokens' stands twice in one object"):
            read_traffic(f"id,usage\n1,{rows}\n")
    with pytest.raises(InvalidInputError, match="line 1: no column is known"):
        read_traffic("id,note\n1,a\n2,b\n")
