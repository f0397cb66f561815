"""Files of the site that runs in a browser, and its server, when what they are given is damaged, cut short or taken."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import lite
import sites

PLAN = json.loads((lite.PLAN / "pyodide.json").read_text(encoding="utf-8"))
NAME, SHA256 = next(iter(PLAN["core"].items()))


class Liar(BaseHTTPRequestHandler):
    """Answers with another file, or with less than it says."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "999" if self.path.startswith("/cut/") else "4")
        self.end_headers()
        self.wfile.write(b"lies")

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def liar():
    with ThreadingHTTPServer(("127.0.0.1", 0), Liar) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.mark.parametrize(("path", "says"), [("", "its sha256 differs"), ("cut/", "could not be read")])
def test_a_file_that_is_damaged_is_never_kept(path, says, liar, tmp_path, monkeypatch):
    monkeypatch.setattr(lite.shutil, "which", lambda name: None)  # no npm
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / NAME).write_bytes(b"damaged")
    files = lite.Pyodide(PLAN | {"distribution": liar + path}, [tmp_path / "given"], tmp_path / "kept")
    with pytest.raises(lite.NotToBeHadError, match=f"{says}.*PYODIDE=folder|{says}[^P]*Name a folder"):
        files.file(NAME, SHA256)
    assert not list((tmp_path / "kept").iterdir())


def test_a_port_that_is_taken_or_none_gives_another(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for port in (taken.getsockname()[1], 99_999):
            with sites.opened(tmp_path, port) as server:
                assert server.server_address[1] not in (0, port)
