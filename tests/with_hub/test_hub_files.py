"""The files of deploy/hub that nothing here can run, read as what they are: images, compose, Kubernetes, systemd."""

import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml
from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy" / "hub"


@pytest.fixture
def dockerfile(tmp_path):
    parser = DockerfileParser(path=str(tmp_path / "Dockerfile"))
    parser.content = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    return parser


@pytest.fixture
def own():
    """Folders of its own for a configuration; their path is short, as sockets need it."""
    with tempfile.TemporaryDirectory(prefix="hub-") as folder:
        yield {"HUB_STATE": f"{folder}/state", "HUB_HOMES": f"{folder}/h"}


READ = """
import sys; from traitlets.config import PyFileConfigLoader as L
c = L(sys.argv[1]).load_config()
print(repr({name: {key: str(value) for key, value in part.items()} for name, part in c.items()}))
"""


# The same for each of several sets of variables: what it refuses them with, or none.
READ_EACH = """
import json, os, sys; from traitlets.config import PyFileConfigLoader as L
kept, said = dict(os.environ), []
for variables in json.loads(sys.argv[2]):
    os.environ.clear(); os.environ.update(kept | variables)
    try: L(sys.argv[1]).load_config()
    except SystemExit as refused: said.append(str(refused))
    else: said.append(None)
print(json.dumps(said))
"""


def config(code=READ, *arguments, **variables):
    """The configuration as JupyterHub reads it, in a process and in folders of its own, for it makes some."""
    command = [sys.executable, "-c", code, str(DEPLOY / "jupyterhub_config.py"), *arguments]
    environment = {"PATH": "/usr/bin:/bin", "HUB_PASSWORD": "words of a room", **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_images_start_from_an_exact_python_and_end_as_hub_and_as_learner(dockerfile):
    steps = [(step["instruction"], step["value"]) for step in dockerfile.structure]
    stages = [value for name, value in steps if name == "FROM"]
    assert re.fullmatch(r"python:3\.1[123]-slim-\w+ AS lesson", stages[0])
    assert stages[1:] == ["lesson AS singleuser", "lesson AS hub"]
    inside = [[], [], []]
    for name, value in steps[steps.index(("FROM", stages[0])) :]:
        if name == "FROM":
            inside[stages.index(value)] = current = []
        elif name != "COMMENT":
            current.append((name, value))
    assert ("USER", "1000") in inside[1] and inside[1][-1] == ("CMD", '["jupyterhub-singleuser"]')
    assert not any(name == "USER" for name, _ in inside[2])  # it makes Unix users
    copied = [value.split()[0] for name, value in steps if name == "COPY"]
    assert copied and all((ROOT / name).exists() for name in copied)
    for path in re.findall(r"(?:tools|deploy)/[\w/.-]+", dockerfile.content):
        assert (ROOT / path).exists(), path


def test_hadolint_has_nothing_to_say():
    hadolint = Path(sys.prefix) / "bin" / "hadolint"
    run = subprocess.run([hadolint, DEPLOY / "Dockerfile"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_images_leave_out_what_is_secret_or_large():
    left_out = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert {".git", ".env", ".venv*", "my_notebooks"} <= set(left_out)


def test_compose_keeps_homes_and_state_and_asks_for_the_password():
    compose = yaml.safe_load((DEPLOY / "compose.yml").read_text(encoding="utf-8"))
    hub = compose["services"]["hub"]
    assert (DEPLOY / hub["build"]["context"]).resolve() == ROOT
    assert (ROOT / hub["build"]["dockerfile"]).exists() and hub["build"]["target"] == "hub"
    kept = dict(volume.split(":") for volume in hub["volumes"])
    assert kept == {"state": "/var/lib/lesson-hub", "homes": "/home"} and set(compose["volumes"]) == set(kept)
    assert hub["environment"]["HUB_PASSWORD"].startswith("${HUB_PASSWORD:?")
    known = set(re.findall(r'"(HUB_\w+)"', (DEPLOY / "jupyterhub_config.py").read_text(encoding="utf-8")))
    assert set(hub["environment"]) <= known
    assert hub["cap_drop"] == ["ALL"] and "SYS_ADMIN" not in hub["cap_add"]


def test_kubernetes_values_name_what_the_image_has(dockerfile):
    values = yaml.safe_load((DEPLOY / "zero-to-jupyterhub.yaml").read_text(encoding="utf-8"))
    one = values["singleuser"]
    assert one["cmd"][-1] == "/srv/lesson/.venv-hub/bin/jupyterhub-singleuser"
    assert "WORKDIR /srv/lesson" in dockerfile.content
    assert f"--uid {one['uid']} learner" in dockerfile.content
    assert one["storage"]["homeMountPath"] == "/home/learner" and one["allowPrivilegeEscalation"] is False
    assert one["networkPolicy"]["enabled"] is True
    assert values["hub"]["concurrentSpawnLimit"] > values["hub"]["activeServerLimit"]


def test_a_pod_unpacks_the_working_copy_and_then_starts_its_server(tmp_path):
    """The command of the values, run with folders of here, and with `echo` for the server."""
    values = yaml.safe_load((DEPLOY / "zero-to-jupyterhub.yaml").read_text(encoding="utf-8"))
    *words, server = values["singleuser"]["cmd"]
    subprocess.run([sys.executable, ROOT / "tools" / "hub_home.py"], check=True)
    words = [
        word.replace("/srv/lesson", str(ROOT)).replace("/home/learner", shlex.quote(str(tmp_path))) for word in words
    ]
    kept = tmp_path / "lesson" / "my_notebooks" / "02_chat_versus_reasoning.ipynb"
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    assert server.endswith("/jupyterhub-singleuser")
    run = subprocess.run([*words, "echo", "--port=1"], capture_output=True, text=True, check=True)
    assert run.stdout == "--port=1\n" and kept.read_text() == "mine"
    assert len(list(kept.parent.glob("[0-9][0-9]_*.ipynb"))) == len(list((ROOT / "notebooks").glob("*.ipynb")))


def test_each_setting_is_one_that_its_class_has(own):
    """JupyterHub ignores a setting that a class does not have, so a slip of the pen would turn a limit off."""
    from firstuseauthenticator import FirstUseAuthenticator
    from jupyterhub.app import JupyterHub
    from jupyterhub.auth import Authenticator
    from jupyterhub.authenticators.shared import SharedPasswordAuthenticator
    from jupyterhub.proxy import ConfigurableHTTPProxy
    from jupyterhub.spawner import Spawner
    from systemdspawner import SystemdSpawner

    classes = [JupyterHub, Authenticator, SharedPasswordAuthenticator, FirstUseAuthenticator, ConfigurableHTTPProxy]
    classes += [Spawner, SystemdSpawner]
    have = {one.__name__: one.class_trait_names(config=True) for one in classes}
    for variables in ({"HUB_ADMIN_PASSWORD": "x" * 32}, {"HUB_LOGIN": "firstuse"}, {"HUB_SPAWNER": "systemd"}):
        run = config(**own, **variables)
        assert run.returncode == 0, run.stderr
        found = eval(run.stdout)
        assert found["JupyterHub"]["concurrent_spawn_limit"] > found["JupyterHub"]["active_server_limit"]
        for name, settings in found.items():
            assert set(settings) <= set(have[name]), name
    assert found["JupyterHub"]["spawner_class"] == "systemd"
    assert {"username_template", "isolate_tmp"} <= set(found["SystemdSpawner"])


PORTS = """
import asyncio, itertools, sys
from types import SimpleNamespace
from jupyterhub import spawner, utils
from traitlets.config import PyFileConfigLoader

free = (8000 + number // 2 for number in itertools.count())  # each is found free twice, as in a race
utils.random_port = lambda: next(free)

async def start(self):
    return self.port

spawner.LocalProcessSpawner.start = start
kind = PyFileConfigLoader(sys.argv[1]).load_config().JupyterHub.spawner_class

async def room():
    learners = [kind(user=SimpleNamespace(name=f"l{number}", url="", escaped_name="")) for number in range(30)]
    return await asyncio.gather(*(learner.start() for learner in learners * 2))

print(asyncio.run(room()))
"""


def test_no_two_servers_are_given_one_port(own):
    run = config(code=PORTS, **own)
    assert run.returncode == 0, run.stderr
    ports = eval(run.stdout)
    assert len(ports) == 60 and len(set(ports[30:])) == 30


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"HUB_PASSWORD": ""}, "HUB_PASSWORD is not set"),
        ({"HUB_HOMES": "/tmp/" + "long/" * 10}, "too long for the sockets"),
    ],
)
def test_what_cannot_work_is_said(own, variables, says):
    run = config(**own | variables)
    assert run.returncode != 0 and says in run.stderr


def refusals(own, settings):
    """What each of these sets of variables is refused with, or none; in one process."""
    run = config(READ_EACH, json.dumps(settings), **own)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


RIGHT = [{"HUB_MEMORY": memory} for memory in ("1G", "1.5G", "1024M", "1T")]
RIGHT += [{"HUB_ADDRESS": address} for address in ("http://:8000", "https://room.example", "http://127.0.0.1:80/hub/")]
RIGHT += [{"HUB_PORT": "1", "HUB_PROXY_PORT": "65535"}]


def test_a_setting_that_is_right_is_taken(own):
    assert refusals(own, RIGHT) == [None] * len(RIGHT)
    found = eval(config(**own, HUB_MEMORY="1.5G", HUB_PORT="1234").stdout)
    assert found["Spawner"]["mem_limit"] == "1.5G"
    assert found["JupyterHub"]["hub_bind_url"] == "http://127.0.0.1:1234"


def test_a_lesson_below_a_closed_home_is_named(tmp_path):
    import hub_env

    closed = tmp_path / "closed"
    (closed / "lesson").mkdir(parents=True)
    closed.chmod(0o700)
    found = hub_env.closed_to_others(closed / "lesson")
    assert found is not None and closed.resolve().is_relative_to(found)
    assert hub_env.closed_to_others(Path("/usr/bin/env")) is None


def test_the_page_names_each_variable_that_can_be_set():
    read = set(re.findall(r"""["'](HUB_\w+)["']""", (DEPLOY / "jupyterhub_config.py").read_text(encoding="utf-8")))
    page = (ROOT / "docs" / "hub.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"`(HUB_\w+)`", "\n".join(re.findall(r"^\| (`HUB_.*?) \|", page, re.MULTILINE))))
    assert rows == read


def test_versions_are_exact():
    for name in (DEPLOY / "requirements.txt", ROOT / "tests" / "with_hub" / "requirements.txt"):
        lines = [line for line in name.read_text(encoding="utf-8").splitlines() if line and line[0] not in "#-"]
        assert lines and all(re.fullmatch(r"[\w-]+==[\w.]+", line) for line in lines)
    lock = (DEPLOY / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in lock and '"integrity"' in lock


WRONG = {
    "HUB_PASSWORD": ["", "short", " " * 20],
    "HUB_ADMIN_PASSWORD": ["x" * 31],
    "HUB_ROOM": ["abc", "0", "-1", "1.5"],
    "HUB_IDLE": ["1h", "0"],
    "HUB_MEMORY": ["", "lots", "2", "2GB", "-2G", "nanG", "64M", "0G", "2G "],
    "HUB_ADDRESS": ["", "8000", "localhost:8000", "http://:80000", "http://:abc", "ftp://:8000"],
    "HUB_PORT": ["", "abc", "0", "70000", "8001", "8000", "²"],
    "HUB_PROXY_PORT": ["http", "8081"],
    "HUB_LOGIN": ["dummy", ""],
    "HUB_SPAWNER": ["docker"],
    "HUB_PREFIX": ["", "Bad/"],
    "HUB_STATE": ["state"],
    "HUB_HOMES": ["homes"],
    "HUB_TLS_KEY": ["/key.pem"],
}


def test_a_setting_that_is_wrong_is_said_before_anything_is_made(own):
    each = [(name, value) for name, values in WRONG.items() for value in values]
    for (name, value), said in zip(each, refusals(own, [{name: value} for name, value in each]), strict=True):
        assert said and name in said and "expected" in said, (name, value, said)
    assert not any(Path(folder).exists() for folder in own.values())
