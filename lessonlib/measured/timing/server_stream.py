"""What a stream of server-sent events says: when its chunks with text came, how much text, and the server's usage.

Servers differ in where they put things: thought in one of several fields, text as a string or in parts, usage beside
the choices or in one, at the end or in each chunk. Nothing is concluded here; server_reply.py does that.
"""

import json
import math
from typing import Any

THOUGHT = ("reasoning_content", "reasoning", "thinking", "reasoning_details", "thinking_blocks")  # one or more say it
ANSWER = ("content", "refusal", "tool_calls", "function_call")
INSIDE = ("text", "thinking", "summary", "content", "refusal", "function", "name", "arguments", "value")
DEEPEST = 8
MOST_LINES = 16  # of data in one event


def as_dict(value: Any) -> dict[str, Any]:
    """The value, where it is an object of JSON; else an empty one."""
    return value if isinstance(value, dict) else {}


def _parts(value: Any, thought: bool, depth: int = 0) -> list[tuple[bool, str]]:
    """The texts in a field of a delta, each with whether it is thought. Thought that is withheld is an empty text."""
    if isinstance(value, str):
        return [(thought, value)] if value else []
    if isinstance(value, list) and depth < DEEPEST:
        return [part for item in value for part in _parts(item, thought, depth + 1)]
    if not isinstance(value, dict) or depth >= DEEPEST:
        return []
    kind = str(value.get("type"))
    if "encrypted" in kind or "redacted" in kind:
        return [(True, "")]
    thought = thought or "think" in kind or "reason" in kind
    return [part for name in INSIDE for part in _parts(value.get(name), thought, depth + 1)]


class Stream:
    """What has arrived of one reply so far.

    Of each chunk with text: `times`, the moment when it came; `counts`, the output tokens so far as its own usage says,
    or None; `sizes`, the bytes of its text. `words` are those of all texts.
    """

    def __init__(self, asked: int):
        self.asked, self.sent = asked, math.nan
        self.times: list[float] = []
        self.counts: list[int | None] = []
        self.sizes: list[int] = []
        self.words = self.thought_chunks = self.thought_size = self.garbage = 0
        self.first_answer: float | None = None
        self.withheld = self.done = self.in_word = self.in_tags = self.in_error = False
        self.rest = b""  # of data that goes on in the next line
        self.usage: dict[str, Any] = {}
        self.error: Any = None
        self.finish = ""

    def take(self, line: bytes, now: float) -> None:
        """One line of the event stream, which arrived at `now`."""
        line = line.removeprefix(b"\xef\xbb\xbf")  # a byte order mark, which some put before the first event
        if not line.startswith(b"data:"):
            if not line.strip():  # the end of an event
                self.garbage += bool(self.rest)
                self.rest, self.in_error = b"", False
            elif line.startswith(b"event:"):
                self.in_error = line[6:].strip() == b"error"
            else:
                self.garbage += not line.startswith((b":", b"id:", b"retry:"))
            return
        self.rest += line[5:]
        self.done = line[5:].strip() == b"[DONE]"
        try:
            chunk = {} if self.done else json.loads(self.rest)
        except (ValueError, RecursionError):
            self.error = line[5:].decode(errors="replace").strip() if self.in_error else None
            if self.rest.count(b"\n") >= MOST_LINES:
                self.garbage, self.rest = self.garbage + 1, b""
            return
        self.rest = b""
        if not isinstance(chunk, dict):
            self.garbage += 1
            return
        self.error = chunk if chunk.get("object") == "error" or self.in_error else chunk.get("error") or None
        choices = chunk.get("choices")
        several = map(as_dict, choices if isinstance(choices, list) else ())
        choice = next((one for one in several if not one.get("index")), {})  # of several answers the first
        places = (chunk.get("usage"), choice.get("usage"), as_dict(chunk.get("x_groq")).get("usage"))
        usage: dict[str, Any] = next(filter(None, map(as_dict, places)), {})
        self.usage |= {name: count for name, count in usage.items() if count is not None}
        self._text(as_dict(choice.get("delta")), count_in(usage, "completion_tokens"), now)
        self.finish = str(choice.get("finish_reason") or self.finish)
        self.error = self.error or choice.get("error") or ("no more is said" if self.finish == "error" else None)

    def _text(self, delta: dict[str, Any], counted: int | None, now: float) -> None:
        thoughts = next(filter(None, (_parts(delta.get(name), True) for name in THOUGHT)), [])
        parts = thoughts + [part for name in ANSWER for part in _parts(delta.get(name), False)]
        self.withheld = self.withheld or (True, "") in parts
        texts = [(thought or self._tagged(text), text) for thought, text in parts if text]
        if not texts and delta.get("tool_calls"):
            texts = [(False, json.dumps(delta["tool_calls"]))]
        if not texts:
            return
        sizes = [len(text.encode(errors="replace")) for _, text in texts]
        self.times.append(now)
        self.counts.append(counted)
        self.sizes.append(sum(sizes))
        for (thought, text), size in zip(texts, sizes, strict=True):
            self.words += len(text.split()) - (self.in_word and not text[0].isspace())
            self.in_word = not text[-1].isspace()
            self.thought_size += size * thought
        self.thought_chunks += any(thought for thought, _ in texts)
        if self.first_answer is None and not all(thought for thought, _ in texts):
            self.first_answer = now

    def _tagged(self, text: str) -> bool:
        """Whether a text is in or ends thought that a server leaves in its answer, between tags."""
        self.in_tags = self.in_tags or "<think>" in text
        if "</think>" not in text:
            return self.in_tags
        self.in_tags, self.first_answer = False, None  # all before was thought, also where the prompt opened the tag
        self.thought_size, self.thought_chunks = sum(self.sizes), len(self.sizes)
        return True

    def counted(self, *names: str) -> int | None:
        """A count of the last usage, by its path; None where the usage has none that is a number of tokens."""
        return count_in(self.usage, *names)


def count_in(usage: dict[str, Any], *names: str) -> int | None:
    """A count of a usage, by its path; None where the usage has none that is a number of tokens."""
    value: Any = usage
    for name in names:
        value = as_dict(value).get(name)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value < 2**31 else None
