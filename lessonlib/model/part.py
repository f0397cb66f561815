"""A part of a block: a frozen dataclass of sizes that checks itself and knows its weights.

`matmul_weights` are the weights that one token meets in matrix products, 2 FLOP each. `other_weights` are only added
or scaled (biases, norms, sinks): stored and read, their FLOPs left out. `parameters` is all that is stored.
"""

from dataclasses import fields

from lessonlib.base.errors import InvalidInputError, require_count, shown


class Part:
    """What mixers and feed-forwards share: a width, weights, and fields that check themselves."""

    width: int

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(field.default, bool):
                if not isinstance(value, bool):
                    raise InvalidInputError(f"{self.name}: {field.name} is {shown(value)}; expected True or False.")
            elif value is not None or field.default is not None:
                least = 0 if field.default == 0 else 1
                object.__setattr__(self, field.name, require_count(self.name, field.name, value, least))

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def matmul_weights(self) -> int:
        raise NotImplementedError

    @property
    def other_weights(self) -> int:
        return 0

    @property
    def parameters(self) -> int:
        return self.matmul_weights + self.other_weights
