"""Models and accelerators by name, and the place where each was read.

The facts lie in data/: one JSON file for each model, holding its config.json as published, and one CSV table of each
other kind. Every row carries a source, a date and a licence. A model of the catalogue and a learner's own file take the
same path, `Model.from_config(read_config("config.json"))`. Nothing that is read is ever executed.

Tables keep the units of datasheets (GB, GB/s, TFLOP/s, all decimal); what is returned is in bytes, byte/s and FLOP/s.
"""

from typing import Any

from lessonlib.facts.config_file import read_config
from lessonlib.facts.tables import data_folder, known_name, load_table, row_named
from lessonlib.facts.workloads import workload_names
from lessonlib.model.model import Model
from lessonlib.time.accelerator import Accelerator

PEAK_COLUMNS = {
    "fp16": "fp16_tflops",
    "bf16": "bf16_tflops",
    "fp8": "fp8_tflops",
    "int8": "int8_tops",
    "fp4": "fp4_tflops",
}


def model_names() -> tuple[str, ...]:
    """Names that `load_model` knows, in alphabetical order."""
    return tuple(sorted(path.stem for path in data_folder("models").glob("*.json")))


def accelerator_names() -> tuple[str, ...]:
    """Names that `load_accelerator` knows, in the order of the table: data centre first, edge last."""
    return tuple(row["name"] for row in load_table("accelerators"))


def load_model(name: str) -> Model:
    """The model of that name, read from its published config; its parameter count is exact.

    Raises UnknownNameError with the nearest names. `model_record(name)` says where the file comes from.
    """
    return Model.from_config(model_config(name), name=name)


def model_config(name: str) -> dict[str, Any]:
    """The published config.json of a catalogue model as a dict; of a wrapper, its part for the text model."""
    record = _model_file(name)
    config = record["config"]
    for key in record.get("config_path", ()):
        config = config[key]
    return config


def model_record(name: str) -> dict[str, Any]:
    """What the catalogue knows of a model besides its config: hub_id, parameters, kind, provenance, source, licence."""
    return {key: value for key, value in _model_file(name).items() if key != "config"}


def load_accelerator(name: str) -> Accelerator:
    """The accelerator of that name, in SI units; `.source` and `.notes` say where its figures come from.

    Its memory is the bytes that a driver reports, where a source gives them, else the datasheet's GB; `.memory_from`
    says which. Peaks are dense, by dtype; a dtype whose peak does not exist or is not known is absent. Raises
    UnknownNameError with the nearest names.
    """
    row = row_named("accelerators", "accelerator", name)
    peaks = {dtype: row[column] * 1e12 for dtype, column in PEAK_COLUMNS.items() if row[column] is not None}
    return Accelerator(
        name=name,
        label=row["label"],
        memory=row["memory_gb"] * 1e9 if row["memory_bytes"] is None else float(row["memory_bytes"]),
        memory_from=row["memory_from"] or "nominal GB",
        bandwidth=row["bandwidth_gb_s"] * 1e9,
        peaks=peaks,
        link=None if row["link_gb_s"] is None else row["link_gb_s"] * 1e9,
        source=row["source_url"],
        notes=row["notes"] or "",
    )


def source_of(name: str) -> str:
    """One line: where the model, accelerator or workload of that name was read, when, and under which licence."""
    known = (*model_names(), *accelerator_names(), *workload_names())
    known_name("name", name, known, "model_names(), accelerator_names() and workload_names()")
    if name in accelerator_names():
        row = row_named("accelerators", "accelerator", name)
        where = f"{row['source_url']} ({row['seen']}: {row['seen_at']})"
    elif name in workload_names():
        row = row_named("workloads", "workload", name)
        where = f"{row['source']}, {row['source_url']}"
    else:
        row = model_record(name)
        where = f"{row['provenance']}: {row['source']}"
    return f"{where}; retrieved {row['retrieved']}; licence: {row['licence']}"


def _model_file(name: str) -> dict[str, Any]:
    known_name("model", name, model_names(), "model_names()")  # before any path is made of it
    return read_config(data_folder("models") / f"{name}.json")
