"""How large the library is: lines by room, machinery apart from content, with the largest file and class.

    python tools/size.py        prints the table; ends with 1 where a file or a class is over its cap

Lines are those of the file, blank ones and docstrings too. Content is what a reader reads or sees and no other code
builds on: texts of exercises, rows of families and the names that are refused, layouts of figures, and the sentences
and tables of the report, with the shares and prices that these alone say. Machinery is all else: the style and labels
of figures, the page, the judging of an answer.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

LIBRARY = Path(__file__).resolve().parent.parent / "lessonlib"
sys.path.insert(0, str(LIBRARY.parent))

from lessonlib import ROOMS  # noqa: E402

CONTENT = (
    "face/exercises/book/",
    "model/config/families/",
    "model/config/not_read.py",
    "face/figures/",
    "face/report/sections.py",
    "face/widgets/explorer_views.py",
)
MACHINERY = ("face/figures/style.py", "face/figures/labels.py", "face/figures/__init__.py")  # in folders of content
ARITHMETIC = ("base", "model", "work", "time", "request")
MOST_IN_FILE, MOST_IN_CLASS = 400, 120


def is_content(name: str) -> bool:
    return name.startswith(CONTENT) and name not in MACHINERY


def classes(path: Path) -> Iterator[tuple[str, int]]:
    """(name, lines) of each class."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def files() -> dict[str, int]:
    """Lines of each file, by its name below lessonlib/."""
    return {
        path.relative_to(LIBRARY).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in sorted(LIBRARY.rglob("*.py"))
    }


def over_the_caps() -> list[str]:
    """Files and classes with more lines than a reader takes in at once."""
    said = [f"{name} has {lines} lines, over {MOST_IN_FILE}" for name, lines in files().items() if lines > MOST_IN_FILE]
    for name in files():
        for title, lines in classes(LIBRARY / name):
            if lines > MOST_IN_CLASS:
                said.append(f"class {title} of {name} has {lines} lines, over {MOST_IN_CLASS}")
    return said


def main() -> int:
    lines = files()
    print(f"{'room':<10}{'machinery':>10}{'content':>10}   largest file")
    total = [0, 0]
    arithmetic = config = 0
    for room in ("", *ROOMS):
        own = {name: n for name, n in lines.items() if name.partition("/")[0] == room or (not room and "/" not in name)}
        content = sum(n for name, n in own.items() if is_content(name))
        machinery = sum(own.values()) - content
        total = [total[0] + machinery, total[1] + content]
        if room in ARITHMETIC:
            arithmetic += machinery
            config += sum(n for name, n in own.items() if name.startswith("model/config/") and not is_content(name))
        largest = max(own, key=own.__getitem__)
        print(f"{room or '(map)':<10}{machinery:>10,}{content:>10,}   {largest} {own[largest]}")
    print(f"{'all':<10}{total[0]:>10,}{total[1]:>10,}")
    print(f"arithmetic, base to request: {arithmetic - config:,}, and {config:,} that read a config")
    found = over_the_caps()
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
