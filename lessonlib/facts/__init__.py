"""What was read elsewhere, each with its source: models, accelerators, workloads, measurements; a learner's files."""

from lessonlib.facts.catalogue import (
    DATA,
    Measurement,
    Workload,
    accelerator_names,
    load_accelerator,
    load_lengths,
    load_measurements,
    load_model,
    load_references,
    load_table,
    load_workload,
    model_config,
    model_names,
    model_record,
    read_config,
    source_of,
    workload_names,
)
from lessonlib.facts.own_traffic import OwnTraffic, read_traffic
