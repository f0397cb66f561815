"""Measure the speed that the library promises, on this machine. Prints a table; the last line is one JSON object.

Medians over repeats in one run. A number here is a measurement, so no test asserts seconds. Everything that needs a
fresh interpreter (import time, memory of a sweep) runs in one.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
import timeit
from dataclasses import replace
from pathlib import Path

from lessonlib import Accelerator, Deployment, Request, load_model, pass_cost, request_cost

ROOT = Path(__file__).parent.parent
MODELS = ("llama-3.1-8b", "gpt-oss-120b", "deepseek-v3")
SWEEP_PAIRS = 1_000_000


def hypothetical() -> Accelerator:
    """An H100's rates with 1e15 bytes of memory, so that no length is refused for its cache."""
    return Accelerator(name="hypothetical", memory=1e15, bandwidth=3.35e12, peaks={"bf16": 989e12})


def unlimited(name: str) -> Deployment:
    """A catalogue model without its limit of positions, on the hypothetical accelerator."""
    return Deployment(replace(load_model(name), max_positions=None), hypothetical())


def microseconds(call, repeat: int = 15, number: int = 2000) -> float:
    return statistics.median(timeit.repeat(call, repeat=repeat, number=number)) / number * 1e6


def every_part(deployment: Deployment, request: Request, batch: int) -> tuple:
    """One request, and every part of it read."""
    cost = request_cost(deployment, request, batch)
    parts = (cost.prefill, cost.decode)
    return (cost.seconds, cost.undisturbed, cost.ttft, *(p.flops for p in parts), *(p.bytes for p in parts))


def one_request() -> dict:
    found = {}
    for name in MODELS:
        deployment = unlimited(name)
        for output in (128, 12_800, 10_000_000):
            request = Request(1024, output)
            found[f"{name} 1024 -> {output}"] = microseconds(lambda d=deployment, r=request: request_cost(d, r, 32))
    deployment, request = unlimited(MODELS[0]), Request(1024, 12_800)
    found["every part read"] = microseconds(lambda: every_part(deployment, request, 32))
    return found


def against_the_loop() -> dict:
    """The closed form of 20,000 steps against the library's own pass, called 20,000 times."""
    deployment, request = unlimited(MODELS[0]), Request(200, 20_001)
    started = time.perf_counter()
    looped = sum(pass_cost(deployment, new=1, cached=200 + k).seconds for k in range(20_000))
    loop_seconds = time.perf_counter() - started
    closed = request_cost(deployment, request).decode.seconds
    assert abs(looped / closed - 1) < 1e-12, (looped, closed)
    closed_seconds = microseconds(lambda: request_cost(deployment, request)) / 1e6
    return {"loop_s": loop_seconds, "closed_us": closed_seconds * 1e6, "ratio": loop_seconds / closed_seconds}


def sweep(name: str) -> None:
    """In an interpreter of its own: one call over a million pairs; prints seconds and the megabytes it added."""
    import resource

    import numpy as np

    deployment = unlimited(name)
    random = np.random.default_rng(0)
    request = Request(random.integers(1, 100_000, SWEEP_PAIRS), random.integers(1, 30_000, SWEEP_PAIRS))
    request_cost(deployment, Request(request.prompt[:10_000], request.output[:10_000]))
    unit = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    started = time.perf_counter()
    cost = request_cost(deployment, request)
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    inputs = request.prompt.nbytes + request.output.nbytes
    assert cost.refused.sum() == 0
    print(json.dumps({"seconds": seconds, "megabytes": (after - before + inputs) / 1e6}))


def in_fresh_interpreter(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return done.stdout.strip().splitlines()[-1]


def sweeps(repeat: int = 5) -> dict:
    found = {}
    for name in MODELS:
        code = f"import sys; sys.path.insert(0, 'tools'); import bench; bench.sweep({name!r})"
        runs = [json.loads(in_fresh_interpreter(code)) for _ in range(repeat)]
        found[name] = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    return found


def reading(repeat: int = 5) -> dict:
    """A log of a million rows, read from its bytes, in seconds of the processor; and the report's costs of all."""
    import numpy as np

    from lessonlib.facts.own_traffic import read_traffic
    from lessonlib.policy.mix import price

    random = np.random.default_rng(0)
    pairs = zip(random.integers(1, 60_000, SWEEP_PAIRS), random.integers(1, 30_000, SWEEP_PAIRS), strict=True)
    rows = [(f"{prompt}", f"{output}") for prompt, output in pairs]
    plain = "prompt_tokens,output_tokens\n" + "".join(f"{p},{o}\n" for p, o in rows)
    azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    azure += "".join(f"2023-11-16 18:17:03.9799600,{p},{o}\n" for p, o in rows)
    quoted = '"prompt_tokens","output_tokens"\n' + "".join(f'"{p}","{o}"\n' for p, o in rows)
    lines = "".join(f'{{"usage": {{"prompt_tokens": {p}, "completion_tokens": {o}}}}}\n' for p, o in rows)
    texts = {"two columns": plain, "three, a time among them": azure, "all quoted": quoted, "JSON lines": lines}
    found = {}
    for name, text in texts.items():
        content = text.encode()
        seconds = timeit.repeat(lambda c=content: read_traffic(c), time.process_time, repeat=repeat, number=1)
        found[f"1,000,000 rows, {name}, s"] = statistics.median(seconds)
    request = read_traffic(plain.encode()).request
    machine = unlimited(MODELS[0])
    found["price of all, s"] = statistics.median(timeit.repeat(lambda: price(machine, request, 32), repeat=5, number=1))
    return found


def import_time(repeat: int = 11) -> dict:
    code = (
        "import sys, time, numpy; t = time.perf_counter(); import lessonlib; t = time.perf_counter() - t; "
        "print(t * 1e3, *[m for m in ('matplotlib', 'ipywidgets', 'pandas') if m in sys.modules])"
    )
    runs = [in_fresh_interpreter(code).split() for _ in range(repeat)]
    return {"over_numpy_ms": statistics.median(float(run[0]) for run in runs), "also_imported": runs[0][1:]}


def nbval() -> dict:
    started = time.perf_counter()
    done = subprocess.run(
        ["make", "--no-print-directory", "nbval"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {"seconds": time.perf_counter() - started, "says": done.stdout.strip().splitlines()[-1].strip("= ")}


def continuous(count: int, load: float, prefill: str) -> None:
    """In an interpreter of its own: `count` requests of the production-R1 lengths; prints seconds and megabytes added.

    `load`: the arrival rate over the rate at which the server works off 10,000 requests that are there at once.
    """
    import resource

    from lessonlib import load_accelerator, load_model
    from lessonlib.facts.workloads import load_lengths
    from lessonlib.policy.serving.simulator import simulate
    from lessonlib.policy.serving.traffic import all_at_once, poisson_traffic

    deployment = Deployment(load_model(MODELS[0]), load_accelerator("h100-sxm"))
    lengths = [load_lengths("production-reasoning", quantity) for quantity in ("prompt", "output")]
    unit = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    capacity = 10_000 / simulate(deployment, all_at_once(10_000, *lengths, seed=1), prefill).elapsed
    traffic = poisson_traffic(count, load * capacity, *lengths, seed=2, thought_share=0.7)
    started = time.perf_counter()
    report = simulate(deployment, traffic, prefill)
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    assert report.finished == count and report.output_tokens == traffic.output.sum()
    found = {"seconds": seconds, "megabytes": (after - before) / 1e6, "events": report.events}
    print(json.dumps(found | {"preemptions": int(report.preemptions.sum())}))


def continuous_batching(repeat: int = 3) -> dict:
    """100,000 requests: at 85 % of what the server can take, and at 130 %; and how the time grows from 10,000."""
    found = {}
    for load, prefill in ((0.85, "first"), (0.85, "chunked"), (1.3, "first")):
        seconds = {}
        for count in (10_000, 100_000):
            code = (
                f"import sys; sys.path.insert(0, 'tools'); import bench; bench.continuous({count}, {load}, {prefill!r})"
            )
            runs = [json.loads(in_fresh_interpreter(code)) for _ in range(repeat)]
            found[f"{count:,} at {load:.0%}, {prefill}"] = {k: statistics.median(r[k] for r in runs) for k in runs[0]}
            seconds[count] = statistics.median(run["seconds"] for run in runs)
        found[f"ten times the requests at {load:.0%}, {prefill}, times"] = seconds[100_000] / seconds[10_000]
    return found


BENCHES = {
    "request_cost_us": one_request,
    "closed_form_against_loop": against_the_loop,
    "sweep_of_a_million": sweeps,
    "continuous_batching": continuous_batching,
    "own_traffic": reading,
    "import": import_time,
    "nbval": nbval,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*", choices=[[], *BENCHES], help="run these alone")
    only = parser.parse_args().only
    result = {}
    for name, bench in BENCHES.items():
        if not only or name in only:
            result[name] = bench()
            print(f"{name}:")
            for key, value in result[name].items():
                print(f"  {key}: {value if not isinstance(value, float) else format(value, ',.4g')}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
