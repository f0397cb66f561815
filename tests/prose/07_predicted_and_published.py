"""The numbers that notebook 07 says in its prose, each made by the library."""

from statistics import median

from lessonlib.facts.catalogue import load_accelerator
from lessonlib.measured.efficiency import decode_fits, decode_search, unseen_decode_errors
from lessonlib.measured.published import point_of, published_row


def reached(memory):
    return 100 * median(point.fraction for point in decode_search().points if point.memory_class == memory)


FIT = decode_fits()[()]
HELD = {
    "768 GB/s": lambda: f"{load_accelerator('rtx-a6000').bandwidth / 1e9:.0f} GB/s",
    "less than 4 s": lambda: "less than 4 s" if point_of(published_row("m2267")).measured < 4 else "more",
    "decode reaches 58 % (HBM), 65 % (GDDR) and 76 % (unified) in the median": lambda: (
        f"decode reaches {reached('HBM'):.0f} % (HBM), {reached('GDDR'):.0f} % (GDDR) and {reached('unified'):.0f} % "
        "(unified) in the median"
    ),
    "0.79 of the bandwidth and 2.2 ms a step": lambda: (
        f"{FIT.fraction:.2f} of the bandwidth and {1e3 * FIT.overhead:.1f} ms a step"
    ),
    "the two numbers are off by 12 % in the median": lambda: (
        f"the two numbers are off by {100 * unseen_decode_errors().median:.0f} % in the median"
    ),
}
