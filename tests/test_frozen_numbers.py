"""Today's code makes the frozen numbers (frozen.py) of 2,000 requests, and of policy, mixes and simulations."""

import math
from collections import Counter
from functools import cache

import frozen
import pytest
from frozen_models import ODD

from lessonlib import model_names

record = cache(frozen.read)
SHOWN = 10


@pytest.mark.parametrize("part", frozen.COMPUTE)
def test_no_number_has_changed(part):
    found = frozen.changed(part, record()[part])
    lines = [f"{case}\n  {field}: stored {was!r}, computed {now!r}" for case, field, was, now in found[:SHOWN]]
    lines.append("python tests/frozen.py counts them by field.")
    assert not found, f"{len(found):,} numbers or words differ, the first of them:\n" + "\n".join(lines)


def test_the_record_covers_what_it_is_for():
    requests = record()["requests"]
    kinds = Counter(
        "refused" if "error" in result else "array" if "refused" in result else "plain" for _, result in requests
    )
    assert len(requests) == 2000
    assert kinds["plain"] >= 1400 and kinds["array"] >= 200 and kinds["refused"] >= 300
    answered = Counter(case["model"] for case, result in requests if "error" not in result)
    assert all(answered[name] >= 10 for name in (*ODD, "deepseek-v3", "gpt-oss-120b", "qwen3-next-80b-a3b", "gpt2"))
    assert len(answered) >= 50 and set(answered) <= {*ODD, *model_names()}
    for name in ("devices", "prefill_chunk", "speculation", "cached", "memory_fraction", "efficiency", "batch"):
        assert sum(name in case for case, result in requests if "prefill" in result) >= 250, name
    preempted = [result["preemptions"] for _, result in record()["simulations"] if "error" not in result]
    assert sum(max(each) > 0 for each in preempted) >= 20


def test_what_counts_as_the_same():
    assert frozen.same(1.0, 1 + 1e-13) and frozen.same(2**60 + 0.0, 2**60)
    assert not frozen.same(1.0, 1 + 1e-11)
    assert not frozen.same(0.0, 1e-300) and not frozen.same(1e-300, 0.0)
    assert not frozen.same(3, 4) and not frozen.same(10**15, 10**15 + 1) and not frozen.same(True, 1)
    assert not frozen.same(None, 0.0) and not frozen.same("memory", "compute")
    assert frozen.plain({"a": math.nan}) == {"a": None}


def test_a_refusal_is_its_class_and_what_it_names():
    was = {"error": "InvalidInputError", "names": ["cached", "prompt"]}
    now = {"error": "InvalidInputError", "names": ["cached"], "message": "cached is 5; take at most prompt - 1"}
    assert frozen.differences(was, now) == []
    assert frozen.differences(was, now | {"error": "UnknownNameError"}) == [
        ("error", "InvalidInputError", "UnknownNameError")
    ]
    assert frozen.differences(was, now | {"message": "prompt is 5"}) == [("names", ["cached", "prompt"], ["prompt"])]
    assert frozen.differences({"seconds": 1.0}, was)
    assert frozen.differences({"a": [1.0, 2.0]}, {"a": [1.0, 2.1]}) == [("a[1]", 2.0, 2.1)]
