"""The site of JupyterLite on a server of this machine, and a browser in which its notebooks run. Run by: make test-lite

NB=02,07 runs these notebooks, else all. LITE_SHOTS=FOLDER keeps screenshots there.
"""

import os
import sys
import tempfile
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent.parent / "browser"), str(Path(__file__).parent.parent)]

from lab import NOTEBOOKS, NoChromiumError, chromium, opened_browser  # noqa: E402

import lite  # noqa: E402
import sites  # noqa: E402


def pytest_configure(config):
    try:
        found = chromium()
    except NoChromiumError as error:
        pytest.exit(str(error), returncode=3)
    print(f"Chromium: {found}")


def chosen() -> list[str]:
    """The notebooks that NB names by how they begin; all where it names none."""
    begins = tuple(part.strip() for part in os.environ.get("NB", "").split(",") if part.strip())
    found = [name for name in NOTEBOOKS if name.startswith(begins or "")]
    if not found:
        pytest.exit(f"NB={os.environ['NB']} names no notebook; expected beginnings such as 02,07.", returncode=3)
    return found


def pytest_generate_tests(metafunc):
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", chosen(), scope="module")


@pytest.fixture(scope="session")
def notebooks():
    """The notebooks' file names by their numbers."""
    return {name[:2]: name for name in NOTEBOOKS}


@pytest.fixture(scope="session")
def address():
    """Where the site is served: build/lite, as `make lite` built it."""
    with sites.served(lite.SITE) as address:
        yield address


@pytest.fixture(scope="session")
def browser():
    with opened_browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def shots():
    folder = Path(os.environ.get("LITE_SHOTS") or tempfile.mkdtemp(prefix="lessonlib-lite-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"Screenshots and notebooks as they ran: {folder}")
    return folder
