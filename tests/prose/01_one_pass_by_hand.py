"""The numbers in the prose of 01_one_pass_by_hand, each made from the library again."""

from lessonlib import Request, request_cost
from lessonlib.face.exercises.book.common import server
from lessonlib.facts.catalogue import model_config

PUBLISHED_SECONDS = 0.0826040506362915  # LLM-Inference-Bench, Plots/All_results.csv: the row that cannot be true


def heads_and_kv_heads():
    config = model_config("llama-3.1-8b")
    return config["num_attention_heads"], config["num_key_value_heads"]


def grouping():
    heads, kv_heads = heads_and_kv_heads()
    return f"{heads // kv_heads} times smaller: {heads} query heads share {kv_heads} KV heads"


def served():
    heads, kv_heads = heads_and_kv_heads()
    return f"2 bytes, and serves {heads // kv_heads} query heads with 2 FLOP each: {heads // kv_heads} FLOP/byte"


def time_ratio():
    cost = request_cost(server(), Request(1000, 300))
    part = {3: "A third"}[round(cost.prefill.flops / cost.decode.flops)]
    return f"{part} of the prefill's FLOPs, and {cost.decode.seconds / cost.prefill.seconds:.0f} times its time"


def flops_ratio():
    cost = request_cost(server(), Request(1000, 300))
    return f"about {cost.prefill.flops / cost.decode.flops:.0f} times the FLOPs"


HELD = {
    "4 times smaller: 32 query heads share 8 KV heads": grouping,
    "2 bytes, and serves 4 query heads with 2 FLOP each: 4 FLOP/byte": served,
    "about 3 times the FLOPs": flops_ratio,
    "A third of the prefill's FLOPs, and 92 times its time": time_ratio,
    "0.083 s": lambda: f"{PUBLISHED_SECONDS:.3f} s",
}
