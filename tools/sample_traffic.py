"""Write data/sample_traffic.csv: requests to try notebook 10 with, drawn from published quantiles with a fixed seed.

    python tools/sample_traffic.py

Lengths follow `production-reasoning` of data/workload_quantiles.csv (ServeGen, Apache-2.0). The release gives prompt
and output lengths apart, so they are drawn apart: how a long prompt goes with a long answer is not in the sample.
"""

import numpy as np

from lessonlib.facts.tables import DATA
from lessonlib.facts.workloads import load_lengths

PATH = DATA / "sample_traffic.csv"
REQUESTS, SEED = 1000, 9


def sample() -> str:
    """The text of the file."""
    random = np.random.default_rng(SEED)
    prompt, output = (
        load_lengths("production-reasoning", kind).sample(random, REQUESTS) for kind in ("prompt", "output")
    )
    rows = (f"{p},{o}" for p, o in zip(prompt.tolist(), output.tolist(), strict=True))
    return "\n".join(("prompt_tokens,output_tokens", *rows)) + "\n"


if __name__ == "__main__":
    PATH.write_text(sample(), encoding="utf-8", newline="\n")
    print(f"{PATH.name}: {REQUESTS:,} requests")
