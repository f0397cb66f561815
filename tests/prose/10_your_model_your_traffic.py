"""What notebook 10 says of its sample in its prose, made by the library."""

import numpy as np

from lessonlib import Deployment, format_percent, load_accelerator, load_model
from lessonlib.face.exercises.book.notebook_10 import sample, sample_cost, sample_limit, server
from lessonlib.facts import OwnTraffic, load_lengths
from lessonlib.policy import memory_batch, price
from lessonlib.policy.full_server import steady_state

WORDS = {0.5: "half as many", 2.0: "twice the GPU time", 1.0: "the wait is nearly the same"}


def by_the_mean() -> str:
    """The real requests over as many of the mean lengths: how many fit, what each takes, and how long a user waits."""
    mix, alike = sample_cost(sample_limit()), steady_state(server(), sample().mean)
    each = mix.seconds / len(sample())
    ratios = (mix.batch / alike.batch, each / alike.seconds_per_request, mix.batch * each / alike.wait)
    many, cost, wait = (WORDS[round(2 * ratio) / 2] for ratio in ratios)
    return f"about {many} requests, each takes about {cost}, and so {wait}"


def chat_drawn() -> str:
    """What the half done cell prints of chat, once its outputs are drawn as the solution says."""
    random = np.random.default_rng(9)
    prompts, outputs = (load_lengths("chat", part).sample(random, 1_000) for part in ("prompt", "output"))
    machine = Deployment(load_model("qwen3-8b"), load_accelerator("h100-sxm"))
    request = OwnTraffic("chat, drawn", prompts, outputs, 0 * prompts).request
    cost = price(machine, request, memory_batch(machine, request))
    return f"{cost.batch:,} at a time, decode takes {format_percent(cost.decode_share)} of the GPU clock"


HELD = {
    "314 at a time, decode takes 46.4 % of the GPU clock": chat_drawn,
    "about half as many requests, each takes about twice the GPU time, and so the wait is nearly the same": (
        by_the_mean
    ),
}
