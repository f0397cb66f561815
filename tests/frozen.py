"""The frozen numbers: 2,000 random requests, questions of policy and small simulations, with what was once computed.

`tests/data/frozen_numbers.json.gz` holds each case beside its result, so it is read without drawing anything. Numbers
are held to a relative 1e-12 (a closed sum may be added in another order), integers and words exactly, zero as zero. Of
a refusal its class and the arguments it names are held, never its words.

    python tests/frozen.py            compare, and count what differs by field
    python tests/frozen.py --write    keep the cases, and store what today's code makes of them
    python tests/frozen.py --draw     draw all cases anew from the seed, and store them (tests/frozen_draws.py)
"""

import gzip
import json
import math
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

# ---- The adapter: only this block knows the library. Names of `lessonlib` itself, and what has no door of its own yet.
from lessonlib import (
    Accelerator,
    Deployment,
    DoesNotFitError,
    Efficiency,
    LessonError,
    Precision,
    Request,
    Speculation,
    chi,
    load_accelerator,
    load_model,
    omega,
    request_cost,
    rho,
    ridge_tokens,
    roof_batch,
)
from lessonlib.policy import (
    Traffic,
    answer_traffic,
    break_even_output,
    elasticities,
    mean_slot_bytes,
    memory_batch,
    mixed_pass,
    paging,
    price,
    simulate,
    span_where_cache_passes_weights,
    steady_state,
    step_parts,
)

PHASE = "cache_read cache_write state_bytes communication overhead passes".split()
ROOF = "flops bytes seconds bound".split()
REPORT = "first_token first_answer_token finish preemptions end ended output_tokens recomputed_tokens".split()
REPORT += "request_seconds peak_running peak_cache_bytes cache_bytes_available".split()


@cache
def model_of(name: str) -> Any:
    from frozen_models import ODD  # models put together by hand

    return ODD[name]() if name in ODD else load_model(name)


def deploy(case: dict[str, Any]) -> Deployment:
    accelerator = case["accelerator"]
    own = isinstance(accelerator, dict)
    speculation = case.get("speculation")
    if speculation is not None:
        draft = speculation.get("draft")
        speculation = Speculation(**speculation | {"draft": "free" if draft is None else model_of(draft)})
    changes = {name: case[name] for name in ("devices", "memory_fraction", "prefill_chunk") if name in case}
    return Deployment(
        model_of(case["model"]),
        Accelerator(name="hypothetical", **accelerator) if own else load_accelerator(accelerator),
        Precision(**case["precision"]),
        efficiency=Efficiency(**case.get("efficiency", {})),
        speculation=speculation,
        **changes,
    )


def ask(case: dict[str, Any]) -> Request:
    return Request(case["prompt"], case["output"], case.get("cached", 0))


def priced(case: dict[str, Any]) -> dict[str, Any]:
    """What one case of the first part costs: plain numbers with their roofs, or arrays with the reasons of refusals."""
    deployment = deploy(case)
    request = ask(case)
    cost = request_cost(deployment, request, case.get("batch", 1))
    if cost.refused is not None:
        found = {name: getattr(cost, name) for name in ("ttft", "seconds", "tpot", "flops", "bytes")}
        found |= {"prefill seconds": cost.prefill.seconds, "decode seconds": cost.decode.seconds}
        cells = np.ndindex(np.shape(cost.seconds))
        return found | {"refused": [{"names": named(cost.why_refused(*cell))} for cell in cells]}
    tokens = request.prompt + request.output
    return {
        "prefill": phase(cost.prefill),
        "decode": phase(cost.decode),
        "ttft": cost.ttft,
        "seconds": total(cost.seconds, cost.prefill.seconds + cost.decode.seconds),
        "tpot": total(cost.tpot, cost.decode.seconds / (request.output - 1) if request.output > 1 else math.nan),
        "roofs": {f"{row.phase}, {row.part}": {name: getattr(row, name) for name in ROOF} for row in cost.roofs()},
        "weight_bytes": deployment.weight_bytes,
        "memory_needed": deployment.memory_needed(tokens, cost.batch),
        "memory_available": deployment.memory_available,
        "cache_bytes_per_token": deployment.cache_bytes_per_token,
        "largest_batch": attempt(deployment.largest_batch, tokens),
    }


def phase(part: Any) -> dict[str, Any]:
    found = {name: getattr(part, name) for name in PHASE} | {"linear bytes": part.linear.bytes}
    for name in ("linear", "attention"):
        work = getattr(part, name)
        found |= {f"{name} flops": work.flops, f"{name} seconds": work.seconds}
    moved = part.cache_read + part.cache_write + part.state_bytes
    seconds = part.linear.seconds + part.attention.seconds + part.communication + part.overhead
    return found | {
        "attention bytes": total(part.attention.bytes, moved),
        "flops": total(part.flops, part.linear.flops + part.attention.flops),
        "bytes": total(part.bytes, part.linear.bytes + moved),
        "seconds": total(part.seconds, seconds),
    }


def total(value: float, parts: float) -> Any:
    """The word "sum" where a total is that of the parts, which are stored beside it; otherwise the total itself."""
    return "sum" if same(plain(float(value)), plain(float(parts))) else value


def policy(case: dict[str, Any]) -> dict[str, Any]:
    """What the closed forms of policy say of one deployment, request and batch; each by itself, or why it refuses."""
    deployment, request, batch = deploy(case), ask(case), case["batch"]
    place = (request.output + 1) // 2
    questions = {
        "rho": lambda: rho(deployment, request, batch),
        "chi": lambda: chi(deployment, request),
        "omega": lambda: omega(deployment, request),
        "ridge_tokens": lambda: ridge_tokens(deployment),
        "roof_batch": lambda: roof_batch(deployment, request),
        "memory_batch": lambda: memory_batch(deployment, request),
        "memory_batch, pages": lambda: memory_batch(deployment, request, page=16),
        "steady_state": lambda: state(steady_state(deployment, request, batch)),
        "steady_state, mixed": lambda: state(steady_state(deployment, request, batch, mixed=True)),
        "mixed_pass": lambda: mixed_pass(deployment, request, batch),
        "break_even_output": lambda: break_even_output(deployment, request.prompt, batch),
        "elasticities": lambda: elasticities(deployment, request, batch, step=1e-2),
        "answer_traffic": lambda: vars(answer_traffic(deployment, request, batch)),
        "step_parts": lambda: vars(step_parts(deployment, request, place, batch)),
        "step_parts, together": lambda: vars(step_parts(deployment, request, place, batch, together=True)),
        "span_where_cache_passes_weights": lambda: span_where_cache_passes_weights(deployment, batch),
    }
    return {name: attempt(question) for name, question in questions.items()}


def state(found: Any) -> dict[str, Any]:
    return {
        name: getattr(found, name) for name in ("batch", "ttft", "parts", "step", "seconds_per_request", "wait", "tpot")
    }


def mix(case: dict[str, Any]) -> dict[str, Any]:
    """A mix of requests on a full server."""
    deployment, request = deploy(case), ask(case)

    def parts() -> dict[str, Any]:
        cost = price(deployment, request, case["batch"])
        found: dict[str, Any] = {"ttft": cost.ttft, "seconds": cost.seconds, "steps": cost.steps, "step": cost.step}
        found |= {"tpot": cost.tpot, "wait": cost.wait}
        for name in ("prefill", "decode"):
            one = getattr(cost, name)
            found |= {f"{name} {part}": tuple(getattr(one, part)) for part in ("linear", "attention")}
            found |= {f"{name} communication": one.communication, f"{name} overhead": one.overhead}
        return found

    return {
        "price": attempt(parts),
        "memory_batch": attempt(memory_batch, deployment, request),
        "mean_slot_bytes": attempt(mean_slot_bytes, deployment, request),
        "chi": attempt(chi, deployment, request, True),
        "omega": attempt(omega, deployment, request, True),
    }


def simulated(case: dict[str, Any]) -> dict[str, Any]:
    traffic = Traffic(case["arrivals"], case["prompt"], case["output"], case["thought_share"])
    settings = {"max_batch" if name == "largest_batch" else name: value for name, value in case["settings"].items()}
    report = simulate(deploy(case), traffic, **settings)
    return {name: getattr(report, name) for name in REPORT} | {"phases": dict(report.seconds)}


def paged(case: dict[str, Any]) -> dict[str, Any]:
    return vars(paging(**case))


COMPUTE = {"requests": priced, "policies": policy, "mixes": mix, "simulations": simulated, "pagings": paged}

# ---- Results as they are stored.

RECORD = Path(__file__).parent / "data" / "frozen_numbers.json.gz"
# What an error may name. Only what stands before the first ";", the fault and not the advice, is looked at.
NAMES = re.compile(
    r"\b(prompt|output|cached|batch|devices|prefill_chunk|memory_fraction|mfu|mbu|overhead|all_reduce_latency|"
    r"acceptance|draft_tokens|link|heads|positions|memory|peak|blocks|experts|head|embedding|other|compute|dtype|"
    r"chunks|shapes|speculation|position|lengths|length|maximum|block|cache|step)\b"
)
REMEDY = re.compile(r"\b(?:batch|devices|cache|weights|fp8|int4|[0-9]+)\b")


def named(message: str) -> list[str]:
    return sorted(set(NAMES.findall(message)))


def attempt(function: Any, *arguments: Any) -> Any:
    """What the function returns, or of its refusal the class and what it names; of a lack of memory the bytes too."""
    try:
        return function(*arguments)
    except DoesNotFitError as error:
        remedies = [sorted(REMEDY.findall(remedy)) for remedy in error.remedies]
        return {"error": "DoesNotFitError", "needed": error.needed, "available": error.available, "remedies": remedies}
    except LessonError as error:
        return {"error": type(error).__name__, "names": named(str(error).partition(";")[0]), "message": str(error)}


def compute(part: str, case: dict[str, Any]) -> Any:
    return plain(attempt(COMPUTE[part], case))


def plain(value: Any) -> Any:
    """Numbers, words, lists and dicts of Python alone; NaN is None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def without_messages(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_messages(item) for key, item in value.items() if key != "message"}
    return value


def read() -> dict[str, list[list[Any]]]:
    """{part: [[case, result], ...]}"""
    return json.loads(gzip.decompress(RECORD.read_bytes()))


def write(cases: dict[str, list[Any]]) -> None:
    record = {part: [[case, without_messages(compute(part, case))] for case in cases[part]] for part in COMPUTE}
    rows = {part: ",\n".join(json.dumps(row, separators=(",", ":")) for row in record[part]) for part in record}
    text = ",\n".join(f'"{part}":[\n{lines}\n]' for part, lines in rows.items())
    RECORD.write_bytes(gzip.compress(f"{{{text}}}\n".encode(), 9, mtime=0))


# ---- The comparison.

TOLERANCE = 1e-12
# Differences of nearly equal numbers: what is allowed beside, as a share of the sum of all that the entry holds.
DIFFERENCES = {"elasticities": 1e-9, "phases": 1e-12}


def differences(was: Any, now: Any, field: str = "", slack: float = 0.0) -> list[tuple[str, Any, Any]]:
    """(field, stored, computed) of all that is not the same."""
    share = DIFFERENCES.get(field.rpartition(" / ")[2])
    if share is not None:
        numbers = was.values() if isinstance(was, dict) else [was]
        slack = share * (sum(abs(n) for n in numbers if isinstance(n, float)) if isinstance(was, dict) else 1.0)
    if isinstance(was, dict) and isinstance(now, dict):
        found = []
        for key in dict.fromkeys((*was, *now)):
            here = f"{field} / {key}" if field else key
            if key == "message":
                continue
            if key == "names" and "names" in now:
                words = named(now.get("message", "")) or now["names"]
                found += [] if set(was.get("names", ())) <= set(words) else [(here, was.get("names"), words)]
            elif key in was and key in now:
                found += differences(was[key], now[key], here, slack)
            else:
                found.append((here, was.get(key, "nothing"), now.get(key, "nothing")))
        return found
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        pairs = enumerate(zip(was, now, strict=True))
        return [found for i, (old, new) in pairs for found in differences(old, new, f"{field}[{i}]", slack)]
    return [] if same(was, now, slack) else [(field, was, now)]


def same(was: Any, now: Any, slack: float = 0.0) -> bool:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (was, now))
    if not numbers or not (isinstance(was, float) or isinstance(now, float)):
        return type(was) is type(now) and was == now
    return math.isclose(was, now, rel_tol=TOLERANCE, abs_tol=slack)


def changed(part: str, rows: list[list[Any]]) -> list[tuple[str, str, Any, Any]]:
    """(case, field, stored, computed) of all that today's code computes otherwise."""
    found = []
    for i, (case, was) in enumerate(rows):
        for field, old, new in differences(was, compute(part, case)):
            found.append((f"{part} {i} {json.dumps(case)}", field, old, new))
    return found


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--write"], ["--draw"]):
        print(__doc__, file=sys.stderr)
        return 2
    if arguments == ["--draw"]:
        from frozen_draws import draw

        write(draw())
        return 0
    record = read()
    found = [row for part, rows in record.items() for row in changed(part, rows)]
    for (part, field), count in Counter((row[0].partition(" ")[0], row[1]) for row in found).most_common(40):
        print(f"{count:6,} x {part}: {field}")
    print(f"{len(found):,} numbers or words differ, in {len({row[0] for row in found}):,} cases")
    if arguments == ["--write"]:
        write({part: [case for case, _ in rows] for part, rows in record.items()})
        return 0
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
