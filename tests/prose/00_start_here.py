"""What notebook 00 says in words of a full server, each word earned by the library."""

from lessonlib.face.exercises.book.common import server
from lessonlib.facts.workloads import load_workload
from lessonlib.policy.full_server import steady_state


def shares(name):
    """Of GPU time on a full server of identical requests of the mean lengths."""
    return steady_state(server(), load_workload(name).mean).shares


def prefills():
    chat, reasoning = (shares(name)["prefill"] for name in ("chat", "reasoning"))
    much = "about half" if 0.4 < chat < 0.6 else f"{chat:.0%}"
    little = "hardly any" if reasoning < 0.002 else f"{reasoning:.1%}"
    return f"prefill is {much} of chat's GPU time, and still {little} of reasoning's"


def cache_reads():
    share = shares("reasoning")["attention"]
    return f"{'Most' if share > 0.75 else f'{share:.0%}'} of reasoning's goes into reading KV caches"


HELD = {
    "prefill is about half of chat's GPU time, and still hardly any of reasoning's": prefills,
    "Most of reasoning's goes into reading KV caches": cache_reads,
}
