"""The commands of this room.

python -m lessonlib.measured.timing gpu [--quick] [--model NAME]     times a GPU and writes a record into data/timings/
python -m lessonlib.measured.timing cpu [--quick]                    times the CPU; the last line is the record, as JSON
"""

import argparse
import json
import sys
from collections.abc import Sequence

from lessonlib.base.errors import LessonError
from lessonlib.facts.tables import DATA
from lessonlib.measured.timing.cpu import measure
from lessonlib.measured.timing.gpu import SIZES, time_gpu
from lessonlib.measured.timing.predictions import timing_report
from lessonlib.measured.timing.record import write_record


def main(arguments: Sequence[str]) -> int:
    """Run a command; 1 when nothing could be timed."""
    parser = argparse.ArgumentParser(prog="python -m lessonlib.measured.timing", description="Time this machine.")
    parser.add_argument("what", choices=("cpu", "gpu"))
    parser.add_argument("--quick", action="store_true", help="fewer points; a GPU without the reasoning request")
    parser.add_argument("--model", help=f"gpu: a Llama of the catalogue, instead of the largest of {', '.join(SIZES)}")
    chosen = parser.parse_args(arguments)
    if chosen.what == "cpu":
        print(json.dumps(measure(chosen.quick)), flush=True)
        return 0
    try:
        record = time_gpu(chosen.quick, chosen.model)
    except LessonError as error:
        print(error, file=sys.stderr)
        return 1
    print(timing_report(record), f"Written to {write_record(record, DATA / 'timings')}.", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
