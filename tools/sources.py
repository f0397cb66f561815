"""Write docs/sources.md: where every number of the notebooks was read, when, and under which licence.

    make sources                    writes it
    make sources ARGS=--check       changes nothing; ends with 1 where the page is behind

The papers are the rows of data/references.csv, all else the source and licence columns of data/. What a notebook rests
on is found in it: papers by the line at its foot, models, devices, workloads and tables by the names in its cells;
models and devices also by those in what answers its exercises and what holds the numbers of its prose.
"""

import argparse
import ast
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cell_code import CellError, parsed  # noqa: E402
from lessonlib import accelerator_names, model_names, workload_names  # noqa: E402
from lessonlib.facts import load_table, model_record  # noqa: E402

PAGE = ROOT / "docs" / "sources.md"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
BOOK, HELD = ROOT / "lessonlib" / "face" / "exercises" / "book", ROOT / "tests" / "prose"
FOOT = re.compile(
    r"## Sources\n\n(.+?)\. In full, with the data of this page: \[sources\]\(\.\./docs/sources\.md#(.+?)\)\."
)
QUOTED = ("levers", "reasoning_lengths", "rl_rollouts", "serving", "workload_quantiles", "workload_shares")
QUOTED += ("workload_marginals", "impossible_measurements")
# Names of lessonlib that read a table of which the cell does not say the name.
READ_BY = {
    "measurements": "load_measurements published_row typical_efficiency decode_search by_source points by_memory",
    "levers": "published_gain usual_levers",
    "workload_quantiles": "load_lengths",
    "sample_traffic": "sample_traffic choose_traffic report_form",
    "timings": "recorded_cpu recorded_engine",
}
ASKED_OF = {"impossible-row": "impossible_measurements"}  # an exercise to the table that it quotes


def titles() -> dict[str, str]:
    """The notebooks as README.md names them: number to title."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| \[(\d\d) ([^\]]+)\]\(notebooks/", text, re.MULTILINE))


@cache
def papers() -> dict[str, dict[str, Any]]:
    """Each paper by how a text cites it: its first author and year, with a letter where that is not one paper."""
    named = []
    for row in load_table("references"):
        first, *others = [name.strip() for name in row["authors"].split(",")]
        more = " et al." if others and "et al." not in first else ""
        named.append((f"{first}{more}", row["year"], row))
    found = {}
    for who, year, row in named:
        alike = [one for name, when, one in named if (name, when) == (who, year)]
        letter = "abcdef"[alike.index(row)] if len(alike) > 1 else ""
        found[f"{who} ({year}{letter})"] = row
    return found


@cache
def cells(path: Path) -> tuple[tuple[str, str], ...]:
    try:
        found = json.loads(path.read_text("utf-8"))["cells"]
        return tuple((cell["cell_type"], "".join(cell["source"])) for cell in found)
    except (ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path.name} is no whole notebook ({error!r}); expected JSON with its cells.") from None


def cited(path: Path) -> tuple[str, ...]:
    """The papers that the line at the foot of a notebook names; an error where the line is of another form."""
    feet = [match for kind, text in cells(path) if kind == "markdown" and (match := FOOT.search(text))]
    if len(feet) != 1:
        raise SystemExit(f"{path.name} has {len(feet)} lines of sources of the form {FOOT.pattern!r}; expected one.")
    found = tuple(re.findall(r"[^\s,(][^,(]* \(\d{4}[a-f]?\)", feet[0][1]))
    unknown = [name for name in found if name not in papers()]
    if unknown or ", ".join(found) != feet[0][1] or feet[0][2] != anchor(path):
        raise SystemExit(
            f"{path.name}: its line of sources says {feet[0][1]!r}, at #{feet[0][2]}; expected names such as "
            f"{', '.join(list(papers())[:3])}, at #{anchor(path)}."
        )
    return found


def anchor(path: Path) -> str:
    return path.stem.replace("_", "-")


def words_of(path: Path) -> tuple[set[str], set[str]]:
    """The words in the texts of a notebook's code, and the names that the code uses."""
    try:
        return words_in(parsed(source, path.name) for kind, source in cells(path) if kind == "code")
    except CellError as error:
        raise SystemExit(str(error)) from None


def words_in(trees: Iterable[ast.Module]) -> tuple[set[str], set[str]]:
    texts: set[str] = set()
    names: set[str] = set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts |= set(re.split(r"[\s,]+", node.value))
            elif isinstance(node, ast.Name | ast.Attribute | ast.alias):
                names.add(_name(node))
    return texts, names


def _name(node: ast.Name | ast.Attribute | ast.alias) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else node.name


def used(path: Path) -> dict[str, list[str]]:
    """Models, devices, workloads and tables of data/ that a notebook's code names, or what makes its numbers."""
    texts, names = words_of(path)
    behind = (BOOK / f"notebook_{path.stem[:2]}.py", HELD / f"{path.stem}.py")
    held = texts | words_in(ast.parse(file.read_text(encoding="utf-8")) for file in behind if file.exists())[0]
    tables = {name for name in (*QUOTED, "measurements", "sample_traffic") if name in texts}
    tables |= {table for table, readers in READ_BY.items() if names & set(readers.split())}
    tables |= {table for key, table in ASKED_OF.items() if key in texts}
    return {
        "models": [name for name in model_names() if name in held],
        "devices": [name for name in accelerator_names() if name in held],
        "workloads": [name for name in workload_names() if name in texts],
        "tables": sorted(tables),
    }


def table(head: str, rows: Iterator[tuple[Any, ...]]) -> str:
    names = head.split(" | ")
    lines = [f"| {head} |", f"| {' | '.join(['---'] * len(names))} |"]
    return "\n".join([*lines, *(f"| {' | '.join(map(cell, row))} |" for row in rows)])


def cell(value: Any) -> str:
    return " ".join(str("" if value is None else value).replace("|", "\\|").split())


def by_notebook() -> Iterator[str]:
    for path in NOTEBOOKS:
        yield f"### {path.stem[:2]} {titles()[path.stem[:2]]}\n"
        yield f"[{path.name}](../notebooks/{path.name}). Papers: {', '.join(cited(path))}.\n"
        for kind, names in used(path).items():
            if names:
                yield f"- {kind}: {', '.join(f'`{name}`' for name in names)}"
        yield ""


def paper_rows() -> Iterator[tuple[Any, ...]]:
    where = defaultdict(list)
    for path in NOTEBOOKS:
        for name in cited(path):
            where[name].append(path.stem[:2])
    for name, row in papers().items():
        title = f"[{row['title']}]({row['url']})"
        yield name, row["authors"], title, row["venue"], row["checked"], ", ".join(where[name]), row["note"]


def quoted_rows() -> Iterator[tuple[Any, ...]]:
    """One row for each source of each of the smaller tables."""
    for name in QUOTED:
        rows = sorted(load_table(name), key=lambda row: row["source_url"])
        for url, of in groupby(rows, key=lambda row: row["source_url"]):
            found = list(of)
            said = found[0].get("source") or url.partition("://")[2]
            licences = "; ".join(sorted({row["licence"] for row in found}))
            yield f"`{name}`", f"[{said}]({url})", len(found), licences, max(row["retrieved"] for row in found)


def measured_rows() -> Iterator[tuple[Any, ...]]:
    rows = sorted(load_table("measurements"), key=lambda row: (row["source"], row["source_url"]))
    for (source, url), of in groupby(rows, key=lambda row: (row["source"], row["source_url"])):
        found = list(of)
        devices = len({row["accelerator"] for row in found})
        yield f"[`{source}`]({url})", len(found), devices, found[0]["licence"], max(row["retrieved"] for row in found)


def workload_rows() -> Iterator[tuple[Any, ...]]:
    for row in load_table("workloads"):
        yield f"`{row['name']}`", f"[{row['source']}]({row['source_url']})", row["licence"], row["retrieved"]


def model_rows() -> Iterator[tuple[Any, ...]]:
    for name in model_names():
        row = model_record(name)
        url, _, how = row["source"].partition(",")
        yield f"[`{name}`]({url})", f"{row['provenance']}{',' if how else ''}{how}", row["licence"], row["retrieved"]


def device_rows() -> Iterator[tuple[Any, ...]]:
    for row in load_table("accelerators"):
        yield f"[`{row['name']}`]({row['source_url']})", row["seen"], row["seen_at"], row["licence"], row["retrieved"]


def log_rows() -> Iterator[tuple[Any, ...]]:
    for row in load_table("traffic_shapes"):
        yield f"[{row['name']}]({row['source_url']})", row["retrieved"]


HEAD = """\
# Sources

Where every number of the notebooks was read, when, and under which licence. This page is written by
`tools/sources.py` from the tables of [data/](../data/README.md), which say how their rows were chosen;
`source_of(name)` in `lessonlib.facts` gives the line of one model, device or workload. `timings` are
runs of this collection's own, in [data/timings/](../data/timings/README.md).

## What each notebook rests on
"""
TABLES = (
    ("Papers and pages that are cited", "cited as | authors | title | where | checked | notebooks | note", paper_rows),
    ("Workloads", "workload | source | licence | read", workload_rows),
    ("Published measurements", "source | rows | devices | licence | read", measured_rows),
    ("Other tables", "table of data/ | source | rows | licence | read", quoted_rows),
    ("Models", "model | its config.json | licence | read", model_rows),
    ("Devices", "device | figures | where they were seen | licence | read", device_rows),
    ("Kinds of log", "kind | read", log_rows),
)


def page() -> str:
    """The text of docs/sources.md as data/ and the notebooks have it today."""
    tables = (f"## {title}\n\n{table(head, rows())}\n" for title, head, rows in TABLES)
    return "\n".join([HEAD, *by_notebook(), *tables])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write docs/sources.md from data/ and the notebooks.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail where the page is behind")
    check, text = parser.parse_args(arguments).check, page()
    behind = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text
    if behind and not check:
        PAGE.write_text(text, encoding="utf-8", newline="\n")
    if behind:
        print("docs/sources.md is behind: run `make sources`." if check else "docs/sources.md was written.")
    return int(behind and check)


if __name__ == "__main__":
    sys.exit(main())
