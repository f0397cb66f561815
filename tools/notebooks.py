"""Execute the notebooks in fresh kernels and store what they print, so that a second run changes not one byte.

    make notebooks                    all of them
    make notebooks ARGS=02            those whose names begin so
    make notebooks ARGS=--check       change nothing; fail where the stored file is not what a fresh run gives

What differs between two runs or two machines is left out or renamed: times, the Python version, random ids of widgets
and cells, tracebacks (only their last line is kept). A cell that fails, and is not tagged ``raises-exception``, stops
its notebook, whose file then stays as it was.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import quick_schemas  # noqa: F401  (before nbformat)

# isort: split
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from lessonlib.face.exercises.asking import STILL

FOLDER = Path(__file__).parent.parent / "notebooks"
CELL_SECONDS = 120
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE = {
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
}


class CellFailedError(Exception):
    """A cell of a notebook failed: which notebook, which cell, what it said."""


def execute(notebook: NotebookNode, folder: Path, name: str) -> None:
    """Run every cell of the notebook in one fresh kernel, in `folder`, and store the outputs in it.

    Raises CellFailedError, naming the notebook and the cell, for an error, a dead kernel or more than CELL_SECONDS.
    """
    at = 0

    def started(cell: NotebookNode, cell_index: int) -> None:
        nonlocal at
        at = cell_index

    notebook.metadata.pop("widgets", None)
    os.environ[STILL] = "1"  # a question is stored as text: its form lives in a copy
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name=KERNEL["name"],
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        coalesce_streams=True,
        on_cell_start=started,
        extra_arguments=["--IPKernelApp.log_level=40"],  # errors only: the kernel warns of things that hold for all
    )
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        source = notebook.cells[at].source
        raise CellFailedError(f"{name}: cell {at} (counted from 0) failed.\n\n{source}\n\n{error}") from None


def normalised(notebook: NotebookNode) -> str:
    """The text of the notebook's file, with nothing in it that another run or another machine would write otherwise."""
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    widgets = notebook.metadata.get("widgets")
    notebook.metadata = NotebookNode(kernelspec=KERNEL, language_info=LANGUAGE)
    if widgets:
        notebook.metadata.widgets = widgets
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        _normalise_cell(cell)
        # The id follows from the content: whatever tool saved the notebook, the same cell has the same id.
        cell_id = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:12]
        seen[cell_id] = seen.get(cell_id, 0) + 1
        cell.id = cell_id if seen[cell_id] == 1 else f"{cell_id}-{seen[cell_id]}"
    nbformat.validate(notebook)
    text = nbformat.writes(notebook).rstrip("\n") + "\n"
    if widgets:
        # Models in the order in which the kernel made them; the names are as long as the random ones that they replace.
        for number, model in enumerate(widgets[WIDGET_STATE]["state"]):
            text = text.replace(model, f"{number:032x}")
        # The state is sorted by name when written: sort once more, by the new names.
        text = nbformat.writes(nbformat.reads(text, as_version=4)).rstrip("\n") + "\n"
    return text


def _normalise_cell(cell: NotebookNode) -> None:
    kept = {}
    if cell.metadata.get("tags"):
        kept["tags"] = sorted(cell.metadata.tags)
    hidden = [name for name in ("outputs_hidden", "source_hidden") if cell.metadata.get("jupyter", {}).get(name)]
    if hidden:
        kept["jupyter"] = dict.fromkeys(hidden, True)
    cell.metadata = NotebookNode(kept)
    cell.source = cell.source.rstrip()
    for output in cell.get("outputs", ()):
        if output.output_type == "error":
            output.traceback = [f"{output.ename}: {output.evalue}"]


def formatted(text: str) -> str:
    """The text of a notebook's file with its code laid out by ruff, as `make check` wants it."""
    command = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", "notebook.ipynb", "-"]
    piped = {"input": text, "capture_output": True, "text": True, "encoding": "utf-8"}
    run = subprocess.run(command, cwd=FOLDER.parent, check=False, **piped)
    # What ruff cannot read is left as it is: running it says what is wrong, and in which cell.
    return run.stdout if run.returncode == 0 else text


def rerun(path: Path) -> str:
    """What the file of this notebook should hold, after a fresh run of its formatted cells."""
    notebook = nbformat.reads(formatted(path.read_text(encoding="utf-8")), as_version=4)
    execute(notebook, path.parent, path.name)
    return normalised(notebook)


def write(path: Path, text: str) -> None:
    """Replace the file in one step, so that an interruption leaves the old file or the new one."""
    temporary = path.with_suffix(".ipynb.tmp")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    os.replace(temporary, path)


def first_difference(old: str, new: str) -> str:
    """The first line in which two texts differ, shortened, with its number."""
    old_lines, new_lines = old.splitlines(), new.splitlines()
    pairs = zip([*old_lines, "(end)"], [*new_lines, "(end)"], strict=False)
    for number, (before, after) in enumerate(pairs, start=1):
        if before != after:
            return f"line {number}: stored {before.strip()[:100]!r}, now {after.strip()[:100]!r}"
    return "they differ in line endings or in length"


def chosen(names: list[str], folder: Path) -> list[Path]:
    """The notebooks of the folder whose names begin with one of `names`; all of them where no name is given."""
    every = sorted(folder.glob("*.ipynb"))
    unknown = [name for name in names if not any(path.name.startswith(Path(name).name) for path in every)]
    if unknown:
        sys.exit(f"No notebook begins with {unknown[0]!r}; there are: {', '.join(path.name for path in every)}")
    return [path for path in every if not names or any(path.name.startswith(Path(name).name) for name in names)]


def main(arguments: list[str] | None = None, folder: Path = FOLDER) -> int:
    parser = argparse.ArgumentParser(description="Execute the notebooks in fresh kernels and store what they print.")
    parser.add_argument("names", nargs="*", help="how the names of the notebooks begin; none for all")
    parser.add_argument("--check", action="store_true", help="change nothing; fail where a file would change")
    options = parser.parse_args(arguments)
    failed = 0
    for path in chosen(options.names, folder):
        try:
            text = rerun(path)
        except CellFailedError as error:
            print(f"FAILED  {COLOUR.sub('', str(error))}")
            failed += 1
            continue
        old = path.read_bytes()
        if old == text.encode():
            print(f"same    {path.name}")
        elif options.check:
            print(f"DIFFERS {path.name}: {first_difference(old.decode(), text)}")
            failed += 1
        else:
            write(path, text)
            print(f"written {path.name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
