"""The book, made once, and a browser that reads it: from a server below a path of its own, and from its folder.

Run by: make test-book. BROWSER_SHOTS=FOLDER keeps screenshots there.
"""

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent.parent / "browser"), str(Path(__file__).parent.parent)]

import book  # noqa: E402
import sites  # noqa: E402

pytest_plugins = ["with_chromium"]

BELOW = "a/course/of/its/own"  # the book may lie anywhere on a server


@pytest.fixture(scope="session")
def warnings():
    """What Sphinx had to say; with it the book is made."""
    return book.build()


@pytest.fixture(scope="session")
def site(warnings):
    """The folder of the book."""
    return book.SITE


@pytest.fixture(scope="session")
def served(site, tmp_path_factory):
    """The address of the book on a server."""
    root = tmp_path_factory.mktemp("server")
    (root / BELOW).parent.mkdir(parents=True)
    (root / BELOW).symlink_to(site, target_is_directory=True)
    with sites.served(root) as address:
        yield f"{address}/{BELOW}"


@pytest.fixture(params=["served", "folder"])
def address(request, site):
    """The address of the book: on a server, and as a folder that is opened."""
    return request.getfixturevalue("served") if request.param == "served" else site.as_uri()


@pytest.fixture
def page(browser):
    """A page of a browser that remembers nothing; `said` and `asked`: what its console said, what it loaded."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    page = context.new_page()
    page.said, page.asked = [], []
    page.on("console", lambda message: page.said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: page.said.append(str(error)))
    context.on("request", lambda request: page.asked.append(request.url))
    yield page
    context.close()
