"""tools/notebooks.py: what it stores is the same on every run, and a failing cell changes nothing."""

import nbformat
import pytest
from nbformat import v4

import notebooks


def save(folder, *cells):
    path = folder / "sample.ipynb"
    nbformat.write(v4.new_notebook(cells=list(cells)), path)
    return path


def test_a_second_run_changes_no_byte(tmp_path, sample_text, capsys):
    path = tmp_path / "sample.ipynb"
    path.write_text(sample_text, encoding="utf-8", newline="\n")
    assert notebooks.main(["--check"], folder=tmp_path) == 0
    assert capsys.readouterr().out == "same    sample.ipynb\n"
    assert path.read_text(encoding="utf-8") == sample_text


def test_check_sees_a_changed_output_and_leaves_it(tmp_path, sample_text, capsys):
    path = tmp_path / "sample.ipynb"
    changed = sample_text.replace("batch 32", "batch 33")
    path.write_text(changed, encoding="utf-8", newline="\n")
    assert notebooks.main(["--check"], folder=tmp_path) == 1
    assert "batch 33" in capsys.readouterr().out
    assert path.read_text(encoding="utf-8") == changed


def test_a_failing_cell_is_named_and_nothing_is_written(tmp_path, capsys):
    path = save(tmp_path, v4.new_code_cell("print(1)"), v4.new_code_cell("tokens = {}\ntokens['prompt']"))
    before = path.read_bytes()
    assert notebooks.main([], folder=tmp_path) == 1
    said = capsys.readouterr().out
    assert "sample.ipynb: cell 1" in said and "KeyError" in said
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_cell_that_is_no_python_is_named_too(tmp_path, capsys):
    path = save(tmp_path, v4.new_code_cell("tokens = ("))
    before = path.read_bytes()
    assert notebooks.main([], folder=tmp_path) == 1
    assert "sample.ipynb: cell 0" in capsys.readouterr().out
    assert path.read_bytes() == before


def test_code_is_laid_out(sample_text):
    sources = [cell.source for cell in nbformat.reads(sample_text, as_version=4).cells]
    assert "12_800 / 128" in sources and 'print("batch", 32)\nprint("nothing to count here")' in sources


def test_what_differs_between_runs_is_not_stored(sample_text):
    notebook = nbformat.reads(sample_text, as_version=4)
    assert set(notebook.metadata) == {"kernelspec", "language_info", "widgets"}
    assert "version" not in notebook.metadata.language_info
    assert all("execution" not in cell.metadata for cell in notebook.cells)
    state = notebook.metadata.widgets[notebooks.WIDGET_STATE]["state"]
    assert sorted(state) == [f"{number:032x}" for number in range(len(state))]
    shown = [
        output.data["application/vnd.jupyter.widget-view+json"]["model_id"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "application/vnd.jupyter.widget-view+json" in output.get("data", {})
    ]
    assert len(shown) == 1 and state[shown[0]]["state"]["value"] == 3
    failed = next(o for cell in notebook.cells for o in cell.get("outputs", ()) if o.output_type == "error")
    assert failed.traceback == ["ZeroDivisionError: division by zero"]


def test_cell_ids_follow_from_the_content():
    cells = [v4.new_markdown_cell("a"), v4.new_markdown_cell("a"), v4.new_code_cell("a")]
    texts = [notebooks.normalised(v4.new_notebook(cells=cells)) for _ in range(2)]
    assert texts[0] == texts[1]
    assert len({cell.id for cell in nbformat.reads(texts[0], as_version=4).cells}) == 3


def test_notebooks_are_chosen_by_how_their_names_begin(tmp_path):
    names = ["00_start", "01_redo", "02_chat"]
    for name in names:
        (tmp_path / f"{name}.ipynb").touch()
    assert [path.stem for path in notebooks.chosen([], tmp_path)] == names
    assert [path.stem for path in notebooks.chosen(["01", "notebooks/02_chat.ipynb"], tmp_path)] == names[1:]
    with pytest.raises(SystemExit, match="'07'"):
        notebooks.chosen(["07"], tmp_path)
