"""One JupyterLab and one browser for all tests, and each notebook opened and run once. Run by: make test-browser"""

import pytest
from lab import ALL_DRAWN, NOTEBOOKS, Lab, Notebook

pytest_plugins = ["with_chromium"]


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("lab"), ALL_DRAWN)
    yield lab
    lab.close()


@pytest.fixture(scope="module", params=NOTEBOOKS)
def notebook(request, lab, browser):
    """Each notebook in turn, all its cells run in a fresh kernel."""
    notebook = Notebook(lab, browser, request.param)
    notebook.run_all()
    yield notebook
    notebook.close()
