"""What notebook 10 says of its sample in its prose, made by the library."""

from lessonlib.face.exercises.book.notebook_10 import sample, sample_cost, sample_limit, server
from lessonlib.policy.full_server import steady_state

WORDS = {0.5: "half as many", 2.0: "twice the GPU time", 1.0: "the wait is nearly the same"}


def by_the_mean() -> str:
    """The real requests over as many of the mean lengths: how many fit, what each takes, and how long a user waits."""
    mix, alike = sample_cost(sample_limit()), steady_state(server(), sample().mean)
    each = mix.seconds / len(sample())
    ratios = (mix.batch / alike.batch, each / alike.seconds_per_request, mix.batch * each / alike.wait)
    many, cost, wait = (WORDS[round(2 * ratio) / 2] for ratio in ratios)
    return f"about {many} requests, each takes about {cost}, and so {wait}"


HELD = {
    "about half as many requests, each takes about twice the GPU time, and so the wait is nearly the same": (
        by_the_mean
    )
}
