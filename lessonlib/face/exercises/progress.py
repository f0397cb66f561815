"""What a learner has answered: a file progress.json beside the working copies, which it is never an error to lack.

    {"schema": "lessonlib.progress/1", "exercises": {"decode-steps": {"tries": 2, "right": true, "first": false,
      "hints": 1, "looked": false, "slips": ["That ..."]}}}

Only a folder of the name my_notebooks keeps one. It is written whole or not at all, by one kernel after another. Where
it cannot be read it is left as it is, and nothing more is kept.
"""

import json
import statistics
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lessonlib.base.errors import InvalidInputError, LessonError
from lessonlib.base.files import GivenFile, alone, write_together
from lessonlib.base.text import markdown_table, one_line

SCHEMA = "lessonlib.progress/1"
FOLDER, NAME = "my_notebooks", "progress.json"
WHERE_KEPT = f"What you answer in your own copy, in {FOLDER}/, is counted here."
MOST_BYTES = 2**22
NOTHING: dict[str, Any] = {"tries": 0, "right": False, "first": False, "hints": 0, "looked": False, "slips": []}
MOST_SLIPS = 100  # of one exercise, that are remembered
NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def read_progress(path: Path) -> dict[str, dict[str, Any]]:
    """What a progress file holds, by the key of the exercise; InvalidInputError for what is not such a file."""
    file = GivenFile(path, "Progress file", NAME, MOST_BYTES, "give the file of one learner", "check its path")
    text = file.text()
    try:
        found = json.loads(text)
        entries = found["exercises"]
        sound = found["schema"] == SCHEMA and all(_is_entry(entry) for entry in entries.values())
        if sound:
            return {key: {name: entry[name] for name in NOTHING} for key, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    file.refuse("is not what the notebooks keep", "leave it out, or rename it to start anew")


def _is_entry(entry: dict[str, Any]) -> bool:
    types = all(type(entry[name]) is type(kept) for name, kept in NOTHING.items())
    return types and entry["tries"] >= 0 and entry["hints"] >= 0 and all(type(slip) is str for slip in entry["slips"])


class Progress:
    """The progress file of one folder, or of none: then nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    @classmethod
    def here(cls) -> "Progress":
        """That of the folder in which the kernel runs."""
        with suppress(OSError):
            if (folder := Path.cwd()).name == FOLDER:
                return cls(folder / NAME)
        return cls(None)

    @property
    def entries(self) -> dict[str, dict[str, Any]]:
        """What is kept, by key; nothing where there is no file, or none that can be read."""
        with suppress(InvalidInputError):
            if self.path is not None and self.path.exists():
                return read_progress(self.path)
        return {}

    def tried(self, key: str, right: bool, words: str = "") -> None:
        """A guess was made. `words`: what was said to it, which is remembered of a wrong one."""

        def change(entry: dict[str, Any]) -> None:
            if right and not entry["tries"]:
                entry["first"] = True
            if not right and words and len(entry["slips"]) < MOST_SLIPS:
                entry["slips"].append(words)
            entry["tries"] += not entry["right"]  # what is tried afterwards is play
            entry["right"] = entry["right"] or right

        self._keep(key, change)

    def hinted(self, key: str, number: int) -> None:
        self._keep(key, lambda entry: entry.update(hints=max(entry["hints"], number)))

    def looked(self, key: str) -> None:
        """The solution was looked at."""
        self._keep(key, lambda entry: entry.update(looked=entry["looked"] or not entry["right"]))

    def _keep(self, key: str, change: Callable[[dict[str, Any]], None]) -> None:
        if self.path is None:
            return
        # Several notebooks may keep at once. A full disk, or a folder that cannot be written, is no reason to fail.
        with suppress(LessonError, OSError), alone(self.path.with_name(f".{NAME}.lock")):
            entries = read_progress(self.path) if self.path.exists() else {}
            change(entries.setdefault(key, {**NOTHING, "slips": []}))
            text = json.dumps({"schema": SCHEMA, "exercises": entries}, indent=1) + "\n"
            write_together({self.path: text.encode()}, replace=True)

    def in_words(self, number: str, keys: list[str], again: Mapping[str, str] | None = None) -> str:
        """Where one stands in a notebook: "02: 6 of 9 right, two with help." and what is left.

        `again`: the key of each question of a quiz to the notebook to read again where its first answer was wrong. Then
        the score is said: how many were right at the first try, without a look at the solution.
        """
        if self.path is None:
            return f"{number}: {len(keys)} questions. {WHERE_KEPT}"
        entries = self.entries
        right = [key for key in keys if entries.get(key, NOTHING)["right"]]
        helped = sum(entries[key]["hints"] > 0 or entries[key]["looked"] for key in right)
        count = NUMBERS[helped] if helped < len(NUMBERS) else str(helped)
        left = [key for key in keys if key not in right]
        words = f"{number}: {len(right)} of {len(keys)} right" + (f", {count} with help" if helped else "")
        words += f". Left: {', '.join(left)}." if left and right else "."
        if again and (answered := [key for key in again if key in entries]):
            missed = [key for key in answered if not entries[key]["first"] or entries[key]["looked"]]
            words += f" Score: {len(answered) - len(missed)} of {len(again)} at the first try"
            words += f"; read again: {', '.join(sorted({again[key] for key in missed}))}." if missed else "."
        return words


def class_table(files: Iterable[Path], keys: Iterable[str]) -> str:
    """An instructor's table of the progress files of a class, as Markdown: how each exercise went.

    A line for each exercise that somebody tried: learners, how many were right at first and in the end, tries of the
    median learner, how many took hints or looked at the solution, and what was said most often to a wrong guess.
    InvalidInputError for another kind of file.
    """
    learners = [read_progress(path) for path in files]
    rows = []
    for key in keys:
        tried = [entry for learner in learners if (entry := learner.get(key)) and (entry["tries"] or entry["looked"])]
        if not tried:
            continue
        slips = [words for entry in tried for words in entry["slips"]]
        most = max(sorted(set(slips)), key=slips.count, default="")
        counts = [sum(bool(entry[name]) for entry in tried) for name in ("first", "right", "hints", "looked")]
        tries = statistics.median(entry["tries"] for entry in tried)
        rows.append((key, *map(str, (len(tried), *counts[:2], f"{tries:g}", *counts[2:])), one_line(most, 60)))
    header = (
        "exercise",
        "tried by",
        "right at first",
        "right",
        "median tries",
        "hints",
        "solution",
        "said most often",
    )
    return f"{len(learners)} learners\n\n{markdown_table(header, rows, plain=True)}"
