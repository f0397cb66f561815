"""A part of a block: a frozen dataclass of sizes that checks itself and knows its weights.

`matmul_weights` are the weights that one token meets in matrix products, 2 FLOP each. `other_weights` are only added
or scaled (biases, norms, sinks): stored and read, their FLOPs left out. `parameters` is all that is stored.
"""

from dataclasses import fields, is_dataclass
from inspect import get_annotations
from typing import Any

from lessonlib.base.checks import Checked, Rule, count, flag, optional


class Part(Checked):
    """What mixers and feed-forwards share: a width, weights, and sizes that check themselves.

    The rule of a size follows from its default: True or False is a flag, None may be left out, 0 may be zero, and any
    other is a count from 1. What differs is said in the class's own `rules`.
    """

    width: int

    def __init_subclass__(cls) -> None:
        inherited: Any = fields(cls) if is_dataclass(cls) else ()
        above = {name: rule for base in cls.__mro__[:0:-1] for name, rule in base.__dict__.get("rules", {}).items()}
        own = {name: _rule(cls.__dict__.get(name, ...)) for name in get_annotations(cls) if name != "rules"}
        cls.rules = {field.name: above[field.name] for field in inherited} | own | cls.__dict__.get("rules", {})

    matmul_weights = other_weights = 0

    @property
    def parameters(self) -> int:
        return self.matmul_weights + self.other_weights


def _rule(default: Any) -> Rule:
    if isinstance(default, bool):
        return flag()
    return optional(count()) if default is None else count(0 if default == 0 else 1)
