"""Lengths of many requests, as published: a distribution by some of its quantiles."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from lessonlib.base.errors import InvalidInputError, as_numbers, shown


@dataclass(frozen=True)
class LengthQuantiles:
    """A distribution of lengths by some of its quantiles: `lengths[i]` tokens at probability `probabilities[i]`.

    Between two quantiles the logarithm of the length is linear in the probability; below the first, the first holds.
    """

    probabilities: tuple[float, ...]
    lengths: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("probabilities", "lengths"):
            values = as_numbers(getattr(self, name))
            if values is None or values.ndim != 1 or len(values) < 2 or not np.all(np.isfinite(values)):
                what = shown(getattr(self, name))
                raise InvalidInputError(f"LengthQuantiles: {name} is {what}; expected two or more numbers.")
            object.__setattr__(self, name, tuple(values.tolist()))
        if len(self.probabilities) != len(self.lengths):
            raise InvalidInputError(
                f"LengthQuantiles: {len(self.probabilities)} probabilities for {len(self.lengths)} lengths; expected "
                "one of each a quantile."
            )
        steps = np.diff(self.probabilities)
        if not (self.probabilities[0] >= 0 and self.probabilities[-1] == 1 and np.all(steps > 0)):
            raise InvalidInputError(
                f"LengthQuantiles: probabilities are {shown(self.probabilities)}; expected them to rise to 1."
            )
        if not (self.lengths[0] >= 1 and np.all(np.diff(self.lengths) >= 0)):
            raise InvalidInputError(
                f"LengthQuantiles: lengths are {shown(self.lengths)}; expected 1 or more, none below the one before."
            )

    def sample(self, random: np.random.Generator, count: int) -> Any:
        """`count` lengths in whole tokens, drawn by inverting the quantiles: exp(interpolation of ln length at u)."""
        at = np.interp(random.random(count), self.probabilities, np.log(self.lengths))
        return np.rint(np.exp(at)).astype(np.int64)
