"""No word of the vocabulary is used before it is met: the glossary says in which notebook, and none before has it.

Prose alone is read, notebook after notebook. Code, the titles in links and the questions of exercises are left out.
"""

import re

import nbformat
import pytest
from reading import NOTEBOOKS
from test_glossary import ROWS, SAID

# How a word is looked for, where it is not as the glossary has it. What stands before "|" is tried first.
FORMS = {
    "page": r"pages of memory|paging|paged",  # a page of a book is another thing
    "step": r"decode steps?|steps?",
    "efficiency of a roof": r"efficienc(?:y|ies)",
    "weighted span": r"length-weighted span",
    "time to first answer token": r"first answer token",
    "ridge point": r"ridge(?: point)?",
    "decode-heavy workload": r"decode-heavy",
    "percentile": r"percentiles?",
}
# What a notebook says before the place where the word is met: (word, number of the notebook) to the reason.
EXCEPTIONS: dict[tuple[str, str], str] = {}
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
TITLE = re.compile(r"\[[^\]]*\]\([^)\s]*\.ipynb[^)\s]*\)")


def prose(path) -> str:
    """The Markdown of a notebook as one line, without code and without the titles of notebooks that it links to."""
    cells = nbformat.read(path, as_version=4).cells
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return " ".join(TITLE.sub(" ", CODE.sub(" ", text)).split())


PROSE = {path.stem[:2]: prose(path) for path in NOTEBOOKS}


def pattern(word: str) -> re.Pattern[str]:
    """What finds a word: its name and its short form, in the plural too; a short form as it is written."""
    if word in FORMS:
        return re.compile(rf"(?<![\w-])(?:{FORMS[word]})(?![\w-])", re.IGNORECASE)
    names = [name.strip() for name in re.split("[()]", word) if name.strip()]
    kinds = (name if name.isupper() else f"(?i:{re.escape(name)})" for name in names)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(kinds)})(?:s|es)?(?![\w-])")


def too_soon(word: str, place: str, read: dict[str, str]) -> list[str]:
    """Where a word stands in the notebooks before its place, with the words around it."""
    found = []
    for number, text in read.items():
        match = pattern(word).search(text)
        if match and number < place and (word, number) not in EXCEPTIONS:
            found.append(f"{number}: ...{text[max(0, match.start() - 40) : match.end() + 30]}...")
    return found


@pytest.mark.parametrize("word", ROWS)
def test_a_word_is_not_used_before_it_is_met(word):
    place = ROWS[word][2]
    assert not too_soon(word, place, PROSE), f"{word!r} is met in {place}, says the glossary"


def test_a_word_that_comes_too_soon_is_seen():
    read = {
        "00": "A page of text. Decoding takes steps.",
        "01": "With goodputs and **TTFT** in `goodput`.",
        "02": "Goodput.",
    }
    assert too_soon("goodput", "02", read) and not too_soon("goodput", "01", read)
    assert too_soon("time to first token (TTFT)", "02", read) and not too_soon("MFU", "02", read)
    assert not too_soon("page", "02", read) and too_soon("page", "02", {"01": "memory is paged"})
    assert not too_soon("decode", "02", read) and too_soon("step", "01", read)
    assert prose(NOTEBOOKS[0]) and "](" not in TITLE.sub("", "[What batching can pay for](04_x.ipynb)")


def test_exceptions_have_reasons_and_are_needed():
    for (word, number), reason in EXCEPTIONS.items():
        assert reason and number < ROWS[word][2] and pattern(word).search(PROSE[number]), (word, number)


def test_forms_are_of_words_of_the_glossary():
    assert set(FORMS) <= set(ROWS) and set(SAID) <= set(ROWS)
