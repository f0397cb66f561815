"""One JupyterLab and one browser for all tests, and each notebook opened and run once. Run by: make test-browser"""

import os
import tempfile
from pathlib import Path

import pytest
from lab import ALL_DRAWN, NOTEBOOKS, Lab, NoChromiumError, Notebook, chromium, opened_browser


def pytest_configure(config):
    try:
        found = chromium()
    except NoChromiumError as error:
        pytest.exit(str(error), returncode=3)
    print(f"Chromium: {found}")


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("lab"), ALL_DRAWN)
    yield lab
    lab.close()


@pytest.fixture(scope="session")
def browser():
    with opened_browser() as browser:
        yield browser


@pytest.fixture(scope="module", params=NOTEBOOKS)
def notebook(request, lab, browser):
    """Each notebook in turn, all its cells run in a fresh kernel."""
    notebook = Notebook(lab, browser, request.param)
    notebook.run_all()
    yield notebook
    notebook.close()


@pytest.fixture(scope="session")
def shots():
    """Where the screenshots go: BROWSER_SHOTS of the environment, or a folder of the system's for temporary files."""
    folder = Path(os.environ.get("BROWSER_SHOTS") or tempfile.mkdtemp(prefix="lessonlib-shots-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"Screenshots: {folder}")
    return folder
