"""A real hub for each file of tests, and the loop in which learners act. Run by: make test-hub, as root, with Node"""

import asyncio

import pytest

from hub_start import Hub


@pytest.fixture(scope="module")
def hub(request):
    settings = getattr(request.module, "SETTINGS", {})
    with Hub(**settings) as hub:
        yield hub


@pytest.fixture(scope="module")
def run():
    """Run a coroutine to its end, all of a file in one loop: connections stay open between tests."""
    with asyncio.Runner() as runner:
        yield runner.run
