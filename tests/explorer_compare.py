"""Where two answers differ, and by how much."""

import math
from typing import Any


def differences(ours: Any, theirs: Any, where: str = "", scale: float = 0.0) -> list[tuple[str, Any, Any, float]]:
    """(where, library's, explorer's, relative difference) of each that differs; `scale`: what a part is part of."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if ours.keys() != theirs.keys():
            return [(where, sorted(ours), sorted(theirs), math.inf)]
        whole = _whole(ours, where, scale)
        return [one for key in ours for one in differences(ours[key], theirs[key], f"{where}/{key}", whole)]
    if isinstance(ours, list | tuple) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return [(where, ours, theirs, math.inf)]
        return [
            one
            for i, pair in enumerate(zip(ours, theirs, strict=True))
            for one in differences(*pair, f"{where}/{i}", scale)
        ]
    if isinstance(ours, float | int) and isinstance(theirs, float | int) and not isinstance(ours, bool):
        if ours == theirs or (math.isnan(ours) and math.isnan(theirs)):
            return []
        whole = max(abs(ours), scale)
        return [(where, ours, theirs, abs(ours - theirs) / whole if 0 < whole < math.inf else math.inf)]
    return [] if ours == theirs and type(ours) is type(theirs) else [(where, ours, theirs, math.inf)]


def _whole(ours: dict[str, Any], where: str, scale: float) -> float:
    """Parts of a steady state are what is left of its seconds: they are held to a share of these, shares to 1."""
    if "secondsPerRequest" in ours:
        return float(ours["secondsPerRequest"])
    return scale if where.endswith("/parts") else float(where.endswith("/shares"))
