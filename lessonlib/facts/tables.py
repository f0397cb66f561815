"""The tables of data/: their rows, the names in them, and the nearest names to one that is not there."""

import csv
import math
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from lessonlib.base.errors import InvalidInputError, UnknownNameError, shown

_PACKAGE = Path(__file__).resolve().parent.parent
# Inside the package where a wheel was installed, beside it in a checkout.
DATA = _PACKAGE / "data" if (_PACKAGE / "data").is_dir() else _PACKAGE.parent / "data"


def load_table(name: str) -> tuple[dict[str, Any], ...]:
    """The rows of data/NAME.csv in the table's own units: numbers as int or float, an empty cell as None.

    Columns are described in data/README.md. Raises UnknownNameError with the nearest tables.
    """
    tables = sorted(path.stem for path in data_folder().glob("*.csv"))
    rows = rows_of(known_name("table", name, tables, "data/README.md"))
    return tuple(dict(row) for row in rows)  # copies: a caller may change its own


def load_references() -> dict[str, str]:
    """The papers that the notebooks cite: key to authors, year, title, venue, address and what is to be known of it."""
    said = "{authors} ({year}). {title}. {venue}. {url} {note}"
    rows = ({name: cell or "" for name, cell in row.items()} for row in load_table("references"))
    return {row["key"]: said.format(**row).rstrip() for row in rows}


def row_named(table: str, kind: str, name: str) -> dict[str, Any]:
    """The row of that name; UnknownNameError with the nearest names of that `kind` of thing."""
    rows = {row["name"]: row for row in load_table(table)}
    return rows[known_name(kind, name, rows, f"{kind}_names()")]


def known_name(kind: str, name: Any, known: Collection[str], where: str) -> str:
    """The name, which is one of `known`; UnknownNameError otherwise, as `unknown` raises it."""
    if not isinstance(name, str) or name not in known:
        unknown(kind, name, known, where)
    return name


def unknown(kind: str, name: object, known: Collection[str], where: str) -> NoReturn:
    """Raise UnknownNameError: no `kind` has that name; the nearest of `known`, and `where` to see all of them."""
    from difflib import get_close_matches

    wanted = name.lower() if isinstance(name, str) else ""
    near = get_close_matches(wanted, known, n=4, cutoff=0.5) or [k for k in known if wanted and wanted in k][:4]
    hint = f"the nearest are {', '.join(near)}" if near else "nothing is near it"
    raise UnknownNameError(f"Unknown {kind} {shown(name)}: {hint}. See {where} for all {len(known)}.")


def data_folder(part: str = "") -> Path:
    """The folder data/ or one inside it; InvalidInputError where it is not there."""
    path = DATA / part
    if not path.is_dir():
        raise InvalidInputError(
            f"The catalogue's folder {str(path)!r} does not exist; install lessonlib from its checkout "
            "(pip install . there, or pip install -e .)."
        )
    return path


@cache
def rows_of(name: str) -> tuple[dict[str, Any], ...]:
    """The rows of a table that exists, read once: not to be changed."""
    with (data_folder() / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return tuple({column: cell(text) for column, text in row.items()} for row in csv.DictReader(stream))


def cell(text: str) -> int | float | str | None:
    """A cell as a finite number where it is one; dates, names and sentences stay text."""
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text
