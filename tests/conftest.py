"""Settings that hold for every test, and a small notebook for the tests of the notebook tools."""

import quick_schemas  # noqa: F401  (before what imports nbformat)

# isort: split
import pytest
from hypothesis import settings
from nbformat import v4

import notebooks

# What those need is no dependency (PyTorch, Sphinx, an engine, a hub, a browser), or it takes long (a wheel): make
# test-torch and the like run them, each in the environment that it needs.
collect_ignore_glob = ["with_*", "browser"]

# The same examples on every machine and in every run, and no clock: a slow machine is no failure. Two fifths of the
# examples of each law in make test, all of them in make test-slow, which names the other profile (helpers.examples).
settings.register_profile("lessonlib", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("whole", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("lessonlib")

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYPgPAAEEAQB9ssjfAAAAAElFTkSuQmCC"
BUNDLE = f"""
from IPython.display import display
dot = "{DOT}"
page = f'<img alt="one dot" src="data:image/png;base64,{{dot}}">'
display({{"image/png": dot, "text/html": page, "text/plain": "a dot"}}, raw=True)
"""
SLIDER = "import ipywidgets\nslider = ipywidgets.IntSlider(3)\nslider"
CELLS = (
    v4.new_markdown_cell("# Count the dots\n\nprevious | [index](sample.ipynb) | next"),
    v4.new_markdown_cell("## What you will do"),
    v4.new_code_cell("print('batch', 32)\nprint('nothing to count here')"),
    v4.new_code_cell("12_800/128"),
    v4.new_code_cell(BUNDLE.strip()),
    v4.new_code_cell("from IPython.display import HTML, Markdown\nHTML('<b>296</b> FLOP/byte')"),
    v4.new_code_cell("Markdown('The ridge is **295** FLOP/byte.')"),
    v4.new_code_cell("print('no number at all')"),
    v4.new_code_cell("1 / 0", metadata={"tags": ["raises-exception"]}),
    v4.new_code_cell(SLIDER, metadata={"tags": ["nbval-ignore-output", "widget"]}),
    v4.new_markdown_cell("## Where this stops being true"),
    v4.new_markdown_cell("## Sources"),
)


@pytest.fixture(scope="session")
def sample_text(tmp_path_factory):
    """The text of a small notebook with every kind of cell that the collection has, executed by tools/notebooks.py."""
    path = tmp_path_factory.mktemp("sample") / "sample.ipynb"
    path.write_text(notebooks.normalised(v4.new_notebook(cells=list(CELLS))), encoding="utf-8")
    assert notebooks.main([], folder=path.parent) == 0
    return path.read_text(encoding="utf-8")
