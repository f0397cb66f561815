"""The numbers that notebook 02 says in its prose, each made by the library."""

from lessonlib.face.exercises.book.common import CHAT, REASONING, cost_of, server
from lessonlib.facts.tables import load_table


def limit(request):
    return server().largest_batch(request.prompt + request.output)


def flops_share(request):
    cost = cost_of(request)
    return cost.decode.flops / cost.flops


def hundred_to_one(edge):
    rows = [row for row in load_table("workload_shares") if row["workload"] == "production-reasoning"]
    return 100 * edge(row["requests_ratio_ge_100"] for row in rows)


HELD = {
    "as 5 to 95": lambda: f"as 5 to {100 - 5}",
    "Chat alone is 12 % decode in FLOPs and 97.5 % in seconds.": lambda: (
        f"Chat alone is {100 * flops_share(CHAT):.0f} % decode in FLOPs and {100 * cost_of(CHAT).decode_share:.1f} % "
        "in seconds."
    ),
    "On a full server, batch 370, it is 33 % decode.": lambda: (
        f"On a full server, batch {limit(CHAT)}, it is {100 * cost_of(CHAT, limit(CHAT)).decode_share:.0f} % decode."
    ),
    "99.96 % even at its own limit, batch 33.": lambda: (
        f"{100 * cost_of(REASONING, limit(REASONING)).decode_share:.2f} % even at its own limit, batch "
        f"{limit(REASONING)}."
    ),
    "2 to 12 % of production requests reach it.": lambda: (
        f"{hundred_to_one(min):.0f} to {hundred_to_one(max):.0f} % of production requests reach it."
    ),
    "It fills 9 % of the cache memory.": lambda: (
        f"It fills {100 * 32 * server().sequence_bytes(1152.0) / server().memory_free:.0f} % of the cache memory."
    ),
    "prefill is 39 % of chat": lambda: f"prefill is {100 * (1 - cost_of(CHAT, 32).decode_share):.0f} % of chat",
}
