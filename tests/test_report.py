"""The report on a learner's own traffic: its numbers are the library's, and nothing from a file is rendered."""

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import gqa_model, h100, llama, server

import sample_traffic
from lessonlib import report as report_module
from lessonlib.accelerator import Accelerator
from lessonlib.catalogue import load_model, typical_efficiency
from lessonlib.deployment import Efficiency
from lessonlib.errors import DoesNotFitError, InvalidInputError
from lessonlib.levers import omega, rho
from lessonlib.own_traffic import OwnTraffic, read_traffic
from lessonlib.report import traffic_report, uploaded
from lessonlib.request import Request
from lessonlib.traffic_cost import concurrency, price, rank_levers, traffic_omega
from lessonlib.units import format_percent, format_seconds

NASTY = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'|`*_[a](javascript:x)$x$\n# b"


class Tags(HTMLParser):
    """Tags with their attributes, and the text of a page."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def sample():
    return read_traffic(sample_traffic.PATH)


@pytest.fixture(scope="module")
def report(sample):
    return traffic_report(server(), sample, price_per_hour=2.5)


def table(report, first):
    """The rows of the table whose first heading is `first`, by their first cell."""
    found = [block.lines for block in report.blocks if block.kind == "table" and block.lines[0][0] == first]
    (rows,) = found
    return {row[0]: row[1:] for row in rows}


def test_its_numbers_are_the_librarys(report, sample):
    request, machine = sample.request, server()
    limit = concurrency(machine, request)
    alone, full = price(machine, request, 1), price(machine, request, limit)
    assert report.full.batch == limit and report.full.seconds == full.seconds and report.left_out == {}
    rows = table(report, "at the floor")
    assert rows["at the floor"] == ("alone", f"{limit} at a time")
    assert rows["decode's share of the GPU clock"] == tuple(format_percent(c.decode_share) for c in (alone, full))
    assert rows["TPOT"] == tuple(format_seconds(c.tpot, 3) for c in (alone, full))
    output, prompt = int(sample.output.sum()), int(sample.prompt.sum())
    assert rows["output tokens a second, whole server"][1] == f"{output / full.seconds:,.0f}"
    assert rows["rho"][1] == f"{rho(machine, Request(prompt, output), limit):.3g}"
    per_thousand = 1000 * full.seconds / len(sample) * 2.5 / 3600
    assert float(rows["1,000 requests"][1].split()[0]) == pytest.approx(per_thousand, rel=0.01)
    per_million = [float(rows[name][1].split()[0]) for name in rows if name.startswith("a million")]
    decode, prefill = (1e6 * phase.seconds * 2.5 / 3600 for phase in (full.decode, full.prefill))
    assert per_million == pytest.approx([decode / output, prefill / prompt], rel=0.02)
    memory = table(report, "memory and batch")
    assert memory["omega of your mix"] == (f"{traffic_omega(machine, request):.3g}",)
    mean = round(output / len(sample))
    assert memory[f"omega of your mean output, {mean:,} tokens"] == (f"{omega(machine, mean):.3g}",)
    levers = table(report, "lever")
    assert list(levers)[1:] == [one.name for one in rank_levers(machine, request, limit)]
    shares = [float(share.split()[0]) for share, _ in list(table(report, "part of the GPU clock").values())[1:]]
    assert sum(shares) == pytest.approx(100, abs=0.2) and shares == sorted(shares, reverse=True)


def test_its_verdict_says_phase_clock_and_what_binds(report):
    (lines,) = [block.lines for block in report.blocks if block.kind == "list"][:1]
    said = " ".join(lines)
    assert all(words in said for words in ("GPU clock", "request clock", "decode, 93.6 %", "rho", "omega is 2.5"))
    assert "'decode: attention', 64.0 %; memory binds it" in said and "cannot rescue bandwidth" in said


def test_another_verdict_where_prefill_dominates_and_memory_is_large():
    chat = OwnTraffic("chat", np.full(5, 1024), np.full(5, 128), np.zeros(5, int))
    said = traffic_report(server(), chat)._repr_markdown_()
    assert "most time goes to prefill, 66.8 %" in said and "compute binds it" in said and "compute bound" in said


def test_how_far_to_trust_it(report, sample):
    rows = table(report, "at this efficiency")
    for name in ("low", "middle", "high"):
        machine = server(efficiency=getattr(typical_efficiency("h100-sxm"), name))
        expected = format_seconds(price(machine, sample.request, 1).tpot, 3)
        assert rows[f"published, {name}"][0] == expected
    own = Accelerator(name="h100-sxm", memory=80e9, bandwidth=3e12, peaks={"bf16": 9e14})  # a name is not enough
    for machine, words in (
        (server(accelerator=own), "are your own"),
        (server(efficiency=Efficiency(0.5, 0.5)), "efficiency that you gave"),
    ):
        text = traffic_report(machine, sample)._repr_markdown_()
        assert words in text and "published, low" not in text


def test_left_out_rows_are_said_and_nothing_is_reported_of_none():
    traffic = read_traffic("prompt_tokens,output_tokens,cached_tokens\n100,50,0\n140000,5,0\n10,20,0\n")
    made = traffic_report(server(), traffic)
    text = made._repr_markdown_()
    assert "Left out: 1 of 3 rows, beyond the model's positions of 131,072." in text
    assert "2 requests, each with its own lengths" in text and "was not read" in text
    with pytest.raises(InvalidInputError, match="none of its 1 requests: 1 are beyond"):
        traffic_report(server(), read_traffic("prompt_tokens,output_tokens\n140000,5\n"))
    with pytest.raises(DoesNotFitError, match="weights"):
        traffic_report(server(accelerator=replace(h100(), memory=10e9)), traffic)


def test_what_is_refused(sample):
    with pytest.raises(InvalidInputError, match="Deployment was expected"):
        traffic_report(None, sample)
    with pytest.raises(InvalidInputError, match="read_traffic"):
        traffic_report(server(), "my.csv")
    for wrong in (-1, 0, float("nan"), "2"):
        with pytest.raises(InvalidInputError, match="price_per_hour"):
            traffic_report(server(), sample, price_per_hour=wrong)
    with pytest.raises(InvalidInputError, match="memory holds 66 of these"):
        traffic_report(server(), sample, batch=67)
    with pytest.raises(InvalidInputError, match="batch is 0"):
        traffic_report(server(), sample, batch=0)


def test_a_concurrency_of_ones_own(sample):
    made = traffic_report(server(), sample, batch=8)
    assert made.full.batch == 8 and table(made, "at the floor")["at the floor"] == ("alone", "8 at a time")
    assert traffic_report(server(), sample, batch=1).full.batch == 1


def test_nothing_from_a_file_is_rendered(tmp_path, monkeypatch):
    traffic = OwnTraffic(NASTY, np.array([5, 9]), np.array([7, 400]), np.array([0, 0]), {"prompt": NASTY}, (NASTY,))
    model = replace(llama(), name=NASTY, defaults_used=(NASTY,))
    device = replace(h100(), name=NASTY, label=NASTY)
    made = traffic_report(server(model, device), traffic, 1.0, currency=NASTY)
    for html in (made.html(), made._repr_html_()):
        page = Tags(html)
        assert "alert(1)" in page.text  # shown as text
        names = {tag for tag, _ in page.tags}
        assert not names & {"script", "iframe", "a", "object", "svg", "link"}
        attributes = {name for _, attrs in page.tags for name in attrs}
        assert not [name for name in attributes if name.startswith("on")]
        images = [attrs for tag, attrs in page.tags if tag == "img"]
        assert len(images) == 2 and all(i["src"].startswith("data:image/png;base64,") and i["alt"] for i in images)
    for text in (made.markdown(), made._repr_markdown_()):
        assert "<" not in text and "$" not in text and "](javascript" not in text
        assert not re.search(r"(?<!\\)`|(?<!\\)\[a", text)
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert rows and len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) <= 5  # no cell was split
    paths = made.save(tmp_path / "nasty")
    assert all(path.parent == tmp_path for path in paths)


def test_it_is_saved_whole_with_its_figures(report, tmp_path, monkeypatch):
    paths = report.save(tmp_path / "mine.html")
    assert [path.name for path in paths] == ["mine.html", "mine.md"]
    html, markdown = (path.read_text(encoding="utf-8") for path in paths)
    page = Tags(html)
    assert html.startswith("<!DOCTYPE html>") and "default-src 'none'" in html
    assert [tag for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)][:2] == ["h1", "h2"]
    images = [attrs["src"] for tag, attrs in page.tags if tag == "img"]
    pictures = re.findall(r"!\[[^\]]{40,}\]\((data:image/png;base64,[^)]+)\)", markdown)
    assert pictures == images and len(images) == 2
    for source in images:
        assert base64.b64decode(source.partition(",")[2], validate=True).startswith(b"\x89PNG\r\n\x1a\n")
    before = paths[0].read_bytes()

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report_module.os, "replace", full_disk)
    with pytest.raises(InvalidInputError, match=r"'mine.html' cannot be written: No space left"):
        report.save(tmp_path / "mine")
    assert paths[0].read_bytes() == before and sorted(p.name for p in tmp_path.iterdir()) == ["mine.html", "mine.md"]
    for wrong in ("", None, 3):
        with pytest.raises(InvalidInputError, match="save: name is"):
            report.save(wrong)
    with pytest.raises(InvalidInputError, match="does not exist"):
        report.save(tmp_path / "nowhere" / "mine")


def test_it_shows_itself_in_a_notebook(report):
    html, markdown = report._repr_html_(), report._repr_markdown_()
    assert [tag for tag, _ in Tags(html).tags if re.fullmatch("h[1-6]", tag)][:2] == ["h3", "h4"]
    assert "data:image" not in markdown and markdown.count("Figure: ") == 2
    assert len(html) < 120_000 and "sample_traffic.csv" in repr(report)


def test_models_of_other_kinds_have_reports():
    traffic = read_traffic("prompt_tokens,output_tokens\n100,500\n2000,60\n40,1\n")
    machines = [
        server(load_model(name), Accelerator(name="big", memory=2e12, bandwidth=5e12, peaks={"bf16": 1e15}))
        for name in ("qwen3-30b-a3b", "gpt-oss-20b", "deepseek-v3", "qwen3-next-80b-a3b")
    ]
    for machine in (*machines, server(devices=2), server(gqa_model(window=64))):
        assert "<table" in traffic_report(machine, traffic, 3)._repr_html_()
    one = read_traffic("prompt_tokens,output_tokens\n100,1\n")
    assert "undefined" in traffic_report(server(), one)._repr_markdown_()


def test_an_upload_gives_its_bytes():
    assert uploaded(SimpleNamespace(value=())) is None
    assert uploaded(SimpleNamespace(value=({"name": "a", "content": memoryview(b"1,2")},))) == b"1,2"
    ipywidgets = pytest.importorskip("ipywidgets")
    assert uploaded(ipywidgets.FileUpload()) is None
