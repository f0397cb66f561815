"""Devices that work as one: the seconds of what they send to each other, in the layouts of work/layouts.py.

all-reduce    2 (N - 1) / N b n d s / link + latency, a ring, two a layer: one for each mixer and each feed-forward
all-to-all    t d s m / link + latency, two a layer with experts: t = ceil(b / N) n tokens of the fullest device,
              each sent to m other devices (dispatch), and their results back (combine)
"""

from typing import Any

from lessonlib.work.sizes import ModelSizes


def communication_seconds(link: float | None, latency: float, sizes: ModelSizes, tokens: Any, passes: Any) -> Any:
    """Seconds of the collectives of `passes` passes over `tokens` tokens in all, of one device; 0 where there are none.

    `link`: byte/s of a device, one way. `latency`: seconds that each collective takes besides.
    """
    if not sizes.collectives or link is None:
        return 0.0
    return tokens * (sizes.collective_bytes / link) + passes * (sizes.collectives * latency)
