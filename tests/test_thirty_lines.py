"""The decoder that stands in notebook 07: it is thirty lines, what it counts is the library's count, and it decodes.

The cell is taken from the notebook as it is, and run beside lessonlib's arithmetic and the decoder that is timed.
"""

from collections import Counter

import nbformat
import numpy as np
import pytest

import notebooks
from lessonlib.measured.timing.decoder import NumpyDecoder, toy_model
from lessonlib.model.precision import Precision
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import Deployment
from lessonlib.time.roofline import pass_cost

NOTEBOOK = nbformat.read(notebooks.FOLDER / "07_time_it_yourself.ipynb", as_version=4)
(CELL,) = (cell.source for cell in NOTEBOOK.cells if cell.source.startswith("class Decoder"))
CPU = Accelerator(name="a CPU", memory=16e9, bandwidth=2e10, peaks={"fp32": 1e11})
SIZES = [
    {"layers": 1, "width": 16, "heads": 1, "inner": 8, "vocabulary": 32},
    {"layers": 3, "width": 48, "heads": 4, "inner": 80, "vocabulary": 100},
]


def decoder(sizes):
    names = {"np": np, "Counter": Counter}
    exec(CELL, names)
    return names["Decoder"](**sizes)


def test_it_has_thirty_lines():
    assert sum(1 for line in CELL.splitlines() if line.strip() and not line.strip().startswith("#")) == 30


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("passes", [(1,) * 7, (5, 1, 1), (3, 4)], ids=str)
def test_its_bytes_are_the_library_s(sizes, passes):
    """Pass by pass: weights, cache read and cache written, to the byte."""
    mine, machine, cached = decoder(sizes), Deployment(toy_model(**sizes), CPU, Precision("fp32")), 0
    for new in passes:
        before = Counter(mine.bytes)
        mine.forward(np.arange(new))
        seen, cost = mine.bytes - before, pass_cost(machine, new, cached)
        assert seen["weights"] == cost.linear.bytes
        assert seen["cache read"] == machine.model.cache_bytes(cached, bytes_per_element=4)
        assert seen["cache written"] == machine.model.cache_bytes(new, bytes_per_element=4)
        assert seen["cache read"] + seen["cache written"] == cost.attention.bytes
        assert seen.total() == cost.bytes
        cached += new
    assert {cache.shape for cache in mine.caches} == {(cached, 2, sizes["heads"], sizes["width"] // sizes["heads"])}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_it_answers_as_the_timed_decoder_does_with_the_same_weights(sizes):
    mine, timed = decoder(sizes), NumpyDecoder(toy_model(**sizes), room=9)
    timed.embedding, timed.head, timed.final_gain = mine.embedding, mine.head, mine.gain
    for theirs, layer in zip(timed.layers, mine.layers, strict=True):
        theirs |= {"qkv": np.concatenate([layer[name] for name in "qkv"], axis=1), "out": layer["out"]}
        theirs |= {"gate_up": layer["gate, up"], "down": layer["down"]}
        theirs["gains"] = np.stack([layer["gain 1"], layer["gain 2"]])
    for tokens in ([3, 1, 4, 1], [5], [9, 2, 6, 0]):
        logits = mine.forward(np.array(tokens))
        assert logits.dtype == np.float32
        assert np.allclose(logits, timed.forward(np.array(tokens)), atol=1e-4 * np.abs(logits).max())
    assert mine.bytes["weights"] == timed.counts.weight_bytes
