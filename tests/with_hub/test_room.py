"""A room of learners who come at once, and what goes wrong on such a day: the others go on, and nothing saved is lost.

HUB_TEST_LEARNERS of the environment is their number (make test-hub N=30).
"""

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import hub_room
from hub_learner import LearnerFailedError
from hub_start import PREFIX

ROOT = Path(__file__).parents[2]
LEARNERS = int(os.environ.get("HUB_TEST_LEARNERS", "5"))
MINE = "my_notebooks/mine.txt"
ANSWER = "from lessonlib.face.exercises.progress import Progress\nProgress.here().tried('decode-steps', True)"

if not 3 <= LEARNERS <= hub_room.MOST:
    pytest.exit(f"N is {LEARNERS}: expected 3 to {hub_room.MOST} learners (make test-hub N=30).", returncode=3)


@pytest.fixture(scope="module")
def room(hub, run):
    """All have come and run notebook 02; each has saved a file, answered an exercise, and holds a name in a kernel."""
    room = run(hub_room.measured(hub, LEARNERS))
    print(f"\n{hub_room.table([room], os.getloadavg()[0])}")
    assert room.failures == []

    async def keep(visit):
        name = visit.learner.name
        await visit.learner.save(MINE, f"saved by {name}", "file")
        assert (await visit.kernel.run(f"kept = {name!r}\n{ANSWER}")).status == "ok"

    run(all_of(keep, room.visits))
    return room


async def all_of(what, visits):
    await asyncio.gather(*(what(visit) for visit in visits))


async def goes_on(visit):
    """This learner's kernel still holds its name, over the connection that was open all the time."""
    assert (await visit.kernel.run("print(kept)")).text.strip() == visit.learner.name


async def reconnects(visit):
    """The same over a new connection, as JupyterLab makes one: the kernel was never lost."""
    visit.kernel = await visit.learner.connect(visit.kernel.session)
    await goes_on(visit)


async def has_saved(visit):
    assert await visit.learner.read(MINE) == f"saved by {visit.learner.name}"
    progress = json.loads(await visit.learner.read("my_notebooks/progress.json"))
    assert progress["exercises"]["decode-steps"]["right"] is True


def test_all_who_come_at_once_run_the_notebook(room):
    assert len(room.visits) == LEARNERS and room.failures == []
    cells = {len(visit.cells) for visit in room.visits}
    assert len(cells) == 1 and cells.pop() > 10
    for visit in room.visits:
        assert 0 < visit.server < visit.cells[0] and visit.cells == sorted(visit.cells)
    assert all(50e6 < size < 1e9 for size in room.learner_bytes)


def test_who_takes_too_much_memory_gets_an_error_and_the_kernel_lives(room, run):
    greedy, *others = room.visits
    hog = "import numpy\nheld = []\nwhile len(held) < 100:\n    held.append(numpy.ones(2**24))"
    ran = run(greedy.kernel.run(hog))
    assert ran.status == "error" and "MemoryError" in ran.error
    assert run(greedy.kernel.run("print(len(held) < 20); del held")).text.strip() == "True"
    run(all_of(goes_on, room.visits))
    run(all_of(has_saved, others))


def test_a_kernel_that_the_system_kills_for_memory_comes_again(hub, room, run):
    """Where a whole machine has no memory left, Linux kills a process: by this signal."""
    struck, *others = room.visits
    with pytest.raises(LearnerFailedError, match="restarting"):
        run(struck.kernel.run("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"))
    run(all_of(goes_on, others))
    struck.kernel = run(struck.learner.connect(struck.kernel.session))
    assert "NameError" in run(struck.kernel.run("kept")).error  # what was not saved is gone, and the kernel is back
    run(has_saved(struck))
    assert run(struck.kernel.run(f"kept = {struck.learner.name!r}")).status == "ok"


def test_a_server_that_is_killed_is_started_again_by_its_learner(hub, room, run):
    _, struck, *others = room.visits
    name = struck.learner.name
    (server,) = hub.running(name, "jupyterhub-singleuser")
    server.kill()
    hub.wait(f"the hub does not see that the server of {name} is gone", lambda: not run(struck.learner.has_server()))
    hub.wait(f"the kernels of {name} outlive their server", lambda: not hub.running(name, "ipykernel"))
    run(all_of(goes_on, [room.visits[0], *others]))
    run(struck.learner.start())
    run(has_saved(struck))
    struck.kernel = run(struck.learner.open(hub_room.NOTEBOOK))
    assert run(struck.kernel.run(f"kept = {name!r}")).status == "ok"


def test_when_the_proxy_dies_it_comes_again_and_kernels_are_as_they_were(hub, room, run):
    (proxy,) = hub.proxies()
    proxy.kill()
    hub.wait("the hub does not start its proxy again", lambda: run(room.visits[0].learner.server_answers()))
    (again,) = hub.proxies()
    assert again.pid != proxy.pid
    run(all_of(reconnects, room.visits))
    run(all_of(has_saved, room.visits))


def test_when_the_hub_is_started_again_servers_and_kernels_are_as_they_were(hub, room, run):
    before = {one.pid for visit in room.visits for one in hub.running(visit.learner.name, "jupyterhub-singleuser")}
    helpers = psutil.Process(hub.process.pid).children()  # the proxy and who stops idle servers, besides the servers
    helpers = [child for child in helpers if child.pid not in before]
    assert len(helpers) == 2
    hub.process.send_signal(signal.SIGKILL)
    hub.process.wait()
    hub.start()
    assert psutil.wait_procs(helpers, 20)[1] == []
    for learner in (visit.learner for visit in room.visits):
        hub.wait(
            f"the proxy has no way to the server of {learner.name}",
            lambda learner=learner: run(learner.server_answers()),
        )
    run(all_of(reconnects, room.visits))
    run(all_of(has_saved, room.visits))
    assert before == {
        one.pid for visit in room.visits for one in hub.running(visit.learner.name, "jupyterhub-singleuser")
    }
    assert all(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in before)


def test_the_command_of_the_page_collects_the_progress_of_all(hub, room, tmp_path):
    page = (ROOT / "docs" / "hub.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^find .*progress\.json.*$", page, re.MULTILINE)
    command = command.replace("/home", shlex.quote(str(hub.homes))).replace("learner-", PREFIX)
    command = command.replace("~/progress", shlex.quote(str(tmp_path)))
    decoy = hub.home(room.visits[0].learner.name) / "lesson" / "elsewhere" / "my_notebooks"
    decoy.mkdir(parents=True)
    (decoy / "progress.json").symlink_to(hub.state / "cookie_secret")
    subprocess.run(command, shell=True, check=True)
    assert len(list(tmp_path.rglob("*.json"))) == LEARNERS
    table = [sys.executable, "-m", "lessonlib.face.exercises", str(tmp_path)]
    said = subprocess.run(table, capture_output=True, text=True, check=True).stdout
    assert f"{LEARNERS} learners" in said and re.search(rf"decode-steps`? +\| +{LEARNERS} ", said)
