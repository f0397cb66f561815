"""A real decoder in NumPy: random weights, float32, a KV cache, plain multi-head attention. It is timed, not trained.

One method runs any pass: `tokens` new tokens on what is cached. It counts the FLOPs of its matrix products and the
bytes of weights and cache that it touches, so that lessonlib can be held to what a program really does.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from lessonlib.base.checks import Checked, a, checked, count
from lessonlib.base.errors import InvalidInputError
from lessonlib.model.attention import GroupedQueryAttention
from lessonlib.model.block import Block
from lessonlib.model.feedforward import DenseFeedForward
from lessonlib.model.model import Model

ROWS = 64  # queries of a prompt taken together: what the causal mask throws away stays small


@dataclass
class Counts:
    """What passes did: FLOPs of linear layers and of attention (masked pairs left out), bytes of weights and cache."""

    linear_flops: int = 0
    attention_flops: int = 0
    weight_bytes: int = 0
    cache_read: int = 0
    cache_write: int = 0


@checked(layers=count(), width=count(), heads=count(), inner=count(), vocabulary=count())
def toy_model(layers: int = 8, width: int = 1024, heads: int = 16, inner: int = 2816, vocabulary: int = 8192) -> Model:
    """The same decoder as lessonlib sees it."""
    mixer = GroupedQueryAttention(width=width, heads=heads, kv_heads=heads, head_dim=width // heads)
    block = Block(mixer, DenseFeedForward(width=width, inner=inner), norm_weights=2 * width)
    return Model(
        name="numpy decoder", width=width, vocabulary=vocabulary, blocks=((layers, block),), other_weights=width
    )


def _normalised(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6) * gain


@dataclass
class NumpyDecoder(Checked):
    """A decoder of `model`'s sizes (one kind of dense block with multi-head attention) with room for `room` tokens.

    Keys lie as (heads, head_dim, room), values as (heads, room, head_dim): a step then is a row times a matrix.
    """

    model: Model
    room: int
    seed: int = 0
    cached: int = 0
    counts: Counts = field(default_factory=Counts)

    rules: ClassVar = {
        "model": a(Model, "toy_model()"),
        "room": count(most=2**20),
        "seed": count(0),
        "cached": count(0),
    }

    def complete(self) -> None:
        (layers, block), *others = self.model.blocks
        mixer, ffn = block.mixer, block.feedforward
        plain = type(mixer) is GroupedQueryAttention and isinstance(ffn, DenseFeedForward) and not others
        if not plain or mixer.kv_heads != mixer.heads or mixer.window is not None or not ffn.gated:  # type: ignore
            raise InvalidInputError(f"NumpyDecoder: {self.model.name!r} is not of one plain block; use toy_model().")
        assert isinstance(mixer, GroupedQueryAttention) and isinstance(ffn, DenseFeedForward)
        random = np.random.default_rng(self.seed)
        width, self.heads, self.dim = self.model.width, mixer.heads, mixer.head_dim

        def matrix(rows: int, columns: int) -> np.ndarray:
            return random.standard_normal((rows, columns), dtype=np.float32) / np.float32(rows**0.5)

        self.embedding = random.standard_normal((self.model.vocabulary, width), dtype=np.float32)
        self.head = matrix(width, self.model.vocabulary)
        self.final_gain = np.ones(width, dtype=np.float32)
        self.layers = [
            {
                "qkv": matrix(width, 3 * self.heads * self.dim),
                "out": matrix(self.heads * self.dim, width),
                "gate_up": matrix(width, 2 * ffn.inner),
                "down": matrix(ffn.inner, width),
                "gains": np.ones((2, width), dtype=np.float32),
            }
            for _ in range(layers)
        ]
        self.keys = [np.zeros((self.heads, self.dim, self.room), dtype=np.float32) for _ in range(layers)]
        self.values = [np.zeros((self.heads, self.room, self.dim), dtype=np.float32) for _ in range(layers)]

    @property
    def matrices(self) -> list[np.ndarray]:
        """All matrices that a pass streams, the LM head included."""
        return [layer[name] for layer in self.layers for name in ("qkv", "out", "gate_up", "down")] + [self.head]

    def _product(self, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
        self.counts.linear_flops += 2 * len(x) * weights.size
        self.counts.weight_bytes += weights.nbytes
        return x @ weights

    def forward(self, tokens: np.ndarray) -> np.ndarray:
        """Run `tokens` (ids, one sequence) on what is cached, cache them too, return the last position's logits."""
        new, start = len(tokens), self.cached
        if new < 1 or start + new > self.room:
            where = f"{new} tokens on {start} cached ones"
            raise InvalidInputError(f"NumpyDecoder: {where}; expected 1 or more, {self.room} in all at most.")
        x = self.embedding[tokens]
        for index, layer in enumerate(self.layers):
            self.counts.weight_bytes += layer["gains"].nbytes
            qkv = self._product(_normalised(x, layer["gains"][0]), layer["qkv"]).reshape(new, 3, self.heads, self.dim)
            keys, values = self.keys[index], self.values[index]
            keys[:, :, start : start + new] = qkv[:, 1].transpose(1, 2, 0)
            values[:, start : start + new] = qkv[:, 2].transpose(1, 0, 2)
            self.counts.cache_read += 2 * 4 * self.heads * self.dim * start
            self.counts.cache_write += 2 * 4 * self.heads * self.dim * new
            x = x + self._product(self._attend(qkv[:, 0], keys, values, start), layer["out"])
            gate, up = np.split(self._product(_normalised(x, layer["gains"][1]), layer["gate_up"]), 2, axis=1)
            x = x + self._product(gate / (1 + np.exp(-gate)) * up, layer["down"])
        self.cached += new
        self.counts.weight_bytes += self.final_gain.nbytes
        return self._product(_normalised(x[-1:], self.final_gain), self.head)[0]

    def _attend(self, queries: np.ndarray, keys: np.ndarray, values: np.ndarray, start: int) -> np.ndarray:
        """Causal attention of new queries (new, heads, dim), head by head, a block of rows at a time."""
        new = len(queries)
        out = np.empty((new, self.heads, self.dim), dtype=np.float32)
        scale = np.float32(self.dim**-0.5)
        self.counts.attention_flops += 4 * self.heads * self.dim * (new * start + new * (new + 1) // 2)
        for low in range(0, new, ROWS):
            high = min(new, low + ROWS)
            seen = start + high
            mask = np.triu(np.full((high - low, high - low), -np.inf, dtype=np.float32), 1)
            for head in range(self.heads):
                scores = queries[low:high, head] @ keys[head, :, :seen]
                scores *= scale
                scores[:, start + low : seen] += mask
                scores -= scores.max(axis=1, keepdims=True)
                np.exp(scores, out=scores)
                scores /= scores.sum(axis=1, keepdims=True)
                out[low:high, head] = scores @ values[head, :seen]
        return out.reshape(new, self.heads * self.dim)
