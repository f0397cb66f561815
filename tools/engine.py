"""Make the files of the real engine, or time it and keep the record: what `make engine` runs, in .venv-engine.

    make engine                  four files of random weights with the sizes of Qwen2.5-0.5B, for notebook 07
    make engine ARGS=record      the same; then time the engine, and replace the record in data/timings

`make engine-clean` removes the engine and its files.
"""

import argparse
import sys
from pathlib import Path

from tqdm import tqdm

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from lessonlib.base.errors import LessonError  # noqa: E402
from lessonlib.base.units import format_bytes  # noqa: E402
from lessonlib.facts.tables import DATA  # noqa: E402
from lessonlib.measured.timing.engine import DEEPEST, MODEL, ROUNDS, stages, time_engine  # noqa: E402
from lessonlib.measured.timing.engine_files import file_bytes, parameters_in, write_weights  # noqa: E402
from lessonlib.measured.timing.engine_run import models  # noqa: E402
from lessonlib.measured.timing.predictions import timing_report  # noqa: E402
from lessonlib.measured.timing.record import write_record  # noqa: E402

FOLDER = ROOT / ".venv-engine" / "weights"
RECORDS = DATA / "timings"


def write_files(folder: Path) -> None:
    """Write the files that are not there yet, after a line that says how much that is."""
    wanted = models({})
    missing = [name for name, (model, _) in wanted.items() if not _whole(folder / name, model.parameters)]
    if not missing:
        print(f"The files of random weights are there: {', '.join(wanted)}.")
        return
    size = sum(file_bytes(*wanted[name]) for name in missing)
    print(f"Writing {len(missing)} files of random weights with the sizes of {MODEL}: {', '.join(missing)}.")
    print(
        f"They take {format_bytes(size)} of disk and a minute or so. `make engine-clean` removes all of it.", flush=True
    )
    folder.mkdir(exist_ok=True)
    for name in missing:
        model, weights = wanted[name]
        found = write_weights(folder / name, model, weights, tqdm)
        print(f"{name}: {found:,} parameters, as the catalogue's config has", flush=True)


def _whole(path: Path, parameters: int) -> bool:
    return path.exists() and parameters_in(path) == parameters


def keep_record(rounds: int = ROUNDS, deepest: int = DEEPEST) -> None:
    """Time the engine, write the record, and take the older ones away."""
    number = stages(False, rounds, deepest)
    print(f"Timing the engine: {number} timings, about half an hour. Close other programs.", flush=True)
    record = time_engine(rounds=rounds, deepest=deepest)
    older = set(RECORDS.glob("engine-*.json"))
    written = write_record(record, RECORDS)
    for path in older - {written}:
        path.unlink()
    print(timing_report(record), f"Written to {written}.", sep="\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("files", "record"), default="files")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="record: how often each thing is timed")
    parser.add_argument("--deepest", type=int, default=DEEPEST, help="record: the longest context, in tokens")
    chosen = parser.parse_args()
    try:
        write_files(FOLDER)
        if chosen.what == "record":
            keep_record(chosen.rounds, chosen.deepest)
    except LessonError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
