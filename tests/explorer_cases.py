"""Cases over every control of the explorers, drawn from a seed, and what the library itself answers to them.

A case is a dict of plain values, as explorer.js takes it. Most are possible; some have exactly one thing wrong, and
others are refused by what they are: too large, too long, heads that do not divide, no link, no peak.
"""

import math
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from explorer_models import own_accelerators, own_models

from lessonlib import LessonError
from lessonlib.face.widgets.explorer_data import PRECISIONS, accelerator_numbers, explorer_data, precision_numbers
from lessonlib.facts.catalogue import accelerator_names, load_accelerator, load_model, model_names
from lessonlib.measured.efficiency import typical_efficiency
from lessonlib.model.attention import ChunkedAttention, MultiHeadLatentAttention
from lessonlib.model.compressed import Entries
from lessonlib.model.model import Model
from lessonlib.model.precision import BITS, Precision
from lessonlib.model.sparse import BlockSparseAttention, SparseLatentAttention
from lessonlib.policy.batching import output_token_in_prompt_tokens, price_of_request
from lessonlib.policy.cache import answer_traffic, cache_by_kind, span_where_cache_passes_weights, step_parts
from lessonlib.policy.estimates import chi, omega, rho, ridge_tokens, roof_batch
from lessonlib.policy.full_server import at_latency, memory_batch, steady_state
from lessonlib.policy.ranking import rank_levers
from lessonlib.policy.sensitivity import break_even_output
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import Deployment, Efficiency

SEED = 20_261_201
MOST_DRAWN = 2**20
NO_COUNT = (0, -1, 1.5, math.nan, math.inf, True, "128", None, 2.0**60)
NO_FRACTION = (0, -0.5, 1.2, math.nan, math.inf, True, "0.9", None)
BAD: dict[str, tuple[Any, ...]] = {
    "prompt": NO_COUNT,
    "output": NO_COUNT,
    "cached": (-1, 1.5, math.nan, True, "0", None, 10**9),
    "batch": (*NO_COUNT[:7], 2.0**60),
    "devices": (*NO_COUNT[:-1], 2.0**60, 1000),
    "layout": ("ring", "", True, 3),
    "memoryFraction": NO_FRACTION,
    "position": (*NO_COUNT[:7], 10**6),
    "tpot": (0, -1, math.nan, math.inf, True, "1", 1e-9, 1e-7),
    "mixed": (0, "yes", 1.5),
    "together": (1, None),
    "share": NO_FRACTION,
    "prefill": NO_COUNT,
    "dollars": (0, -1, math.nan, math.inf, True, "2"),
}
ASKED_BY = {
    "position": "step", "together": "step", "tpot": "latency", "mixed": "full", "share": "even",
    "prefill": "tokens", "dollars": "price", "batch": "cost",
}  # fmt: skip
ALSO = ("full", "latency", "step", "traffic", "span", "estimates", "omega", "even", "tokens", "price", "fits")


def kinds_of(model: Model) -> set[str]:
    """What a case with this model counts for."""
    found = {"experts"} if model.expert_kinds else set()
    for _, mixer in model.kernel_kinds:
        found |= {"mla"} if isinstance(mixer, MultiHeadLatentAttention) else set()
        found |= {"window"} if getattr(mixer, "window", None) is not None else set()
        found |= {"chunk"} if isinstance(mixer, ChunkedAttention) else set()
        found |= {"sparse"} if isinstance(mixer, SparseLatentAttention | BlockSparseAttention | Entries) else set()
        found |= {"state"} if mixer.state_elements or mixer.conv_elements else set()
    return found


@cache
def models() -> dict[str, Model]:
    return {model.name: model for model in own_models()} | {name: load_model(name) for name in model_names()}


@cache
def accelerators() -> dict[str, Accelerator]:
    own = {accelerator.name: accelerator for accelerator in own_accelerators()}
    return own | {name: load_accelerator(name) for name in accelerator_names()}


@cache
def data() -> dict[str, Any]:
    return explorer_data(own_models(), own_accelerators())


@cache
def by_kind() -> dict[str, list[str]]:
    kinds = ("mla", "window", "chunk", "sparse", "state", "experts")
    return {kind: [name for name, model in models().items() if kind in kinds_of(model)] for kind in kinds}


def scale(random: Random, most: int) -> int:
    """A whole number from 1 to 2**most, every power of two as likely."""
    return min(2**most, int(2 ** random.randrange(most) * (1 + random.random())))


def precision(random: Random, accelerator: Accelerator) -> Any:
    if random.random() < 0.5:
        return random.choice([*PRECISIONS, "int4", "5.5 bits", "2.0625 bits"])
    parts = {"blocks": random.choice([*BITS, "bf16", "fp8"])}
    for part in ("experts", "head", "embedding", "other", "cache", "index", "state", "dispatch"):
        if random.random() < 0.2:
            parts[part] = random.choice([*BITS])
    if parts["blocks"] not in accelerator.peaks or random.random() < 0.1:
        parts["compute"] = random.choice(sorted(accelerator.peaks))
    return parts


def efficiency(random: Random) -> Any:
    if random.random() < 0.6:
        return random.choice(["floor", "floor", "typical", "low", "high"])
    found = {
        "mfu": random.randint(10, 100) / 100,
        "mbu": random.randint(10, 100) / 100,
        "overhead": random.choice([0, 2e-5, 2e-3, 0.1]),
        "overlap": random.random() < 0.5,
        "all_reduce_latency": random.choice([0, 1e-5, 3e-4]),
        "all_to_all_latency": random.choice([0, 5e-6, 3e-4]),
    }
    return {name: value for name, value in found.items() if random.random() < 0.8}


def case(random: Random, number: int) -> dict[str, Any]:
    """One case; kinds of layer and layouts in turn, so that each has its share."""
    kinds = by_kind()
    kind = (*kinds, "")[number % (len(kinds) + 1)]
    model = models()[random.choice(kinds.get(kind) or [*models()])]
    linked = [name for name, one in accelerators().items() if one.link is not None and one.memory > 3e10]
    accelerator = accelerators()[random.choice(linked if random.random() < 0.8 else [*accelerators()])]
    one: dict[str, Any] = {
        "model": model.name,
        "accelerator": accelerator.name,
        "precision": precision(random, accelerator),
        "efficiency": efficiency(random),
    }
    if (number // 7) % 3 or random.random() < 0.3:
        one["devices"] = random.choice([2, 4, 8, 8, 16, 32] if random.random() < 0.9 else [3, 5, 6, 7, 12, 64, 256])
        one["layout"] = ("tensor", "expert")[(number // 7) % 2]
    if random.random() < 0.25:
        one["memoryFraction"] = random.choice([0.01, 0.125, 0.3, 0.5, 0.75, 0.95, 1])
    if random.random() < 0.15:
        one["link"] = random.choice([1e9, 64e9, 450e9])
    most = random.choice([10, 14, 15, 17])
    one["prompt"] = scale(random, most)
    one["output"] = random.randint(1, 2) if random.random() < 0.1 else scale(random, most)
    if random.random() < 0.35:
        one["cached"] = random.choice([random.randrange(one["prompt"]), one["prompt"] - 1])
    one["batch"] = 1 if random.random() < 0.3 else scale(random, random.choice([4, 7, 10]))
    one |= {
        "position": random.randint(1, max(1, one["output"] - 1)),
        "together": random.random() < 0.5,
        "tpot": random.choice([0.005, 0.02, 0.05, 0.2, 2.0]),
        "mixed": random.random() < 0.4,
        "share": random.choice([0.01, 0.05, 0.5, 1]),
        "prefill": random.choice([1, 100, 1024, 8000]),
        "dollars": random.choice([0.5, 2, 3]),
        "thorough": number % 10 == 0,  # most often the first refusal ends a case: each goes through all devices
    }
    one["asked"] = ["cost", "memory", "steady", *random.sample(ALSO, 2)]
    if number % 50 == 0:
        one["asked"].append("levers")
    if random.random() < 0.28:
        spoil(random, one)
    return one if random.random() < 0.15 else smaller(random, one)


def smaller(random: Random, one: dict[str, Any]) -> dict[str, Any]:
    """The case with what fits where it can be made to fit; a refusal for memory looks at a thousand deployments."""
    try:
        deployment = deployed(one)
        tokens = Request(one["prompt"], one["output"]).prompt + one["output"]
        most = deployment.largest_batch(tokens) or deployment.largest_batch(1000)
    except LessonError:
        return one
    if deployment.memory_needed(float(tokens)) > deployment.memory_available:
        one["prompt"], one["output"] = min(one["prompt"], 500), min(one["output"], 500)
        one["cached"], one["position"] = 0, max(1, one["output"] // 2)
    if one["batch"] in range(most + 1, MOST_DRAWN):
        one["batch"] = random.randint(1, max(1, most))
    if not most:
        one["accelerator"], one["devices"] = "wide", 4
    return one


def spoil(random: Random, one: dict[str, Any]) -> None:
    """Make exactly one thing of the case wrong."""
    name = random.choice([*BAD])
    one[name] = random.choice(BAD[name])
    if name in ASKED_BY and ASKED_BY[name] not in one["asked"]:
        one["asked"] = [ASKED_BY[name], "memory"]


@cache
def _typical(name: str) -> dict[str, Efficiency]:
    found = typical_efficiency(accelerators()[name])
    return {"low": found.low, "typical": found.middle, "high": found.high}


def _precision(one: dict[str, Any]) -> Precision:
    wanted = one["precision"]
    return Precision(**(wanted if isinstance(wanted, dict) else PRECISIONS.get(wanted, {"blocks": wanted})))


def _device(one: dict[str, Any]) -> Accelerator:
    found = accelerators()[one["accelerator"]]
    return replace(found, link=one["link"]) if "link" in one else found


def as_asked(one: dict[str, Any]) -> dict[str, Any]:
    """The case as explorer.js takes it: a precision that no menu has, and a device with another link, as numbers."""
    asked = one | {"accelerator": accelerator_numbers(_device(one))} if "link" in one else one
    return asked if one["precision"] in [*PRECISIONS] else asked | {"precision": precision_numbers(_precision(one))}


def deployed(one: dict[str, Any]) -> Deployment:
    """The library's Deployment of a case."""
    device, dtypes, given = _device(one), _precision(one), one["efficiency"]
    if isinstance(given, dict):
        reached = Efficiency(**given)
    else:
        reached = Efficiency() if given == "floor" else _typical_of(device)[given]
    names = {"devices": "devices", "layout": "layout", "memoryFraction": "memory_fraction"}
    changes = {names[name]: one[name] for name in names if name in one}
    return Deployment(models()[one["model"]], device, dtypes, efficiency=reached, **changes)


def _typical_of(device: Accelerator) -> dict[str, Efficiency]:
    if device.name not in accelerator_names():
        typical_efficiency(device)  # refuses it, by a sentence that the data carries
    return _typical(device.name)


def answer(one: dict[str, Any]) -> dict[str, Any]:
    """What the library says to all that a case asks: values by name, or why it refuses."""
    try:
        deployment = deployed(one)
        request = Request(one["prompt"], one["output"], one.get("cached", 0))
    except LessonError as error:
        return {"made": refusal(error)}
    found: dict[str, Any] = {}
    for name in one["asked"]:
        found[name] = _attempt(name, deployment, request, one)
        if is_refused(found) and not one["thorough"]:
            break
    return found


def refusal(error: LessonError) -> dict[str, str]:
    return {"refused": type(error).__name__, "words": str(error)}


def _attempt(name: str, deployment: Deployment, request: Request, one: dict[str, Any]) -> Any:
    try:
        return QUESTIONS[name](deployment, request, one)
    except LessonError as error:
        return refusal(error)


SUMS = {
    "flops": "flops", "weights": "weights", "cacheRead": "cache_read", "cacheWrite": "cache_write", "state": "state",
    "computeSeconds": "compute_seconds", "memorySeconds": "memory_seconds", "seconds": "seconds", "bytes": "bytes",
}  # fmt: skip


def _phase(phase: Any) -> dict[str, Any]:
    names = ("seconds", "flops", "communication", "overhead", "passes")
    found: dict[str, Any] = {name: getattr(phase, name) for name in names}
    for part in ("linear", "attention"):
        found[part] = {js: getattr(getattr(phase, part), name) for js, name in SUMS.items()}
    return found


def _cost(deployment: Deployment, request: Request, one: dict[str, Any]) -> dict[str, Any]:
    cost = request_cost(deployment, request, one["batch"])
    names = ("ttft", "seconds", "undisturbed", "tpot", "flops")
    found = {name: getattr(cost, name) for name in names} | {"decodeShare": cost.decode_share}
    return found | {"prefill": _phase(cost.prefill), "decode": _phase(cost.decode)}


def _state(state: Any) -> dict[str, Any]:
    found = {name: getattr(state, name) for name in ("batch", "ttft", "parts", "shares", "wait", "tpot", "step")}
    return found | {"secondsPerRequest": state.seconds_per_request, "tokensPerSecond": state.tokens_per_second}


def _memory(deployment: Deployment, request: Request, one: dict[str, Any]) -> dict[str, Any]:
    tokens = request.prompt + request.output
    return {
        "weights": deployment.weight_bytes,
        "available": deployment.memory_available,
        "token": deployment.cache_bytes_per_token,
        "sequence": deployment.sequence_bytes(float(tokens)),
        "batch": memory_batch(deployment, request),
        "largest": deployment.largest_batch(tokens),
        "kinds": [kind._asdict() for kind in cache_by_kind(deployment, request.prompt)],
    }


def _latency(deployment: Deployment, request: Request, one: dict[str, Any]) -> dict[str, Any]:
    found = at_latency(deployment, request, one["tpot"], one["mixed"])
    return {"batch": found.batch, "binds": found.binds, "state": _state(found.state)}


def _step(deployment: Deployment, request: Request, one: dict[str, Any]) -> dict[str, Any]:
    parts = step_parts(deployment, request, one["position"], one["batch"], one["together"])
    return {name: getattr(parts, name) for name in ("linear", "neighbours", "own", "other", "seconds")}


def _traffic(deployment: Deployment, request: Request, one: dict[str, Any]) -> dict[str, Any]:
    found = answer_traffic(deployment, request, one["batch"])
    return {"triangle": found.triangle, "end": found.end}


def _estimates(deployment: Deployment, request: Request, one: dict[str, Any]) -> dict[str, Any]:
    found = {"rho": rho(deployment, request, one["batch"]), "chi": chi(deployment, request)}
    return found | {"roof": roof_batch(deployment, request), "ridge": ridge_tokens(deployment)}


def _levers(deployment: Deployment, request: Request, one: dict[str, Any]) -> dict[str, Any]:
    mix = Request([request.prompt], [request.output], [request.cached])
    ranked = rank_levers(deployment, mix, one["batch"])
    kept = [each for each in ranked if "reloaded" not in each.name]  # a prefix that lies elsewhere is not drawn
    return {each.name: {"held": each.held, "atLimit": each.at_limit} for each in kept}


QUESTIONS = {
    "cost": _cost,
    "memory": _memory,
    "fits": lambda d, r, one: d.require_fit(r.prompt + r.output, one["batch"]) or "fits",
    "steady": lambda d, r, one: _state(steady_state(d, r, one["batch"], one["mixed"])),
    "full": lambda d, r, one: _state(steady_state(d, r, None, one["mixed"])),
    "latency": _latency,
    "step": _step,
    "traffic": _traffic,
    "span": lambda d, r, one: span_where_cache_passes_weights(d, one["batch"]),
    "estimates": _estimates,
    "omega": lambda d, r, one: omega(d, r),
    "even": lambda d, r, one: break_even_output(d, r.prompt, one["batch"], one["share"]),
    "tokens": lambda d, r, one: output_token_in_prompt_tokens(d, r, one["batch"], one["prefill"]),
    "price": lambda d, r, one: price_of_request(d, r, one["batch"], one["dollars"]),
    "levers": _levers,
}


def cases(many: int) -> list[dict[str, Any]]:
    random = Random(SEED)
    return [case(random, number) for number in range(many)]


def counts_for(one: dict[str, Any]) -> set[str]:
    """The kinds that a case counts for: of layers, of experts, and the layout of several devices."""
    devices = one.get("devices", 1)
    several = isinstance(devices, int) and not isinstance(devices, bool) and devices > 1
    layout = one.get("layout", "tensor")
    return kinds_of(models()[one["model"]]) | ({layout} if several and layout in ("tensor", "expert") else set())


def is_refused(found: dict[str, Any]) -> bool:
    """Whether anything that was asked is refused."""
    return any(isinstance(value, dict) and "refused" in value for value in found.values())
