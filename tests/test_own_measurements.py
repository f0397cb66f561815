"""A learner's own measurements: read from a CSV with the table's columns, put on an own model and accelerator."""

import csv
import io
from dataclasses import replace

import pytest
from helpers import refuses

from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.facts.measurements import load_measurements, read_measurements
from lessonlib.facts.tables import DATA
from lessonlib.measured.published import deployment_of, point_of
from lessonlib.time.deployment import Efficiency
from lessonlib.time.roofline import pass_cost

OWN = {
    "id": "mine",
    "source": "own",
    "quality": "A",
    "model_published": "our fine-tune",
    "accelerator_published": "our card",
    "devices": "1",
    "engine": "vLLM 0.11",
    "weights": "bf16",
    "cache": "bf16",
    "batch": "4",
    "output_tokens": "1",
    "context_tokens": "2000",
    "metric": "decode_rate",
    "value": "250.5",
    "unit": "tok/s",
}


def table(*changes, header=None):
    """The bytes of a CSV with one row for each dict of changes."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, header or OWN)
    writer.writeheader()
    writer.writerows(OWN | change for change in changes)
    return stream.getvalue().encode()


def test_the_table_itself_reads_back_equal():
    assert read_measurements(DATA / "measurements.csv") == load_measurements()
    assert read_measurements(str(DATA / "impossible_measurements.csv")) == load_measurements(impossible=True)


def test_own_rows_are_read_in_si_units():
    first, second = read_measurements(
        table({}, {"id": "2", "metric": "tpot", "value": "12.5", "unit": "ms", "output_tokens": "9"})
    )
    assert (first.id, first.value, first.unit, first.model, first.batch) == ("mine", 250.5, "tokens/s", None, 4)
    assert (second.id, second.value, second.unit, second.source_url) == ("2", 0.0125, "s", None)


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", ("lacks the column id",)),
        (table(), ("no row",)),
        (table({}, {}), ("the id 'mine' twice", "line 3")),
        (table({"value": "fast"}), ("line 2", "Measurement 'mine': value", "'fast'")),
        (table({"value": "-1"}), ("line 2", "value", "-1")),
        (table({"value": ""}), ("no value on line 2",)),
        (table({"devices": "0"}), ("line 2", "devices is 0")),
        (table({"batch": "1.5"}), ("line 2", "batch is 1.5")),
        (table({"metric": "speed"}), ("line 2", "metric is 'speed'", "decode_rate")),
        (table({"unit": "ms"}), ("line 2", "unit is 'ms'", "'tok/s'")),
        (table({"context_tokens": "many"}), ("line 2", "context_tokens is 'many'")),
        (table({"weights": "bf15"}), ("line 2", "weights is 'bf15'", "bf16")),
        (table({"cache": "8"}), ("line 2", "cache is '8'", "fp8")),
        (table({"context_tokens": ""}), ("line 2", "context_tokens is None", "decode_rate needs")),
        (table({"metric": "tpot", "unit": "ms"}), ("line 2", "output_tokens is 1", "after the first")),
        (table({}, {"id": ""}), ("no id on line 3",)),
        (table({}).replace(b"quality", b"qualitty"), ("a column 'qualitty'", "quality")),
        (table({}).replace(b"cache,batch", b"batch,batch"), ("the column 'batch' twice",)),
        (table({}, header=None).replace(b",unit", b"").replace(b",tok/s", b""), ("lacks the column unit",)),
        (table({}) + b"mine2,own\r\n", ("2 cells on line 3", "15")),
        (table({}).replace(b"our card", b'"our card'), ("cannot be read as CSV",)),
        (table({}).replace(b"our", b"\xff"), ("not UTF-8",)),
        ("no/such/file.csv", ("does not exist",)),
        (17, ("not a path",)),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(content, words):
    refuses(lambda: read_measurements(content), "Measurements file", *words)


def test_an_own_model_and_accelerator_make_a_point_of_it():
    (row,) = read_measurements(table({}))
    model = replace(load_model("llama-3.1-8b"), name="our fine-tune")
    card = replace(load_accelerator("h100-sxm"), name="our card", bandwidth=2e12)
    point = point_of(row, model=model, accelerator=card, memory_class="HBM")
    server = deployment_of(row, model=model, accelerator=card)
    alone = replace(server, efficiency=Efficiency(all_reduce_latency=0.0))
    assert server == alone and (server.model, server.accelerator) == (model, card)
    assert (point.accelerator, point.memory_class, point.publisher, point.engine) == ("our card", "HBM", "own", "vLLM")
    assert point.floor == pytest.approx(pass_cost(server, 1, 2000, 4).seconds, rel=1e-12)
    assert point.measured == pytest.approx(4 / 250.5, rel=1e-12)
    assert point_of(row, model=model, accelerator=load_accelerator("rtx-4090")).memory_class == "GDDR"


def test_an_own_thing_may_stand_in_for_the_catalogues():
    row = load_measurements(metric="decode_rate")[0]
    card = load_accelerator(row.accelerator)
    faster = replace(card, bandwidth=2 * card.bandwidth)
    assert point_of(row, accelerator=faster).memory == pytest.approx([t / 2 for t in point_of(row).memory])
    assert deployment_of(row, model=load_model("qwen3-8b")).model.name == "qwen3-8b"


def test_what_is_missing_is_asked_for_by_name():
    (row,) = read_measurements(table({}))
    model, card = load_model("llama-3.1-8b"), replace(load_accelerator("h100-sxm"), name="our card")
    refuses(lambda: point_of(row), "Measurement 'mine': model is None", "model=")
    refuses(lambda: point_of(row, model=model), "Measurement 'mine': accelerator is None", "accelerator=")
    refuses(lambda: point_of(row, model=model, accelerator=card), "memory_class is None", "HBM, GDDR, unified")
    refuses(lambda: point_of(row, model="llama", accelerator=card), "point_of: model is 'llama'", "a Model")
    refuses(lambda: deployment_of(row, model=model, accelerator="h100"), "deployment_of: accelerator is 'h100'")
