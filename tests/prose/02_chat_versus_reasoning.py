"""The numbers that notebook 02 says in its prose, each made by the library."""

from lessonlib import load_workload, steady_state
from lessonlib.face.exercises.book.common import CHAT, REASONING, cost_of, server
from lessonlib.facts.tables import load_table


def decode_of_a_full_server(request):
    return 100 * (1 - steady_state(server(), request).shares["prefill"])


def flops_share(request):
    cost = cost_of(request)
    return cost.decode.flops / cost.flops


def hundred_to_one(edge):
    rows = [row for row in load_table("workload_shares") if row["workload"] == "production-reasoning"]
    return 100 * edge(row["requests_ratio_ge_100"] for row in rows)


HELD = {
    "as 5 to 95": lambda: f"as 5 to {100 - 5}",
    "Chat alone is 12 % decode in FLOPs and 97.4 % in seconds.": lambda: (
        f"Chat alone is {100 * flops_share(CHAT):.0f} % decode in FLOPs and {100 * cost_of(CHAT).decode_share:.1f} % "
        "in seconds."
    ),
    "of its median request it is 33 % decode, of its mean request 44 %.": lambda: (
        f"of its median request it is {decode_of_a_full_server(CHAT):.0f} % decode, of its mean request "
        f"{decode_of_a_full_server(load_workload('chat').mean):.0f} %."
    ),
    "99.9 % on a full server, batch 71, where a user waits 290 s.": lambda: (
        f"{decode_of_a_full_server(REASONING):.1f} % on a full server, batch "
        f"{steady_state(server(), REASONING).batch}, where a user waits {steady_state(server(), REASONING).wait:.0f} s."
    ),
    "2 to 12 % of production requests reach it.": lambda: (
        f"{hundred_to_one(min):.0f} to {hundred_to_one(max):.0f} % of production requests reach it."
    ),
    "It fills 8 % of the cache memory.": lambda: (
        f"It fills {100 * 32 * server().sequence_bytes(1152.0) / server().memory_free:.0f} % of the cache memory."
    ),
    "prefill is 39 % of chat": lambda: f"prefill is {100 * (1 - cost_of(CHAT, 32).decode_share):.0f} % of chat",
}
