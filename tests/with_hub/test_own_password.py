"""Where the first password of a name becomes its own, nobody else takes that name; and who is on no list stays out."""

import shutil
import subprocess

import pytest

from hub_learner import Learner, LearnerFailedError
from hub_start import PREFIX

SETTINGS = {"HUB_LOGIN": "firstuse", "HUB_LEARNERS": "ada bob", "HUB_IDLE": "20"}


def test_a_name_belongs_to_who_came_first(hub, run):
    assert run(Learner(hub.url, "ada", "the first of ada").login())
    assert not run(Learner(hub.url, "ada", "another one of eve").login())
    assert run(Learner(hub.url, "ada", "the first of ada").login())
    (kept,) = hub.state.glob("passwords*")
    assert kept.stat().st_mode & 0o077 == 0


def test_a_short_password_and_a_name_that_is_not_on_the_list_are_refused(hub, run):
    assert not run(Learner(hub.url, "bob", "short").login())
    assert not run(Learner(hub.url, "eve", "long enough for eve").login())
    assert not run(Learner(hub.url, "instructor", "long enough for eve").login())


def test_an_idle_server_is_stopped_and_what_was_saved_stays(hub, run):
    ada = Learner(hub.url, "ada", "the first of ada")
    assert run(ada.login())
    run(ada.start())
    run(ada.save("my_notebooks/mine.txt", "mine", "file"))
    hub.wait("the idle server is not stopped", lambda: not run(ada.has_server()))
    assert (hub.home("ada") / "lesson" / "my_notebooks" / "mine.txt").read_text() == "mine"


def test_a_home_without_its_user_gets_the_same_user_back(hub, run):
    """As in a container that was made anew over the same homes, where somebody new comes first."""
    hub.wait("the processes of ada do not end", lambda: not hub.running("ada", ""))
    before = hub.uid("ada")
    subprocess.run(["userdel", PREFIX + "ada"], check=True)
    bob = Learner(hub.url, "bob", "long enough for bob")
    assert run(bob.login())
    run(bob.start())
    assert hub.uid("ada") == before != hub.uid("bob")
    ada = Learner(hub.url, "ada", "the first of ada")
    assert run(ada.login())
    run(ada.start())
    assert run(ada.read("my_notebooks/mine.txt")) == "mine"
    for one in (ada, bob):
        run(one.stop())


def test_a_home_whose_number_somebody_else_has_is_opened_for_nobody(hub, run):
    hub.wait("the processes of ada do not end", lambda: not hub.running("ada", ""))
    before = hub.uid("ada")
    subprocess.run(["userdel", PREFIX + "ada"], check=True)
    subprocess.run(["useradd", "--no-create-home", "--uid", str(before), PREFIX + "other"], check=True)
    ada = Learner(hub.url, "ada", "the first of ada")
    assert run(ada.login())
    with pytest.raises(LearnerFailedError):
        run(ada.start())
    assert "is not unique" in hub.log.read_text()
    subprocess.run(["userdel", PREFIX + "other"], check=True)
    run(ada.start())
    assert hub.uid("ada") == before


def test_a_copy_that_was_deleted_comes_again_and_one_that_was_changed_stays(hub, run):
    ada = Learner(hub.url, "ada", "the first of ada")
    assert run(ada.login())
    folder = hub.home("ada") / "lesson" / "my_notebooks"
    (folder / "01_one_pass_by_hand.ipynb").unlink()
    (folder / "02_chat_versus_reasoning.ipynb").write_text("changed")
    run(ada.stop())
    hub.wait("the server of ada does not stop", lambda: not run(ada.has_server()))
    run(ada.start())
    assert (folder / "01_one_pass_by_hand.ipynb").stat().st_uid == hub.uid("ada")
    assert (folder / "02_chat_versus_reasoning.ipynb").read_text() == "changed"


def test_a_learner_leads_root_nowhere_by_a_link(hub, run):
    """The copy is unpacked as the learner: what the learner may not write is not written."""
    bob = Learner(hub.url, "bob", "long enough for bob")
    assert run(bob.login())
    run(bob.start())
    run(bob.stop())
    hub.wait("the server of bob does not stop", lambda: not run(bob.has_server()))
    target = hub.folder / "roots"
    target.mkdir(mode=0o755)
    folder = hub.home("bob") / "lesson" / "my_notebooks"
    shutil.rmtree(folder)
    folder.symlink_to(target)
    run(bob.ask("POST", "/hub/api/users/bob/server"))
    hub.wait(
        "the hub does not come to an end with the server of bob",
        lambda: not run(bob.expect((200,), "GET", "/hub/api/users/bob"))["pending"],
    )
    assert list(target.iterdir()) == []
