"""The numbers that notebook 06 says in its prose, each made by the library."""

from lessonlib.face.exercises.book.common import INT4, REASONING, server
from lessonlib.face.exercises.book.notebook_06 import EAGLE
from lessonlib.facts.catalogue import load_accelerator, load_model
from lessonlib.facts.tables import load_table
from lessonlib.policy.full_server import memory_batch
from lessonlib.policy.levers import more_memory, quantised
from lessonlib.policy.ranking import usual_levers
from lessonlib.time.deployment import Deployment

TWICE = "twice the devices, tensor parallel"  # both are paid for


def int4(batch: int) -> str:
    return f"{INT4.speedup(server(), REASONING, batch):.1f}"


def eagle_head() -> float:
    """GB of the EAGLE-3 head of the lesson's model, in bf16."""
    return (
        2 * usual_levers(server(), REASONING)[EAGLE](server(), REASONING).deployment.speculation.draft.parameters / 1e9
    )


def filled() -> Deployment:
    """A GPU that weights nearly fill."""
    return Deployment(load_model("qwen3-32b"), load_accelerator("h100-sxm"))


def taken(machine: Deployment) -> float:
    return machine.weight_bytes / (machine.weight_bytes + machine.memory_free)


def filled_levers() -> str:
    """What levers gain on a full reasoning server of it; 4-bit weights must be the best of the usual ones."""
    machine, small = filled(), quantised(blocks="int4")
    gains = [lever.speedup_at_limit(machine, REASONING) for lever in (small, more_memory(2), quantised(cache="fp8"))]
    usual = usual_levers(machine, REASONING)
    assert gains[0] >= max(each.speedup_at_limit(machine, REASONING) for name, each in usual.items() if name != TWICE)
    after = small(machine, REASONING).deployment
    return (
        f"{gains[0]:.1f} times as fast, for {memory_batch(after, REASONING)} requests fit, not "
        f"{memory_batch(machine, REASONING)}; twice the memory gives {gains[1]:.1f}, an fp8 cache {gains[2]:.1f}"
    )


def mtp(of: str) -> float:
    (row,) = [
        row for row in load_table("levers") if row["id"] == {"times_faster": "d005", "tokens_per_round": "d003"}[of]
    ]
    return row[of]


def cap() -> str:
    (setting,) = {row["setting"] for row in load_table("rl_rollouts") if row["source"] == "verl issue 7412"}
    return f"capped at {setting.split()[2]} tokens"


HELD = {
    "Those of Qwen3-32B take 85 %": lambda: f"Those of Qwen3-32B take {100 * taken(filled()):.0f} %",
    "5.5 times as fast, for 33 requests fit, not 6; twice the memory gives 4.2, an fp8 cache 2.1": filled_levers,
    "MTP's 2.16 is of": lambda: f"MTP's {mtp('times_faster')} is of",
    "the yield of 2.44": lambda: f"the yield of {mtp('tokens_per_round')}",
    "capped at 3,072 tokens": cap,
    "0.85 GB for Llama-3.1-8B": lambda: f"{eagle_head():.2f} GB for Llama-3.1-8B",
    "2.8 times as fast alone, 1.3 at batch 32, 1.2 on a full reasoning server": lambda: (
        f"{int4(1)} times as fast alone, {int4(32)} at batch 32, {INT4.speedup_at_limit(server(), REASONING):.1f} on a "
        "full reasoning server"
    ),
}
