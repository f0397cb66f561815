"""The pages count what is there: `make counts` writes their numbers, and a phrase that it cannot find is an error."""

import pytest

import counts

OLD = "# Changes\n\n## 2.0\n\nIt holds {}.\n\n## 1.0\n\nIt holds three things.\n"


@pytest.fixture
def table(monkeypatch):
    """A table of one row: three things, on CHANGELOG.md."""
    monkeypatch.setattr(counts, "COUNTS", {"CHANGELOG.md": {"holds {} things": lambda: 12}})


def test_every_page_counts_what_is_there(capsys):
    assert counts.main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("page", counts.COUNTS)
def test_a_number_that_changed_is_seen_wherever_it_stands(page):
    text = (counts.ROOT / page).read_text(encoding="utf-8")
    for phrase, place in counts.found(page, text):
        wrong = counts.written(counts.COUNTS[page][phrase]() + 1, place[1])
        other = text[: place.start(1)] + wrong + text[place.end(1) :]
        assert counts.updated(page, other)[0] == text, phrase


def test_make_counts_writes_the_newest_section_and_then_nothing_more(table, tmp_path, capsys):
    page = tmp_path / "CHANGELOG.md"
    page.write_text(OLD.format("three\nthings"), encoding="utf-8")
    assert counts.main(["--check"], tmp_path) == 1
    assert page.read_text(encoding="utf-8") == OLD.format("three\nthings")
    assert counts.main([], tmp_path) == 0
    assert "CHANGELOG.md: 'holds three things' is now twelve" in capsys.readouterr().out
    assert page.read_text(encoding="utf-8") == OLD.format("twelve\nthings")
    assert counts.main([], tmp_path) == counts.main(["--check"], tmp_path) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("said", ["many things", "three things, and holds three things"])
def test_a_phrase_that_does_not_stand_there_once_is_an_error(table, tmp_path, said):
    (tmp_path / "CHANGELOG.md").write_text(OLD.format(said), encoding="utf-8")
    with pytest.raises(SystemExit, match=r"CHANGELOG\.md: the phrase 'holds \{\} things' stands there [02] times"):
        counts.main([], tmp_path)


@pytest.mark.parametrize(
    ("number", "before", "after"),
    [(4, "three", "four"), (13, "Twelve", "Thirteen"), (21, "twenty", "21"), (7, "6", "7"), (1024, "812", "1,024")],
)
def test_a_number_stays_in_digits_or_in_words(number, before, after):
    assert counts.written(number, before) == after
