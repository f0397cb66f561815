"""The form of notebook 10: it makes the report that the code makes, and says in a sentence what it cannot make."""

import json
import re

import pytest
from test_own_files import CONFIG, HEAD, upload

import sample_traffic
from lessonlib.face.report.report import traffic_report
from lessonlib.face.widgets.report_form import FLOOR, OWN, START, priced, report_form, whole
from lessonlib.facts.catalogue import accelerator_names, load_accelerator, load_model, model_names
from lessonlib.facts.own_traffic import read_traffic
from lessonlib.measured.efficiency import typical_efficiency
from lessonlib.model.precision import Precision
from lessonlib.time.deployment import Deployment


@pytest.fixture
def form():
    return report_form()


@pytest.fixture(scope="module")
def pressed():
    """A form that has made one report; what a test sets it puts back."""
    made = report_form()
    made.report_button.click()
    return made


def press(form, **values):
    for name, value in values.items():
        form.fields[name].value = value
    form.report_button.click()
    return form.said.value


def test_as_it_stands_it_makes_the_report_of_the_sample(form):
    assert "No report yet" in form.said.value and form.report is None and form.shown.value == ""
    said = press(form)
    server = Deployment(load_model("qwen3-8b"), load_accelerator("h100-sxm"))
    expected = traffic_report(server, read_traffic(sample_traffic.PATH), 2.50, "USD")
    assert 'role="status"' in said and expected.title in said
    assert expected._repr_html_() in form.shown.value and "<img" in form.shown.value and 'alt="' in form.shown.value
    assert "USD" in form.shown.value


def test_every_field_has_a_label_and_the_menus_have_the_catalogue(form):
    assert all(field.description for field in form.fields.values())
    assert form.report_button.description == "Report" and form.save_button.description == "Save"
    assert [value for _, value in form.fields["model"].options] == list(model_names())
    assert {value for _, value in form.fields["accelerator"].options} == set(accelerator_names())
    assert {name: form.fields[name].value for name in START} == START
    everything = [form]
    for widget in everything:
        everything += getattr(widget, "children", ())
    assert set(form.fields.values()) | {form.report_button, form.save_button, form.said, form.shown} <= set(everything)


def test_all_that_it_asks_reaches_the_server(form):
    chosen = {"model": "deepseek-r1", "accelerator": "b200", "devices": 8, "weights": "nvfp4", "cache": "fp8"}
    said = press(form, **chosen, efficiency="typical, low", batch="1", price="")
    machine = Deployment(
        load_model("deepseek-r1"),
        load_accelerator("b200"),
        Precision("nvfp4", cache="fp8"),
        8,
        efficiency=typical_efficiency("b200").low,
    )
    assert form.deployment() == form.report.deployment == machine and 'role="status"' in said
    assert form.report.full.batch == 1 and "USD" not in form.shown.value
    assert press(form, efficiency=FLOOR) and form.report.deployment.efficiency.mfu == 1


def test_a_model_of_your_own_joins_the_menu_and_leaves_it_when_another_is_chosen(form, capsys):
    upload(form.model_file, json.dumps(CONFIG | {"_name_or_path": "me/<b>mine"}), "config.json")
    label, value = form.fields["model"].options[0]
    assert (label, value) == ("your file: <b>mine", OWN) and form.fields["model"].value == OWN
    assert form.deployment().model.parameters == load_model("llama-3.1-8b").parameters
    press(form)
    assert "<b>mine" not in form.shown.value and "<b>mine" not in form.said.value and "mine" in form.report.title
    press(form, model="qwen3-8b")
    assert form.report.deployment.model.name == "qwen3-8b" == form.model_file.take().name
    assert "qwen3-8b" in form.model_file.said.value and "<b>mine" not in form.model_file.said.value


def test_a_file_that_is_refused_changes_nothing(form):
    upload(form.model_file, "[1]", "config.json")
    assert form.fields["model"].value == "qwen3-8b" and 'role="alert"' in form.model_file.said.value
    upload(form.traffic_file, HEAD + "1,-2\n", "bad.csv")
    assert 'role="alert"' in form.traffic_file.said.value and form.traffic.name == "sample_traffic.csv"
    upload(form.traffic_file, HEAD + "100,20\n200,40\n", "mine.csv")
    press(form)
    assert form.report.title.startswith("mine.csv on qwen3-8b") and len(form.report.traffic) == 2


@pytest.mark.parametrize(
    "values, says",
    [
        ({"batch": "many"}, "Requests at a time: got &#x27;many&#x27;;"),
        ({"batch": "1000000"}, "memory holds"),
        ({"batch": "0"}, "batch is 0;"),
        ({"price": "free"}, "such as 2.50 USD"),
        ({"price": "0 USD"}, "price_per_hour is 0.0"),
        ({"model": "llama-3.1-405b"}, "weights"),
    ],
    ids=str,
)
def test_what_cannot_be_made_is_said_and_the_last_report_stays(pressed, values, says):
    before = pressed.report, pressed.shown.value
    said = press(pressed, **values)
    assert 'role="alert"' in said and says in said and "The report below stays." in said
    assert (pressed.report, pressed.shown.value) == before
    for name in values:
        pressed.fields[name].value = START[name]


def test_after_what_cannot_be_made_a_report_is_made_again(form):
    assert 'role="alert"' in press(form, batch="many") and form.report is None
    assert 'role="status"' in press(form, **START) and form.report is not None


def test_it_is_saved_as_a_page(form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    form.save_button.click()
    assert "press Report first" in form.said.value and not list(tmp_path.iterdir())
    press(form)
    form.fields["name"].value = "mine"
    form.save_button.click()
    assert "Written: mine.html, mine.md, mine.png." in form.said.value
    assert (tmp_path / "mine.html").read_text(encoding="utf-8") == form.report.html()
    press(form, devices=2)
    form.save_button.click()
    assert 'role="alert"' in form.said.value and "has the name" in form.said.value
    form.fields["name"].value = ""
    form.save_button.click()
    assert re.search(r"Written: qwen3-8b_h100-sxm_sample_traffic\.html", form.said.value)


def test_lines_are_read_as_people_write_them():
    assert whole(" 1,024 ") == 1024 and whole("  ") is None
    assert priced("2.50 USD") == (2.5, "USD") and priced("3  EUR") == (3.0, "EUR") and priced(" ")[0] is None


def test_a_page_without_widgets_says_what_to_do(form):
    assert repr(form) == "Run this cell to get the form."
