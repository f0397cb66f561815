"""What was read elsewhere, each with its source: models, accelerators, workloads, measurements; a learner's files."""

from typing import TYPE_CHECKING

from lessonlib.base.door import opened

if TYPE_CHECKING:
    from lessonlib.base.files import Upload
    from lessonlib.facts.catalogue import (
        accelerator_names,
        load_accelerator,
        load_model,
        model_config,
        model_names,
        model_record,
        source_of,
    )
    from lessonlib.facts.config_file import read_config
    from lessonlib.facts.measurements import Measurement, load_measurements, published_gain, read_measurements
    from lessonlib.facts.own_config import own_model
    from lessonlib.facts.own_traffic import OwnTraffic, read_traffic
    from lessonlib.facts.tables import DATA, load_references, load_table
    from lessonlib.facts.workloads import WeightedSpan, Workload, load_lengths, load_workload, workload_names
else:
    __getattr__, __dir__ = opened(__name__)
