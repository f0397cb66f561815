"""The table of what survives: its numbers are those of the summaries, its verdicts follow from its bounds."""

import re
from dataclasses import replace

import nbformat
import pytest
from helpers import refuses
from reading import NOTEBOOKS

from lessonlib.face.exercises.book.common import server, smallest_compute_bound_prompt
from lessonlib.face.sentences import NEAR, SENTENCES, what_survives
from lessonlib.measured.efficiency import typical_efficiency
from lessonlib.time.deployment import Efficiency
from lessonlib.time.roofline import pass_cost

TYPICAL = typical_efficiency("h100-sxm")
LOSSES = {"floor": Efficiency(), "high": TYPICAL.high, "middle": TYPICAL.middle, "low": TYPICAL.low}
MACHINES = {name: replace(server(), efficiency=each) for name, each in LOSSES.items()}
ROWS = {row[0]: row[1:] for row in what_survives(MACHINES)}
# A claim of the table, and how the notebook's own summary says it; a number in it is that of the floor.
SAID = {
    "00: chat alone is at least nine tenths decode": "chat and reasoning are *both* almost pure decode",
    "01: the shortest prompt whose linear layers are compute bound": "At batch 1 a short prompt is memory bound",
    "02: chat, full: prefill is more than half": "of its means {:.0%}",
    "02: reasoning, full: prefill is below 0.2 %": "prefill is {:.2%} of a full server",
    "02: reasoning, full: cache reads are the largest part": "cache reads are {:.0%}",
    "03: batch 32, steady: neighbours are at least half of a step": "your neighbours' caches are most of your step",
    "03: batch 32, steady: your thought adds under 5 % to it": "Your own thought adds {:.0%}, and less at typical",
    "04: chi of reasoning is above 1": "chi above 1: no batch makes a pass compute bound",
    "05: output that makes 100 prompt tokens a twentieth, alone": "Alone, {:.0f} output tokens make the prefill",
    "05: over 12 GB/s, fetch a prefix of 1,000 tokens": "worth fetching over any link above some 10 GB/s",
    "06: int4 weights, reasoning alone: times as fast": "4-bit weights, reasoning: {:.1f} times as fast alone",
    "06: fp8 cache, reasoning, full: times as fast": "doubles a full reasoning server",
    "06: half the thought, reasoning, full: times as fast": "Half the thought is worth nearly four times",
}


def summary(number):
    (path,) = (path for path in NOTEBOOKS if path.stem.startswith(number))
    text = "\n\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")
    return re.search(r"## Summary\n(.+?)\n## ", text, re.DOTALL)[1]


@pytest.mark.parametrize("claim", SAID)
def test_a_claim_is_one_of_its_notebook_s_summary(claim):
    (sentence,) = (one for one in SENTENCES if f"{one.notebook}: {one.claim}" == claim)
    words = SAID[claim].format(sentence.value(server())).replace("%", " %")
    assert words in summary(sentence.notebook)


def test_every_notebook_of_arithmetic_has_its_sentences():
    assert {one.notebook for one in SENTENCES} >= {"00", "01", "02", "03", "04", "05", "06", "08"}


@pytest.mark.parametrize("sentence", SENTENCES, ids=lambda one: one.claim)
def test_a_verdict_follows_from_the_numbers(sentence):
    values = [sentence.value(machine) for machine in MACHINES.values()]
    assert sentence.holds(values[0], values[0]), "a sentence is true at the floor"
    low, high = sentence.bounds or ((1 - NEAR) * values[0], (1 + NEAR) * values[0])
    row = ROWS[f"{sentence.notebook}: {sentence.claim}"]
    assert row[:-1] == tuple(map(sentence.printed, values))
    assert row[-1] == ("yes" if low <= min(values) and max(values) <= high else "**no**")


@pytest.mark.parametrize("name", MACHINES)
def test_the_smallest_prompt_that_computes_by_trying_each(name):
    machine, efficiency = MACHINES[name], MACHINES[name].efficiency

    def computes(prompt):
        work = pass_cost(machine, prompt).roofs["linear layers"]
        compute = work.flops / (efficiency.mfu * machine.peak)
        return compute > work.bytes / (efficiency.mbu * machine.bandwidth)

    found = next(prompt for prompt in range(1, 500) if computes(prompt))
    assert ROWS["01: the shortest prompt whose linear layers are compute bound"][list(MACHINES).index(name)] == str(
        found
    )
    assert name != "floor" or found == smallest_compute_bound_prompt()


def test_machines_are_deployments_by_name():
    refuses(lambda: what_survives({"floor": 3}), "machines", "Deployment")
    refuses(lambda: what_survives({}), "machines", "Deployment")
