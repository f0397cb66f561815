"""A learner's own files in the notebook: what is taken, what is refused in a sentence, and what stays."""

import datetime
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import h100, llama, refuses, server

import sample_traffic
from lessonlib.base.errors import DoesNotFitError, InvalidInputError
from lessonlib.base.files import Upload
from lessonlib.face.report.report import traffic_report
from lessonlib.face.widgets.choosers import choose_model, choose_traffic, in_words, serve
from lessonlib.facts.catalogue import model_config
from lessonlib.facts.own_config import own_model
from lessonlib.facts.own_traffic import OwnTraffic, read_traffic
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.accelerator import Accelerator

HEAD = "prompt_tokens,output_tokens\n"
CONFIG = model_config("llama-3.1-8b")


def upload(chooser, content, name):
    """What the page does when a file is chosen."""
    content = content.encode() if isinstance(content, str) else content
    now = datetime.datetime.now(datetime.UTC)
    file = {"name": name, "type": "", "size": len(content), "content": memoryview(content), "last_modified": now}
    chooser.upload.set_trait("value", (file,))


@pytest.fixture
def log():
    return choose_traffic(sample_traffic.PATH)


def test_an_upload_is_read_at_once_and_a_bad_one_keeps_the_last(log, capsys):
    assert len(log.take()) == 1000 and log.value.name == "sample_traffic.csv"
    upload(log, HEAD + "1,2\n3,4\n", "mine.csv")
    good = log.value
    assert good.name == "mine.csv" and len(good) == 2 and 'role="status"' in log.said.value
    upload(log, HEAD + "1,2\n3,-4\n", "<b>bad</b>.csv")
    assert log.value is good and 'role="alert"' in log.said.value and "<b>" not in log.said.value
    assert "&lt;b&gt;bad" in log.said.value and "This stays: 2 requests of" in log.said.value
    capsys.readouterr()
    assert log.take() is good
    said = capsys.readouterr().out
    assert said.startswith(
        "Not taken. Traffic file '<b>bad</b>.csv': Line 3 (row 2), column 'output_tokens': '-4' is neg"
    )
    assert said.endswith("This stays: " + repr(good) + "\n")
    upload(log, HEAD + "5,6\n", "next.csv")
    assert log.take().name == "next.csv" and log.problem == ""


def test_columns_are_chosen_for_what_was_uploaded(log, capsys):
    upload(log, "a,b\n1,2\n", "ab.csv")
    assert "prompt_column='...'" in log.problem and log.value.name == "sample_traffic.csv"
    assert log.take(prompt_column="b", output_column="a").prompt.tolist() == [2]
    assert log.problem == "" and "1 requests of 'ab.csv'" in capsys.readouterr().out


def test_a_path_is_taken_or_refused(log, tmp_path, capsys):
    (tmp_path / "own.csv").write_text(HEAD + "7,8\n", encoding="utf-8")
    assert log.take(tmp_path / "own.csv").prompt.tolist() == [7]
    assert log.take(str(tmp_path / "absent.csv")).prompt.tolist() == [7]
    assert "absent.csv' does not exist" in capsys.readouterr().out
    assert log.take().prompt.tolist() == [7]  # the wrong path is gone with its cell
    assert "absent" not in capsys.readouterr().out


# Each: what is wrong, the config, and what its sentence must say.
REFUSED = {
    "a list": ("[1]", ["holds a list"]),
    "empty": (" \n", ["is empty"]),
    "cut short": (json.dumps(CONFIG, indent=1)[:300], ["not JSON", "on line 14"]),
    "unknown": (
        json.dumps(CONFIG | {"model_type": "other"}),
        ["'other'", "own_layout.md", "load_model('deepseek-r1-distill-llama-8b')"],
    ),
    "huge": (b" " * (2**24 + 1), ["over 16,777,216 bytes"]),
    "NaN": (json.dumps(CONFIG | {"x": "NaN", "hidden_size": float("nan")}), ["'hidden_size': it is nan"]),
    "an endless number": ('{"note": "1e999",\n"a": 1e999}', ["'1e999' on line 2", "too large"]),
    "a long number": ('{\n"a": ' + "9" * 41 + "}", ["41 characters on line 2"]),
    "negative": (json.dumps(CONFIG | {"num_hidden_layers": -3}), ["'num_hidden_layers'", "-3"]),
    "text": (json.dumps(CONFIG | {"hidden_size": "4096"}), ["'hidden_size'", "'4096'"]),
    "UTF-16": (json.dumps(CONFIG).encode("utf-16"), ["not UTF-8", "on line 1"]),
    "a CSV": (HEAD + "1,2\n", ["not JSON", "line 1, column 1"]),
}


@pytest.mark.parametrize("content, says", REFUSED.values(), ids=REFUSED)
def test_a_config_is_refused_with_its_file_and_what_was_wrong(content, says, capsys):
    chooser = choose_model()
    before = chooser.value
    upload(chooser, content, "my <i>config</i>.json")
    assert all(words in chooser.problem for words in ["Config file 'my <i>config</i>.json'", *says]), chooser.problem
    assert chooser.value is before and chooser.take() is before and "<i>" not in chooser.said.value
    assert "This stays: Model 'llama-3.1-8b'" in capsys.readouterr().out


def test_a_model_has_the_name_that_its_file_gives_it(tmp_path):
    content = json.dumps(CONFIG)
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(content, encoding="utf-8")
    assert own_model(folder / "config.json").name == own_model(str(folder / "config.json")).name == "my-model"
    for name, expected in (("config.json", "your llama"), ("config (1).json", "your llama"), ("tiny.json", "tiny")):
        assert own_model(Upload(content.encode(), name)).name == expected
    named = json.dumps(CONFIG | {"_name_or_path": "somebody/tiny-llama/"})
    assert own_model(Upload(named.encode(), "tiny.json")).name == "tiny-llama"
    other = json.dumps(CONFIG | {"model_type": "other"})
    assert own_model(Upload(other.encode(), "x.json"), like="llama").parameters == llama().parameters


def test_what_a_model_leaves_out_is_said_where_its_file_is_read(capsys):
    quantised = {"quant_method": "awq", "bits": 4}
    text = {key: value for key, value in CONFIG.items() if key != "architectures"} | {"strange": 4}
    wrapper = {"model_type": "seer", "text_config": text, "vision_config": {"depth": 2}}
    chooser = choose_model()
    upload(chooser, json.dumps(wrapper | {"quantization_config": quantised}), "mine.json")
    capsys.readouterr()
    chooser.take()
    for said in (capsys.readouterr().out, chooser.said.value.replace("&#x27;", "'").replace("&quot;", '"')):
        assert "Left out: vision tower (vision_config)." in said and "Keys not read: 'strange'." in said
        assert 'Stored in int4, by the method awq; the rest in bf16: Precision(blocks="int4").' in said
    lines = traffic_report(server(chooser.value), read_traffic(HEAD + "100,200\n")).markdown("x.png")
    assert "vision tower" in lines and "strange" in lines and "awq" in lines


def test_control_characters_of_a_name_move_no_cursor(capsys):
    model = own_model(Upload(json.dumps(CONFIG | {"_name_or_path": "a\x1b[31mred\x07\nx"}).encode(), "config.json"))
    assert model.name == "a?[31mred? x"
    small = Accelerator(name="dev\x1b[2J", memory=1e3, bandwidth=1e12, peaks={"bf16": 1e14})
    with in_words():
        request_cost(server(replace(model, name="b\x1b[2J\nNot an error."), small), Request(10, 10))
    said = capsys.readouterr().out
    assert said.startswith("Not taken. ") and said[:-1].isprintable()
    assert r"b\x1b[2J" in said and r"dev\x1b[2J" in said


@pytest.mark.parametrize("changed", [{'"h100-sxm")  #': '"h101")  #'}, {"devices=1": "devices=0"}, {"2.50,": "-9,"}])
def test_the_form_of_notebook_10_takes_server_and_price_together_or_neither(changed, capsys):
    (path,) = (Path(__file__).parent.parent / "notebooks").glob("10_*.ipynb")
    cells = ["".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]
    (form,) = (source for source in cells if "hourly_price(2.50" in source)
    names = {"model": llama(), "my_traffic": read_traffic(HEAD + "100,200\n")}
    exec(next(source for source in cells if "import in_words" in source or "in_words, serve" in source), names)
    exec(form, names)
    kept = {name: names[name] for name in ("server", "traffic", "price_per_hour", "currency")}
    names["my_traffic"] = read_traffic(HEAD + "7,8\n")
    for old, new in {"2.50,": "3.75,", **changed}.items():
        assert form.count(old) == 1 or old == "2.50,"
        form = form.replace(old, new)
    capsys.readouterr()
    exec(form, names)
    assert "Not taken. " in capsys.readouterr().out and all(names[name] is value for name, value in kept.items())


def test_bytes_without_a_name_are_taken_or_refused(capsys):
    content = json.dumps(CONFIG).encode()
    assert own_model(content).name == "your llama"
    chooser = choose_model("llama-3.2-1b")
    assert chooser.take(content).parameters == llama().parameters
    assert (
        chooser.take(b"[1]").name == "your llama"
        and "Config file 'config.json' holds a list" in capsys.readouterr().out
    )


def test_in_words_prints_what_is_refused_and_nothing_else(capsys):
    kept = 1
    with in_words():
        kept = Accelerator(name="mine", memory=-1, bandwidth=1, peaks={"bf16": 1})
    said = capsys.readouterr().out
    assert kept == 1 and said.startswith("Not taken. Accelerator 'mine': memory is -1")
    assert said.endswith("What you had before stays.\n")
    with pytest.raises(ZeroDivisionError), in_words():
        kept = 1 / 0


@pytest.mark.parametrize(
    "change, says",
    [
        ({"memory": 80}, "memory is 80 bytes"),
        ({"bandwidth": 3.35}, "bandwidth is 3.35 byte/s"),
        ({"bandwidth": 3350}, "bandwidth is 3350 byte/s"),
        ({"peaks": {"bf16": 989}}, "peak of bf16 is 989 FLOP/s"),
        ({"memory": 80e18}, "memory is 8e"),
    ],
)
def test_a_number_in_the_wrong_unit_is_refused(change, says):
    traffic = read_traffic(HEAD + "1,2\n")
    with pytest.raises(InvalidInputError, match=says):
        serve(server(accelerator=replace(h100(), **change)), traffic)


def test_serve_leaves_out_what_cannot_be_taken_and_says_so(capsys):
    traffic = OwnTraffic("x", np.array([100, 140_000]), np.array([50, 5]), np.array([0, 0]))
    machine, taken = serve(server(), traffic)
    assert taken.prompt.tolist() == [100] and machine == server()
    assert capsys.readouterr().out == "Left out: 1 of 2 requests, beyond the model's positions of 131,072.\n"
    assert taken.taken_by(machine).left_out == taken.left_out == {"beyond the model's positions of 131,072": 1}
    with pytest.raises(InvalidInputError, match="none of its 1 requests"):
        serve(server(), read_traffic(HEAD + "140000,5\n"))
    with pytest.raises(DoesNotFitError, match="weights"):
        serve(server(accelerator=replace(h100(), memory=10e9)), traffic)
    refuses(lambda: serve(server(), "my.csv"), "serve", "traffic")
