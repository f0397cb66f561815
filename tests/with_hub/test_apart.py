"""Two learners of one hub: neither reads the other's files, reaches the other's server, or finds what the hub keeps."""

import json
import pwd
import stat

import psutil
import pytest
from tornado.httpclient import HTTPClientError

import hub_room
from hub_learner import Learner
from hub_start import PREFIX

SEEN = """
def of(what, *arguments):
    try:
        what(*arguments)
    except OSError as error:
        return type(error).__name__
    return "done"
"""


@pytest.fixture(scope="module")
def two(hub, run):
    """Ada, whose notebook is open, and Bob, who looks at it from his kernel."""
    found = []
    for name in ("ada", "bob"):
        one = Learner(hub.url, name, hub.password)
        assert run(one.login())
        run(one.start())
        kernel = run(one.open(hub_room.NOTEBOOK))
        assert run(kernel.run(SEEN)).status == "ok"
        found.append((one, kernel))
    return found


@pytest.fixture
def ada(two):
    return two[0][0]


@pytest.fixture
def bob(two):
    return two[1][0]


@pytest.fixture
def by_bob(two, run):
    """What Bob's kernel prints when it runs this."""

    def ask(code):
        ran = run(two[1][1].run(code))
        assert ran.status == "ok", ran.error
        return ran.text.strip()

    return ask


def tried(by_bob, what, *paths):
    return by_bob(f"import os\nprint(*[of({what}, path) for path in {[str(path) for path in paths]}])").split()


def test_the_two_are_users_of_their_own(hub, by_bob, ada):
    assert by_bob("import os; print(os.getuid())") == str(hub.uid("bob")) != str(hub.uid("ada"))
    assert hub.uid("ada") >= 1000
    assert by_bob("print(os.getgroups(), os.getgid())") == f"[{pwd.getpwuid(hub.uid('bob')).pw_gid}] " + str(
        pwd.getpwuid(hub.uid("bob")).pw_gid
    )


def test_nobody_reads_anothers_files(hub, run, by_bob, ada):
    run(ada.save("my_notebooks/secret.txt", "mine", "file"))
    home = hub.home("ada")
    file = home / "lesson" / "my_notebooks" / "secret.txt"
    assert file.read_text() == "mine"
    assert tried(by_bob, "os.listdir", home, home / "lesson", home / ".run") == ["PermissionError"] * 3
    assert tried(by_bob, "open", file, home / "lesson" / hub_room.NOTEBOOK) == ["PermissionError"] * 2
    assert tried(by_bob, "os.listdir", hub.home("bob")) == ["done"]  # the same call, where it may
    assert tried(by_bob, "os.listdir", hub.homes) == ["PermissionError"]


def test_what_a_learner_writes_is_closed_by_itself_too(hub, run, by_bob):
    by_bob("os.makedirs('own/inner', exist_ok=True); open('own/inner/file', 'w').close()")
    own = hub.home("bob") / "lesson" / "my_notebooks" / "own"
    for path, mode in ((hub.home("bob"), 0o700), (own, 0o700), (own / "inner" / "file", 0o600)):
        assert stat.S_IMODE(path.stat().st_mode) == mode and path.stat().st_uid == hub.uid("bob")


def test_what_the_hub_keeps_is_roots_alone(hub, by_bob):
    names = {path.name for path in hub.state.iterdir()}
    assert {"hub.sqlite", "cookie_secret"} <= names
    for path in (hub.state, *hub.state.iterdir()):
        assert path.stat().st_uid == 0 and not path.stat().st_mode & 0o077, path
    assert tried(by_bob, "open", *(hub.state / name for name in names)) == ["PermissionError"] * len(names)
    assert tried(by_bob, "os.listdir", hub.state) == ["PermissionError"]


def test_environment_and_lesson_can_be_read_and_not_changed(by_bob):
    code = "import lessonlib, sys\nfolder = os.path.dirname(lessonlib.__file__)\n"
    code += "print(*[of(open, os.path.join(place, 'new'), 'w') for place in (folder, sys.prefix, sys.path[-1])])\n"
    code += "print(of(open, lessonlib.__file__), of(open, lessonlib.__file__, 'a'))"
    assert by_bob(code).split() == ["PermissionError"] * 3 + ["done", "PermissionError"]


def test_processes_of_another_are_seen_by_name_and_nothing_more(hub, by_bob):
    """/proc shows to all which programs run, as on any Linux, but not their variables, memory or files."""
    ours = [
        *hub.running("ada", "jupyterhub-singleuser"),
        *hub.running("ada", "ipykernel"),
        psutil.Process(hub.process.pid),
    ]
    ours += hub.proxies()
    assert len(ours) == 4
    for process in ours:
        inside = [f"/proc/{process.pid}/{name}" for name in ("environ", "mem", "maps")]
        assert tried(by_bob, "open", *inside) == ["PermissionError"] * 3
        assert tried(by_bob, "os.listdir", f"/proc/{process.pid}/fd") == ["PermissionError"]
        words = " ".join(process.cmdline())
        secrets = [hub.password, hub.admin_password, *tokens_in(process)]
        assert not any(secret in words for secret in secrets)
        assert by_bob(f"print(of(os.kill, {process.pid}, 0))") == "PermissionError"


def tokens_in(process):
    return [value for name, value in process.environ().items() if "TOKEN" in name]


def test_no_secret_of_another_is_in_a_learners_variables(hub, run, by_bob, bob):
    mine = json.loads(by_bob("import json; print(json.dumps(dict(os.environ)))"))
    (adas,) = hub.running("ada", "jupyterhub-singleuser")
    others = [*tokens_in(adas), *(token for proxy in hub.proxies() for token in tokens_in(proxy))]
    others += [hub.password, hub.admin_password, (hub.state / "cookie_secret").read_text().strip()]
    assert len(others) >= 6 and all(len(secret) > 8 for secret in others)
    for name, value in mine.items():
        assert not any(secret in value for secret in others), name
        assert not name.startswith("HUB_"), name
    who = run(bob.ask("GET", "/hub/api/user", headers={"Authorization": f"token {mine['JUPYTERHUB_API_TOKEN']}"}))
    assert json.loads(who.body)["name"] == "bob"


def ports(process):
    return {one.laddr.port for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN}


def test_what_a_kernel_prints_is_heard_by_nobody_else(hub, run, two, by_bob):
    """On a port, which is Jupyter's default, it goes to all who connect, without a key: here Bob hears but himself."""
    (kernel,) = hub.running("ada", "ipykernel")
    by_bob(
        "import zmq\ncontext = zmq.Context()\nmine, ear = context.socket(zmq.PUB), context.socket(zmq.SUB)\n"
        "ear.subscribe(b'')\nown = mine.bind_to_random_port('tcp://127.0.0.1')\n"
        f"for port in [*{sorted(ports(kernel))}, own]:\n    ear.connect(f'tcp://127.0.0.1:{{port}}')\n"
        "while not ear.poll(50):\n    mine.send(b'it is me')"
    )
    assert run(two[0][1].run("for _ in range(50):\n    print('a secret')")).text.count("a secret") == 50
    heard = by_bob("heard = set()\nwhile ear.poll(1000):\n    heard.add(ear.recv())\nprint(heard)")
    assert heard == "{b'it is me'}"
    sockets = [path for path in (hub.home("ada") / ".run").iterdir() if path.is_socket()]
    assert len(sockets) >= 5  # where it is said to its own server


@pytest.mark.parametrize(
    "path", ["api/contents", "api/kernels", "api/sessions", "lab", "files/my_notebooks/secret.txt", "api/status"]
)
def test_a_server_answers_its_learner_alone(hub, run, ada, bob, path):
    assert run(ada.ask("GET", f"{ada.server}/{path}")).code in (200, 302, 404)
    assert run(bob.ask("GET", f"{ada.server}/{path}")).code == 403
    nobody = Learner(hub.url, "nobody", "")
    assert run(nobody.ask("GET", f"{ada.server}/{path}")).code in (302, 403)
    cookies = {"Cookie": "; ".join(f"{name}={value}" for name, value in bob.cookies.items())}
    assert run(nobody.ask("GET", f"{ada.server}/{path}", headers=cookies)).code in (302, 403)


def test_a_browser_with_another_login_is_turned_away(hub, run, ada, bob):
    """The way of a browser: the server sends it to the hub, which knows Bob by his cookies, and says no."""
    nobody = Learner(hub.url, "nobody", "")
    cookies = {"Cookie": "; ".join(f"{name}={value}" for name, value in bob.cookies.items())}
    sent = run(nobody.ask("GET", f"{ada.server}/lab", headers=cookies))
    assert sent.code == 302 and sent.headers["Location"].startswith("/hub/api/oauth2/authorize")
    assert run(nobody.ask("GET", sent.headers["Location"], headers=cookies)).code == 403


def test_a_kernels_channels_open_for_its_learner_alone(two, run):
    (_, adas_kernel), (bob, _) = two
    stranger = Learner(bob.url, "ada", "", token=bob.token)
    with pytest.raises(HTTPClientError, match="403"):
        run(stranger.connect(adas_kernel.session))


def test_a_server_asked_past_the_proxy_says_no_too(hub, run, ada, bob):
    (server,) = hub.running("ada", "jupyterhub-singleuser")
    (port,) = ports(server)
    assert {one.laddr.ip for one in server.net_connections("inet") if one.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
    by_port = Learner(f"http://127.0.0.1:{port}", "ada", "", token=bob.token)
    assert run(by_port.ask("GET", "/user/ada/api/contents")).code == 403
    by_port.token = ada.token
    assert run(by_port.ask("GET", "/user/ada/api/contents")).code == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/hub/api/users", None),
        ("GET", "/hub/api/users/ada", None),
        ("GET", "/hub/api/users/ada/tokens", None),
        ("POST", "/hub/api/users/ada/tokens", "{}"),
        ("POST", "/hub/api/users/ada/server", None),
        ("DELETE", "/hub/api/users/ada/server", None),
        ("DELETE", "/hub/api/users/ada", None),
        ("GET", "/hub/api/proxy", None),
        ("POST", "/hub/api/shutdown", "{}"),
        ("GET", "/hub/metrics", None),
    ],
)
def test_the_hub_does_nothing_to_another_for_a_learner(hub, run, bob, method, path, body):
    assert run(bob.ask(method, path, body)).code in (403, 404)
    assert hub.running("ada", "jupyterhub-singleuser")


def test_the_proxys_own_door_needs_its_token(hub, run, bob):
    door = Learner(hub.proxy_api, "bob", "", token=bob.token)
    assert run(door.ask("GET", "/api/routes")).code == 403


def test_terminals_are_off_and_limits_are_set(hub, run, by_bob, bob):
    assert run(bob.ask("POST", f"{bob.server}/api/terminals")).code in (403, 404)
    code = (
        "import resource as r\nprint(*[r.getrlimit(what)[1] for what in (r.RLIMIT_AS, r.RLIMIT_NPROC, r.RLIMIT_CORE)])"
    )
    assert by_bob(code).split() == [str(2 * 2**30), "400", "0"]


@pytest.mark.parametrize("name", ["root", "daemon", "nobody"])
def test_a_name_of_the_machine_gives_no_user_of_the_machine(hub, run, name):
    one = Learner(hub.url, name, hub.password)
    assert run(one.login())
    run(one.start())
    assert hub.uid(name) >= 1000 and pwd.getpwnam(PREFIX + name).pw_uid != pwd.getpwnam(name).pw_uid
    run(one.stop())


@pytest.mark.parametrize("name", ["../ada", "ada lovelace", "-rf", "a" * 21, "ada/../bob", "1234"])
def test_a_name_that_is_no_name_is_refused(hub, run, name):
    one = Learner(hub.url, name, hub.password)
    assert not run(one.login())
    assert {user.pw_name for user in pwd.getpwall() if user.pw_name.startswith(PREFIX)} <= {
        PREFIX + known for known in ("ada", "bob", "root", "daemon", "nobody")
    }


def test_a_wrong_password_is_refused_and_the_rooms_password_makes_no_instructor(hub, run):
    assert not run(Learner(hub.url, "eve", "not the password").login())
    assert not run(Learner(hub.url, "instructor", hub.password).login())
    assert run(Learner(hub.url, "instructor", hub.admin_password).login())
