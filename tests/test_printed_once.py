"""One number, one place: no table, and no figure's numbers, are printed twice in the collection.

Three or more numbers that follow each other in a row, of three figures each or more, printed again in another cell, are
one table printed twice. What is meant so stands in EXCEPTIONS, with its reason.
"""

from collections import defaultdict

from reading import NUMERAL, figures, passages

# The first and the last page that may show the same rows, and why.
EXCEPTIONS: dict[tuple[str, str], str] = {}
RUN = 3


def runs(text: str):
    """Every three numerals that follow each other in one line, of three figures each at least, and not all alike."""
    for line in text.splitlines():
        if "arXiv" in line or "https://" in line:  # a source is named where it is used
            continue
        found = [numeral for numeral in NUMERAL.findall(line) if figures(numeral) >= 3]
        for i in range(len(found) - RUN + 1):
            run = tuple(found[i : i + RUN])
            if len(set(run)) == RUN:
                yield run


def printed_twice() -> list[str]:
    places = defaultdict(list)
    for passage in passages():
        if passage.kind == "output":
            for run in set(runs(passage.text)):
                places[run].append((passage.page, passage.cell))
    found = {}
    for run, where in places.items():
        pages = tuple(sorted({page for page, _ in where}))
        if len(set(where)) > 1 and (pages[0], pages[-1]) not in EXCEPTIONS:
            found.setdefault(tuple(sorted(set(where))), " ".join(run))
    return [f"{' and '.join(f'{page} cell {cell}' for page, cell in where)}: {run}" for where, run in found.items()]


def test_no_row_is_printed_twice():
    found = printed_twice()
    assert not found, f"{len(found)} rows are printed twice:\n" + "\n".join(found)


def test_runs_are_found_in_a_row_only():
    assert list(runs("| a | 1.23 | 4.56 | 789 |")) == [("1.23", "4.56", "789")]
    assert list(runs("1.23 4.56\n789")) == [] and list(runs("12 34 56")) == [] and list(runs("1.23 1.23 1.23")) == []
