"""A real decoder in PyTorch in the shapes of a catalogue model: random weights, grouped-query attention, a KV cache.

It is timed, not trained. Left out are rotary embeddings and any sampling but the largest logit. Prefill and a decode
step are one code on every device; on a CUDA device each is captured in a CUDA graph, so that no launch is waited for.

What a step reads of the cache decides what is measured. Where PyTorch has a kernel that takes the true length (flash
attention with `seqused_k`), it reads exactly that. Elsewhere a mask is laid over the first `span` slots, and span is
the length rounded up to BUCKET, with one graph for each span: a mask over the whole cache would read all of it at every
step, and the growth would vanish from the time.
"""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import torch  # type: ignore[import-not-found]
from torch.nn import functional as F  # type: ignore[import-not-found]  # noqa: N812

from lessonlib.base.errors import InvalidInputError
from lessonlib.base.units import format_bytes
from lessonlib.measured.timing.decoder import Counts
from lessonlib.model.attention import GroupedQueryAttention
from lessonlib.model.feedforward import DenseFeedForward
from lessonlib.model.model import Model

BUCKET = 256


def _normalised(x: Any, gain: Any) -> Any:
    return F.rms_norm(x, gain.shape, gain, 1e-6)


def _attention_of_length(queries: Any, keys: Any, values: Any, lengths: Any, starts: tuple[Any, Any]) -> Any:
    """One query of each sequence on the first `lengths` slots of its cache; (batch, heads, dim) as the queries."""
    from torch.nn.attention.varlen import varlen_attn  # type: ignore[import-not-found]

    room = keys.shape[1]
    flat = (queries, keys.flatten(0, 1), values.flatten(0, 1), *starts)
    return varlen_attn(*flat, 1, room, enable_gqa=True, seqused_k=lengths)


def _attention_under_mask(queries: Any, keys: Any, values: Any, mask: Any) -> Any:
    """The same on all slots given. The queries that share a KV head are rows of one product: it is read once."""
    batch, _, kv_heads, dim = keys.shape
    grouped = queries.view(batch, kv_heads, -1, dim)
    out = F.scaled_dot_product_attention(grouped, keys.transpose(1, 2), values.transpose(1, 2), attn_mask=mask)
    return out.reshape(queries.shape)


def _starts(batch: int, room: int, device: Any) -> tuple[Any, Any]:
    """Where each sequence's one query and its cache begin, as the kernel of true length wants them."""
    first = torch.arange(batch + 1, dtype=torch.int32, device=device)
    return first, first * room


def takes_true_length(mixer: GroupedQueryAttention, device: Any, dtype: Any) -> bool:
    """Whether the kernel of true length is there and agrees with attention under a mask: tried, not looked up."""
    if torch.device(device).type != "cuda":
        return False
    room, lengths = 2 * BUCKET, torch.tensor([BUCKET // 2 + 1, BUCKET + 3], dtype=torch.int32, device=device)
    queries = torch.randn(2, mixer.heads, mixer.head_dim, device=device).to(dtype)
    keys, values = torch.randn(2, 2, room, mixer.kv_heads, mixer.head_dim, device=device).to(dtype)
    unseen = torch.arange(room, device=device) >= lengths[:, None]
    mask = torch.zeros(2, 1, 1, room, dtype=dtype, device=device).masked_fill(unseen[:, None, None], float("-inf"))
    try:
        found = _attention_of_length(queries, keys, values, lengths, _starts(2, room, device))
    except (ImportError, TypeError, RuntimeError):  # an older PyTorch, or a GPU that its kernel does not know
        return False
    expected = _attention_under_mask(queries, keys, values, mask)
    return found.shape == expected.shape and torch.allclose(found, expected, atol=0.02, rtol=0.02)


class TorchNetwork:
    """The weights of a plain Llama of `model`'s sizes on `device`, and what its blocks compute, all of it counted.

    `memory`: bytes for weights and cache (None: no limit). Raises InvalidInputError for a model of another kind,
    torch.OutOfMemoryError for what does not fit.
    """

    def __init__(self, model: Model, device: Any, dtype: Any, memory: float | None):
        (layers, block), *others = model.blocks
        mixer, ffn = block.mixer, block.feedforward
        if type(mixer) is not GroupedQueryAttention or not isinstance(ffn, DenseFeedForward) or others:
            raise InvalidInputError(f"TorchDecoder: {model.name!r} is not of one block; take a Llama of the catalogue.")
        extra = mixer.window or mixer.gate_outputs or mixer.other_weights or ffn.other_weights or model.head_bias
        extra = extra or mixer.values_are_keys or block.matrices or model.matrices or model.layer_tables
        if extra or mixer.value_dim or not ffn.gated or model.position_weights:
            raise InvalidInputError(f"TorchDecoder: {model.name!r} is not a plain Llama; take one of the catalogue.")
        self.model, self.device, self.dtype, self.memory = model, torch.device(device), dtype, memory
        self.mixer, self.heads, self.kv_heads, self.dim = mixer, mixer.heads, mixer.kv_heads, mixer.head_dim
        self.counts = Counts()
        self._require_memory(0)
        width, queries = model.width, mixer.heads * mixer.head_dim

        def matrix(outputs: int, inputs: int) -> Any:
            return torch.empty(outputs, inputs, dtype=dtype, device=device).normal_(std=inputs**-0.5)

        self.head = matrix(model.vocabulary, width)
        self.embedding = self.head if model.tied_embeddings else matrix(model.vocabulary, width)
        self.final_gain = torch.ones(width, dtype=dtype, device=device)
        self.layers = [
            {
                "qkv": matrix(queries + 2 * mixer.kv_heads * mixer.head_dim, width),
                "out": matrix(width, queries),
                "gate_up": matrix(2 * ffn.inner, width),
                "down": matrix(width, ffn.inner),
                "gains": torch.ones(2, width, dtype=dtype, device=device),
            }
            for _ in range(layers)
        ]

    def bytes_needed(self, tokens: int) -> float:
        """Bytes of the weights and of `tokens` cached tokens, over all sequences."""
        size = self.dtype.itemsize
        return self.model.parameters * size + self.model.cache_bytes(tokens, size)

    def _require_memory(self, tokens: int) -> None:
        needed = self.bytes_needed(tokens)
        if self.memory is not None and needed > self.memory:
            words = f"weights and {tokens:,} cached tokens need {format_bytes(needed)} of {format_bytes(self.memory)}"
            raise torch.OutOfMemoryError(f"{self.model.name}: {words}")

    def _blocks(self, ids: Any, caches: Any, attend: Callable[..., Any], pairs: int, read: int) -> Any:
        """Hidden states (batch, tokens, width). `pairs`: (query, key) pairs of a sequence; `read`: cached tokens."""
        batch, new = ids.shape
        counts, token = self.counts, 2 * self.kv_heads * self.dim * self.dtype.itemsize
        x = F.embedding(ids, self.embedding).view(batch * new, -1)
        for layer, cache in zip(self.layers, caches, strict=True):
            qkv = self._product(_normalised(x, layer["gains"][0]), layer["qkv"]).view(batch, new, -1, self.dim)
            out = attend(*qkv.split((self.heads, self.kv_heads, self.kv_heads), dim=2), cache)
            self._product(out.reshape(batch * new, -1), layer["out"], onto=x)
            gate, up = self._product(_normalised(x, layer["gains"][1]), layer["gate_up"]).chunk(2, dim=1)
            self._product(F.silu(gate).mul_(up), layer["down"], onto=x)
            counts.attention_flops += 4 * self.heads * self.dim * batch * pairs
            counts.cache_read += token * batch * read
            counts.cache_write += token * batch * new
            counts.weight_bytes += layer["gains"].nbytes
        return x.view(batch, new, -1)

    def _product(self, x: Any, weights: Any, onto: Any = None, into: Any = None) -> Any:
        """x @ weights.T, added `onto` a residual stream in place, or written `into` a buffer, or new."""
        self.counts.linear_flops += 2 * len(x) * weights.numel()
        self.counts.weight_bytes += weights.nbytes
        return torch.mm(x, weights.t(), out=into) if onto is None else onto.addmm_(x, weights.t())


class Graphs:
    """Passes by name and size, each recorded in a CUDA graph once and replayed from then on."""

    def __init__(self) -> None:
        self.recorded: dict[tuple[str, int], Any] = {}
        self.pool: Any = None

    def record(self, key: tuple[str, int], call: Callable[[str, int], None]) -> None:
        if key in self.recorded:
            return
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            call(*key)  # libraries set themselves up before anything is recorded
        torch.cuda.current_stream().wait_stream(aside)
        self.pool = self.pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            call(*key)
        self.recorded[key] = graph

    def run(self, key: tuple[str, int], call: Callable[[str, int], None]) -> None:
        """Replay what was recorded; make the call itself where nothing was."""
        self.recorded[key].replay() if key in self.recorded else call(*key)


class TorchDecoder(TorchNetwork):
    """A network with a cache. `bucket`: tokens of a span, where no kernel takes the true length."""

    def __init__(self, model: Model, device: Any, dtype: Any, memory: float | None = None, bucket: int = BUCKET):
        super().__init__(model, device, dtype, memory)
        self.true_length = takes_true_length(self.mixer, device, dtype)
        self.bucket = 1 if self.true_length else bucket

    def fits(self, batch: int, room: int) -> bool:
        """Whether `batch` sequences of `room` tokens fit beside the weights."""
        return self.memory is None or self.bytes_needed(batch * self.rounded(room)) <= self.memory

    def rounded(self, length: int) -> int:
        """Keys that a step at this length reads: the length itself, or the span of its bucket."""
        return -(-length // self.bucket) * self.bucket

    def allocate(self, batch: int, room: int) -> None:
        """Make the cache: `batch` sequences of `room` tokens, filled with random numbers as after a real prompt."""
        self.cache: Any = None  # of another batch: freed before the new one is made
        self.graphs = Graphs()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        self.batch, self.room, self.cached = batch, self.rounded(room), 0
        self._require_memory(batch * self.room)
        shape = (len(self.layers), 2, batch, self.room, self.kv_heads, self.dim)
        self.cache = torch.empty(shape, dtype=self.dtype, device=self.device).normal_()
        # The ids of prompt and output: as random as the cache, until they are run.
        self.history = torch.randint(self.model.vocabulary, (batch, self.room + 1), device=self.device)
        self.position = torch.zeros(1, dtype=torch.long, device=self.device)  # `cached`, where the kernels read it
        self.logits = torch.empty(batch, self.model.vocabulary, dtype=self.dtype, device=self.device)
        self.starts = _starts(batch, self.room, self.device)

    def _require_room(self, new: int) -> None:
        if new < 1 or self.cached + new > self.room:
            where = f"{new} tokens on {self.cached} cached ones"
            raise InvalidInputError(f"TorchDecoder: {where}; expected 1 or more, {self.room} in all at most.")

    def prefill(self, ids: Any) -> None:
        """Run the prompts `ids` (batch, tokens) as new sequences; the first output token follows them in `history`."""
        self.cached, new = 0, ids.shape[1]
        self._require_room(new)
        self.history[:, :new] = ids
        self.graphs.run(("prefill", new), self._pass)
        self.go_to(new)

    def go_to(self, context: int) -> None:
        """Stand at `context` cached tokens, as if they had been run."""
        self.cached = context
        self.position.fill_(context)

    def replay(self) -> None:
        """One decode step, without going on to the next token: to be timed again and again at one context."""
        self._require_room(1)
        self.graphs.run(("step", self._keys(self.cached + 1)), self._pass)

    def step(self) -> None:
        """One decode step: the last token of `history` is run and cached, the next one follows it."""
        self.replay()
        self.cached += 1
        self.position += 1

    def capture(self, contexts: Iterable[int] = (), prompts: Iterable[int] = ()) -> None:
        """Record the CUDA graphs of steps at these contexts and of these prompts; elsewhere nothing is done."""
        if self.device.type != "cuda":
            return
        spans = {self._keys(context + 1) for context in contexts}
        self.go_to(0)
        for key in [("prefill", prompt) for prompt in prompts] + [("step", span) for span in sorted(spans)]:
            self.graphs.record(key, self._pass)

    def _keys(self, length: int) -> int:
        """What tells one step's graph from another's: one kernel of true length serves all."""
        return self.room if self.true_length else self.rounded(length)

    # ---- the passes themselves: nothing in them waits for the device, so each can be recorded

    @torch.no_grad()
    def _pass(self, name: str, size: int) -> None:
        self._prefill(size) if name == "prefill" else self._step(size)

    def _prefill(self, new: int) -> None:
        from torch.nn.attention import SDPBackend, sdpa_kernel  # type: ignore[import-not-found]

        flash = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]

        def attend(queries: Any, keys: Any, values: Any, cache: Any) -> Any:
            cache[0, :, :new], cache[1, :, :new] = keys, values
            shape = (self.batch, self.heads, new, self.dim)
            wide = [
                part.transpose(1, 2).unsqueeze(2).expand(-1, -1, self.heads // self.kv_heads, -1, -1).reshape(shape)
                for part in (keys, values)
            ]
            return F.scaled_dot_product_attention(queries.transpose(1, 2), *wide, is_causal=True).transpose(1, 2)

        with sdpa_kernel(flash) if self.device.type == "cuda" else nullcontext():
            x = self._blocks(self.history[:, :new], self.cache, attend, new * (new + 1) // 2, 0)
        self._emit(x[:, -1], torch.full_like(self.position, new))

    def _step(self, span: int) -> None:
        lengths = (self.position + 1).int().repeat(self.batch)
        unseen = torch.arange(span, device=self.device) > self.position
        mask = torch.zeros(1, 1, 1, span, dtype=self.dtype, device=self.device).masked_fill(unseen, float("-inf"))

        def attend(queries: Any, keys: Any, values: Any, cache: Any) -> Any:
            cache.index_copy_(2, self.position, torch.stack((keys, values)))
            if self.true_length:
                return _attention_of_length(queries[:, 0], cache[0], cache[1], lengths, self.starts)
            return _attention_under_mask(queries[:, 0], cache[0, :, :span], cache[1, :, :span], mask)

        read = self.rounded(self.cached + 1)
        x = self._blocks(self.history.index_select(1, self.position), self.cache, attend, read, read - 1)
        self._emit(x[:, -1], self.position + 1)

    def _emit(self, x: Any, place: Any) -> None:
        """The token of the largest logit of the last hidden states, written to `history` at `place`."""
        self.counts.weight_bytes += self.final_gain.nbytes
        self._product(_normalised(x, self.final_gain), self.head, into=self.logits)
        self.history.index_copy_(1, place, self.logits.argmax(dim=1, keepdim=True))
