"""The numbers that notebook 06 says in its prose, each made by the library."""

from lessonlib.face.exercises.book.common import INT4, REASONING, server
from lessonlib.face.exercises.book.notebook_06 import EAGLE
from lessonlib.policy.ranking import usual_levers


def int4(batch: int) -> str:
    return f"{INT4.speedup(server(), REASONING, batch):.1f}"


def eagle_head() -> float:
    """GB of the EAGLE-3 head of the lesson's model, in bf16."""
    return (
        2 * usual_levers(server(), REASONING)[EAGLE](server(), REASONING).deployment.speculation.draft.parameters / 1e9
    )


HELD = {
    "0.85 GB for Llama-3.1-8B": lambda: f"{eagle_head():.2f} GB for Llama-3.1-8B",
    "2.8 times as fast alone, 1.3 at batch 32, 1.2 on a full reasoning server": lambda: (
        f"{int4(1)} times as fast alone, {int4(32)} at batch 32, {INT4.speedup_at_limit(server(), REASONING):.1f} on a "
        "full reasoning server"
    ),
}
