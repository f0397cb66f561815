"""Published measurements: complete, attributed, in SI units when read, and none below its floor but those listed."""

import csv
import re
from collections import Counter
from dataclasses import FrozenInstanceError, fields
from datetime import date
from statistics import fmean

import pytest
from helpers import refuses

from lessonlib.base.errors import InvalidInputError, UnknownNameError
from lessonlib.facts import catalogue, measurements, tables
from lessonlib.measured import published
from lessonlib.model.precision import BITS, Precision
from lessonlib.time.deployment import Deployment
from lessonlib.time.roofline import pass_cost
from lessonlib.work.passes import linear_work

ROWS = measurements.load_measurements()
IMPOSSIBLE = measurements.load_measurements(impossible=True)
BY_ID = {row.id: row for row in ROWS}
POINTS = published.points()
GIB = 2**30
# Rows of one sequence on one device whose conditions need nothing assumed: a second reading of the floor, pass by pass.
PLAIN = [row for row in ROWS if row.source in ("llamacpp-benches", "vllm-fp8kv")]


def raw(table="measurements"):
    with (tables.DATA / f"{table}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def first_row():
    return dict(tables.load_table("measurements")[0])


def precision_of(row):
    """Precision by part; in the files of llama.cpp head and embedding are quantised too, and only experts are mxfp4."""
    if row.engine.startswith("llama.cpp"):
        quantised = "q8_0" if row.weights == "mxfp4" else row.weights
        return Precision(quantised, experts=row.weights, head=quantised, embedding=quantised, cache=row.cache)
    return Precision("bf16", experts=row.weights, cache=row.cache)


def deployment_of(row):
    model, accelerator = catalogue.load_model(row.model), catalogue.load_accelerator(row.accelerator)
    return Deployment(model, accelerator, precision_of(row), devices=row.devices)


def test_every_row_is_attributed_and_its_names_are_known():
    for row in (*ROWS, *IMPOSSIBLE):
        assert re.fullmatch(r"[a-z]\d{4}", row.id) and re.fullmatch(r"[a-z0-9.]+(-[a-z0-9.]+)*", row.source), row
        assert row.source_url.startswith("https://") and row.licence.strip() and date.fromisoformat(row.retrieved), row
        assert row.model is None or row.model in catalogue.model_names(), row
        assert row.accelerator is None or row.accelerator in catalogue.accelerator_names(), row
        assert row.model_published and row.accelerator_published and row.engine and row.weights in BITS, row
        assert row.quality != "B" or "assumed" in row.notes, row


def test_there_are_rows_sources_and_devices_enough():
    assert len(ROWS) >= 400
    assert len({row.source for row in ROWS}) >= 12
    assert len({row.accelerator for row in ROWS}) >= 25


def test_conditions_are_complete():
    """What the arithmetic needs of each metric is stated, or said to be assumed in the notes."""
    for row in ROWS:
        assert row.model and row.accelerator and row.cache, row
        if row.metric in ("prefill_rate", "ttft", *published.WHOLE_REQUEST):
            assert row.prompt_tokens, row
        if row.metric in published.WHOLE_REQUEST:
            assert row.output_tokens, row
        if row.metric in ("decode_rate", "tpot"):
            assert row.context_tokens is not None, row
            assert row.output_tokens or row.quality == "B", row


def test_ids_are_unique_and_rows_are_whole():
    rows = [*raw(), *raw("impossible_measurements")]
    assert len({row["id"] for row in rows}) == len(rows) == len(ROWS) + len(IMPOSSIBLE)
    assert all(None not in row and None not in row.values() for row in rows)


def test_a_source_has_one_licence_and_one_that_states_none_is_only_quoted():
    every = (*ROWS, *IMPOSSIBLE)
    assert len({(row.source, row.licence) for row in every}) == len({row.source for row in every})
    counts = Counter(row.source for row in every if row.licence == "none stated")
    assert all(count <= 20 for count in counts.values())


def test_values_are_read_in_si_units():
    factors = {"tok/s": 1, "tok/s/device": 1, "s": 1, "ms": 1e-3, "ms/token": 1e-3}
    units = {"tok/s": "tokens/s", "tok/s/device": "tokens/s/device", "s": "s", "ms": "s", "ms/token": "s/token"}
    for written, read in zip(raw(), ROWS, strict=True):
        assert read.value == float(written["value"]) * factors[written["unit"]], read
        assert read.unit == units[written["unit"]], read
        assert read.weight_bytes == (float(written["weight_gib"]) * GIB if written["weight_gib"] else None), read


def test_values_that_the_sources_print():
    # llama.cpp, benches/dgx-spark/dgx-spark.md, build 7941: pp2048 and tg32 at depth
    assert [BY_ID[f"m{n:04d}"].value for n in range(880, 889, 2)] == [58.72, 55.67, 52.87, 49.45, 42.76]
    assert [BY_ID[f"m{n:04d}"].value for n in range(926, 935, 2)] == [61.06, 54.77, 48.02, 40.23, 30.21]
    assert [BY_ID[f"m{n:04d}"].value for n in range(879, 888, 2)] == [2443.91, 2309.84, 2216.68, 1956.31, 1567.08]
    assert [BY_ID[f"m{n:04d}"].value for n in range(925, 934, 2)] == [2986.97, 2633.45, 2354.14, 1908.86, 1348.17]
    depths = [0, 4096, 8192, 16384, 32768]
    assert [BY_ID[f"m{n:04d}"].context_tokens for n in range(880, 889, 2)] == depths
    assert [BY_ID[f"m{n:04d}"].context_tokens for n in range(925, 934, 2)] == depths
    # vLLM, The State of FP8 KV-Cache: slopes of the inter-token latency, in ms a token
    slopes = [row.value * 1e3 for row in ROWS if row.metric == "itl_slope"]
    assert slopes == pytest.approx([1.80e-5, 9.72e-6, 3.56e-6, 2.06e-6, 4.37e-5, 2.37e-5], rel=1e-12)


def test_the_precision_by_part_gives_the_size_of_the_file():
    for row in ROWS:
        if row.weight_bytes and "from which the size follows" not in row.notes:
            tolerance = 0.012 if row.weights == "q4_k_m" else 0.005  # q4_k_m is a mixture, 4.85 bits on average
            found = published.deployment_of(row).weight_bytes
            assert found == pytest.approx(row.weight_bytes, rel=tolerance), row


def floor(row):
    """What the arithmetic says of a row at its best: a rate's upper limit, a time's lower one."""
    deployment = deployment_of(row)
    if row.metric == "decode_rate":
        contexts = (row.context_tokens + i for i in range(row.output_tokens))
        return row.batch / fmean(pass_cost(deployment, 1, cached, row.batch).seconds for cached in contexts)
    if row.metric == "prefill_rate":
        seconds = pass_cost(deployment, row.prompt_tokens, row.context_tokens, row.batch).seconds
        return row.batch * row.prompt_tokens / seconds
    ends = [pass_cost(deployment, 1, cached).seconds for cached in (row.prompt_tokens, row.prompt_tokens_to)]
    slope = (ends[1] - ends[0]) / (row.prompt_tokens_to - row.prompt_tokens)
    return slope if row.metric == "itl_slope" else ends[0] - slope * row.prompt_tokens


@pytest.mark.parametrize("row", PLAIN, ids=lambda row: row.id)
def test_no_plain_measurement_beats_a_floor_computed_pass_by_pass(row):
    limit = floor(row)
    slower = limit / row.value if row.unit == "tokens/s" else row.value / limit
    assert 1 < slower < 8, f"{row.metric} {row.value} {row.unit}, the floor says {limit}"
    if row.metric in ("decode_rate", "itl_intercept"):
        assert 1 / published.point_of(row).fraction == pytest.approx(slower, rel=0.005)  # the stated size of the file


def test_no_measurement_beats_its_floor_but_those_that_are_listed():
    assert [point.id for point in POINTS if point.fraction >= 1] == list(published.below_the_floor())
    assert all(point.fraction > 0.03 for point in POINTS)
    assert len(POINTS) == len(ROWS) - sum(row.metric == "itl_slope" for row in ROWS)


@pytest.mark.parametrize("name", published.below_the_floor())
def test_a_listed_row_is_a_mixture_in_a_batch_and_its_reason_suffices(name):
    """If all sequences take one token's experts, the least that a step can read, no listed row is below the floor."""
    row, point = BY_ID[name], published.point_of(BY_ID[name])
    folded = published.deployment_of(row).sizes
    assert folded.experts and row.batch > 1 and published.below_the_floor()[name].startswith("mixture of experts")
    one, all_of_them = (linear_work(folded, tokens, tokens)[1].weights for tokens in (1.0, float(row.batch)))
    experts = point.memory[-2]  # the routed experts of decode, which bind and come before the head, the last
    assert experts > point.compute[-2]
    assert (point.floor - (1 - one / all_of_them) * experts) / point.measured < 0.6


def test_the_impossible_rows_cannot_be_true_whatever_is_assumed():
    assert {row.quality for row in IMPOSSIBLE} == {"C"} and {row.quality for row in ROWS} == {"A", "B"}
    for row in IMPOSSIBLE:
        weights = (row.output_tokens - 1) * published.deployment_of(row).sizes.dense_bytes  # read once a step
        assert row.value < weights / (row.devices * catalogue.load_accelerator(row.accelerator).bandwidth), row
    assert (len(IMPOSSIBLE), IMPOSSIBLE[0].value) == (4, 0.0826)


def test_which_peak_bounds_a_row():
    computes = {(row.engine.split()[0], row.weights, row.accelerator): row for row in ROWS}
    for (engine, weights, accelerator), dtype in {  # of the blocks
        ("TensorRT-LLM", "fp8", "h100-sxm"): "fp8",
        ("TensorRT-LLM", "fp16", "a100-sxm-80gb"): "fp16",
        ("llama.cpp", "q4_k_m", "rtx-3090"): "int8",
        ("llama.cpp", "q8_0", "dgx-spark"): "fp16",  # no int8 peak is known
        ("llama.cpp", "q4_k_m", "m1-max"): "fp16",  # it has no int8 peak
        ("DeepSpeed", "fp16", "gaudi2"): "bf16",  # nor this an fp16 one
    }.items():
        assert published.deployment_of(computes[engine, weights, accelerator]).dtypes["blocks"] == dtype
    tiny, eager = computes["TinyChat", "int4", "rtx-4090"], computes["Transformers", "fp16", "rtx-4090"]
    assert published.deployment_of(tiny).peak == 330.4e12  # fp16 accumulation
    assert published.deployment_of(eager).peak == 165.2e12


def test_a_slope_is_no_time():
    with pytest.raises(InvalidInputError, match="is a slope"):
        published.point_of(BY_ID["m2815"])


def test_each_point_but_a_prefill_has_one_condition():
    found = published.by_condition(POINTS)
    assert sum(map(len, found.values())) == sum(point.phase != "prefill" for point in POINTS)
    assert {words for words, of in found.items() if any(point.devices > 1 for point in of)} == {
        words for words in found if words.endswith(", several devices")
    }
    assert all((point.batch == 1) == words.startswith("one sequence") for words, of in found.items() for point in of)
    loaded = [point for words, of in found.items() if words.startswith("a server under load") for point in of]
    assert loaded and {point.publisher for point in loaded} == {"inferencex"}


def test_conditions_choose_rows():
    found = measurements.load_measurements(source="llamacpp-benches", model="gpt-oss-120b", metric="decode_rate")
    assert [row.id for row in found] == ["m0880", "m0882", "m0884", "m0886", "m0888"]
    assert measurements.load_measurements(model="gpt-oss-120b", accelerator="b200") == ()  # both there, not together


def test_unknown_conditions_are_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match=r"condition 'modle'.*model"):
        measurements.load_measurements(modle="gpt-oss-120b")
    with pytest.raises(UnknownNameError, match=r"value of model 'gpt-oss-12b'.*gpt-oss-120b"):
        measurements.load_measurements(model="gpt-oss-12b")
    with pytest.raises(UnknownNameError, match="value of batch 3"):
        measurements.load_measurements(batch=3)


def test_a_measurement_is_frozen():
    with pytest.raises(FrozenInstanceError):
        ROWS[0].value = 1.0


@pytest.mark.parametrize(
    "column, wrong",
    [
        ("metric", "speed"),
        ("metric", None),
        ("quality", "D"),
        ("unit", "ms"),
        ("unit", "furlongs"),
        ("value", 0),
        ("value", -3.5),
        ("value", None),
        ("value", "fast"),
        ("weight_gib", 0),
        ("devices", 0),
        ("devices", None),
        ("batch", 1.5),
        ("prompt_tokens", -1),
        ("prompt_tokens_to", "many"),
        ("output_tokens", 0.5),
        ("context_tokens", -4096),
    ],
)
def test_a_row_that_cannot_be_meant_is_refused_by_name(column, wrong):
    row = first_row()
    row[column] = wrong
    refuses(lambda: measurements._measurement(row), f"Measurement 'm0879': {column}", repr(wrong))


def test_every_column_of_the_table_reaches_the_record():
    columns = set(first_row()) - {"weight_gib"} | {"weight_bytes"}
    assert columns == {field.name for field in fields(measurements.Measurement)}
