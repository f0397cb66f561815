"""The exercises of notebook 02_chat_versus_reasoning."""

from functools import cache
from typing import Any

from lessonlib.face.exercises.book.common import CHAT, REASONING, cost_of, largest_batch, server
from lessonlib.face.exercises.exercises import ChoiceExercise, Exercise, NumberExercise, Slip
from lessonlib.facts.tables import load_table
from lessonlib.policy.levers import RHO_OF_FIVE_PERCENT, ridge_tokens
from lessonlib.request.cost import Request, RequestCost
from lessonlib.time.roofline import pass_cost

THOUGHT = 0.9  # share of the reasoning output that is thought, before the answer


def _percent_at_limit(part: str) -> float:
    cost = cost_of(CHAT, int(largest_batch(CHAT)))
    return 100 * getattr(cost, part).seconds / cost.seconds


@cache
def batch_of_half_prefill() -> float:
    """Smallest batch of chat requests whose prefill takes at least half of the GPU clock, by trying each."""
    return float(
        next(batch for batch in range(1, int(largest_batch(CHAT)) + 1) if cost_of(CHAT, batch).decode_share <= 0.5)
    )


def _tokens_per_prompt_token(batch: int, rho: float = RHO_OF_FIVE_PERCENT) -> float:
    return batch / (ridge_tokens(server()) * rho)


@cache
def _up_to_first_answer_token() -> RequestCost:
    return cost_of(Request(REASONING.prompt, round(THOUGHT * REASONING.output) + 1))


def _hundred_to_one_numbers() -> dict[str, Any]:
    rows = [row for row in load_table("workload_shares") if row["workload"] == "production-reasoning"]
    shares = [100 * row["requests_ratio_ge_100"] for row in rows]
    medians = [row["ratio_median"] for row in rows]
    return {"least": min(shares), "most": max(shares), "low": min(medians), "high": max(medians)}


EXERCISES: tuple[Exercise, ...] = (
    NumberExercise(
        key="prefill-in-steps",
        notebook="02_chat_versus_reasoning",
        question="How many decode steps does the reasoning request's whole prefill cost (128 -> 12,800, batch 1)?",
        unit="times one step",
        expected=lambda: cost_of(REASONING).prefill.seconds / pass_cost(server(), new=1, cached=128).seconds,
        slips=(
            Slip(
                lambda: 128.0,
                "That counts tokens. All prompt tokens go through in one pass, and one pass streams the weights once.",
            ),
        ),
        hints=("Under the ridge a pass costs the time to stream the weights, however many tokens it carries.",),
        solution=(
            "The prefill takes {prefill:.3f} ms and the first decode step {step:.3f} ms: both stream the weights once. "
            "So the whole prefill takes {answer}."
        ),
        numbers=lambda: {
            "prefill": 1e3 * cost_of(REASONING).prefill.seconds,
            "step": 1e3 * pass_cost(server(), new=1, cached=128).seconds,
        },
    ),
    NumberExercise(
        key="gpu-share-of-chat",
        notebook="02_chat_versus_reasoning",
        question="32 chat requests are served together. How many milliseconds of GPU time is one request's share?",
        unit="ms",
        expected=lambda: 1e3 * cost_of(CHAT, 32).seconds / 32,
        slips=(
            Slip(
                lambda: 1e3 * cost_of(CHAT, 32).seconds,
                "That is the GPU clock of all 32 together. One request's share is a 32nd of it.",
            ),
            Slip(
                lambda: 1e3 * cost_of(CHAT, 32).elapsed,
                "That is the request clock: what one user waits. In that time the GPU serves the other 31 as well.",
            ),
            Slip(
                lambda: 1e3 * cost_of(CHAT, 32).elapsed / 32,
                "You shared one user's wait among 32. All 32 prompts have to be prefilled, not only that user's.",
            ),
            Slip(
                lambda: 1e3 * cost_of(CHAT).seconds / 32,
                "You shared the time of one request alone among 32. The steps are shared; the prefills add up.",
            ),
        ),
        hints=(
            "`.seconds` is the GPU clock for the whole batch, `.elapsed` the request clock of one user.",
            "Take request_cost(server, chat, batch=32).seconds, and divide by the batch.",
        ),
        solution="GPU clock for all 32: {all:.4f} s. Divided by 32: {answer}. One user waits {elapsed:.4f} s.",
        numbers=lambda: {"all": cost_of(CHAT, 32).seconds, "elapsed": cost_of(CHAT, 32).elapsed},
    ),
    NumberExercise(
        key="chat-time-share",
        notebook="02_chat_versus_reasoning",
        question="One chat request runs alone. What per cent of its seconds is decode?",
        unit="%",
        expected=lambda: 100 * cost_of(CHAT).decode_share,
        slips=(
            Slip(
                lambda: 100 * cost_of(CHAT).decode.flops / cost_of(CHAT).flops,
                "That is the share of FLOPs. A decode step does few FLOPs, but it reads every weight.",
            ),
            Slip(
                lambda: 100 * CHAT.output / (CHAT.prompt + CHAT.output),
                "That is the share of tokens. Prompt tokens go through in one pass, output tokens one pass each.",
            ),
        ),
        hints=(
            "Count passes: one prefill, then 127 steps. A step takes about as long as it takes to read the weights.",
            "request_cost(server, chat, batch=1) has .prefill.seconds and .decode.seconds.",
        ),
        solution="Prefill {prefill:.1f} ms, decode {decode:.1f} ms: decode is {answer} of the seconds.",
        numbers=lambda: {"prefill": 1e3 * cost_of(CHAT).prefill.seconds, "decode": 1e3 * cost_of(CHAT).decode.seconds},
    ),
    NumberExercise(
        key="reasoning-limit",
        notebook="02_chat_versus_reasoning",
        question="How many reasoning requests (128 -> 12,800) fit on the H100 at once, reserved to their ends?",
        unit="requests",
        expected=lambda: largest_batch(REASONING),
        tolerance=0.001,
        slips=(
            Slip(
                lambda: largest_batch(REASONING, tokens=REASONING.prompt),
                "You reserved memory for the prompt only. The cache grows with every output token.",
            ),
            Slip(
                lambda: largest_batch(REASONING, memory_free=server().memory_available),
                "You forgot that the weights lie in the same memory.",
            ),
            Slip(
                lambda: largest_batch(REASONING, memory_free=server().accelerator.memory - server().weight_bytes),
                "You gave all of the memory away. A tenth is kept for activations and the engine's buffers.",
            ),
        ),
        hints=(
            "Free memory after the weights, divided by the cache of prompt + output tokens.",
            "server.largest_batch(tokens) does it for you.",
        ),
        solution=(
            "{free:.2f} GB are free after the weights; one of {tokens:,} tokens reserves {each:.3f} GB of cache. "
            "So {answer} fit."
        ),
        numbers=lambda: {
            "free": server().memory_free / 1e9,
            "tokens": REASONING.prompt + REASONING.output,
            "each": server().sequence_bytes(float(REASONING.prompt + REASONING.output)) / 1e9,
        },
    ),
    NumberExercise(
        key="chat-share-at-limit",
        notebook="02_chat_versus_reasoning",
        question="At chat's own memory limit, what per cent of the GPU clock is decode?",
        unit="%",
        expected=lambda: _percent_at_limit("decode"),
        slips=(
            Slip(
                lambda: 100 * cost_of(CHAT, 32).decode_share,
                "That is batch 32, which is far from chat's limit. Ask server.largest_batch for chat's tokens.",
            ),
            Slip(lambda: 100 * cost_of(CHAT).decode_share, "That is one request alone."),
            Slip(lambda: _percent_at_limit("prefill"), "That is the share of prefill; decode is the rest."),
        ),
        hints=(
            "First the limit: server.largest_batch(1024 + 128). Then request_cost at that batch.",
            "A cost has .decode_share: decode seconds over all seconds of the GPU clock.",
        ),
        solution="At batch {limit:,.0f} prefill takes {prefill:.2f} s and decode {decode:.2f} s: decode is {answer}.",
        numbers=lambda: {
            "limit": largest_batch(CHAT),
            "prefill": cost_of(CHAT, int(largest_batch(CHAT))).prefill.seconds,
            "decode": cost_of(CHAT, int(largest_batch(CHAT))).decode.seconds,
        },
    ),
    NumberExercise(
        key="half-prefill",
        notebook="02_chat_versus_reasoning",
        question="From which batch on does prefill take half of the GPU clock or more, for chat (1,024 -> 128)?",
        unit="requests",
        expected=batch_of_half_prefill,
        tolerance=0.02,
        slips=(
            Slip(
                lambda: ridge_tokens(server()) * CHAT.output / CHAT.prompt,
                "That is where rho reaches 1. rho is an estimate: it leaves out that a larger batch also reads more "
                "cache, which makes decode slower.",
            ),
        ),
        hints=(
            "Prefill seconds grow in proportion to the batch. Decode seconds grow slowly: the weights are shared.",
            "Try batches with request_cost(server, chat, batch).decode_share until it is a half.",
        ),
        solution="{answer}: there prefill takes {prefill:.3f} s and decode {decode:.3f} s.",
        numbers=lambda: {
            "prefill": cost_of(CHAT, int(batch_of_half_prefill())).prefill.seconds,
            "decode": cost_of(CHAT, int(batch_of_half_prefill())).decode.seconds,
        },
    ),
    NumberExercise(
        key="ratio-at-32",
        notebook="02_chat_versus_reasoning",
        question="By rho, how many output tokens a prompt token keep prefill at 5 % of the GPU clock at batch 32?",
        unit="output tokens per prompt token",
        expected=lambda: _tokens_per_prompt_token(32),
        slips=(
            Slip(
                lambda: _tokens_per_prompt_token(1), "That is batch 1. At batch 32 a step serves 32 requests at once."
            ),
            Slip(
                lambda: _tokens_per_prompt_token(32, rho=0.05),
                "Nearly: rho is prefill over decode, not prefill over all. A share of 5 % is 5 to 95.",
            ),
            Slip(
                lambda: 1 / _tokens_per_prompt_token(32),
                "That is prompt tokens for each output token: the other way round.",
            ),
        ),
        hints=(
            "Set rho = b n_in / (ridge n_out) to 5 / 95 and solve for n_out / n_in.",
            "The ridge of the H100 is peak / bandwidth, 989e12 / 3.35e12 FLOP/byte.",
        ),
        solution="n_out / n_in = b / (ridge x 5 / 95) = 32 / ({ridge:.1f} x 0.0526) = {answer}.",
        numbers=lambda: {"ridge": ridge_tokens(server())},
    ),
    ChoiceExercise(
        key="hundred-to-one",
        notebook="02_chat_versus_reasoning",
        question="How many requests of a production R1 service have an output at least 100 times their prompt?",
        options={"a": "nearly all", "b": "about half", "c": "fewer than one in eight"},
        right="c",
        because={
            "a": "100 to 1 is the hard end: short competition problems at full effort. Most prompts are no such thing.",
            "b": "The median ratio is far smaller than 100: between {low:.1f} and {high:.1f}.",
            "c": "Between {least:.0f} and {most:.0f} %: the service released prompt and output lengths separately, so "
            "only bounds can be given. The median ratio lies between {low:.1f} and {high:.1f}.",
        },
        hints=("Look at the medians of prompt and output above.",),
        solution="{answer}: between {least:.0f} and {most:.0f} % of the requests.",
        numbers=_hundred_to_one_numbers,
    ),
    NumberExercise(
        key="first-answer-token",
        notebook="02_chat_versus_reasoning",
        question="90 % of the reasoning output is thought. When does the first token of the answer come, alone?",
        unit="s",
        expected=lambda: _up_to_first_answer_token().elapsed,
        slips=(
            Slip(
                lambda: cost_of(REASONING).ttft,
                "That is TTFT: the first token of the thought. The user sees an answer only after the thought.",
            ),
            Slip(
                lambda: cost_of(REASONING).elapsed,
                "That is the last token. The answer begins a tenth of the output earlier.",
            ),
        ),
        hints=(
            "0.9 x 12,800 output tokens are thought. The answer begins with the next one.",
            "What does a request cost whose output ends with that token?",
        ),
        solution=(
            "Output token {token:,} is the first of the answer. A request that ends there takes {answer}; its TTFT is "
            "{ttft:.2f} ms."
        ),
        numbers=lambda: {
            "token": _up_to_first_answer_token().request.output,
            "ttft": 1e3 * _up_to_first_answer_token().ttft,
        },
    ),
)
