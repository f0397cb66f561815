"""What two sites have in common, the book and the notebooks that run in the browser: their server, and their size."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Files(SimpleHTTPRequestHandler):
    """Files with the types that a browser asks of WebAssembly and modules."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".wasm": "application/wasm",
        ".mjs": "text/javascript",
        ".whl": "application/octet-stream",
        ".ipynb": "application/json",
    }
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass


def opened(folder: Path, port: int = 0, kind: type[Files] = Files) -> ThreadingHTTPServer:
    """A server of the folder on localhost, at `server_address`; at another port where that one is taken or none."""
    handler = partial(kind, directory=str(folder))
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), handler)
    except (OSError, OverflowError):
        return ThreadingHTTPServer(("127.0.0.1", 0), handler)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address at which the folder is served, as long as the block lasts."""
    with opened(folder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def serve(folder: Path, port: int, page: str, kind: type[Files] = Files) -> None:
    """Serve the folder until Ctrl+C ends it; says the address of the page."""
    with opened(folder, port, kind) as server:
        print(f"http://127.0.0.1:{server.server_address[1]}/{page}   (Ctrl+C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()


def size_of(folder: Path) -> int:
    """Bytes of all files in it."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
