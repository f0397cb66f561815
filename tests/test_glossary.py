"""The glossary has every word of the lesson's vocabulary, says it shortly, and its links lead somewhere."""

import json
import re
from pathlib import Path

import pytest
from test_prose_numbers import loose_numerals

import counts
from lessonlib import load_accelerator, load_workload, omega, steady_state
from lessonlib.face.exercises.asking import all_exercises
from lessonlib.face.exercises.book.common import CHAT, REASONING, cost_of, server, smallest_compute_bound_prompt

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "glossary.md"
ROW = re.compile(r"^\| \*\*(.+?)\*\* \| (.+?) \| (.+?) \| \[(\d\d)\]\((.+?)\) \|$", re.MULTILINE)
ROWS = {word: (text, unit, number, link) for word, text, unit, number, link in ROW.findall(PAGE.read_text("utf-8"))}
VOCABULARY = """
prefill; decode; forward pass; step; prompt tokens; output tokens; context; span; batch size; concurrency; KV cache;
time to first token (TTFT); time to first answer token; time per output token (TPOT); inter-token latency;
arithmetic intensity; ridge point; roofline; MFU; MBU; GQA; MQA; MHA; MLA; sliding window; mixture of experts;
speculative decoding; prefix cache; chunked prefill; tensor parallelism; FLOP; FLOP/s; GB; GiB;
GPU clock; request clock; undisturbed; latency target; rho; chi; omega; roof batch; memory batch; weighted span;
full server; steady state; sparse attention; chunked attention; expert parallelism; data-parallel attention; all-to-all;
decode-heavy workload; new tokens; page; roof; floor; efficiency of a roof; constant state; disaggregation;
multi-token prediction (MTP); continuous batching; preemption; goodput; percentile; elasticity; Amdahl's law; all-reduce
"""
ORDER = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]*)\|", re.MULTILINE)
SAID = {  # as a notebook says it, where that is not the word itself
    "FLOP/s": "TFLOP/s",
    "ridge point": "ridge",
    "time to first answer token": "first answer token",
    "decode-heavy workload": "decode-heavy",
    "efficiency of a roof": "efficiency",
}


def test_every_word_is_there():
    wanted = {" ".join(word.split()) for word in VOCABULARY.split(";")}
    assert wanted - set(ROWS) == set()


def test_no_row_is_lost_to_its_form():
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| **")]
    assert len(rows) == len(ROWS), "a row of another form, or a word twice"


@pytest.mark.parametrize("word", ROWS)
def test_a_word_is_said_shortly_and_shown_where_it_says(word):
    text, unit, number, link = ROWS[word]
    assert 1 <= len(re.findall(r"[.](?:\s|$)", text)) <= 3 and len(text.split()) <= 30 and unit
    file = PAGE.parent / link
    assert file.name.startswith(number) and file.exists()
    prose = " ".join("".join(cell["source"]) for cell in json.loads(file.read_text("utf-8"))["cells"])
    forms = [SAID[word]] if word in SAID else [form.strip() for form in re.split("[()]", word) if form.strip()]
    said = (re.search(rf"(?<!\w){re.escape(form)}(?:s|es)?(?!\w)", prose, re.IGNORECASE) for form in forms)
    assert any(said), f"{file.name} never says {word!r}"


@pytest.mark.parametrize("page", ["README.md", "notebooks/00_start_here.ipynb", "notebooks/09_common_questions.ipynb"])
def test_the_glossary_is_linked(page):
    assert "docs/glossary.md)" in (ROOT / page).read_text("utf-8")


@pytest.mark.parametrize("page", ["glossary.md", "instructors.md"])
def test_links_of_the_pages_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]+)", (ROOT / "docs" / page).read_text("utf-8"))
    assert links and [link for link in links if ":" not in link and not (ROOT / "docs" / link).exists()] == []


def test_the_teachers_page_has_each_notebook_with_its_minutes_and_known_exercises():
    page = (ROOT / "docs" / "instructors.md").read_text("utf-8")
    form = r"^### \[.+\]\(\.\./notebooks/(.+\.ipynb)\), (\d+ minutes to read, \d+ with its exercises)$"
    said = dict(re.findall(form, page, re.MULTILINE))
    assert sorted(said) == sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
    for name, minutes in said.items():
        assert minutes in (ROOT / "notebooks" / name).read_text("utf-8"), name
    keys = set(re.findall(r"^\| `(.+?)` \|", page, re.MULTILINE))
    assert keys == set(all_exercises())


def test_the_running_order_of_ninety_minutes_adds_up():
    page = (ROOT / "docs" / "instructors.md").read_text("utf-8")
    order = page.partition("### Ninety minutes")[2].partition("\n## ")[0]
    rows = [(int(minutes), re.findall(r"`(.+?)`", asked)) for minutes, _, asked in ORDER.findall(order)]
    assert sum(minutes for minutes, _ in rows) == 90
    assert {key for _, asked in rows for key in asked} <= set(all_exercises())
    in_full = [(minutes, asked) for minutes, asked in rows if asked and not asked[0].startswith("quiz-")]
    assert all(5 * len(asked) <= minutes for minutes, asked in in_full)
    assert sum(len(asked) for _, asked in in_full) == 7 and "asks seven in full" in order


def reserved(request):
    return server().largest_batch(request.prompt + request.output)


def full_server(request):
    return steady_state(server(), request)


def chat_mean():
    return load_workload("chat").mean


def bandwidth(name):
    return f"{load_accelerator(name).bandwidth / 1e9:,.0f}"


NUMBERS = {
    "docs/instructors.md": {
        "97 % decode": lambda: f"{int(100 * cost_of(CHAT).decode_share)} % decode",
    },
    "docs/glossary.md": {
        "2**30 bytes, about 7 % more": lambda: f"2**30 bytes, about {100 * (2**30 / 1e9 - 1):.0f} % more",
    },
    "CHANGELOG.md": {  # of its newest section: what was stays as it was written, what is is computed
        "| 318 | 296 |": lambda: f"| 318 | {smallest_compute_bound_prompt():.0f} |",
        "prefill of 1,024 tokens | 14.73 ms | 15.04 ms": lambda: (
            f"prefill of 1,024 tokens | 14.73 ms | {1e3 * cost_of(CHAT).ttft:.2f} ms"
        ),
        "97.500 % | 97.448 %": lambda: f"97.500 % | {100 * cost_of(CHAT).decode_share:.3f} %",
        "80 GB | 85.52 GB": lambda: f"80 GB | {server().accelerator.memory / 1e9:.2f} GB",
        "370, 33 | 403, 35": lambda: f"370, 33 | {reserved(CHAT)}, {reserved(REASONING)}",
        "| 33 | 71 |": lambda: f"| 33 | {full_server(REASONING).batch} |",
        "5.01 s, 165 s | 4.08 s, 290 s": lambda: (
            f"5.01 s, 165 s | {full_server(REASONING).seconds_per_request:.2f} s, {full_server(REASONING).wait:.0f} s"
        ),
        "| 370 | 368 |": lambda: f"| 370 | {full_server(chat_mean()).batch} |",
        "| 67 % | 56 % |": lambda: f"| 67 % | {100 * full_server(chat_mean()).shares['prefill']:.0f} % |",
        "0.09, 8.9 | 0.12, 4.1": lambda: (
            f"0.09, 8.9 | {omega(server(), chat_mean()):.2f}, {omega(server(), REASONING):.1f}"
        ),
        "122,317 -> 440 | 103,647 -> 216": lambda: "122,317 -> 440 | {0.prompt:,} -> {0.output:,}".format(
            load_workload("agent-step").request
        ),
        "fp8, fp4 | these": lambda: "fp8, fp4 | these",
        "RTX PRO 6000 Server": lambda: "RTX PRO 6000 Server",
        "1,792, 8,000 GB/s | 1,597, 7,700 GB/s": lambda: (
            f"1,792, 8,000 GB/s | {bandwidth('rtx-pro-6000-server')}, {bandwidth('b200')} GB/s"
        ),
        "that of 2026": lambda: "that of 2026",
    },
}


@pytest.mark.parametrize("page", NUMBERS)
def test_numbers_of_the_pages_are_held(page):
    prose = counts.newest(page, (ROOT / page).read_text("utf-8"))
    prose = re.sub(r", \d+ minutes to read, \d+ with its exercises$|^## [\d.]+", "", prose, flags=re.MULTILINE)
    prose = " ".join(prose.split())
    for phrase, computed in NUMBERS[page].items():
        assert phrase in prose and computed() == phrase
    assert loose_numerals(prose, [*NUMBERS[page], *counts.phrases(page)]) == []
