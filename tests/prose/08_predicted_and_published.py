"""The numbers that notebook 08 says in its prose, each made by the library."""

from statistics import median

from lessonlib.facts.catalogue import load_accelerator
from lessonlib.measured.efficiency import (
    decode_fits,
    decode_search,
    typical_efficiency,
    unseen_decode_coverage,
    unseen_decode_errors,
)
from lessonlib.measured.published import deployment_of, point_of, published_row
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request


def reached(memory):
    return 100 * median(point.fraction for point in decode_search().points if point.memory_class == memory)


def in_the_overlap(memory):
    """Per cent of the bandwidth, of the steps of 5 to 12 ms."""
    points = [point for point in decode_search().points if point.memory_class == memory]
    return 100 * median(point.fraction for point in points if 5e-3 < point.floor / point.passes < 12e-3)


def others_prompts():
    """Milliseconds that three other prompts add to a step at half of the peak, and the step that was measured."""
    row = published_row("m2903")
    prompt = request_cost(deployment_of(row), Request(row.prompt_tokens, 2)).ttft
    return 1e3 * (row.batch - 1) * prompt / (row.output_tokens - 1) / 0.5, 1e3 * row.value


UNIFIED = typical_efficiency("m3-max").provenance  # it quotes what was measured on rows held back
FIT = decode_fits()[()]
HELD = {
    "768 GB/s": lambda: f"{load_accelerator('rtx-a6000').bandwidth / 1e9:.0f} GB/s",
    "less than 4 s": lambda: "less than 4 s" if point_of(published_row("m2267")).measured < 4 else "more",
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
    "by 16 %": lambda: "by 16 %" if "by 16%" in UNIFIED else "others",
    "holds 68 % of the rows": lambda: f"holds {100 * unseen_decode_coverage():.0f} % of the rows",
    "add 0.4 ms to a step": lambda: f"add {others_prompts()[0]:.1f} ms to a step",
    "16 ms were measured": lambda: f"{others_prompts()[1]:.0f} ms were measured",
    "the two numbers are off by 11 % in the median": lambda: (
        f"the two numbers are off by {100 * unseen_decode_errors().median:.0f} % in the median"
    ),
}
