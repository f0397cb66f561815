"""A learner's working copies: my_notebooks/, without outputs, ignored by git, so that `git pull` never meets them.

    make lab            copies each notebook that is not there yet, then opens the first
    make fresh          takes every copy anew in which no cell was changed
    make fresh NB=03    takes the copies whose names begin so anew; those that were there are kept as 03_...-1.ipynb

No copy that somebody changed is ever replaced. What each was made from is remembered in my_notebooks/.made.json.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import quick_schemas  # noqa: F401  (before nbformat)

# isort: split
import nbformat

from lessonlib.base.files import write_new

ROOT = Path(__file__).parent.parent
MADE = ".made.json"


def bare(text: str) -> str:
    """The notebook's text without what running it left: outputs, counts, the state of widgets, folded results."""
    notebook = nbformat.reads(text, as_version=4)
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        cell.metadata.pop("jupyter", None)
        if tags := [tag for tag in cell.metadata.pop("tags", ()) if tag != "hide-output"]:
            cell.metadata.tags = tags
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def digest(text: str) -> str:
    """What stays the same while cells are run, and changes with any cell; of no notebook, a word that no digest is."""
    try:
        cells: Any = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    except (ValueError, KeyError, TypeError):
        return "no notebook"
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


class WorkingCopy:
    """The folder of a learner's copies beside that of the notebooks."""

    def __init__(self, root: Path = ROOT, folder: Path | None = None) -> None:
        self.notebooks = sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))
        self.folder = folder or root / "my_notebooks"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.made: dict[str, str] = {}
        with suppress(OSError, ValueError):
            found = json.loads((self.folder / MADE).read_text(encoding="utf-8"))
            self.made = found if isinstance(found, dict) else {}

    def text(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8", errors="replace")

    def make(self) -> Iterator[str]:
        """Copy what is not there yet; a line for each copy whose notebook has changed since it was made."""
        for path in self.notebooks:
            new = bare(path.read_text(encoding="utf-8"))
            if not (self.folder / path.name).exists():
                self._write(path.name, new)
            elif self.made.get(path.name, digest(new)) != digest(new):
                way = f"make fresh NB={path.name[:2]} takes the new one, and keeps yours beside it"
                yield f"{path.name}: the notebook has changed since your copy was made; {way}."

    def fresh(self, begins: str = "") -> Iterator[str]:
        """Take copies anew: of those whose names begin so all, else those in which no cell was changed. A line each."""
        begins = begins.zfill(2) if begins.isdigit() else begins
        chosen = [path for path in self.notebooks if path.name.startswith(begins)]
        if not chosen:
            names = ", ".join(path.name[:2] for path in self.notebooks)
            yield f"No notebook begins with {begins!r}; expected one of {names}."
        for path in chosen:
            new, copy = bare(path.read_text(encoding="utf-8")), self.folder / path.name
            if not copy.exists():
                self._write(path.name, new)
                yield f"{path.name}: made."
            elif self.text(path.name) == new:
                yield f"{path.name}: is as new."
            elif digest(self.text(path.name)) == self.made.get(path.name):
                copy.unlink()
                self._write(path.name, new)
                yield f"{path.name}: taken anew; no cell had been changed."
            elif begins:
                kept = write_new(self._places(copy), copy.read_bytes())
                copy.unlink()
                self._write(path.name, new)
                yield f"{path.name}: taken anew; yours is kept as {kept.name}."
            else:
                way = f"make fresh NB={path.name[:2]} takes a new one, and keeps yours beside it"
                yield f"{path.name}: stays, for you changed it; {way}."

    def _places(self, copy: Path) -> Iterator[Path]:
        number = 1
        while True:
            yield copy.with_name(f"{copy.stem}-{number}.ipynb")
            number += 1

    def _write(self, name: str, text: str) -> None:
        """Write a copy, whole, where nothing has its name; then remember what it was made from."""
        path = self.folder / name
        if write_new(chain([path], self._places(path)), text.encode()) == path:
            self.made[name] = digest(text)
            temporary = self.folder / f"{MADE}.part"
            temporary.write_text(json.dumps(self.made, indent=1) + "\n", encoding="utf-8")
            os.replace(temporary, self.folder / MADE)


def main(arguments: list[str]) -> int:
    if (arguments and arguments[0] != "fresh") or len(arguments) > 2:
        print(__doc__, file=sys.stderr)
        return 2
    copies = WorkingCopy()
    for line in copies.fresh(*arguments[1:]) if arguments else copies.make():
        print(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
