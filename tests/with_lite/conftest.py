"""The site of JupyterLite on a server of this machine, and a browser in which its notebooks run. Run by: make test-lite

NB=02,07 runs these notebooks, else all. BROWSER_SHOTS=FOLDER keeps screenshots there, and the notebooks as they ran.
"""

import os
import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent.parent / "browser"), str(Path(__file__).parent.parent)]

from lab import NOTEBOOKS  # noqa: E402

import lite  # noqa: E402
import sites  # noqa: E402

pytest_plugins = ["with_chromium"]


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
