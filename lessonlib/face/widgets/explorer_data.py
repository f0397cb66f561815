"""What explorer.js computes with: models, accelerators, dtypes and efficiencies as plain numbers, ready for JSON.

Of a model, all that no setting changes: weights by part, kinds of layer with their law, kinds of experts. Precision,
devices and layout are put in there, by the formulas of work/sizes.py. A kind of layer whose law explorer.js does not
have makes its model one that is refused, in words that stand here.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from lessonlib.base.checks import a, checked, items
from lessonlib.base.errors import LessonError
from lessonlib.face.widgets.explorer_controls import DEFAULTS, RANGES, panel_html, ways_out
from lessonlib.face.widgets.explorer_views import VIEWS
from lessonlib.facts.catalogue import accelerator_names, load_accelerator, load_model, model_names
from lessonlib.facts.workloads import load_workload, workload_names
from lessonlib.measured.efficiency import typical_efficiency
from lessonlib.model.attention import (
    ChunkedAttention,
    GroupedQueryAttention,
    Mixer,
    MultiHeadLatentAttention,
    SharedCacheAttention,
)
from lessonlib.model.compressed import Compressed, CompressedAttention, Entries, EntryIndexer
from lessonlib.model.hybrid import DifferentialAttention, SeveralMixers, SharedBlockAttention
from lessonlib.model.model import Model
from lessonlib.model.precision import KERNELS, MULTIPLIED_IN, OTHER_16_BITS, Precision, bytes_of
from lessonlib.model.sparse import BlockIndexer, BlockSparseAttention, Indexer, SparseLatentAttention
from lessonlib.model.state import ConstantState
from lessonlib.policy.ranking import usual_levers
from lessonlib.request.request import Request
from lessonlib.time.accelerator import Accelerator
from lessonlib.time.deployment import Deployment, Efficiency
from lessonlib.time.memory import SMALLER

# What a menu offers, and the keywords of a Precision that each stands for.
PRECISIONS: dict[str, dict[str, Any]] = {
    "bf16": {"blocks": "bf16"},
    "fp16": {"blocks": "fp16"},
    "fp32": {"blocks": "fp32"},
    "bf16, fp8 cache": {"blocks": "bf16", "cache": "fp8"},
    "fp8": {"blocks": "fp8"},
    "fp8, fp8 cache": {"blocks": "fp8", "cache": "fp8"},
    "nvfp4": {"blocks": "nvfp4"},
    "int8": {"blocks": "int8"},
    "int4": {"blocks": "int4"},
    "int4, fp8 cache": {"blocks": "int4", "cache": "fp8"},
    "mxfp4": {"blocks": "mxfp4"},
    "mxfp4 experts": {"blocks": "bf16", "experts": "mxfp4"},
    "q8_0": {"blocks": "q8_0"},
    "q4_k_m": {"blocks": "q4_k_m"},
}


def _all_or_window(mixer: Any) -> dict[str, Any]:
    return {"kind": "all"} if mixer.window is None else {"kind": "window", "window": mixer.window}


def _all(mixer: Any) -> dict[str, Any]:
    return {"kind": "all"}


def _entries(mixer: Any) -> dict[str, Any]:
    return {"kind": "entries", "rate": mixer.rate, "top_k": mixer.top_k}


# By class itself, not what inherits from it: a new one may have a law of its own.
LAWS: dict[type[Mixer], Callable[[Any], dict[str, Any]]] = {
    GroupedQueryAttention: _all_or_window,
    SharedBlockAttention: _all_or_window,
    DifferentialAttention: _all_or_window,
    MultiHeadLatentAttention: _all_or_window,
    CompressedAttention: _all_or_window,
    SharedCacheAttention: lambda mixer: _all_or_window(mixer) | {"shared": True},
    ChunkedAttention: lambda mixer: {"kind": "chunk", "chunk": mixer.chunk},
    SparseLatentAttention: lambda mixer: {"kind": "sparse", "top_k": mixer.top_k},
    BlockSparseAttention: lambda mixer: {"kind": "blocks", "top_k": mixer.top_k, "block": mixer.block},
    Indexer: _all,
    BlockIndexer: _all,
    Entries: _entries,
    EntryIndexer: _entries,
}


def _sharing(mixer: Mixer) -> dict[str, Any]:
    """What decides how many devices of a tensor-parallel group hold the same token: heads that divide, or none."""
    if isinstance(mixer, Indexer | Compressed):
        return {"whole": True}  # every device holds all, whatever their number
    found: dict[str, Any] = {"owner": mixer.owner, "heads": mixer.heads}
    if isinstance(mixer, GroupedQueryAttention):
        found["kv_heads"] = mixer.kv_heads
    if isinstance(mixer, MultiHeadLatentAttention | CompressedAttention):
        found["whole"] = True
    return found


def _copies(mixer: Mixer) -> list[dict[str, Any]]:
    """Matrix weights of a layer that a tensor-parallel group holds more than once, and who shares them."""
    if isinstance(mixer, SeveralMixers):
        return [copy for each in mixer.mixers for copy in _copies(each)]
    if isinstance(mixer, GroupedQueryAttention):
        twice = 2 if isinstance(mixer, SharedBlockAttention) else 1  # made of the state beside the embedding
        own = _sharing(mixer) | {"weights": twice * mixer.width * mixer.projected}
        return [own, *(copy for follower in mixer.in_turn[1:] for copy in _copies(follower))]
    more = int(mixer.copied_weights(2))  # by each device beyond the first
    return [{"whole": True, "weights": more}] if more else []


def _kernel(layers: int, mixer: Mixer) -> dict[str, Any]:
    """All layers of one kernel; what is zero, or as a layer of the plainest kind has it, is left out."""
    law = _all if isinstance(mixer, ConstantState) else LAWS[type(mixer)]
    counts = {
        "cache_elements": mixer.cache_elements,
        "state_elements": mixer.state_elements,
        "conv_elements": mixer.conv_elements,
        "pair_flops": mixer.pair_flops,
        "expand_flops": mixer.expand_flops,
        "token_flops": mixer.token_flops,
        "state_bytes": mixer.state_dtype and bytes_of(mixer.state_dtype),
        "copied_whole": mixer.copied_whole,
        "fresh_pair_flops": 0 if mixer.fresh_pair_flops == mixer.pair_flops else mixer.fresh_pair_flops,
        "cache_part": "" if mixer.cache_part == "cache" else mixer.cache_part,
    }
    said = {name: value for name, value in counts.items() if value}
    return {"label": mixer.label, "layers": layers, "law": law(mixer)} | _sharing(mixer) | said


def _why_unknown(model: Model) -> str | None:
    """Why explorer.js cannot compute this model; None where it can."""
    for _, mixer in model.kernel_kinds:
        if type(mixer) not in LAWS and not isinstance(mixer, ConstantState):
            return (
                f"{model.name}: the explorers do not know the law of its {mixer.owner} layers; the library does: "
                "ask request_cost in a cell."
            )
        if mixer.cache_elements and (mixer.state_elements or mixer.conv_elements):
            return f"{mixer.owner}: it has both a cache and a constant state; make it two mixers."
    return None


def _numbers(model: Model) -> dict[str, Any]:
    """The plain numbers of a model, without those of what levers make of it."""
    found = {
        "name": model.name,
        "width": model.width,
        "layers": model.layers,
        "max_positions": model.max_positions,
    }
    if unknown := _why_unknown(model):
        return found | {"unknown": unknown}
    weights, experts = model.weights_by_part, model.expert_kinds
    picked = sum(layers * ffn.experts_per_token * ffn.expert_weights for layers, ffn in experts)
    biases = sum(layers * ffn.experts * ffn.expert_other_weights for layers, ffn in experts)
    stored: dict[Mixer, int] = {}
    for layers, block in model.blocks:
        if block.mixer is not None:
            stored[block.mixer] = stored.get(block.mixer, 0) + layers
    once, streamed = model.block_weights(), model.block_weights(streamed=True)
    return found | {
        "weights": {part: weights[part] for part in ("blocks", "head", "embedding")}
        | {"other": weights["other"] - biases - model.head_bias}
        | {"picked": picked, "used": model.block_matmul_weights - picked},  # by one token: routed, and dense
        "head_bias": model.head_bias,
        # read by a pass beyond what is stored, less what is stored and not read
        "again": {"blocks": streamed[0] - once[0] - model.idle_weights, "other": streamed[2] - once[2]},
        "block_matmul_weights": model.block_matmul_weights,
        "reduces": sum(layers * block.passes * len(block.parts) for layers, block in model.blocks),
        "mixers": [
            {"layers": layers, "stored": stored[mixer], "copies": copies}
            for layers, mixer in model.mixer_kinds
            if (copies := _copies(mixer))
        ],
        "kernels": [_kernel(layers, mixer) for layers, mixer in model.kernel_kinds],
        "experts": [
            {
                "layers": layers,
                "experts": ffn.experts,
                "picked": ffn.experts_per_token,
                "weights": ffn.expert_weights,
                "other_weights": ffn.expert_other_weights,
                "router_weights": ffn.router_weights,
                "routed_width": ffn.routed_width,
            }
            for layers, ffn in experts
        ],
    }


def _dtypes(precision: Precision, kernel: str) -> list[str]:
    """What a kernel multiplies in, the best first that a device has; the last is what a device without these lacks."""
    plain = precision.operand(kernel, ())
    faster = precision.operand(kernel, (*MULTIPLIED_IN.values(), plain))
    return [faster, plain, precision.operand(kernel, (OTHER_16_BITS.get(plain, plain),)), plain]


def precision_numbers(precision: Precision, smaller: bool = True) -> dict[str, Any]:
    """Bytes of one number by part, dtypes to multiply in by kernel, and what a `smaller` precision would be."""
    parts = ("blocks", "experts", "head", "embedding", "other", "cache", "index")
    variants = {words: replace(precision, **change) for words, change in SMALLER.items()} if smaller else {}
    return {
        "bytes": {part: precision.bytes_of(part) for part in parts},
        "state": precision.state and bytes_of(precision.state),
        "usual_state": bytes_of(replace(precision, state=None).of_state(None)),
        "operand": precision.compute_bytes,
        "sent": precision.sent_bytes,
        "dispatched": precision.dispatched_bytes,
        "operands": {kernel: _dtypes(precision, kernel) for kernel in KERNELS},
        "smaller": {words: precision_numbers(variant, smaller=False) for words, variant in variants.items()},
    }


def _draft(head: Any) -> dict[str, Any]:
    """The numbers of a draft model, or of a head: its projection is one more matrix of its blocks."""
    if isinstance(head, Model):
        return _numbers(head)
    found = _numbers(head.body)
    more = {part: found["weights"][part] + head.projection for part in ("blocks", "used")}
    return found | {"weights": found["weights"] | more, "shares_head": head.shares_head}


ROOMY = Accelerator(name="room for all", memory=1e18, bandwidth=1.0, peaks={"bf16": 1.0})


def model_numbers(model: Model) -> dict[str, Any]:
    """A model as plain numbers, and by name the usual levers that make another one of it, or put a draft beside it."""
    found = _numbers(model)
    if "unknown" in found:
        return found
    deployment, request = Deployment(model, ROOMY), Request(1, 1)
    others, drafts = {}, {}
    for name, lever in usual_levers(deployment, request).items():
        changed = lever(deployment, request).deployment
        if changed.model is not model:
            numbers = _numbers(changed.model)
            others[name] = {key: value for key, value in numbers.items() if value != found[key]}
        if (speculation := changed.speculation) is not None and (head := speculation.drafter) is not None:
            drafts[name] = {
                "draft_tokens": speculation.draft_tokens,
                "acceptance": speculation.acceptance,
                "draft": _draft(head),
            }
    return found | {"others": others, "drafts": drafts}


def accelerator_numbers(accelerator: Accelerator) -> dict[str, Any]:
    """An accelerator as plain numbers, with the efficiencies published for its kind, or why there are none."""
    found = {name: getattr(accelerator, name) for name in ("name", "memory", "bandwidth", "link")}
    found |= {"label": accelerator.label or accelerator.name, "peaks": dict(accelerator.peaks)}
    try:
        typical = typical_efficiency(accelerator)
    except LessonError as error:
        return found | {"no_efficiencies": str(error)}
    named = {"low": typical.low, "typical": typical.middle, "high": typical.high}
    return found | {"efficiencies": {name: asdict(efficiency) for name, efficiency in named.items()}}


@cache
def _catalogue() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All models and accelerators of the catalogue, worked out once."""
    models = [model_numbers(load_model(name)) for name in model_names()]
    return models, [accelerator_numbers(load_accelerator(name)) for name in accelerator_names()]


def _presets() -> dict[str, dict[str, Any]]:
    """The lesson's requests by the first word of their names: chat, reasoning, production, agent; `mean`: for many."""

    def lengths(request: Request) -> dict[str, Any]:
        return {"prompt": request.prompt, "output": request.output, "cached": request.cached}

    found = {}
    for name in workload_names():
        workload = load_workload(name)
        both = {"median": lengths(workload.request), "mean": lengths(workload.mean)}
        found[name.split("-")[0]] = {"name": name, "label": workload.label, **both["median"], **both}
    return found


@checked(own_models=items(a(Model)), own_accelerators=items(a(Accelerator)))
def explorer_data(own_models: Iterable[Model] = (), own_accelerators: Iterable[Accelerator] = ()) -> dict[str, Any]:
    """All that explorer.js computes with, plain lists, dicts and numbers: the catalogue's, and yours before them.

    Raises InvalidInputError for what is no Model, or no Accelerator.
    """
    models, accelerators = _catalogue()
    found = {
        "models": [*map(model_numbers, own_models), *models],
        "accelerators": [*map(accelerator_numbers, own_accelerators), *accelerators],
        "precisions": {name: precision_numbers(Precision(**parts)) for name, parts in PRECISIONS.items()},
        "efficiencies": {"floor": asdict(Efficiency())},
        "presets": _presets(),
        "views": VIEWS,
        "ranges": RANGES,
        "defaults": DEFAULTS,
    }
    return found | {"panel": panel_html(found), "ways": ways_out(found)}
