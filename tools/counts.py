"""Write the numbers of the pages that count what the library and its folders hold.

    make counts                    writes them, and says what changed
    make counts ARGS=--check       changes nothing; ends with 1 where a page is behind

A row of COUNTS says which page has the phrase, with {} for the number, and what is counted. A number stays in digits or
in words, as it is found; a phrase that its page does not have exactly once is an error. Of CHANGELOG.md only the newest
section counts what is there today: what a past version held is not touched. And it copies the lines of constraints.txt
to pyproject.toml, where uv run reads them.
"""

import argparse
import gzip
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from lessonlib import ROOMS, accelerator_names, model_names, workload_names
from lessonlib.face.exercises.asking import all_exercises
from lessonlib.facts import load_measurements, load_table, model_record

ROOT = Path(__file__).parent.parent
WORDS = """no one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen twenty""".split()
NUMBER = rf"(\b\d[\d,]*|\b(?i:{'|'.join(WORDS)})\b)"


class CountError(Exception):
    """A page that does not have a phrase of COUNTS once."""


def models(provenance: str) -> int:
    return sum(model_record(name)["provenance"] == provenance for name in model_names())


def quoted(source: str) -> int:
    """Rows of measurements.csv from that source."""
    return sum(row.source == source for row in load_measurements())


def exercises(notebook: str) -> int:
    return sum(exercise.work.__module__.endswith(notebook) for exercise in all_exercises().values())


def questions() -> int:
    """Headings of notebook 09 that ask."""
    (path,) = (ROOT / "notebooks").glob("09_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return len(re.findall(r"^## .+\?$", "\n\n".join("".join(cell["source"]) for cell in cells), re.MULTILINE))


def oracle_rows(file: str) -> int:
    return len(json.loads((ROOT / "tests" / "data" / f"{file}.json").read_text(encoding="utf-8")))


def uncounted() -> int:
    """Rows of more_default_configs.json without a count of parameters."""
    text = (ROOT / "tests" / "data" / "more_default_configs.json").read_text(encoding="utf-8")
    return sum(row["parameters"] is None for row in json.loads(text))


@cache
def record() -> dict[str, list[Any]]:
    with gzip.open(ROOT / "tests" / "data" / "frozen_numbers.json.gz") as stream:
        return json.load(stream)


def frozen(kind: str) -> int:
    """Cases of that kind in the frozen record."""
    return len(record()[kind])


FACTS = {
    "{} models": lambda: len(model_names()),
    "{} accelerators": lambda: len(accelerator_names()),
    "{} published measurements": lambda: len(load_measurements()),
    "{} kinds of request": lambda: len(workload_names()),
}
COUNTS: dict[str, dict[str, Callable[[], int]]] = {  # a page, and the phrase around a number to what gives it
    "README.md": FACTS
    | {
        "config.json: {} as published": partial(models, "published file"),
        ", {} written from published sizes": partial(models, "written from published sizes"),
        "| {} questions, each with an answer": questions,
        "a house of {} rooms": lambda: len(ROOMS),
    },
    "CHANGELOG.md": FACTS,
    "docs/instructors.md": {"{} questions, all with feedback": partial(exercises, "notebook_09")},
    "data/README.md": {
        "the {} kinds of request that the lessons compare": lambda: len(workload_names()),
        "holds {} rows of LLM-Inference-Bench": lambda: len(load_measurements(impossible=True)),
        "Jetson Orin Nano Super; {} rows quoted": partial(quoted, "jetson-nano"),
        "DGX Spark; {} rows quoted": partial(quoted, "lmsys-spark"),
        "on an fp8 cache; {} and": partial(quoted, "vllm-arcb60"),
        "and {} rows quoted | none stated |": partial(quoted, "vllm-fp8kv"),
        "on four devices; {} rows quoted": partial(quoted, "xiongjiedai"),
        "`output_tokens`: {} requests": lambda: len(load_table("sample_traffic")),
    },
    "tests/data/README.md": {
        "| config_oracle.json | {} configs": partial(oracle_rows, "config_oracle"),
        "| more_default_configs.json | {} more classes": partial(oracle_rows, "more_default_configs"),
        "no count (null) for {} that cannot be built": uncounted,
        "| published_style_configs.json | {} configs": partial(oracle_rows, "published_style_configs"),
        "| released_configs.json | {} config.json": partial(oracle_rows, "released_configs"),
        "| varied_configs.json | {} small configs": partial(oracle_rows, "varied_configs"),
        "{} random requests": partial(frozen, "requests"),
        "{} questions of policy": partial(frozen, "policies"),
        "{} mixes": partial(frozen, "mixes"),
        "{} simulations": partial(frozen, "simulations"),
        "{} pagings": partial(frozen, "pagings"),
    },
}


PINS = re.compile(r"(?ms)^constraint-dependencies = \[\n(.*?)^\]$")
COUNTS["pyproject.toml"] = {}  # it counts nothing, and has the versions


def with_pins(text: str) -> str:
    """pyproject.toml with the lines of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = "".join(f'    "{line}",\n' for line in lines if line and line[0] != "#")
    return PINS.sub(lambda _: f"constraint-dependencies = [\n{pins}]", text)


def newest(page: str, text: str) -> str:
    """The part of a page that speaks of today: of CHANGELOG.md all before its second section."""
    return "".join(re.split(r"(?m)^(?=## )", text)[:2]) if page == "CHANGELOG.md" else text


def pattern(phrase: str) -> re.Pattern[str]:
    """The phrase, broken over lines anywhere, with its number as the one group."""
    parts = (r"\s+".join(re.escape(word) for word in part.split(" ")) for part in phrase.split("{}"))
    return re.compile(NUMBER.join(parts))


def written(number: int, as_it_stands: str) -> str:
    """The number in digits or in words, as the one that it replaces."""
    if as_it_stands[0].isdigit() or number >= len(WORDS):
        return f"{number:,}"
    return WORDS[number].capitalize() if as_it_stands[0].isupper() else WORDS[number]


def found(page: str, text: str) -> Iterator[tuple[str, re.Match[str]]]:
    """The phrases of a page, each with where it stands; CountError for one that does not stand there once."""
    for phrase in COUNTS[page]:
        places = list(pattern(phrase).finditer(newest(page, text)))
        if len(places) != 1:
            raise CountError(
                f"{page}: the phrase {phrase!r} stands there {len(places)} times; expected once. Write it there, or "
                "mend its row in COUNTS of tools/counts.py."
            )
        yield phrase, places[0]


def phrases(page: str) -> list[str]:
    """The phrases of a page as they stand, on one line each: the numerals in them are held."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [" ".join(place[0].split()) for _, place in found(page, text)] if page in COUNTS else []


def updated(page: str, text: str) -> tuple[str, list[str]]:
    """The text of a page with its numbers as they are today, and what was changed."""
    said: list[str] = []
    for phrase, place in sorted(found(page, text), key=lambda pair: -pair[1].start(1)):  # from the end: places stay
        number = written(COUNTS[page][phrase](), place[1])
        if number != place[1]:
            said.insert(0, f"{page}: {phrase.format(place[1])!r} is now {number}")
            text = text[: place.start(1)] + number + text[place.end(1) :]
    if page == "pyproject.toml" and (pinned := with_pins(text)) != text:
        return pinned, [*said, f"{page}: constraint-dependencies are the lines of constraints.txt now"]
    return text, said


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Write the numbers of the pages that count what is there.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail where a page is behind")
    check = parser.parse_args(arguments).check
    behind = []
    for page in COUNTS:
        path = root / page
        try:
            text, said = updated(page, path.read_text(encoding="utf-8"))
        except CountError as error:
            sys.exit(str(error))
        behind += said
        if said and not check:
            path.write_text(text, encoding="utf-8", newline="\n")
    print(*behind, sep="\n", end="\n" if behind else "")
    if check and behind:
        print("Run `make counts`.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
