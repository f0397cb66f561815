"""The facts in data/: each row with source, date and licence, plausible, and in the form that data/README.md states."""

import csv
import json
import re
from datetime import date
from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parent.parent / "data"
MODELS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(DATA.glob("models/*.json"))}
RECORD_KEYS = {
    "name": str,
    "hub_id": str,
    "parameters": int,
    "parameters_from": str,
    "kind": list,
    "provenance": str,
    "source": str,
    "retrieved": str,
    "licence": str,
    "config": dict,
}
PEAKS = ("fp16_tflops", "bf16_tflops", "fp8_tflops", "int8_tops", "fp4_tflops")
# Sources, read on the day of retrieval, say that these run fp8 at the rate of bf16.
FP8_PER_BF16 = {
    "gaudi3": 1,
    "tpu-v6e": 1,
    "tpu-v5p": 1,
    "rubin": 4.375,
    "trainium2": 1.948,
    "trainium3": 3.751,
}  # others: 2
INT8_CUT_AWAY = {"b300", "gb300", "rubin"}  # below the 16-bit rate


def table(name):
    with (DATA / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


ACCELERATORS = {row["name"]: row for row in table("accelerators")}


def number(row, column):
    return float(row[column]) if row[column] else None


@pytest.mark.parametrize("name", MODELS)
def test_a_model_file_has_its_keys_its_source_its_date_and_its_licence(name):
    record = MODELS[name]
    assert record["name"] == name
    assert set(record) - {"config_path"} == set(RECORD_KEYS)
    for key, kind in RECORD_KEYS.items():
        assert type(record[key]) is kind and record[key], key
    assert date.fromisoformat(record["retrieved"])
    assert record["provenance"] in ("published file", "written from published sizes")
    assert f"https://huggingface.co/{record['hub_id']}" in record["source"]
    assert set(record["kind"]) <= {"chat", "reasoning", "base"}
    assert re.match("counted|derived", record["parameters_from"])
    config = record["config"]
    for key in record.get("config_path", ()):
        config = config[key]
    assert isinstance(config["model_type"], str)


def test_there_are_models_enough_and_of_every_kind():
    assert len(MODELS) >= 30
    types = {record["config"]["model_type"] for record in MODELS.values()}
    assert {"llama", "mistral", "deepseek_v3", "mixtral", "qwen3_moe", "qwen3_next", "gpt_oss", "gemma2"} <= types
    counts = [record["parameters"] for record in MODELS.values()]
    assert min(counts) <= 5e8 and max(counts) >= 1e12
    kinds = [kind for record in MODELS.values() for kind in record["kind"]]
    assert kinds.count("chat") >= 10 and kinds.count("reasoning") >= 10


def test_no_model_is_an_alias_of_another():
    hub_ids = [record["hub_id"].lower() for record in MODELS.values()]
    assert len(set(hub_ids)) == len(hub_ids)
    assert all(re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", name) for name in MODELS)


@pytest.mark.parametrize(
    "file, needed",
    [
        ("accelerators", ("name", "label", "vendor", "source_url", "seen", "seen_at", "retrieved", "licence")),
        ("workloads", ("name", "label", "basis", "source", "source_url", "retrieved", "licence", "note")),
        ("workload_quantiles", ("workload", "quantity", "how", "source_url", "retrieved", "licence")),
        ("workload_marginals", ("workload", "quantity", "lengths", "how", "source_url", "retrieved", "licence")),
        ("workload_shares", ("workload", "coupling", "source_url", "retrieved", "licence", "note")),
        ("levers", ("id", "lever", "model_published", "times_faster", "source", "source_url", "retrieved", "licence")),
        ("rl_rollouts", ("id", "system", "metric", "value", "unit", "source", "source_url", "retrieved", "licence")),
        (
            "reasoning_lengths",
            ("id", "model", "benchmark", "output_tokens_mean", "source", "source_url", "retrieved", "licence", "note"),
        ),
        ("references", ("key", "authors", "title", "venue", "year", "url", "checked")),
    ],
)
def test_every_row_of_every_table_has_source_date_and_licence(file, needed):
    rows = table(file)
    assert rows
    for row in rows:
        assert None not in row and None not in row.values(), row  # a comma too many or too few
        assert not [column for column in needed if not row[column].strip()], row
        assert row.get("source_url", row.get("url")).startswith("https://"), row
        assert date.fromisoformat(row.get("retrieved") or row["checked"])


def test_a_published_lever_names_what_the_catalogue_has_and_quotes_little_of_what_has_no_licence():
    rows = table("levers")
    assert len({row["id"] for row in rows}) == len(rows)
    for row in rows:
        assert not row["model"] or row["model"] in MODELS
        assert not row["accelerator"] or row["accelerator"] in ACCELERATORS
        assert 0.3 < float(row["times_faster"]) < 5
        tokens, drafts = number(row, "tokens_per_round"), number(row, "draft_tokens")
        assert tokens is None or drafts is None or 1 <= tokens <= drafts + 1
    unstated = [row["source"] for row in rows if row["licence"] == "none stated"]
    assert len(unstated) <= 15 and max(map(unstated.count, unstated)) <= 2


def test_thoughts_and_rollouts_are_plausible_and_quote_little_of_what_has_no_stated_licence():
    for name in ("rl_rollouts", "reasoning_lengths"):
        rows = table(name)
        assert len({row["id"] for row in rows}) == len(rows)
        unstated = [row["source"] for row in rows if row["licence"] in ("none stated", "not checked")]
        assert len(unstated) <= 8 and max(map(unstated.count, unstated)) <= 2
    for row in table("reasoning_lengths"):
        cap = number(row, "max_tokens")
        assert 1_000 < float(row["output_tokens_mean"]) < (cap or 100_000)
    rollouts = {row["metric"]: float(row["value"]) for row in table("rl_rollouts")}
    assert 0 < rollouts["time of a request, mean"] < rollouts["time of a request, largest"]
    assert all(0 < value <= 100 for metric, value in rollouts.items() if metric.startswith("share"))


@pytest.mark.parametrize("file, key", [("accelerators", "name"), ("workloads", "name"), ("references", "key")])
def test_names_are_unique(file, key):
    names = [row[key] for row in table(file)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in names)


def test_no_name_stands_for_two_things():
    names = [*MODELS, *ACCELERATORS, *(row["name"] for row in table("workloads"))]
    assert len(set(names)) == len(names)


def test_there_are_accelerators_enough_and_of_every_form():
    assert len(ACCELERATORS) >= 40
    assert {row["form"] for row in ACCELERATORS.values()} == {
        "data centre",
        "workstation",
        "consumer",
        "laptop",
        "edge",
    }


@pytest.mark.parametrize("name", ACCELERATORS)
def test_an_accelerator_is_plausible(name):
    row = ACCELERATORS[name]
    memory, bandwidth = number(row, "memory_gb"), number(row, "bandwidth_gb_s")
    assert 4 <= memory <= 1024 and 50 <= bandwidth <= 25_000
    reported = number(row, "memory_bytes")
    assert bool(reported) == bool(row["memory_from"]) == row["memory_source"].startswith("https://")
    # A driver shows up to a sixteenth less where it keeps ECC there; GiB are 7 % more than GB.
    assert reported is None or (reported % 2**10 == 0 or "torch" in row["memory_from"])
    assert reported is None or 0.93 <= reported / (memory * 1e9) <= 1.08
    assert row["memory_class"] in ("HBM", "GDDR", "unified")
    assert row["memory_class"] in row["memory_type"] or row["memory_class"] == "unified"
    assert (row["memory_class"] == "HBM") <= (bandwidth >= 800)
    assert row["seen"] in ("read", "derived")
    peaks = {column: number(row, column) for column in PEAKS}
    assert any(peaks.values()) and all(peak is None or peak > 0 for peak in peaks.values())
    assert (number(row, "link_gb_s") or 1) < bandwidth
    sixteen = peaks["bf16_tflops"] or peaks["fp16_tflops"]
    # FLOP/byte: a slip of units, GB/s for Gb/s or TFLOP/s for GFLOP/s, falls outside.
    assert 15 <= sixteen * 1e3 / bandwidth <= 1000
    if peaks["fp16_tflops"] and peaks["bf16_tflops"]:
        assert peaks["fp16_tflops"] == peaks["bf16_tflops"]


@pytest.mark.parametrize("name", [name for name, row in ACCELERATORS.items() if row["fp8_tflops"]])
def test_fp8_is_twice_bf16_or_as_the_maker_says(name):
    row = ACCELERATORS[name]
    ratio = FP8_PER_BF16.get(name, 2)
    assert number(row, "fp8_tflops") / number(row, "bf16_tflops") == pytest.approx(ratio, rel=0.015)


@pytest.mark.parametrize("name", [name for name, row in ACCELERATORS.items() if row["int8_tops"]])
def test_int8_is_a_whole_multiple_of_the_16_bit_peak(name):
    row = ACCELERATORS[name]
    sixteen = number(row, "fp16_tflops") or number(row, "bf16_tflops")
    ratio = number(row, "int8_tops") / sixteen
    if name in INT8_CUT_AWAY:
        assert ratio < 0.7
    elif row["fp16_fp16_accumulate_tflops"]:
        assert ratio == pytest.approx(4, rel=0.01)  # GeForce: fp32 accumulation halves the 16-bit rate
    else:
        assert min(abs(ratio - 1), abs(ratio - 2)) < 0.03


@pytest.mark.parametrize("name", [name for name, row in ACCELERATORS.items() if row["fp16_fp16_accumulate_tflops"]])
def test_geforce_halves_fp16_with_fp32_accumulation(name):
    row = ACCELERATORS[name]
    assert number(row, "fp16_fp16_accumulate_tflops") == pytest.approx(2 * number(row, "fp16_tflops"), rel=0.005)


def test_the_h100_of_the_lessons():
    row = ACCELERATORS["h100-sxm"]
    found = [number(row, column) for column in ("memory_gb", "bandwidth_gb_s", "bf16_tflops", "link_gb_s")]
    assert found == [80, 3350, 989, 450]


def test_the_four_workloads():
    found = {row["name"]: (int(row["prompt_tokens"]), int(row["output_tokens"])) for row in table("workloads")}
    assert found == {
        "chat": (1024, 128),
        "reasoning": (128, 12_800),
        "production-reasoning": (208, 792),
        "agent-step": (103_647, 216),
    }
    agent = next(row for row in table("workloads") if row["name"] == "agent-step")
    assert int(agent["prompt_tokens"]) - int(agent["cached_tokens"]) == int(agent["new_median"]) == 728
    assert 1 - float(agent["new_mean"]) / float(agent["prompt_mean"]) == pytest.approx(0.963, abs=5e-4)


def test_workloads_agree_with_their_quantiles():
    quantiles = {(row["workload"], row["quantity"]): row for row in table("workload_quantiles")}
    for row in table("workloads"):
        for quantity in ("prompt", "output"):
            if row[f"{quantity}_median"]:
                full = quantiles[row["name"], quantity]
                assert float(row[f"{quantity}_median"]) == float(full["p50"])
                assert float(row[f"{quantity}_mean"]) == pytest.approx(float(full["mean"]), rel=2e-4)
                assert int(row["requests"]) == int(full["count"])


def test_marginals_are_a_thousand_lengths_that_rise_to_the_published_quantiles():
    quantiles = {(row["workload"], row["quantity"]): row for row in table("workload_quantiles")}
    for row in table("workload_marginals"):
        lengths, full = [int(word) for word in row["lengths"].split()], quantiles[row["workload"], row["quantity"]]
        assert len(lengths) == 1000 and lengths == sorted(lengths)
        assert sum(lengths) / 1000 == pytest.approx(float(full["mean"]), rel=2e-3)
        for share in (10, 25, 50, 75, 90, 99):
            assert lengths[10 * share - 1] <= float(full[f"p{share}"]) <= lengths[10 * share] * 1.002


def test_quantiles_rise():
    for row in table("workload_quantiles"):
        levels = [float(row[column]) for column in row if re.fullmatch(r"p\d+(_\d)?|max", column)]
        assert len(levels) == 12 and levels == sorted(levels), row["quantity"]


def test_production_reasoning_is_a_range_over_couplings():
    rows = {row["coupling"]: row for row in table("workload_shares") if row["workload"] == "production-reasoning"}
    assert set(rows) == {"independent", "comonotone", "antimonotone"}
    medians = [number(row, "ratio_median") for row in rows.values()]
    hundreds = [number(row, "requests_ratio_ge_100") for row in rows.values()]
    assert (round(min(medians), 1), round(max(medians), 1)) == (3.0, 6.2)
    assert (round(min(hundreds), 2), round(max(hundreds), 2)) == (0.02, 0.12)
    for row in table("workload_shares"):
        shares = [number(row, f"requests_ratio_ge_{ratio}") for ratio in (1, 10, 100)]
        assert 1 >= shares[0] >= shares[1] >= shares[2] >= 0
