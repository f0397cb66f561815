"""Measured times beside the arithmetic: published ones, calibration on them, and timings of one's own machine."""

from typing import TYPE_CHECKING

from lessonlib.base.door import opened

if TYPE_CHECKING:
    from lessonlib.measured.calibration import Search, predicted_seconds, relative_errors
    from lessonlib.measured.efficiency import TypicalEfficiency, decode_search, typical_efficiency
    from lessonlib.measured.own_runs import TimedRun, efficiency_from_runs
    from lessonlib.measured.published import (
        SUSPECTS,
        below_the_floor,
        by_condition,
        by_memory,
        by_source,
        deployment_of,
        engine_of,
        point_of,
        points,
        published_row,
    )
    from lessonlib.measured.timing.cpu import BUSY, busy_warning, recorded_cpu, time_cpu
    from lessonlib.measured.timing.decoder import NumpyDecoder, toy_model
    from lessonlib.measured.timing.engine import (
        EngineMissingError,
        beside_floor,
        calibrations,
        engine_said,
        foretold,
        foretold_table,
        recorded_engine,
        time_engine,
        token_costs,
    )
    from lessonlib.measured.timing.gpu import GpuUnavailableError, time_gpu
    from lessonlib.measured.timing.predictions import predictions, this_machine, timing_report
    from lessonlib.measured.timing.record import read_records
    from lessonlib.measured.timing.server import time_server
    from lessonlib.measured.timing.server_client import Limits
else:
    __getattr__, __dir__ = opened(__name__)
