"""The catalogue: every name loads, exactly; a learner's own file is read or refused by name."""

import json
from functools import partial

import numpy as np
import pytest

from lessonlib.base.errors import InvalidInputError, LessonError, UnknownNameError
from lessonlib.facts import catalogue, measurements, tables, workloads
from lessonlib.facts.config_file import read_config
from lessonlib.measured.efficiency import typical_efficiency
from lessonlib.time.accelerator import Accelerator


@pytest.mark.parametrize("name", catalogue.model_names())
def test_a_model_has_exactly_the_parameters_that_its_file_states(name):
    model = catalogue.load_model(name)
    assert model.name == name
    assert model.parameters == catalogue.model_record(name)["parameters"]


def test_a_wrapper_gives_the_config_of_its_text_model():
    assert catalogue.model_config("kimi-k2.5")["model_type"] == "kimi_k2"
    assert catalogue.model_config("qwen3.5-27b")["model_type"] == "qwen3_5_text"
    assert catalogue.model_config("llama-3.1-8b")["hidden_size"] == 4096


def test_a_model_record_leaves_out_the_config():
    record = catalogue.model_record("deepseek-r1")
    assert record["hub_id"] == "deepseek-ai/DeepSeek-R1" and record["kind"] == ["reasoning"]
    assert "config" not in record


@pytest.mark.parametrize("name", catalogue.accelerator_names())
def test_an_accelerator_is_in_si_units(name):
    row = next(row for row in tables.load_table("accelerators") if row["name"] == name)
    device = catalogue.load_accelerator(name)
    assert isinstance(device, Accelerator)
    assert device.memory == (row["memory_bytes"] or row["memory_gb"] * 1e9)
    assert device.memory_from == (row["memory_from"] or "nominal GB") and f"({device.memory_from})" in repr(device)
    assert device.bandwidth == row["bandwidth_gb_s"] * 1e9
    stated = {dtype for dtype, column in catalogue.PEAK_COLUMNS.items() if row[column] is not None}
    assert set(device.peaks) == stated
    assert (device.link is None) == (row["link_gb_s"] is None)
    assert device.label and device.source.startswith("https://")


def test_the_h100_of_the_lessons():
    h100 = catalogue.load_accelerator("h100-sxm")
    assert (h100.memory, h100.bandwidth, h100.peak("bf16"), h100.link) == (85_520_809_984, 3.35e12, 989e12, 450e9)
    assert repr(h100).startswith("Accelerator 'h100-sxm': 85.521 GB (nvidia-smi) at 3,350 GB/s")


def test_a_blank_peak_is_refused_and_not_borrowed_from_another_dtype():
    with pytest.raises(UnknownNameError, match="no bf16 peak"):
        catalogue.load_accelerator("t4").peak("bf16")


def test_a_blank_link_is_none():
    assert catalogue.load_accelerator("m3-max").link is None


@pytest.mark.parametrize("name", workloads.workload_names())
def test_a_workload_gives_its_request(name):
    workload = workloads.load_workload(name)
    assert workload.source and workload.licence and workload.basis and workload.note
    request = workload.request
    assert (request.prompt, request.output, request.cached) == (workload.prompt, workload.output, workload.cached)


def test_what_a_source_does_not_give_is_none():
    assert workloads.load_workload("reasoning").prompt_mean is None
    assert workloads.load_workload("production-reasoning").output_mean == 1527.4


@pytest.mark.parametrize("changed", [{"prompt": 0}, {"output": 1.5}, {"cached": 10}, {"cached": -1}])
def test_a_workload_checks_its_tokens(changed):
    with pytest.raises(InvalidInputError, match=next(iter(changed))):
        workloads.Workload(**{"name": "own", "label": "own", "prompt": 10, "output": 2} | changed)


@pytest.mark.parametrize(
    "load, wrong, nearest",
    [
        (catalogue.load_model, "llama-3.1-8", "llama-3.1-8b"),
        (catalogue.load_model, "DeepSeek-R1", "deepseek-r1"),
        (catalogue.model_config, "gpt-oss", "gpt-oss-20b"),
        (catalogue.model_record, "gpt-2", "gpt2"),
        (catalogue.load_accelerator, "h100", "h100-sxm"),
        (catalogue.load_accelerator, "4090", "rtx-4090"),
        (workloads.load_workload, "reason", "reasoning"),
        (catalogue.source_of, "jetson-thor", "jetson-agx-thor"),
        (tables.load_table, "workload", "workloads"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(load, wrong, nearest):
    with pytest.raises(UnknownNameError, match=rf"{wrong}.*nearest.*\b{nearest}\b"):
        load(wrong)


@pytest.mark.parametrize("wrong", ["", "zzzz", "../README", "../models/gpt2", 3, None, ["h100-sxm"]])
@pytest.mark.parametrize(
    "load", [catalogue.load_model, catalogue.load_accelerator, workloads.load_workload, tables.load_table]
)
def test_anything_else_for_a_name_is_unknown_too(load, wrong):
    with pytest.raises(UnknownNameError):
        load(wrong)


HUGE = 10**5000  # a number that Python refuses to print


@pytest.mark.parametrize(
    "load",
    [
        lambda: read_config(HUGE),
        lambda: read_config("x" * 5000),
        lambda: read_config(b'{"' + b"k" * 9000 + b'": 1, "' + b"k" * 9000 + b'": 2}'),
        lambda: workloads.load_lengths(HUGE, "output"),
        lambda: workloads.load_lengths("production-reasoning", HUGE),
        lambda: tables.load_table(np.arange(3)),
        lambda: catalogue.source_of(np.arange(3)),
        lambda: typical_efficiency("h100-sxm", engine=np.arange(3)),
        lambda: typical_efficiency("h100-sxm", engine=HUGE),
        lambda: measurements.load_measurements(value=np.arange(3)),
        lambda: measurements.load_measurements(value=[1]),
        lambda: measurements.load_measurements(value=HUGE),
    ],
)
def test_whatever_is_given_is_refused_in_few_words(load):
    with pytest.raises(LessonError) as caught:
        load()
    assert len(str(caught.value)) < 500


def test_every_name_says_where_it_comes_from():
    names = (*catalogue.model_names(), *catalogue.accelerator_names(), *workloads.workload_names())
    for name in names:
        line = catalogue.source_of(name)
        assert "https://" in line and "retrieved 20" in line and "licence: " in line


def test_references_are_readable():
    references = tables.load_references()
    assert len(references) >= 15
    assert references["williams2009"].startswith("Williams, Waterman, Patterson (2009). Roofline:")


def test_a_table_may_be_changed_by_its_reader():
    tables.load_table("workload_shares")[0]["ratio_median"] = -1
    assert tables.load_table("workload_shares")[0]["ratio_median"] == 0.2792


@pytest.fixture
def written(tmp_path):
    """A function that writes text or bytes as config.json and returns its path."""

    def write(content):
        path = tmp_path / "config.json"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_a_config_of_ones_own_is_read(written):
    assert read_config(written('{"a": [1, 2.5, null, {"b": true}]}')) == {"a": [1, 2.5, None, {"b": True}]}
    assert read_config(str(written(b'\xef\xbb\xbf{"a": "\xc3\xa9"}'))) == {"a": "é"}


def test_numbers_without_a_limit_are_read(written):
    """As transformers writes them, beside its sizes."""
    assert read_config(written('{"time_step_limit": [0.0, Infinity], "a": -Infinity}')) == {
        "time_step_limit": [0.0, float("inf")], "a": float("-inf")
    }  # fmt: skip
    assert str(read_config(written('{"a": NaN}'))) == "{'a': nan}"


def test_the_same_config_gives_the_same_model(written):
    config = catalogue.model_config("llama-3.1-8b")
    assert read_config(written(json.dumps(config))) == config


def test_a_config_of_exactly_16_mebibytes_is_read_and_one_byte_more_is_not(written):
    frame = len('{"a": ""}')
    padded = partial('{{"a": "{}"}}'.format)
    assert read_config(written(padded("x" * (2**24 - frame))))
    with pytest.raises(InvalidInputError, match="over 16,777,216 bytes"):
        read_config(written(padded("x" * (2**24 - frame + 1))))


@pytest.mark.parametrize(
    "content, problem",
    [
        ("", "not JSON"),
        ("{'a': 1}", "not JSON"),
        ('{"a": 1', "not JSON"),
        ('{"a": 1} {"b": 2}', "not JSON"),
        ("import os", "not JSON"),
        ("[1, 2]", "a list, not one JSON object"),
        ('"llama"', "a string, not one JSON object"),
        ("null", "null, not one JSON object"),
        ("3", "a bare value, not one JSON object"),
        ('{"a": 1e999}', "1e999"),
        ('{"a": 1, "b": 2, "a": 3}', "key 'a' twice"),
        ('{"a": {"b": 1, "b": 1}}', "key 'b' twice"),
        ('{"a": ' + "9" * 41 + "}", "an integer of 41"),
        ('{"a": -' + "9" * 100_000 + "}", "an integer of 100001"),
        ("[" * 200_000, "nests its brackets too deeply"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nests its brackets too deeply"),
        (b'{"a": "\xff"}', "not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
        (b"\x00\x01\x02", "not JSON"),
    ],
)
def test_a_file_that_is_no_config_is_refused_by_name(written, content, problem):
    path = written(content)
    with pytest.raises(InvalidInputError) as caught:
        read_config(path)
    assert problem in str(caught.value) and str(path) in str(caught.value)
    assert len(str(caught.value)) < 500 + len(str(path))


def test_a_path_that_is_no_file_is_refused_by_name(tmp_path):
    with pytest.raises(InvalidInputError, match=r"absent\.json.*does not exist"):
        read_config(tmp_path / "absent.json")
    with pytest.raises(InvalidInputError, match=r"is a folder.*inside it"):
        read_config(tmp_path)
    for wrong in (None, 3.5, {"model_type": "llama"}):
        with pytest.raises(InvalidInputError, match="is not a path"):
            read_config(wrong)
    with pytest.raises(LessonError):
        read_config("config\0.json")


def test_a_config_never_runs_code(written, tmp_path):
    """Remote code that a config names is data like any other: nothing is imported, and no file appears."""
    config = {"model_type": "llama", "auto_map": {"AutoConfig": "trap.Config"}}
    (tmp_path / "trap.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')", encoding="utf-8")
    assert read_config(written(json.dumps(config))) == config
    assert not (tmp_path / "sprung").exists()


def test_without_its_data_the_catalogue_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "DATA", tmp_path / "data")
    with pytest.raises(InvalidInputError, match="install lessonlib from its checkout"):
        catalogue.model_names()
    with pytest.raises(InvalidInputError, match="install lessonlib from its checkout"):
        catalogue.load_accelerator("h100-sxm")
