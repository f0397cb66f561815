"""Devices that work as one: what tensor parallelism sends between them.

all-reduce = 2 (N - 1) / N b n d s / link + latency, a ring, two a layer: one for each mixer and each feed-forward
"""

from typing import Any

from lessonlib.work.sizes import ModelSizes


def communication_seconds(link: float | None, latency: float, sizes: ModelSizes, tokens: Any, passes: Any) -> Any:
    """Seconds of the all-reduces of `passes` passes over `tokens` tokens in all; 0 on one device.

    `link`: byte/s of a device, one way. `latency`: seconds that each all-reduce takes besides.
    """
    if not sizes.all_reduces or link is None:
        return 0.0
    return tokens * (sizes.all_reduce_bytes / link) + passes * (sizes.all_reduces * latency)
