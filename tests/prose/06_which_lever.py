"""The numbers that notebook 06 says in its prose, each made by the library."""

from lessonlib.face.exercises.book.common import INT4, REASONING, server


def int4(batch: int) -> str:
    return f"{INT4.speedup(server(), REASONING, batch):.1f}"


HELD = {
    "2.8 times as fast alone, 1.3 at batch 32, 1.2 on a full reasoning server": lambda: (
        f"{int4(1)} times as fast alone, {int4(32)} at batch 32, {INT4.speedup_at_limit(server(), REASONING):.1f} on a "
        "full reasoning server"
    ),
}
