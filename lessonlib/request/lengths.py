"""Lengths of many requests, as published: a distribution by some of its quantiles."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lessonlib.base.checks import Checked, fraction, items, rate, wrong


@dataclass(frozen=True)
class LengthQuantiles(Checked):
    """A distribution of lengths by some of its quantiles: `lengths[i]` tokens at probability `probabilities[i]`.

    Between two quantiles the logarithm of the length is linear in the probability; below the first, the first holds.
    """

    probabilities: tuple[float, ...]
    lengths: tuple[float, ...]

    rules: ClassVar = {"probabilities": items(fraction(zero=True), least=2), "lengths": items(rate("tokens"), least=2)}

    def complete(self) -> None:
        if len(self.probabilities) != len(self.lengths):
            raise wrong(self.owner, "lengths", self.lengths, f"one for each of {len(self.probabilities)} probabilities")
        if self.probabilities[-1] != 1 or np.any(np.diff(self.probabilities) <= 0):
            raise wrong(self.owner, "probabilities", self.probabilities, "numbers that rise to 1")
        if self.lengths[0] < 1 or np.any(np.diff(self.lengths) < 0):
            raise wrong(self.owner, "lengths", self.lengths, "1 or more, none below the one before")

    def sample(self, random: "np.random.Generator", count: int) -> Any:
        """`count` lengths in whole tokens, drawn by inverting the quantiles: exp(interpolation of ln length at u)."""
        return np.rint(self.at(random.random(count))).astype(np.int64)

    def at(self, probability: Any) -> Any:
        """The lengths at some probabilities (an array)."""
        return np.exp(np.interp(probability, self.probabilities, np.log(self.lengths)))
