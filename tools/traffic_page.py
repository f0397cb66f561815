"""Write the tables of docs/traffic.md: the kinds of log that read_traffic knows, and the names that it takes.

    python tools/traffic_page.py

What stands between two marks is written; all else of the page stays.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lessonlib.facts.tables import load_table  # noqa: E402
from lessonlib.facts.traffic.columns import KINDS, NAMES  # noqa: E402

PAGE = ROOT / "docs" / "traffic.md"
WORDS = {
    "prompt": "prompt",
    "output": "output",
    "cached": "cached, of the prompt",
    "written": "written to a cache",
    "tool": "results of tools, part of the prompt",
    "thought": "thought",
    "total": "total",
}


def code(cell: str | None) -> str:
    return ", ".join(f"`{name.strip()}`" for name in re.split(r"[|+]", cell or "") if name.strip())


def shapes() -> str:
    head = ["kind of log", "prompt", "output", "cached", "thought", "total", "not served, by", "time (not used)"]
    rows = [
        [
            f"[{row['name']}]({row['source_url']}), {row['retrieved']}",
            code(row["prompt"]) + (f" and {code(row['tool'])}" if row["tool"] else ""),
            code(row["output"]),
            code(row["cached"])
            + (f"; written: {code(row['written'])}" if row["written"] else "")
            + (f"; {row['cache']} the prompt" if row["cache"] else ""),
            code(row["thought"]) + (f"; {row['thinking']} the output" if row["thinking"] and row["thought"] else ""),
            code(row["total"]),
            code(row["failed"]),
            code(row["time"]),
        ]
        for row in load_table("traffic_shapes")
    ]
    return table([head, *rows])


def names() -> str:
    rows = [[WORDS[kind], ", ".join(f"`{name}`" for name in " ".join(NAMES[kind]).split())] for kind in KINDS]
    return table([["tokens", "names"], *rows])


def table(rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows]
    return "\n".join([lines[0], f"| {' | '.join(['---'] * len(rows[0]))} |", *lines[1:]])


def updated() -> str:
    """The page with its tables as they are today."""
    text = PAGE.read_text(encoding="utf-8")
    for name, made in (("shapes", shapes()), ("names", names())):
        text, count = re.subn(rf"(<!-- {name} -->\n).*?(<!-- end -->)", rf"\1{made}\n\2", text, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"{PAGE.name} has the mark {name!r} {count} times; expected once.")
    return text


if __name__ == "__main__":
    PAGE.write_text(updated(), encoding="utf-8")
