"""A table of a notebook: Markdown in its own output, text elsewhere."""

from lessonlib.face import table


def test_without_a_notebook_a_table_is_printed(capsys):
    table(("workload", "tokens"), [("chat", 1024), ("reasoning", "12,800")])
    assert capsys.readouterr().out == "| workload | tokens |\n| --- | ---: |\n| chat | 1024 |\n| reasoning | 12,800 |\n"
