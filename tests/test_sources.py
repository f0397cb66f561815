"""One page of sources: it is what the tool makes of data/ and the notebooks, and each notebook has one line to it."""

import re

import pytest

import sources
from lessonlib.facts.tables import load_table

TEXT = sources.PAGE.read_text(encoding="utf-8")


def test_the_page_is_what_the_tool_writes(capsys):
    assert sources.main(["--check"]) == 0, capsys.readouterr().out


def test_a_page_that_is_behind_is_seen_and_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sources, "PAGE", tmp_path / "sources.md")
    assert sources.main(["--check"]) == 1 and "make sources" in capsys.readouterr().out
    assert sources.main([]) == sources.main(["--check"]) == 0


@pytest.mark.parametrize("path", sources.NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_one_line_of_sources_to_its_part_of_the_page(path):
    foot = next(text for kind, text in sources.cells(path) if kind == "markdown" and "## Sources" in text)
    assert re.search(r"^## Sources\n\n.+(\n\n## Where you stand\n[^#]+)?\Z", foot, re.MULTILINE)
    heading = re.search(rf"^### ({path.stem[:2]} .+)$", TEXT, re.MULTILINE)[1]
    assert re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") == sources.anchor(path)  # as GitHub makes it
    assert sources.cited(path)


def test_every_paper_is_cited_and_every_source_stands_on_the_page():
    cited = {name for path in sources.NOTEBOOKS for name in sources.cited(path)}
    assert cited == set(sources.papers())
    tables = (*sources.QUOTED, "measurements", "accelerators", "workloads", "traffic_shapes")
    addresses = {row["source_url"] for name in tables for row in load_table(name)}
    assert [url for url in addresses if f"]({url})" not in TEXT] == []
    assert all(name in TEXT for name in sources.model_names())


def test_what_a_notebook_uses_is_found_in_its_code():
    (fourth,) = (path for path in sources.NOTEBOOKS if path.stem.startswith("04"))
    found = sources.used(fourth)
    assert {"llama-3.1-8b", "deepseek-r1"} <= set(found["models"]) and "h800-sxm" in found["devices"]
    assert found["workloads"] == ["chat", "reasoning", "production-reasoning", "agent-step"]
    assert {"measurements", "workload_quantiles"} <= set(found["tables"])


def test_what_answers_an_exercise_or_holds_a_number_of_prose_is_found_too():
    asked, said = (next(path for path in sources.NOTEBOOKS if path.stem.startswith(of)) for of in ("09", "02"))
    assert "mixtral-8x7b" in sources.used(asked)["models"] and "qwen3-32b" in sources.used(said)["models"]


@pytest.mark.parametrize("line", ["Nobody (1999)", "Shazeer 2019", "Shazeer (2019), and others"])
def test_a_line_of_another_form_is_an_error(line, monkeypatch):
    path = sources.NOTEBOOKS[0]
    foot = f"## Sources\n\n{line}. In full, with the data of this page: [sources](../docs/sources.md#{path.stem})."
    monkeypatch.setattr(sources, "cells", lambda _: (("markdown", foot),))
    with pytest.raises(SystemExit, match="line of sources says"):
        sources.cited(path)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"cells": [{"source": 5}]}', '{"cells": ['])
def test_a_notebook_that_is_not_whole_is_named_and_the_page_stays(text, tmp_path, monkeypatch):
    (tmp_path / "02_cut.ipynb").write_text(text, encoding="utf-8")
    (tmp_path / "sources.md").write_text("as it was", encoding="utf-8")
    monkeypatch.setattr(sources, "NOTEBOOKS", [tmp_path / "02_cut.ipynb"])
    monkeypatch.setattr(sources, "PAGE", tmp_path / "sources.md")
    monkeypatch.setattr(sources, "titles", lambda: {"02": "Cut"})
    with pytest.raises(SystemExit, match=r"02_cut\.ipynb is no whole notebook"):
        sources.main([])
    assert (tmp_path / "sources.md").read_text(encoding="utf-8") == "as it was"


@pytest.mark.parametrize("line", ["%matplotlib inline", "!pip --version", "load_model?", "%%time", "%%capture said"])
def test_a_line_for_ipython_is_no_python_and_the_code_below_it_is_read(line, tmp_path, monkeypatch):
    code = f'{line}\nbelow = load_lengths("chat")'
    monkeypatch.setattr(sources, "cells", lambda _: (("code", code),))
    found = sources.used(tmp_path / "11_new.ipynb")
    assert found["workloads"] == ["chat"]


def test_a_cell_of_another_language_names_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "cells", lambda _: (("code", '%%bash\necho "chat" && exit 1'),))
    assert not any(sources.used(tmp_path / "11_new.ipynb").values())


def test_a_cell_that_is_no_python_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "cells", lambda _: (("code", "ok = 1\nthis is a sentence\n"),))
    with pytest.raises(SystemExit, match=r"11_new\.ipynb: a code cell is no Python, at the line 'this is a sentence'"):
        sources.used(tmp_path / "11_new.ipynb")
