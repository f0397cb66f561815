"""The exercises of notebook 01_one_pass_by_hand."""

import math
from dataclasses import replace

from lessonlib.face.exercises.book.common import REASONING, cost_of, server, smallest_compute_bound_prompt
from lessonlib.face.exercises.exercises import Choice, Number, choice, number, predict
from lessonlib.facts.catalogue import load_accelerator, load_model, model_config
from lessonlib.model.precision import Precision
from lessonlib.policy.estimates import ridge_tokens
from lessonlib.request.cost import request_cost
from lessonlib.request.request import Request
from lessonlib.time.deployment import Deployment
from lessonlib.time.roofline import pass_cost

MODULE_2 = Request(1000, 300)  # the request that notebook 01 works out by hand
HEAD_IS_APART = "That adds the LM head's bytes to the blocks'. The head is a kernel of its own, after them."
PUBLISHED_OUTPUT = 2048  # tokens of the published row that cannot be true


@predict("%")
def feed_forward_share(answer: Number) -> str:
    """What per cent of the parameters of Llama-3.1-8B are in its feed-forwards?

    - A gated feed-forward has three matrices of hidden_size x intermediate_size, in each layer.
    - The attention has two matrices of hidden_size x hidden_size, and two of a quarter of that size.
    """
    model = server().model
    matrices = sum(count * block.feedforward.dense_weights for count, block in model.blocks if block.feedforward)
    two, three = (100 * part * (matrices / 3) / model.parameters for part in (2, 3))
    answer.value = three
    answer.slip(two, "That counts two matrices in each feed-forward. A gated one has three: gate, up and down.")
    return (
        f"{matrices:,} of {model.parameters:,} parameters are in the feed-forwards: {answer}. Each has three matrices, "
        "and they are wide."
    )


@number("GB", tolerance=0.005)
def tied_head(answer: Number) -> str:
    """Llama-3.2-1B is tied: one table is both its input embedding and its LM head. How many GB of weights does a step
    stream, in bf16?

    - How many parameters does it have? load_model('llama-3.2-1b').parameters counts the shared table once.
    - The look-up reads one row. The LM head reads the whole table. So which parameters are not streamed?
    """
    model = load_model("llama-3.2-1b")
    without, once, twice = (2 * (model.parameters + more * model.head_weights) / 1e9 for more in (-1, 0, 1))
    answer.value = once
    answer.slip(
        without,
        "You left the table out, as if it were only looked up. It is the LM head too, and the head is a matrix "
        "product: every step streams it whole.",
    )
    answer.slip(twice, "You counted the table twice. Tied means that there is only one.")
    return (
        f"The LM head streams the shared table once, so nothing is left out: 2 bytes x {model.parameters:,} parameters "
        f"= {answer}. Without the table it would be {without:.3f} GB, {100 * (1 - without / once):.0f} % too little."
    )


@number("bytes", tolerance=0.001)
def cache_per_token(answer: Number) -> str:
    """How many bytes of KV cache does one token of Qwen3-32B take in bf16, over all layers?

    - Look up num_hidden_layers, num_key_value_heads and head_dim in model_config('qwen3-32b').
    - Multiply 2 (K and V) x layers x KV heads x head_dim x bytes of a number.
    """
    config = model_config("qwen3-32b")
    layers, heads, kv_heads, head_dim = (
        config[key] for key in ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
    )
    answer.value = load_model("qwen3-32b").cache_bytes(1)
    answer.slip(
        2 * layers * heads * head_dim * 2,
        "That counts all query heads. With grouped-query attention only the KV heads are cached.",
    )
    answer.slip(
        2 * layers * kv_heads * (config["hidden_size"] / heads) * 2,
        "You took hidden_size / num_attention_heads for the size of a head. This config gives head_dim itself.",
    )
    answer.slip(2 * kv_heads * head_dim * 2, "That is one layer. Every layer keeps a cache of its own.")
    return (
        f"2 (K and V) x {layers} layers x {kv_heads} KV heads x {head_dim} numbers x 2 bytes = {answer}. Its {heads} "
        "query heads are not cached."
    )


@number("tokens", tolerance=0.001)
def smallest_prompt(answer: Number) -> str:
    """At batch 1, how many tokens long is the shortest prompt whose linear layers are compute bound?

    - To compute takes 2 n P_block / peak. To read takes the bytes of the blocks' weights / bandwidth.
    - The LM head comes after the blocks, with a roof of its own: only the last position needs logits.
    """
    folded = server().sizes
    answer.value = smallest_compute_bound_prompt()
    answer.slip(
        math.floor(ridge_tokens(server())),
        "That is the ridge, rounded down: a prompt of that many tokens still waits a little for its weights.",
    )
    answer.slip(math.ceil(folded.dense_bytes / server().bandwidth * server().peak / folded.token_flops), HEAD_IS_APART)
    return (
        f"The blocks' weights are streamed once: {folded.block_bytes:,.0f} bytes, "
        f"{1e3 * folded.block_bytes / server().bandwidth:.3f} ms. A prompt token costs {folded.token_flops:,.0f} FLOP "
        f"in them. The ridge is {ridge_tokens(server()):.1f} tokens, so the first prompt that computes for longer than "
        f"it reads has {answer}. The LM head works for one position only, and stays memory bound."
    )


@predict("times as long")
def decode_over_prefill(answer: Number) -> str:
    """A request of 1,000 prompt and 300 output tokens runs at batch 1. How many times as long as its prefill does its
    decode take?

    - The prefill's blocks are compute bound, and take FLOPs over peak. Its LM head and all of a step take bytes over
      bandwidth.
    - There are 299 steps. Each takes about as long as a prompt at the ridge, of 295 tokens.
    """
    prefill, decode = cost_of(MODULE_2).prefill, cost_of(MODULE_2).decode
    answer.value = decode.seconds / prefill.seconds
    answer.slip(
        decode.flops / prefill.flops, "That is the ratio of the FLOPs. FLOPs are not time: a step waits for its bytes."
    )
    answer.slip(
        prefill.flops / decode.flops, "That is the ratio of the FLOPs, prefill over decode. FLOPs are not time."
    )
    answer.slip(
        MODULE_2.output - 1,
        "That would be right if the prefill took as long as one step. 1,000 tokens are past the ridge, and take "
        "longer.",
    )
    return (
        f"Prefill {1e3 * prefill.seconds:.2f} ms for {prefill.flops / 1e12:.2f} TFLOP; decode "
        f"{1e3 * decode.seconds:.0f} ms for {decode.flops / 1e12:.2f} TFLOP. Decode has "
        f"{decode.flops / prefill.flops:.2f} of the prefill's FLOPs and takes {answer}, for every step streams all the "
        "weights for one token."
    )


@choice("b")
def attention_batch(answer: Choice) -> str:
    """A step serves 32 sequences instead of 1. What happens to the FLOP/byte of its attention?

    a: It rises 32 times, as that of the linear layers does.
    b: It stays as it is.
    c: It falls, because more cache is read.

    - Which bytes are shared by the sequences of a batch, and which does each bring along?
    """
    ratio = pass_cost(server(), new=1, cached=1024, batch=32).attention.intensity
    answer.says(
        a="The linear layers gain because all sequences share the weights. Which bytes of cache do they share?",
        b=f"Each sequence brings its own cache: FLOPs and bytes both grow 32 times. The ratio stays {ratio:.3g}.",
        c="More cache is read, but the FLOPs on it grow just as much.",
    )
    return f"{answer} FLOPs and bytes of attention both grow with the batch; the ratio stays {ratio:.3g} FLOP/byte."


@number("s", tolerance=0.003)
def reasoning_decode(answer: Number) -> str:
    """How many seconds does the decode of the reasoning request take on Qwen3-32B (128 -> 12,800, bf16, one H100,
    batch 1)?

    - The prefill emits token 1, so there are 12,799 steps. Each streams the weights.
    - Add up the spans by the closed form, and multiply by the cache of one token.
    - Evaluate (12_799 * qwen_streamed + your_cache * (12_799 * 128 + 12_799 * 12_800 / 2)) / bandwidth.
    """
    qwen = replace(server(), model=load_model("qwen3-32b"))
    decode, step = request_cost(qwen, REASONING).decode, pass_cost(qwen, new=1).linear
    answer.value = decode.seconds
    answer.slip(decode.linear.seconds, "That is the reading of the weights alone. The cache is missing.")
    answer.slip(
        12_799 * pass_cost(qwen, new=1, cached=12_926).seconds,
        "You read the final cache in every step. Step k has a context of 128 + k - 1 tokens only.",
    )
    llamas = decode.attention.seconds * server().model.cache_bytes(1) / qwen.model.cache_bytes(1)
    answer.slip(
        decode.linear.seconds + llamas, "You took Llama's cache of one token. Qwen3-32B has twice as many layers."
    )
    return (
        f"Reading the weights takes 12,799 x {1e3 * step.seconds:.4f} ms = {decode.linear.seconds:.2f} s. Reading "
        f"{decode.attention.bytes / 1e12:.2f} TB of cache takes {decode.attention.seconds:.2f} s. Together that is "
        f"{answer}."
    )


@number("s", tolerance=0.005)
def impossible_row(answer: Number) -> str:
    """Qwen2-7B decodes 2,048 output tokens (bf16, one H100, batch 1). How many seconds does the reading of its weights
    take, by itself?

    - A step takes streamed weights x 2 bytes / bandwidth. The input embedding is not tied here, so leave it out.
    - The prefill emits token 1, so 2,047 decode steps remain.
    - pass_cost(Deployment(load_model('qwen2-7b'), server.accelerator), new=1).linear.bytes are the bytes of a step.
    """
    qwen2 = Deployment(load_model("qwen2-7b"), load_accelerator("h100-sxm"), Precision("bf16"))
    weights = pass_cost(qwen2, new=1).linear
    answer.value = (PUBLISHED_OUTPUT - 1) * weights.seconds
    answer.slip(
        PUBLISHED_OUTPUT * 2 * qwen2.model.parameters / qwen2.bandwidth,
        "You streamed the input embedding in every step (and counted one step too many). It is only looked up.",
    )
    return (
        f"A step reads {weights.bytes / 1e9:.3f} GB, which takes {1e3 * weights.seconds:.3f} ms. 2,047 steps take "
        f"{answer}. No H100 can do it faster one token at a time, so the published 0.083 s cannot be what the row says."
    )
