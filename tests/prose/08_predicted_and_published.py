"""The numbers that notebook 08 says in its prose, each made by the library."""

import re
from dataclasses import replace
from statistics import median

from lessonlib.face.exercises.book.common import REASONING, server
from lessonlib.face.sentences import NEAR
from lessonlib.facts.catalogue import load_accelerator
from lessonlib.measured.calibration import relative_errors
from lessonlib.measured.efficiency import decode_fits, decode_search, typical_efficiency, unseen_decode_errors
from lessonlib.measured.published import SUSPECTS, below_the_floor, deployment_of, published_row
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request

# Measured once, on rows that are not in the repository, in per cent: in batches; by the maximum, alone and in batches.
BATCHES, MAXIMUM = 29, (17, 40)
UNIFIED = typical_efficiency("m3-max").provenance  # it quotes what was measured on rows held back
QUOTED = re.search(r"by (\d+)% on 1,400 measurements", UNIFIED)[1]
FIT = decode_fits()[()]


def reached(memory):
    return 100 * median(point.fraction for point in decode_search().points if point.memory_class == memory)


def in_the_overlap(memory):
    """Per cent of the bandwidth, of the steps of 5 to 12 ms."""
    mine = [point for point in decode_search().points if point.memory_class == memory]
    return 100 * median(point.fraction for point in mine if 5e-3 < point.floor / point.passes < 12e-3)


def others_prompts():
    """Milliseconds that three other prompts add to a step at half of the peak, and the step that was measured."""
    row = published_row("m2903")
    prompt = request_cost(deployment_of(row), Request(row.prompt_tokens, 2)).ttft
    return 1e3 * (row.batch - 1) * prompt / (row.output_tokens - 1) / 0.5, 1e3 * row.value


def seen_error():
    search = decode_search()
    seen = search.alternate()
    return 100 * relative_errors(search.judged(seen)["two numbers"][seen]).median


def on_an_a100():
    return request_cost(replace(server(), accelerator=load_accelerator("a100-sxm-80gb")), REASONING).undisturbed


HELD = {
    "the 17 rows of the table that beat it": lambda: f"the {len(below_the_floor())} rows of the table that beat it",
    "no time for 2,047 steps": lambda: f"no time for {published_row(SUSPECTS['b']).output_tokens - 1:,} steps",
    "reads 15.01 GB of weights": lambda: f"reads {server().sizes.dense_bytes / 1e9:.2f} GB of weights",
    "decode reaches 58 % (HBM), 65 % (GDDR) and 76 % (unified) in the median": lambda: (
        f"decode reaches {reached('HBM'):.0f} % (HBM), {reached('GDDR'):.0f} % (GDDR) and {reached('unified'):.0f} % "
        "(unified) in the median"
    ),
    "0.79 of the bandwidth and 2.0 ms a step": lambda: (
        f"{FIT.fraction:.2f} of the bandwidth and {1e3 * FIT.overhead:.1f} ms a step"
    ),
    "between 5 and 12 ms, HBM reaches 75 % in the median, GDDR 68 % and unified memory 76 %": lambda: (
        f"between 5 and 12 ms, HBM reaches {in_the_overlap('HBM'):.0f} % in the median, GDDR "
        f"{in_the_overlap('GDDR'):.0f} % and unified memory {in_the_overlap('unified'):.0f} %"
    ),
    "1,400 measurements": lambda: "1,400 measurements" if "1,400 measurements" in UNIFIED else "others",
    "reached 42 %": lambda: "reached 42 %" if "reached 42%" in UNIFIED else "others",
    "off there by 16 % alone and by 29 % in batches": lambda: (
        f"off there by {QUOTED} % alone and by {BATCHES} % in batches"
    ),
    "by 17 % and 40 %": lambda: f"by {MAXIMUM[0]} % and {MAXIMUM[1]} %",
    "on the rows held back by 16 % alone and 29 % in batches": lambda: (
        f"on the rows held back by {QUOTED} % alone and {BATCHES} % in batches"
    ),
    "off by 6.6 % in the median": lambda: f"off by {seen_error():.1f} % in the median",
    "takes 99.6 s at the floor. Its 12,799 steps": lambda: (
        f"takes {on_an_a100():.1f} s at the floor. Its {REASONING.output - 1:,} steps"
    ),
    "add 0.4 ms to a step": lambda: f"add {others_prompts()[0]:.1f} ms to a step",
    "16 ms were measured": lambda: f"{others_prompts()[1]:.0f} ms were measured",
    "the two numbers are off by 11 % in the median": lambda: (
        f"the two numbers are off by {100 * unseen_decode_errors().median:.0f} % in the median"
    ),
    "stays within 15 per cent": lambda: f"stays within {100 * NEAR:.0f} per cent",
}
