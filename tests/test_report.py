"""The report on a learner's own traffic: its numbers are the library's, and nothing from a file is rendered."""

import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from helpers import gqa_model, h100, llama, refuses, server

import sample_traffic
from lessonlib.base import files
from lessonlib.base.errors import DoesNotFitError, InvalidInputError
from lessonlib.base.units import format_percent, format_seconds
from lessonlib.face.figures.traffic_panels import traffic_panels
from lessonlib.face.report.report import hourly_price, traffic_report
from lessonlib.facts.catalogue import load_model
from lessonlib.facts.own_traffic import OwnTraffic, read_traffic
from lessonlib.measured.efficiency import typical_efficiency
from lessonlib.policy.estimates import chi, omega, rho
from lessonlib.policy.full_server import memory_batch
from lessonlib.policy.mix import price
from lessonlib.policy.ranking import rank_levers
from lessonlib.request.request import Request
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import Efficiency

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
    found = [section.lines for section in report.sections if section.kind == "table" and section.lines[0][0] == first]
    (rows,) = found
    return {row[0]: row[1:] for row in rows}


def test_its_numbers_are_the_librarys(report, sample):
    request, machine = sample.request, server()
    limit = memory_batch(machine, request)
    alone, full = price(machine, request, 1), price(machine, request, limit)
    assert report.full.batch == limit and report.full.seconds == full.seconds and report.traffic.left_out == {}
    rows = table(report, "at the floor, prices in USD")
    assert rows["at the floor, prices in USD"] == ("alone", f"{limit} at a time")
    assert rows["decode's share, GPU clock"] == tuple(format_percent(c.decode_share) for c in (alone, full))
    assert rows["TPOT, others' prefills included"] == tuple(format_seconds(c.tpot, 3) for c in (alone, full))
    assert rows["wait, from admission to the last token"][1] == format_seconds(full.wait, 3)
    output, prompt = int(sample.output.sum()), int(sample.prompt.sum())
    assert rows["output tokens a second"][1] == f"{output / full.seconds:,.0f}"
    assert rows["rho"][1] == f"{rho(machine, Request(prompt, output), limit):.3g}"
    per_thousand = 1000 * full.seconds / len(sample) * 2.5 / 3600
    assert float(rows["price of 1,000 requests"][1].split()[0]) == pytest.approx(per_thousand, rel=0.01)
    per_million = [float(rows[name][1].split()[0]) for name in rows if name.startswith("of 1M")]
    decode, prefill = (1e6 * phase.seconds * 2.5 / 3600 for phase in (full.decode, full.prefill))
    assert per_million == pytest.approx([decode / output, prefill / prompt], rel=0.02)
    memory = table(report, "memory and batch")
    mean = Request(round(prompt / len(sample)), round(output / len(sample)))
    for name, of in (("chi", chi), ("omega", omega)):
        assert memory[f"{name} by your requests"] == (f"{of(machine, request, mix=True):.3g}",)
        assert memory[f"{name} by their mean"] == (f"{of(machine, mean):.3g}",)
    levers = table(report, "lever: GPU time before / after")
    assert list(levers)[1:] == [one.name for one in rank_levers(machine, request, limit)]
    shares = [
        float(share.split()[0])
        for share, _ in list(table(report, f"part of the GPU clock, {limit} at a time").values())[1:]
    ]
    assert sum(shares) == pytest.approx(100, abs=0.2) and shares == sorted(shares, reverse=True)


def test_its_verdict_says_phase_clock_and_what_binds(report, sample):
    (sentence,), facts = report.sections[0].lines, dict(report.sections[1].lines)
    assert [section.kind for section in report.sections[:2]] == ["text", "facts"]
    limit = memory_batch(server(), sample.request)
    full = report.full
    decode, reads = format_percent(full.decode_share), format_percent(full.decode.attention.seconds / full.seconds)
    assert facts["Phase, by the GPU clock"] == f"decode, {decode}, {limit} at a time."
    assert facts["Phase, by the request clock"].startswith("decode, 99.7 %, for one alone; decode, 99.9 %, ")
    assert facts["What binds"] == f"memory, in 'decode: attention', the largest part of the GPU clock: {reads}."
    assert sentence.startswith(f"Served {limit} at a time, these requests spend {decode} of their GPU time on decode;")
    assert "'decode: attention', bound by memory" in sentence
    reads, full = (of(server(), sample.request, mix=True) for of in (chi, omega))
    assert facts["chi"].startswith(f"{reads:.3g}. ") and "no batch makes a pass compute bound" in facts["chi"]
    assert facts["omega"].startswith(f"{full:.3g}. ") and "Memory is full before the linear layers" in facts["omega"]
    best = list(table(report, "lever: GPU time before / after"))[1]
    assert facts["Levers, best first"].startswith(best) and f"of the levers, '{best}' helps most, " in sentence


def test_another_verdict_where_prefill_dominates_and_memory_is_large():
    chat = OwnTraffic("chat", np.full(5, 1024), np.full(5, 128), np.zeros(5, int))
    facts = dict(traffic_report(server(), chat).sections[1].lines)
    assert facts["Phase, by the GPU clock"].startswith("prefill, 67.2 %") and facts["What binds"].startswith("compute")
    assert "makes a pass mostly compute bound" in facts["chi"]
    assert "Memory holds a batch at which the linear layers" in facts["omega"]


def test_a_verdict_does_not_say_that_a_pass_computes_where_it_reads_caches():
    """Production's medians: memory holds more than the roof batch of its linear layers, and passes mostly read."""
    traffic = OwnTraffic("production", np.full(5, 208), np.full(5, 792), np.zeros(5, int))
    report = traffic_report(server(), traffic)
    facts = dict(report.sections[1].lines)
    assert omega(server(), Request(208, 792)) < 1 < chi(server(), Request(208, 792))
    assert facts["omega"].endswith("a pass spends more time reading caches all the same.")
    assert "no batch makes a pass compute bound" in facts["chi"] and facts["What binds"].startswith("memory")


def test_a_verdict_says_where_a_step_reads_more_weights_than_caches():
    """On a GPU that its weights nearly fill chi is above 1, and steps mostly read weights all the same."""
    tight = server(accelerator=replace(server().accelerator, memory=20e9))
    thoughts = OwnTraffic("thoughts", *np.full((2, 5), 2_000), np.zeros(5, int))
    facts = dict(traffic_report(tight, thoughts).sections[1].lines)
    assert 1 < chi(tight, Request(2_000, 2_000)) < omega(tight, Request(2_000, 2_000))
    assert "a step reads more weights than caches" in facts["omega"] and "linear layers" in facts["What binds"]


def test_how_far_to_trust_it(report, sample):
    rows = table(report, "efficiency")
    for name in ("low", "middle", "high"):
        machine = server(efficiency=getattr(typical_efficiency("h100-sxm"), name))
        expected = format_seconds(price(machine, sample.request, 1).tpot, 3)
        assert rows[name][0] == expected
    own = Accelerator(name="h100-sxm", memory=80e9, bandwidth=3e12, peaks={"bf16": 9e14})  # a name is not enough
    for machine, words in (
        (server(accelerator=own), "are your own"),
        (server(efficiency=Efficiency(0.5, 0.5)), "efficiency that you gave"),
    ):
        text = traffic_report(machine, sample)._repr_markdown_()
        assert words in text and "eight in ten" not in text.lower()


def test_left_out_rows_are_said_and_nothing_is_reported_of_none():
    traffic = read_traffic("prompt_tokens,output_tokens,cached_tokens\n100,50,8\n140000,5,0\n10,20,0\n")
    made = traffic_report(server(), traffic)
    text = made._repr_markdown_()
    assert "Left out: 1 of 3 rows, beyond the model's positions of 131,072." in text
    assert "2 requests, each with its own lengths" in text and "Not read: cached" in text
    with pytest.raises(InvalidInputError, match="none of its 1 requests: 1 are beyond"):
        traffic_report(server(), read_traffic("prompt_tokens,output_tokens\n140000,5\n"))
    with pytest.raises(DoesNotFitError, match="weights"):
        traffic_report(server(accelerator=replace(h100(), memory=10e9)), traffic)


def test_what_is_refused(sample):
    refuses(lambda: traffic_report(None, sample), "traffic_report", "Deployment")
    with pytest.raises(InvalidInputError, match="read_traffic"):
        traffic_report(server(), "my.csv")
    for wrong in (-1, 0, float("nan"), "2"):
        with pytest.raises(InvalidInputError, match="price_per_hour"):
            traffic_report(server(), sample, price_per_hour=wrong)
    assert hourly_price(2.5, "EUR") == (2.5, "EUR")
    for wrong in ((2, 50, "EUR"), (2.5,), (2.5, 3), (2.5, " "), (2.5, "E" * 9)):
        with pytest.raises(InvalidInputError, match=r"Price: .*'USD'"):
            hourly_price(*wrong)
    limit = memory_batch(server(), sample.request)
    with pytest.raises(InvalidInputError, match=f"memory holds {limit} of these"):
        traffic_report(server(), sample, batch=limit + 1)
    assert traffic_report(server(), sample, batch=100).full.batch == 100
    with pytest.raises(InvalidInputError, match="batch is 0"):
        traffic_report(server(), sample, batch=0)


@pytest.mark.parametrize("amount", [1e308, 1e13, 1e-300])
def test_a_price_that_none_has_is_refused(sample, amount):
    refuses(lambda: traffic_report(server(), sample, amount), "price_per_hour")


def test_what_leaves_no_time_is_said_in_words():
    ones = OwnTraffic("ones", np.array([100, 200]), np.array([1, 1]), np.array([0, 0]))
    text = traffic_report(server(), ones, 2.5).html()
    assert "a prefill that takes no time" in text and "(no time is left)" in text
    assert not re.search(r"\b(inf|nan)\b", re.sub(r"base64,[^\"]*", "", text))


@pytest.mark.parametrize("name", ["x" * 5000 + "/y", "a\0b/y"])
def test_a_folder_that_cannot_be_is_refused(report, name):
    with pytest.raises(InvalidInputError, match="does not exist"):
        report.save(name)


def test_a_name_that_no_file_has_is_refused_and_leaves_nothing(tmp_path):
    for name in ("a\0b", "x" * 5000):
        with pytest.raises(InvalidInputError, match="cannot be written"):
            files.write_together({tmp_path / name: b"x"})
    assert list(tmp_path.iterdir()) == []


def test_a_concurrency_of_ones_own(sample):
    made = traffic_report(server(), sample, batch=8)
    assert made.full.batch == 8 and table(made, "at the floor")["at the floor"] == ("alone", "8 at a time")
    assert traffic_report(server(), sample, batch=1).full.batch == 1


def test_nothing_from_a_file_is_rendered(tmp_path, monkeypatch):
    traffic = OwnTraffic(NASTY, np.array([5, 9]), np.array([7, 400]), np.array([0, 0]), {"prompt": NASTY}, (NASTY,))
    model = replace(llama(), name=NASTY, defaults_used=(NASTY,))
    device = replace(h100(), name=NASTY, label=NASTY)
    made = traffic_report(server(model, device), traffic, 1.0, currency="<b>$`|")
    for html in (made.html(), made._repr_html_()):
        page = Tags(html)
        assert "alert(1)" in page.text  # shown as text
        names = {tag for tag, _ in page.tags}
        assert not names & {"script", "iframe", "a", "object", "svg", "link"}
        attributes = {name for _, attrs in page.tags for name in attrs}
        assert not [name for name in attributes if name.startswith("on")]
        images = [attrs for tag, attrs in page.tags if tag == "img"]
        assert len(images) == 1 and all(i["src"].startswith("data:image/png;base64,") and i["alt"] for i in images)
    for text in (made.markdown("a.png"), made._repr_markdown_()):
        text = text.replace("<span>&#36;</span>", "").replace("<span>&#92;</span>", "")  # mathematics taken apart
        assert "<" not in text and "$" not in text and "](javascript" not in text
        assert not re.search(r"(?<!\\)`|(?<!\\)\[a", text)
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert rows and len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) <= 5  # no cell was split
    paths = made.save(tmp_path / "nasty")
    assert all(path.parent == tmp_path for path in paths)


def test_it_is_saved_whole_with_its_figure_beside_the_markdown(report, tmp_path, monkeypatch):
    paths = report.save(tmp_path / "my (1) report.html")
    names = ["my (1) report.html", "my (1) report.md", "my (1) report.png"]
    assert [path.name for path in paths] == names
    html, markdown = (path.read_text(encoding="utf-8") for path in paths[:2])
    page = Tags(html)
    assert html.startswith("<!DOCTYPE html>") and "default-src 'none'" in html
    assert [tag for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)][:2] == ["h1", "h2"]
    (image,) = [attrs["src"] for tag, attrs in page.tags if tag == "img"]
    assert image.startswith("data:image/png;base64,")
    (picture,) = re.findall(r"!\[[^\]]{40,}\]\(([^)\s]+)\)", markdown)
    assert "data:" not in markdown and unquote(picture) == names[2]
    assert (tmp_path / unquote(picture)).read_bytes() == report.png and report.png.startswith(b"\x89PNG\r\n\x1a\n")

    before = {path: path.read_bytes() for path in paths}

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    for step in ("replace", "fdopen"):
        with monkeypatch.context() as patch:
            patch.setattr(files.os, step, full_disk)
            with pytest.raises(InvalidInputError, match=r"'my \(1\) report.png' cannot be written: No space left"):
                report.save(tmp_path / "my (1) report")
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    (tmp_path / "taken.md").mkdir()
    with pytest.raises(InvalidInputError, match=r"'taken.md' is a folder"):
        report.save(tmp_path / "taken")
    assert not (tmp_path / "taken.png").exists()
    if hasattr(os, "mkfifo"):  # a pipe would be waited for
        os.mkfifo(tmp_path / "pipe.html")
        with pytest.raises(InvalidInputError, match=r"'pipe.html' is not a plain file"):
            report.save(tmp_path / "pipe", replace=True)
    for wrong in ("", 3, b"a", ".", "..", "a/", "a\nb", "a\0b", ".html"):
        with pytest.raises(InvalidInputError, match="save: name is"):
            report.save(wrong)
    for wrong in ("a:b", "a?b", "CON", "nul.html", "com1.x", "<b>", "a\\b", "a|b"):
        with pytest.raises(InvalidInputError, match=r"save: name is .* Windows"):
            report.save(tmp_path / wrong)
    assert not list(tmp_path.glob("[aACn<]*"))
    with pytest.raises(InvalidInputError, match="does not exist"):
        report.save(tmp_path / "nowhere" / "mine")
    with pytest.raises(InvalidInputError, match="300 characters"):
        report.save("x" * 300)


def test_no_report_replaces_another(report, sample, tmp_path, monkeypatch):
    other, third = (traffic_report(server(), sample, 2.0, currency) for currency in ("EUR", "CHF"))
    first = report.save(tmp_path / "mine")
    before = {path: path.read_bytes() for path in first}
    assert report.save(tmp_path / "mine") == first
    for taken in ("mine", "mine.md"):
        refuses(lambda taken=taken: other.save(tmp_path / taken), "mine", "replace=True")
    first[1].unlink()  # two of the three are enough to be in the way
    refuses(lambda: other.save(tmp_path / "mine"), "mine")
    assert report.save(tmp_path / "mine") == first
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert other.save(tmp_path / "mine", replace=True) == first and first[0].read_text("utf-8") == other.html()
    refuses(lambda: other.save(tmp_path / "mine", replace=1), "replace")

    folder = tmp_path / "unnamed"
    folder.mkdir()
    monkeypatch.chdir(folder)
    names = [made.save()[0].name for made in (report, other, third, report, third)]
    stem = "llama-3.1-8b_h100-sxm_sample_traffic"
    assert names == [f"{stem}.html", f"{stem}-2.html", f"{stem}-3.html", f"{stem}.html", f"{stem}-3.html"]
    assert len(list(folder.iterdir())) == 9 and f"({stem}-2.png)" in (folder / f"{stem}-2.md").read_text("utf-8")
    for name in (NASTY, "../up/..", "模" * 300, "\x1b[2J\u202e", " . "):
        model, device = replace(llama(), name=name), replace(h100(), name=name)
        made = traffic_report(server(model, device), replace(sample, name=name)).save()
        assert all(path.exists() and path.parent == Path() and path.name.isprintable() for path in made)


def test_it_shows_itself_in_a_notebook(report):
    html, markdown = report._repr_html_(), report._repr_markdown_()
    assert [tag for tag, _ in Tags(html).tags if re.fullmatch("h[1-6]", tag)][:2] == ["h3", "h4"]
    assert "data:image" not in markdown and markdown.count("Figure: ") == 1
    assert len(html) < 120_000 and "sample_traffic.csv" in repr(report)


def test_the_figure_says_the_share_of_each_part(report, sample):
    limit = report.full.batch
    costs = {"alone": report.alone, f"{limit} at a time": report.full}
    figure = traffic_panels(server(), sample.prompt, sample.output, costs)
    plane, bars = figure.axes
    words = [text.get_text() for text in plane.texts]
    assert words == ["omega > 1", "batch 1", f"batch {limit}"]
    (dots,) = [line for line in plane.lines if line.get_marker() == "o"]
    assert dots.get_xdata().tolist() == sample.prompt.tolist()
    edges = plane.get_xlim(), plane.get_ylim()
    assert edges[0][0] <= sample.prompt.min() and sample.output.max() <= edges[1][1]
    assert f"decode takes {format_percent(report.full.decode_share)}" in bars.get_title(loc="left").lower()
    full = report.full
    for i, phase in enumerate((full.prefill, full.decode.linear, full.decode.attention)):
        assert bars.patches[3 + i].get_width() == pytest.approx(100 * phase.seconds / full.seconds)
    over = server(efficiency=Efficiency(overhead=5e-3))
    slow = traffic_panels(over, sample.prompt, sample.output, {"alone": price(over, sample.request, 1)})
    assert any("the rest" in text.get_text() for text in slow.axes[1].texts)


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
