"""What every folder of tests in a browser begins with: Chromium is there, one of it is open, screenshots have a place.

BROWSER_SHOTS=FOLDER keeps the screenshots there.
"""

import os
import tempfile
from pathlib import Path

import pytest
from lab import NoChromiumError, chromium, opened_browser


def pytest_configure(config):
    try:
        found = chromium()
    except NoChromiumError as error:
        pytest.exit(str(error), returncode=3)
    print(f"Chromium: {found}")


@pytest.fixture(scope="session")
def browser():
    with opened_browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def shots():
    """Where the screenshots go: BROWSER_SHOTS of the environment, or a folder of the system's for temporary files."""
    folder = Path(os.environ.get("BROWSER_SHOTS") or tempfile.mkdtemp(prefix="lessonlib-shots-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"Screenshots: {folder}")
    return folder
