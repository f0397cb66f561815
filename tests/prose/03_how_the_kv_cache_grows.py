"""The numbers that notebook 03 says in its prose, each made by the library."""

import numpy as np

from lessonlib import load_accelerator, load_model
from lessonlib.face.exercises.book.common import REASONING, server
from lessonlib.facts.measurements import load_measurements
from lessonlib.facts.workloads import load_workload
from lessonlib.model.precision import Precision
from lessonlib.policy.cache import cache_by_kind, step_parts
from lessonlib.policy.full_server import memory_batch
from lessonlib.time.deployment import Deployment
from lessonlib.time.roofline import pass_cost

BATCH, V32 = 32, "deepseek-v3.2"


def gpt_oss():
    return Deployment(load_model("gpt-oss-20b"), server().accelerator)


def bytes_in_a_layer():
    each = {kind.bytes / kind.layers for kind in cache_by_kind(gpt_oss(), 1)}
    assert len(each) == 1
    return f"In one layer a token takes {each.pop():,.0f} bytes"


def window():
    (kind,) = (kind for kind in gpt_oss().sizes.kinds if kind.mixer.held(1e9) < 1e9)
    return f"Half of them slide, with a window of {kind.mixer.window} tokens" if 2 * kind.layers == 24 else "not half"


def start_level():
    """Both models without a cache, to the nearest ten tokens a second."""
    conditions = {"source": "llamacpp-benches", "metric": "decode_rate", "context_tokens": 0}
    rows = [row for name in ("gpt-oss-120b", "qwen3-30b-a3b") for row in load_measurements(model=name, **conditions)]
    assert len(rows) == 2
    (level,) = {round(row.value, -1) for row in rows}
    return f"both make about {level:.0f} tokens"


def own_share():
    first, last = (step_parts(server(), REASONING, k, BATCH).seconds for k in (1, REASONING.output - 1))
    return f"Your own thought adds {100 * (last / first - 1):.0f} %"


def measured_growth():
    """Growth from no cache to the deepest context, measured over floor: the same first digits for both models."""
    found = set()
    dgx, q8 = load_accelerator("dgx-spark"), {"head": "q8_0", "embedding": "q8_0", "cache": "fp16"}
    for name, more in (("gpt-oss-120b", {"experts": "mxfp4"}), ("qwen3-30b-a3b", {})):
        machine = Deployment(load_model(name), dgx, Precision("q8_0", **more, **q8))
        rows = load_measurements(model=name, source="llamacpp-benches", metric="decode_rate")
        ends = sorted(rows, key=lambda row: row.context_tokens)[:: len(rows) - 1]
        floor = [sum(pass_cost(machine, 1, row.context_tokens + i).seconds for i in range(32)) / 32 for row in ends]
        found.add(round((1 / ends[1].value - 1 / ends[0].value) / (floor[1] - floor[0]), 1))
    (growth,) = found
    return f"about {growth} times that of the floor"


def chat_on_a_full_server():
    chat = load_workload("chat").mean
    bound = pass_cost(server(), 1, batch=memory_batch(server(), chat)).roofs["linear layers"].bound
    return f"At chat's batch the linear layers are {bound} bound"


def latent_attention():
    """Intensity of a step's MLA over the ridge: one device in bf16, in fp8, and eight devices in fp8."""
    h100, v3 = server().accelerator, load_model("deepseek-v3")
    machines = [Deployment(v3, h100, Precision("bf16", cache=cache), n) for cache, n in (("bf16", 1), ("fp8", 1))]
    machines.append(Deployment(v3, h100, Precision("bf16", cache="fp8"), 8))
    ridge = h100.peak("bf16") / h100.bandwidth
    plain, fp8, split = (pass_cost(each, 1, 4096, batch=8).attention.intensity / ridge for each in machines)
    assert 0.75 < plain < 1 < fp8 and split < 0.5, (plain, fp8, split)
    return "near the ridge of an H100, and with an fp8 cache past it"


def indexer():
    """Numbers that a layer of DeepSeek-V3.2 keeps of a token: its latent, the same in V3, and its index key."""
    kinds = {name: Deployment(load_model(name), server().accelerator).sizes.kinds for name in ("deepseek-v3", V32)}
    (dense,), (latent, index) = ([kind.mixer for kind in each] for each in kinds.values())
    assert dense.cache_elements == latent.cache_elements
    return latent, index


def sparse_read():
    latent, index = indexer()
    chosen = f"{latent.top_k:,}".replace(",", "{,}")
    return f"${latent.cache_elements} \\min(c,\\, {chosen}) + {index.cache_elements}\\, c$"


def slower():
    latent, index = indexer()
    return f"its reads grow {latent.cache_elements / index.cache_elements:.1f} times as slowly"


def middle_step():
    average = step_parts(server(), REASONING, np.arange(1, REASONING.output), BATCH, together=True).seconds.mean()
    return f"the step in the middle, {1e3 * average:.1f} ms"


HELD = {
    "60.9 GB, beside 16.1 GB of weights": lambda: (
        f"{server().memory_free / 1e9:.1f} GB, beside {server().weight_bytes / 1e9:.1f} GB of weights"
    ),
    "gpt-oss-20b, with 24 layers": lambda: f"gpt-oss-20b, with {gpt_oss().model.layers} layers",
    "In one layer a token takes 2,048 bytes": bytes_in_a_layer,
    "Half of them slide, with a window of 128 tokens": window,
    "there are 12,927 tokens": lambda: f"there are {REASONING.prompt + REASONING.output - 1:,} tokens",
    "there are 12,799 steps": lambda: f"there are {REASONING.output - 1:,} steps",
    "a latent of 576 numbers, as V3 does": lambda: f"a latent of {indexer()[0].cache_elements} numbers, as V3 does",
    "an index key of 128": lambda: f"an index key of {indexer()[1].cache_elements}",
    "$576\\, c$": lambda: f"${indexer()[0].cache_elements}\\, c$",
    "$576 \\min(c,\\, 2{,}048) + 128\\, c$": sparse_read,
    "finds 12,926 tokens cached": lambda: f"finds {REASONING.prompt + REASONING.output - 2:,} tokens cached",
    "its reads grow 4.5 times as slowly": slower,
    "moves 15.01 GB of weights in a step, and batch x span x 131,072 bytes of cache": lambda: (
        f"moves {server().sizes.dense_bytes / 1e9:.2f} GB of weights in a step, and batch x span x "
        f"{server().cache_bytes_per_token:,.0f} bytes of cache"
    ),
    "the step in the middle, 12.7 ms": middle_step,
    "your 31 neighbours": lambda: f"your {BATCH - 1} neighbours",
    "the neighbour of 31 others": lambda: f"the neighbour of {BATCH - 1} others",
    "$t_w$ is 4.48 ms, and $t_c$ is 131,072 bytes over 3.35 TB/s": lambda: (
        f"$t_w$ is {1e3 * pass_cost(server(), 1).linear.seconds:.2f} ms, and $t_c$ is "
        f"{server().cache_bytes_per_token:,.0f} bytes over {server().accelerator.bandwidth / 1e12:.2f} TB/s"
    ),
    "both make about 60 tokens": start_level,
    "Your own thought adds 4 %": own_share,
    "about 1.4 times that of the floor": measured_growth,
    "At chat's batch the linear layers are compute bound": chat_on_a_full_server,
    "near the ridge of an H100, and with an fp8 cache past it": latent_attention,
}
