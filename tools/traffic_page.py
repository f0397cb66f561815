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
    head = [
        "kind of log",
        *WORDS.values(),
        "cached counts",
        "thought counts",
        "not served, by",
        "time (not used)",
        "read in",
    ]
    rows = [
        [
            row["name"],
            *(code(row[kind]) for kind in KINDS),
            *(
                (f"{row[side]} the {whole}" if row[side] else "")
                for side, whole in (("cache", "prompt"), ("thinking", "output"))
            ),
            code(row["failed"]),
            code(row["time"]),
            f"[source]({row['source_url']}), {row['retrieved']}",
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
