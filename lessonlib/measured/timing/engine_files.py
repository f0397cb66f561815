"""Files of random weights for a real engine, and the engine's server on one of them. Runs in .venv-engine alone.

    python -m lessonlib.measured.timing.engine_files FILE PARALLEL CONTEXT PROMPT_THREADS FLASH

serves FILE on a free port of this machine, prints the address once it is loaded, and ends when its input is closed.

A product takes as long with random weights as with trained ones. A file has the sizes of a `Model`, and its parameters
are counted in the file itself. Its tokenizer has a token for each word that time_server sends, one for each byte of
ASCII, and fillers up to the vocabulary's real size, so that the LM head has its real size too.
"""

import math
import os
import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from lessonlib.base.errors import InvalidInputError
from lessonlib.base.files import quoted
from lessonlib.base.units import format_bytes
from lessonlib.measured.timing.server_client import TOLD, WORDS
from lessonlib.model.attention import GroupedQueryAttention
from lessonlib.model.feedforward import DenseFeedForward
from lessonlib.model.model import Model
from lessonlib.model.precision import bytes_of

FORMATS = {"fp16": "F16", "q8_0": "Q8_0", "q4_0": "Q4_0"}  # our names of formats, and GGUF's
TEXTS = 4e6  # bytes of a file that are not weights: the tokens, most of all
SPARE = 500e6  # bytes of disk left free
HEADER_SIZES = (1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8)  # bytes of a value in a GGUF header, by its kind
END = 128  # the token that ends a text, after those of single bytes
SPACE = "Ġ"  # how a byte-level tokenizer writes a space
TEMPLATE = "{% for message in messages %} {{ message['content'] }}{% endfor %}"  # the first word has its space too


def file_bytes(model: Model, weights: str) -> float:
    """About how many bytes the file of that format has."""
    return model.parameters * bytes_of(weights) + TEXTS * model.vocabulary / 150_000


def write_weights(path: Path, model: Model, weights: str, bar: Callable[..., Any] = lambda items, **_: items) -> int:
    """Write `model` with random weights in that format, whole or not at all; returns the parameters in the file.

    A file that is there and holds the right number is kept. `bar` wraps the tensors, such as tqdm. Raises
    InvalidInputError for another architecture than Qwen2's, too little disk, and a file whose parameters are not
    those of the model.
    """
    import gguf  # type: ignore[import-not-found]

    if path.exists() and parameters_in(path) == model.parameters:
        return model.parameters
    tensors = list(_tensors(model))
    free, needed = shutil.disk_usage(path.parent).free, file_bytes(model, weights)
    if free < needed + SPARE:
        told = f"{format_bytes(needed)} are to be written and {format_bytes(free)} are free"
        raise InvalidInputError(f"make engine: {told}; make room on this disk.")
    kind, unfinished = FORMATS[weights], path.with_suffix(".unfinished")
    writer = gguf.GGUFWriter(unfinished, "qwen2")
    _describe(writer, model)
    writer.add_file_type(getattr(gguf.LlamaFileType, f"MOSTLY_{kind}"))
    stored = getattr(gguf.GGMLQuantizationType, kind)
    for name, shape in tensors:
        if len(shape) == 1:
            writer.add_tensor_info(name, shape, np.dtype(np.float32), 4 * shape[0])
        elif kind == "F16":
            writer.add_tensor_info(name, shape, np.dtype(np.float16), 2 * shape[0] * shape[1])
        else:
            rows = gguf.quant_shape_to_byte_shape(shape, stored)
            writer.add_tensor_info(name, rows, np.dtype(np.uint8), rows[0] * rows[1], stored)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        random = np.random.default_rng(0)
        for name, shape in bar(tensors, desc=path.name, leave=False):
            if len(shape) == 1:
                writer.write_tensor_data(np.full(shape, float("bias" not in name), np.float32))
                continue
            values = (random.random(shape, np.float32) - np.float32(0.5)) * np.float32(2 / shape[1] ** 0.5)
            writer.write_tensor_data(
                values.astype(np.float16) if kind == "F16" else gguf.quants.quantize(values, stored)
            )
        writer.close()
        if (found := parameters_in(unfinished)) != model.parameters:
            told = f"the file {quoted(path.name)} has {found:,} parameters, and {model.name} {model.parameters:,}"
            raise InvalidInputError(f"make engine: {told}; it is not kept.")
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return found


def parameters_in(path: Path) -> int:
    """The parameters of a GGUF file, as its own table of tensors says; 0 where it is damaged."""
    try:
        with path.open("rb") as file:
            return _counted(file)
    except (OSError, ValueError, IndexError, RecursionError, struct.error):
        return 0


def _counted(file: BinaryIO) -> int:
    def number(kind: str) -> Any:
        return struct.unpack(f"<{kind}", file.read(struct.calcsize(kind)))[0]

    def skip(kind: int) -> None:  # a value of the header: 8 is a text, 9 an array, others are of fixed size
        if kind == 9:
            inner, length = number("I"), number("Q")
            for _ in range(length):
                skip(inner)
        else:
            file.seek(number("Q") if kind == 8 else HEADER_SIZES[kind], os.SEEK_CUR)

    file.seek(8)
    tensors, keys = number("Q"), number("Q")
    for _ in range(keys):
        skip(8)
        skip(number("I"))
    total = 0
    for _ in range(tensors):
        skip(8)
        total += math.prod(number("Q") for _ in range(number("I")))
        file.seek(12, os.SEEK_CUR)
    return total


def _tensors(model: Model) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape (rows, columns) of each tensor of Qwen2's architecture; InvalidInputError for another's sizes."""
    (layers, block), *others = model.blocks
    mixer, ffn, width = block.mixer, block.feedforward, model.width
    plain = isinstance(mixer, GroupedQueryAttention) and isinstance(ffn, DenseFeedForward) and not others
    if not plain or model.family != "qwen2" or not model.tied_embeddings:
        raise InvalidInputError(f"make engine: {model.name} is not of Qwen2's architecture with tied embeddings.")
    assert isinstance(mixer, GroupedQueryAttention) and isinstance(ffn, DenseFeedForward)
    each = {"q": mixer.heads * mixer.head_dim, **dict.fromkeys("kv", mixer.kv_heads * mixer.head_dim)}
    yield "token_embd.weight", (model.vocabulary, width)
    yield "output_norm.weight", (width,)
    for layer in range(layers):
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{name}.weight", (width,)
        for name, rows in each.items():
            yield f"blk.{layer}.attn_{name}.weight", (rows, width)
            yield f"blk.{layer}.attn_{name}.bias", (rows,)
        yield f"blk.{layer}.attn_output.weight", (width, each["q"])
        for name in ("ffn_gate", "ffn_up"):
            yield f"blk.{layer}.{name}.weight", (ffn.inner, width)
        yield f"blk.{layer}.ffn_down.weight", (width, ffn.inner)


def _describe(writer: Any, model: Model) -> None:
    """The sizes and the tokenizer."""
    ((layers, block),) = model.blocks
    mixer, ffn = block.mixer, block.feedforward
    assert isinstance(mixer, GroupedQueryAttention) and isinstance(ffn, DenseFeedForward)
    writer.add_name(f"{model.name}, random weights")
    writer.add_context_length(model.max_positions or 32_768)
    writer.add_embedding_length(model.width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(ffn.inner)
    writer.add_head_count(mixer.heads)
    writer.add_head_count_kv(mixer.kv_heads)
    writer.add_rope_dimension_count(mixer.head_dim)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    tokens, merges = vocabulary(model.vocabulary)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * END + [3] + [1] * (len(tokens) - END - 1))  # 3: a control token, the end of a text
    writer.add_token_merges(merges)
    writer.add_eos_token_id(END)
    writer.add_bos_token_id(END)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def vocabulary(size: int) -> tuple[list[str], list[str]]:
    """Tokens and merges of a byte-level tokenizer: bytes, the end, the words of our prompts, and fillers up to `size`.

    The bytes are those of ASCII: a random model repeats one token, and of half a letter a server sends nothing. One
    that does not print is written as a character from 256 on, in the order of the bytes: GPT-2's convention.
    """
    hidden = [*range(33), 127]
    tokens = [chr(256 + hidden.index(byte)) if byte in hidden else chr(byte) for byte in range(END)] + ["<|end|>"]
    merges: dict[str, str] = {}  # from the left, so that words with the same beginning do not disturb each other
    for word in [*WORDS, *TOLD.replace(",", " ").replace(".", " ").split()]:
        spaced = SPACE + word
        merges |= {spaced[: end + 1]: f"{spaced[:end]} {spaced[end]}" for end in range(1, len(spaced))}
    tokens += merges
    if size < len(tokens):
        raise InvalidInputError(f"make engine: a vocabulary of {size:,} is too small; {len(tokens):,} or more.")
    return tokens + [f"<t{number}>" for number in range(len(tokens), size)], list(merges.values())


def serve(path: str, parallel: int, context: int, prompt_threads: int, flash: bool) -> None:
    """Serve until the input is closed: `parallel` sequences of `context` tokens, each step on one thread.

    No prompt is cached, so that each has its prefill. `prompt_threads`: of passes over several tokens, which are those
    of a prompt, and steps of several sequences.
    """
    import xllamacpp  # type: ignore[import-not-found]

    given = xllamacpp.CommonParams()
    given.model.path = path
    given.port = 0
    given.n_parallel, given.n_ctx, given.fit_params = parallel, parallel * context, False
    given.cpuparams.n_threads, given.cpuparams_batch.n_threads = 1, prompt_threads
    given.cache_prompt, given.cache_ram_mib = False, 0
    given.flash_attn_type = int(flash)
    given.verbosity = 1
    server = xllamacpp.Server(given)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    parallel, context, prompt_threads, flash = map(int, sys.argv[2:])
    serve(sys.argv[1], parallel, context, prompt_threads, bool(flash))
