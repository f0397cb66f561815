"""A real hub for each file of tests, and the loop in which learners act. Run by: make test-hub, as root, with Node"""

import asyncio
import sys
from pathlib import Path

import pytest

from hub_start import Hub

sys.path.insert(0, str(Path(__file__).parents[1] / "browser"))  # its lab.py finds and opens the browser


@pytest.fixture(scope="module")
def hub(request):
    with Hub(**getattr(request.module, "SETTINGS", {})) as hub:
        yield hub


@pytest.fixture(scope="module")
def run():
    """Run a coroutine to its end, all of a file in one loop: connections stay open between tests."""
    with asyncio.Runner() as runner:
        yield runner.run
