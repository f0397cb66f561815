"""Cells survive being run again: twice in a row, and each alone after Run All, with the same output each time.

After Run All every cell is run once more, from the last to the first: so each finds the variables that the cells after
it left, and shows what it showed. Cells whose outputs differ from run to run, and say so by a tag, only have to run.
"""

import json
import os
from itertools import groupby

import nbformat
import pytest
from nbclient import NotebookClient
from reading import NOTEBOOKS, shown

from lessonlib.face.exercises.asking import STILL

pytestmark = pytest.mark.slow
LEFT_OUT = "nbval-ignore-output"


def told(cell) -> list[str]:
    """What the cell shows, in plain text. The parts of one stream are one, however they came."""
    for output in cell.outputs:
        assert output.output_type != "error" or "raises-exception" in cell.metadata.get("tags", ()), shown(output)
    runs = groupby(cell.outputs, lambda output: (output.output_type, output.get("name")))
    texts = ((kind, [shown(output) for output in outputs]) for (kind, _), outputs in runs)
    return [text for kind, found in texts for text in (["".join(found)] if kind == "stream" else found)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_can_be_run_again(path, monkeypatch):
    monkeypatch.setitem(os.environ, STILL, "1")
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": path.parent}})
    code = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    wrong = []

    def run(i: int) -> list[str]:
        client.execute_cell(notebook.cells[i], i)
        return told(notebook.cells[i])

    with client.setup_kernel():
        first = {}
        for i in code:
            first[i] = run(i)
            if run(i) != first[i]:
                wrong.append((i, "twice in a row"))
        for i in reversed(code):
            if run(i) != first[i]:
                wrong.append((i, "after Run All"))
    wrong = [(i, how) for i, how in wrong if LEFT_OUT not in notebook.cells[i].metadata.get("tags", ())]
    sources = {f"cell {i}, {how}": notebook.cells[i].source.splitlines()[:3] for i, how in wrong}
    assert not wrong, f"{path.name} shows something else when run again: {json.dumps(sources, indent=1)}"
