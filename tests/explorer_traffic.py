"""Small traffics on small servers, drawn from a seed, and what the library's simulator finds for them."""

from random import Random
from typing import Any

import numpy as np
from explorer_cases import deployed, refusal
from explorer_models import own_models

from lessonlib import LessonError
from lessonlib.policy.serving.simulator import simulate
from lessonlib.policy.serving.traffic import Traffic

SEED = 7
SERVERS = ("small 'one'", "small 'one'", "h100-sxm", "rtx-4090")


def traffics(many: int) -> list[dict[str, Any]]:
    random = Random(SEED)
    return [_traffic(random) for _ in range(many)]


def _traffic(random: Random) -> dict[str, Any]:
    names = [model.name for model in own_models()[:12]]
    prompts = [random.randint(1, 1500) for _ in range(random.randint(1, 40))]
    burst = random.random() < 0.4  # all at once, each of them long: memory is not enough for all
    gaps = [0.0 if burst else random.choice([0.0, random.expovariate(random.choice([1, 10, 100]))]) for _ in prompts]
    arrivals = np.cumsum([0.0, *gaps[1:]]).tolist()
    return {
        "model": random.choice([*names, "llama-3.1-8b", "gpt-oss-20b"]),
        "accelerator": random.choice(SERVERS),
        "precision": random.choice(["bf16", "bf16", "fp8, fp8 cache"]),
        "efficiency": random.choice(["floor", {"overhead": 1e-3, "overlap": False}]),
        "devices": random.choice([1, 1, 1, 2]),
        "layout": "expert" if random.random() < 0.05 else "tensor",
        "requests": [
            {
                "prompt": prompt,
                "output": 1500 if burst else random.choice([1, random.randint(1, 300), random.randint(1, 2000)]),
                "cached": random.choice([0, 0, prompt // 2]),
            }
            for prompt in prompts
        ],
        "arrivals": arrivals,
        "options": {
            "block": random.choice([1, 16, 64]),
            "watermark": random.choice([0, 0, 0.01, 0.1]),
            "maxBatch": random.choice([None, None, None, 1, 5]),
            "horizon": random.choice([None, None, None, arrivals[-1] / 2]) or None,
        },
    }


def served(one: dict[str, Any]) -> dict[str, Any]:
    """What the simulator finds, by the names of explorer.js; or why it refuses."""
    requests, options = one["requests"], one["options"]
    columns = {name: [request[name] for request in requests] for name in ("prompt", "output", "cached")}
    shares = [cached / prompt for cached, prompt in zip(columns["cached"], columns["prompt"], strict=True)]
    try:
        run = simulate(
            deployed(one),
            Traffic(one["arrivals"], columns["prompt"], columns["output"], cached_share=shares),
            block=options["block"],
            watermark=options["watermark"],
            max_batch=options["maxBatch"],
            horizon=options["horizon"],
        )
    except LessonError as error:
        return refusal(error)
    return {
        "firstToken": run.first_token.tolist(),
        "finish": run.finish.tolist(),
        "preemptions": run.preemptions.tolist(),
        "end": run.end,
        "seconds": {name: run.seconds[name] for name in ("prefill", "recompute", "decode", "idle")},
        "mostRunning": int(run.occupancy.running.max()),
        "mostWaiting": int(run.occupancy.waiting.max()),
    }
