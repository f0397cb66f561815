"""The key of a server: read from the environment, sent in one header, and kept out of all that leaves this machine.

A server may echo the key: whole or in pieces, upside down or encoded. So what a server says is looked at in every form
that it may be decoded to, and is not quoted at all where a piece of the key is among them.
"""

import base64
import html
import json
import os
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from lessonlib.base.errors import InvalidInputError

KEY = "LESSONLIB_SERVER_KEY"
QUOTE = 200  # the most characters of a quotation
MASK = "[key]"
WITHHELD = "[not quoted, for a part of the key may be in it]"
RUN, PIECE = 6, 3  # letters and digits: a run of the key that is not quoted; a piece, of which half of the key may be
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ESCAPED = re.compile(r"(?:\\+(?:x|u\{?(?:00)?|U0{6})|%u00)([0-9a-fA-F]{2})\}?")
OCTAL = re.compile(r"\\+([0-7]{3})")
BASE64, HEX, CODES = (
    re.compile(form) for form in (r"[\w+/-]{6,}", r"(?:[0-9a-fA-F][\W_x]*){8,}", r"(?:\d{2,3}\W+){3,}")
)


@dataclass(frozen=True)
class Key:
    """A key, or "" where none is set, and the name of its environment variable."""

    variable: str
    value: str = field(repr=False)

    @property
    def plain(self) -> bool:
        """Whether a header can hold it."""
        return all("!" <= character <= "~" for character in self.value)

    def clean(self, text: Any) -> str:
        """A server's words as a line may quote them: without the key, cut, control characters escaped."""
        text = str(text)
        if self.value:
            forms = {self.value, json.dumps(self.value)[1:-1], html.escape(self.value), quote(self.value, safe="")}
            for form in sorted(forms, key=len, reverse=True):
                text = re.sub(re.escape(form), MASK, text, flags=re.IGNORECASE)
        text = " ".join(text.split())
        cut, more = text[:QUOTE], len(text) > QUOTE
        if self.value and self._is_in(cut):
            return WITHHELD
        shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in cut)[:QUOTE]
        while len(json.dumps(shown)) > 3 * QUOTE:  # a record holds it so
            shown, more = shown[:-8], True
        return f"{shown}..." if more else shown

    def _is_in(self, text: str) -> bool:
        """Whether a run of the key, or half of it in pieces, is in a text, decoded and spelt in whatever way."""
        key = _letters(self.value) or self.value.lower()
        views = [_letters(view) for view in _decoded(text)]

        def at(length: int) -> list[int]:
            pieces = ((i, key[i : i + length]) for i in range(len(key) - length + 1))
            return [i for i, piece in pieces if any(piece in view or piece[::-1] in view for view in views)]

        if at(min(RUN, len(key))):
            return True
        covered = {i + k for i in at(PIECE) for k in range(PIECE)}
        return len(key) >= 2 * RUN and len(covered) >= len(key) / 2


def _letters(text: str) -> str:
    return re.sub(r"[\W_]", "", unicodedata.normalize("NFKC", text).lower())


def _decoded(text: str) -> Iterator[str]:
    """A text, and what it is once its escapes are undone and its runs of base64, of hex and of codes are read."""
    for _ in range(4):  # escapes of escapes
        yield text
        text = html.unescape(unquote(text))
        text = ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
        text = OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
    together = re.sub(r"\s", "", text)
    for view in (text, together, together[::-1]):
        for run in BASE64.findall(view):
            for start in range(4):  # the key may begin anywhere in what was encoded
                piece = run[start:].replace("-", "+").replace("_", "/")
                piece = re.sub(r"[^A-Za-z0-9+/]", "", piece)
                yield base64.b64decode(piece[: len(piece) // 4 * 4]).decode("latin-1")
        for run in HEX.findall(view):
            digits = re.sub(r"[\W_x]", "", run)
            for start in range(2):
                yield bytes.fromhex(digits[start:][: (len(digits) - start) // 2 * 2]).decode("latin-1")
    for run in CODES.findall(f"{text} "):
        yield "".join(chr(int(code)) for code in re.findall(r"\d+", run))


def key_of(variable: Any) -> Key:
    """The key in an environment variable; InvalidInputError without the name, which may be the key itself."""
    named = isinstance(variable, str) and NAME.fullmatch(variable)
    if not named or (variable != KEY and variable not in os.environ):
        problem = "key_variable is not the name of an environment variable that is set, and is not quoted here"
        remedy = "It takes a name, such as MY_KEY, and never the key itself"
        raise InvalidInputError(f"time_server: {problem}, for it may be the key. {remedy}.")
    key = Key(variable, os.environ.get(variable, ""))
    if not key.plain:
        raise InvalidInputError(f"time_server: {variable} holds characters that no key has; set it again.")
    return key
