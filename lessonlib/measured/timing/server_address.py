"""Where a server is: a URL, checked before anything is sent. No error quotes a part of it that may hold a secret."""

import ipaddress
import re
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from lessonlib.base.errors import InvalidInputError

LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
AFTER_BRACKET = re.compile(r"(^[^\]]*|\](:\d*)?)$")  # of an IPv6 address, nothing but a port may follow
LONGEST = 253  # characters of a host's name


class Address(NamedTuple):
    """A host (a name in ASCII or an IP address), its port or None, the path of chat completions there, whether TLS."""

    host: str
    port: int | None
    path: str
    tls: bool

    @property
    def where(self) -> str:
        """Host and port as a sentence names them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Whether a host's name is this machine's own."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require(holds: Any, words: str) -> None:
    """InvalidInputError of these words: those of `wrong` would quote the value, which may hold a secret."""
    if not holds:
        raise InvalidInputError(f"time_server: {words}.")


def address_of(url: Any, allow_plain_http: bool, key_variable: str) -> Address:
    """The address that a URL names; InvalidInputError for anything else, and for what would show a secret."""
    example = "expected one such as http://localhost:8000/v1"
    require(isinstance(url, str), f"url is not a web address, for it is not a text; {example}")
    plain = all(letter.isprintable() and not letter.isspace() for letter in url)
    require(plain, f"url is not a web address, for it holds a space or a control character; {example}")
    try:
        parts = urlsplit(url)
        host, port = _ascii(parts.hostname or ""), parts.port
    except ValueError:  # half an IPv6 address, a port that is not a number or is too large
        host, port = "", None
    known = host and parts.scheme in ("http", "https") and AFTER_BRACKET.search(parts.netloc)
    require(known, f"url is not a web address; {example}")
    require(
        _is_host(host, "[" in parts.netloc), f"url is not a web address, for it has no host that could exist; {example}"
    )
    require(port != 0, f"url is not a web address, for its port is 0; {example}")
    remedy = f"leave them out. A key belongs in the environment variable {key_variable}"
    bare = "@" not in parts.netloc and not parts.query and not parts.fragment
    require(bare, f"the URL of {host} holds a user, a query or a fragment; {remedy}")
    remedy = "take https, or say allow_plain_http=True"
    private = parts.scheme == "https" or allow_plain_http or is_loopback(host)
    require(private, f"plain http to {host} shows key and prompts to the network; {remedy}")
    path = quote(parts.path.rstrip("/") or "/v1", safe="/%:@~")
    path = path if path.endswith("/chat/completions") else f"{path}/chat/completions"
    return Address(host, port, path, parts.scheme == "https")


def _ascii(host: str) -> str:
    """A host's name as the network knows it; UnicodeError, a ValueError, for a name that has no such form."""
    return host if host.isascii() else host.encode("idna").decode()


def _is_host(host: str, in_brackets: bool) -> bool:
    if not in_brackets:
        return len(host) <= LONGEST and all(LABEL.fullmatch(label) for label in host.removesuffix(".").split("."))
    try:
        return bool(ipaddress.IPv6Address(host))
    except ValueError:
        return False
