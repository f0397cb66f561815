"""Draws the cases of the frozen numbers from a fixed seed: `python tests/frozen.py --draw`, a minute or two.

Cases are drawn from the catalogue as it is, so a longer catalogue draws other ones; those of the record stay as they
are until they are drawn anew. An ordinary case is drawn again when it is refused, and counts towards a share of natural
refusals (memory, positions, heads, link, peak); the deliberate ones have exactly one thing wrong.
"""

from collections import Counter
from random import Random
from typing import Any

from frozen import compute, deploy
from frozen_models import ODD

from lessonlib import LessonError, accelerator_names, load_accelerator, model_names

ACCELERATORS = accelerator_names()
MODELS = model_names()
SEED = 20_261_130
PLAIN, ARRAYS, REFUSALS = 1_450, 200, 350  # requests, together 2,000
NATURAL = {"DoesNotFitError": 110, "heads": 35, "positions": 35, "link": 10, "peak": 10}  # of the refusals
DTYPES = "bf16 fp16 fp32 fp8 int8 q8_0 q6_k q4_k_m q4_0 nvfp4 mxfp4 int4".split()
PARTS = "experts head embedding other cache".split()
NO_COUNT = (0, -1, 1.5, float("nan"), float("inf"), True, "128", None)
NO_FRACTION = (0, -0.5, 1.2, float("nan"), float("inf"), True, "0.9", None)
NO_SECONDS = (-1e-3, float("nan"), float("inf"), True, "0", None)
BAD: dict[str, tuple[Any, ...]] = {
    "prompt": (*NO_COUNT, 2**60),
    "output": (*NO_COUNT, 2**60),
    "cached": (-1, 1.5, float("nan"), True, "0", None, 10**9),
    "batch": (*NO_COUNT, 2**60),
    "devices": NO_COUNT,
    "prefill_chunk": NO_COUNT[:-1],
    "memory_fraction": NO_FRACTION,
    "efficiency mfu": NO_FRACTION,
    "efficiency mbu": NO_FRACTION,
    "efficiency overhead": NO_SECONDS,
    "efficiency all_reduce_latency": NO_SECONDS,
    "speculation draft_tokens": NO_COUNT,
    "speculation acceptance": NO_FRACTION[1:],
    "precision blocks": ("int3", "BF16", 16, None, ""),
    "precision cache": ("int3", 8, True),
    "precision experts": ("fp4", 4),
    "precision compute": ("int3", 16, "q8_0"),
    "model": ("lama-3.1-8b", "gpt5"),
    "accelerator": ("h100", "b100-sxm"),
    "arrays": ([1, True], ["8"], [[1, 2], [3]], [], [1.5, 2**60], [float("nan"), 0]),
}


def scale(random: Random, most: int) -> int:
    """A whole number from 1 to 2**most, every power of two as likely."""
    return min(2**most, int(2 ** random.randrange(most) * (1 + random.random())))


def hardware(random: Random) -> Any:
    if random.random() < 0.85:
        return random.choice(ACCELERATORS)
    return {
        "memory": random.choice([1e9, 64e9, 1e15]),
        "bandwidth": random.choice([2e10, 1e12, 8e12]),
        "peaks": {"bf16": random.choice([1e10, 1e14, 5e15]), "fp16": 1e14, "fp8": 2e15, "fp4": 4e15},
        "link": random.choice([1e9, 4e11]),
    }


def dtypes(random: Random, accelerator: Any) -> dict[str, str]:
    peaks = accelerator["peaks"] if isinstance(accelerator, dict) else load_accelerator(accelerator).peaks
    found = {"blocks": random.choice(["bf16", *DTYPES])}
    for part in PARTS:
        if random.random() < 0.25:
            found[part] = random.choice(DTYPES)
    if found["blocks"] not in peaks or random.random() < 0.3:
        found["compute"] = random.choice([dtype for dtype in sorted(peaks) if dtype in (*DTYPES, "fp4")])
    return found


def model(random: Random) -> str:
    return random.choice(MODELS) if random.random() < 0.8 else random.choice(sorted(ODD))


def server(random: Random, name: str, steps: bool = False) -> dict[str, Any]:
    """A deployment of the model; `steps`: one without speculation."""
    accelerator = hardware(random)
    case: dict[str, Any] = {
        "model": name,
        "accelerator": accelerator,
        "precision": dtypes(random, accelerator),
    }
    if random.random() < 0.6:
        case["devices"] = random.choice([2, 4, 8, 8, 16, 32, 64, 3, 5, 6, 7, 12])
    if random.random() < 0.6:
        case["efficiency"] = {
            "mfu": random.randint(10, 100) / 100,
            "mbu": random.randint(10, 100) / 100,
            "overhead": random.choice([0, 2e-5, 2e-3, 0.1]),
            "all_reduce_latency": random.choice([0, 1e-5, 3e-4]),
        }
    if random.random() < 0.4:
        case["memory_fraction"] = random.choice([0.01, 0.3, 0.5, 0.75, 0.95, 1])
    if not steps and random.random() < 0.25:
        speculation = {"draft_tokens": random.randint(1, 12), "acceptance": random.choice([0, 0.3, 0.7, 0.95, 1])}
        if random.random() < 0.6:
            drafts = ["llama-3.2-1b", "qwen2.5-0.5b", "qwen3-0.6b", "smollm3-3b", "window alone", "odd states"]
            speculation["draft"] = random.choice(drafts)
        case["speculation"] = speculation
    return case


def lengths(random: Random, case: dict[str, Any]) -> dict[str, Any]:
    """The case with a prompt, an output, a cached prefix, a chunk."""
    most = random.choice([10, 14, 17, 20])
    case["prompt"] = scale(random, most)
    case["output"] = random.randint(1, 2) if random.random() < 0.15 else scale(random, most)
    if random.random() < 0.35:
        case["cached"] = random.choice(
            [random.randrange(case["prompt"]), case["prompt"] - 1, min(1, case["prompt"] - 1)]
        )
    if random.random() < 0.3:
        new = case["prompt"] - case.get("cached", 0)
        case["prefill_chunk"] = max(1, random.choice([new // random.randint(1, 40), new, new + 1, new - 1, new // 200]))
    return case


def largest(case: dict[str, Any]) -> int:
    """The batch that memory allows: 0 where there is none, 1 where it cannot be said."""
    try:
        return min(2**40, deploy(case).largest_batch(case["prompt"] + case["output"]))
    except LessonError:
        return int(case["model"] in ("no memory", "odd halves"))


def request(random: Random, name: str, steps: bool = False) -> dict[str, Any]:
    case = lengths(random, server(random, name, steps))
    kind, limit = random.random(), max(1, largest(case))
    if kind < 0.4:
        case["batch"] = min(limit, scale(random, 9))
    elif kind < 0.7:
        case["batch"] = random.choice([limit, max(1, limit - 1), random.randint(1, limit), limit + 1, 3 * limit + 7])
    return case


def ordinary(random: Random) -> dict[str, Any]:
    """A request that is not refused; the model is drawn once, so that a large one is as frequent as a small one."""
    name = model(random)
    while True:
        case = request(random, name)
        if largest(case) and "error" not in compute("requests", case):
            return case


def natural(random: Random, left: Counter) -> dict[str, Any]:
    """A request that is refused for one of the reasons of which some are left."""
    while True:
        case = request(random, model(random))
        found = compute("requests", case)
        reasons = {found.get("error"), *found.get("names", ())} & set(left)
        for reason in sorted(map(str, reasons)):
            if left[reason]:
                left[reason] -= 1
                return case


def spoilt(random: Random) -> dict[str, Any]:
    """An ordinary request with exactly one value that cannot be meant."""
    case = ordinary(random)
    case = {key: value for key, value in case.items() if key != "speculation"}
    name = random.choice(sorted(BAD))
    value = random.choice(BAD[name])
    owner, _, key = name.partition(" ")
    if name == "arrays":
        case[random.choice(["prompt", "output", "cached", "batch"])] = value
    elif key:
        default = {"draft_tokens": 4, "acceptance": 0.5} if owner == "speculation" else {}
        case[owner] = default | case.get(owner, {}) | {key: value}
    else:
        case[owner] = value
    return case


def unfit(random: Random) -> dict[str, Any]:
    """Of what `BAD` has no single value for: chunks beyond number, shapes that do not broadcast, no link, no peak."""
    while True:
        case = ordinary(random)
        case.pop("speculation", None)
        kind = random.choice(["chunks", "shapes", "link", "peak", "positions"])
        if kind == "chunks":
            case |= {"prompt": 100_002 + case["prompt"], "output": 1, "prefill_chunk": 1, "cached": 0, "batch": 1}
        elif kind == "shapes":
            case |= {"prompt": [1, 2, 3], "output": [4, 5]}
        elif kind == "link":
            none = [name for name in ACCELERATORS if load_accelerator(name).link is None]
            case |= {"accelerator": random.choice(none), "precision": {"blocks": "fp16"}, "devices": 2}
        elif kind == "peak":
            case |= {"accelerator": "a100-sxm-80gb", "precision": {"blocks": "int4", "compute": "fp8"}}
        else:
            case["output"] = 2**21
        found = compute("requests", case)
        if kind in found.get("names", ()) or (kind == "chunks" and found.get("error") == "InvalidInputError"):
            return case


def ravel(value: Any) -> list[Any]:
    return [cell for row in value for cell in ravel(row)] if isinstance(value, list) else [value]


def arrays(random: Random) -> dict[str, Any]:
    """A request with arrays of up to six cells that broadcast, some of them refused."""
    name = model(random)
    while True:
        case = request(random, name)
        if not largest(case):
            continue
        case.setdefault("batch", 1)
        rows, columns = random.choice([(1, 2), (1, 4), (2, 2), (3, 2), (2, 3), (1, 1)])
        names = random.sample(["prompt", "output", "cached", "batch"], random.randint(1, 3))
        for key in names:
            base = case.get(key, 0)
            flat = [max(0, int(base * random.choice([0.25, 0.5, 1, 1, 2, 3]))) for _ in range(rows * columns)]
            if random.random() < 0.4:
                bad = [0, -1, 1.5, float("nan"), 2**60, 2**21, base * 1000]
                flat[random.randrange(len(flat))] = random.choice(bad)
            grid = [flat[i * columns : (i + 1) * columns] for i in range(rows)]
            case[key] = random.choice([grid, grid, grid[0], [row[:1] for row in grid]])
        if "prefill_chunk" in case:  # at most some 30 passes of the longest prompt
            prompts = ravel(case["prompt"])
            case["prefill_chunk"] = max(
                case["prefill_chunk"], *(int(n / 30) for n in prompts if n == n and n < 2**53), 1
            )
        found = compute("requests", case)
        if "error" not in found and any(not cell["names"] for cell in found["refused"]):
            return case


def question(random: Random) -> dict[str, Any]:
    """A deployment, a request and a batch for policy; most answers are no refusals."""
    name, most = model(random), random.choice([0, 0, 0, 1, 4, 12])
    while True:
        case = request(random, name, steps=True)
        if not largest(case):
            continue
        case.setdefault("batch", scale(random, 6))
        found = compute("policies", case)
        most += 0.05  # a model without a cache refuses some of them always
        if (
            "error" not in found
            and sum("error" in answer for answer in found.values() if isinstance(answer, dict)) <= most
        ):
            return case


def mixture(random: Random) -> dict[str, Any]:
    name = model(random)
    while True:
        case = lengths(random, server(random, name))
        if not largest(case):
            continue
        count = random.randint(1, 5)
        prompt, output = ([scale(random, 13) for _ in range(count)] for _ in range(2))
        case |= {"prompt": prompt, "output": output, "cached": 0, "batch": scale(random, 7)}
        if random.random() < 0.4:
            case["cached"] = [random.randrange(n) for n in prompt]
        if random.random() < 0.9:
            case.pop("prefill_chunk", None)
        found = compute("mixes", case)
        if "error" not in found and (name == "no memory" or not isinstance(found["concurrency"], dict)):
            return case


def simulation(random: Random) -> dict[str, Any]:
    """A short simulation in a memory that holds a few of the requests: some wait, and in half one is preempted."""
    preempting = random.random() < 0.5
    while True:
        case = server(random, model(random), steps=True)
        count = random.randint(3, 9)
        prompt, output = ([scale(random, most) for _ in range(count)] for most in (11, 9))
        try:
            deployment = deploy(case)
        except LessonError:
            continue
        most = max(map(sum, zip(prompt, output, strict=True)))
        held = float(deployment.sequence_bytes(float(most)))
        fraction, devices = case.get("memory_fraction", 0.9), case.get("devices", 1)
        memory = (deployment.weight_bytes + random.choice([1.1, 1.6, 2.5, 4, 20]) * held) / fraction / devices
        own = deployment.accelerator
        rates = {
            "memory": float(int(memory) + 1),
            "bandwidth": own.bandwidth,
            "peaks": dict(own.peaks),
            "link": own.link,
        }
        chunk, prefill = random.choice([None, None, 64, 300]), random.choice(["first", "joint", "chunked"])
        pause = random.choice([0, 1e-3, 0.1, 2])
        case |= {
            "accelerator": {"memory": float(int(memory) + 1)} | rates,
            "arrivals": sorted(round(random.random() * pause * count, 6) for _ in range(count)),
            "prompt": prompt,
            "output": output,
            "thought_share": random.choice([0, 0.29, 0.8, 1]),
            "settings": {"prefill": prefill, "block": random.choice([1, 16, 16, 256])},
        }
        if chunk is not None:
            case["prefill_chunk"] = chunk
        if prefill == "chunked" and random.random() < 0.5:
            case["settings"]["token_budget"] = random.choice([16, 100, 700])
        if random.random() < 0.2:
            case["settings"] |= {"max_batch": random.randint(1, 4), "watermark": random.choice([0, 0.2])}
        found = compute("simulations", case)
        if "error" not in found and (not preempting or sum(found["preemptions"])):
            return case


def slots(random: Random) -> dict[str, Any]:
    prefix = random.choice([0, 0, 20, 100])
    counts = [prefix + scale(random, 12) for _ in range(random.randint(1, 8))]
    most = max(counts) + random.choice([0, 0, 500, -1])
    return {"lengths": counts, "maximum": most, "block": random.choice([1, 16, 256]), "prefix": prefix}


def draw() -> dict[str, list[Any]]:
    random = Random(SEED)
    left = Counter(NATURAL)
    requests = [ordinary(random) for _ in range(PLAIN)] + [arrays(random) for _ in range(ARRAYS)]
    requests += [natural(random, left) for _ in range(sum(NATURAL.values()))]
    others = REFUSALS - sum(NATURAL.values())
    requests += [spoilt(random) for _ in range(others - 40)] + [unfit(random) for _ in range(40)]
    return {
        "requests": requests,
        "policies": [question(random) for _ in range(90)],
        "mixes": [mixture(random) for _ in range(30)],
        "simulations": [simulation(random) for _ in range(60)],
        "pagings": [slots(random) for _ in range(20)],
    }
