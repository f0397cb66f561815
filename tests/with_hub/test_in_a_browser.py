"""A learner in a real browser: the login, all of notebook 02, and explorers that ask the kernel nothing.

Needs Chromium or Chrome, as make test-browser does; without one it says so and is skipped.
"""

import json
import urllib.request
from urllib.parse import urlsplit

import pytest
from lab import SECONDS, NoChromiumError, chromium, opened_browser
from playwright.sync_api import expect

import hub_room
from hub_learner import Learner

# All cells are drawn, those outside the window too, so that an explorer can be found.
DRAWN = "/lab/api/settings/@jupyterlab/notebook-extension:tracker"


@pytest.fixture(scope="module")
def ada(hub, run):
    learner = Learner(hub.url, "ada", hub.password)
    assert run(learner.login())
    run(learner.start())
    raw = {"raw": json.dumps({"windowingMode": "none"})}
    run(learner.expect((204,), "PUT", learner.server + DRAWN, raw))
    return learner


@pytest.fixture(scope="module")
def page(hub, ada):
    """Ada's notebook 02 in a browser, all cells run; `page.sent`: what it says by WebSockets; `page.asked`: hosts."""
    try:
        chromium()
    except NoChromiumError as error:
        pytest.skip(str(error))
    with opened_browser() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(SECONDS * 1000)
        page.sent, page.asked = [], set()
        page.on("request", lambda request: page.asked.add(urlsplit(request.url).netloc))  # none: of data and blobs
        page.on("websocket", lambda socket: socket.on("framesent", lambda data: page.sent.append((socket.url, data))))
        page.goto(f"{hub.url}/hub/login?next=/user/ada/lab/tree/{hub_room.NOTEBOOK}")
        page.fill("#username_input", "ada")
        page.fill("#password_input", hub.password)
        page.click("#login_submit")
        wait_until_idle(page)
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        expect(page.locator(".lesson-explore").first.get_by_role("slider").first).to_be_attached(timeout=SECONDS * 1000)
        wait_until_idle(page)
        yield page


def wait_until_idle(page):
    bar = page.locator("#jp-bottom-panel, #jp-main-statusbar")
    expect(bar.get_by_text("| Idle").first).to_be_visible(timeout=SECONDS * 1000)


def kernels(ada):
    """What Ada's server says of its kernels; asked without a loop, for the browser has one of its own."""
    address, own = f"{ada.url}{ada.server}/api/kernels", {"Authorization": f"token {ada.token}"}
    request = urllib.request.Request(address, headers=own)
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.load(answer)


def to_kernels(page):
    return [data for url, data in page.sent if "/channels" in url]


def test_while_a_slider_moves_the_kernel_gets_no_message(page, ada):
    """An explorer computes in the page, so thirty learners at their sliders cost the hub nothing."""
    boxes = page.locator(".lesson-explore")
    assert boxes.count() >= 1
    before, known = len(to_kernels(page)), kernels(ada)
    assert before > 20 and len(known) == 1  # each cell that ran was a message, so messages are seen here
    for number in range(boxes.count()):
        box = boxes.nth(number)
        slider, pictures = box.get_by_role("slider").first, box.locator(".pictures")
        slider.focus()
        for key in ("ArrowRight", "PageUp", "ArrowLeft", "PageDown") * 5:
            shown = pictures.inner_html()
            page.keyboard.press(key)
            page.wait_for_function("([box, old]) => box.innerHTML !== old", arg=[pictures.element_handle(), shown])
    assert to_kernels(page)[before:] == []
    (after,) = kernels(ada)
    assert after["last_activity"] == known[0]["last_activity"] and after["execution_state"] == "idle"


def test_the_page_asks_no_other_host_and_no_questions(hub, page):
    assert page.asked - {""} == {urlsplit(hub.url).netloc}
    expect(page.get_by_text("Jupyter news")).to_have_count(0)
