"""What one reply of a server means: its times, its tokens, and what cannot be known of them, each said in a note.

TPOT is the time from the first chunk to the last over the tokens that came after the first. Usage says how many tokens
were paid for, not how many were sent: thought may be withheld, and a first chunk may hold many tokens. So TPOT is given
only where the text, the chunks and the usage agree.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from lessonlib.measured.timing.record import PERCENTILES
from lessonlib.measured.timing.server_key import QUOTE
from lessonlib.measured.timing.server_stream import Stream

AT_ONCE = 1e-4  # seconds between chunks, below which they were not sent one by one
FEW = 8  # chunks, of which a pause of this machine may have joined most
USUAL, MOST = 4.0, 5.0  # bytes of text in a token: where the prompt does not tell; at most
TEMPLATE = 16_384  # tokens that a server may put around a prompt of its own accord
FINISH = 48  # characters of a reason to end

CACHED = (  # where servers say how much of the prompt was cached
    ("prompt_tokens_details", "cached_tokens"),
    *((name,) for name in ("cached_tokens", "num_cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")),
)

LEFT_OUT = "the reply is left out of the record's requests, and is not predicted"
PACE = {  # what TPOT and the gaps mean: one at most is said of a reply
    "no usage": "usage does not say how many tokens came: there is no TPOT, and gaps are between chunks",
    "miscounted": "usage counts fewer tokens than chunks or words came, or more than were asked for: there is no TPOT",
    "counted": "chunks held several tokens, as their own usage says: TTFT includes those of the first, TPOT is of "
    "those that came after it, and gaps are between chunks",
    "hidden": "thought was counted and not sent: TTFT includes it, and there is no TPOT",
    "one chunk": "all tokens came in one chunk: there is no time between tokens, and no TPOT",
    "at once": "all chunks came at once, held back on the way: TTFT is too late, and there is no TPOT",
    "thin": "the text is too short for the tokens that usage counts: thought is probably hidden, and TPOT is undefined",
    "more": "there was one chunk more than tokens: TPOT is the mean time between chunks",
    "fewer": "there were fewer chunks than tokens: gaps are between chunks, not tokens; TPOT takes the first chunk's "
    "tokens from its share of the text, and is too small if thought was withheld",
    "bursts": "chunks came in bursts: gaps are not times between tokens",
}
ALSO = {  # and each of these
    "early": "the model ended before the tokens that were asked for",
    "no prompt": f"usage gives no prompt tokens: {LEFT_OUT}",
    "odd prompt": f"usage counts prompt or cached tokens that cannot be those of the words sent: {LEFT_OUT}",
    "cached": "a part of the prompt was cached: TTFT is without its prefill",
    "garbage": "some lines of the stream were not events and were skipped",
}


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What came back for one request, whole or not. Seconds from the moment of sending; None is "not known".

    `asked`: output tokens at most. `prompt`, `output`, `cached`: tokens as the server's usage counts them, where that
    can be. `chunks`: those with text. `first_answer`: the first chunk that is not thought. `gaps`: percentiles of the
    seconds between chunks. `problem`: why the reply is not whole, or "". `notes`: what its numbers do not mean.
    """

    name: str
    concurrency: int
    asked: int
    chunks: int = 0
    ttft: float | None = None
    first_answer: float | None = None
    last: float | None = None
    tpot: float | None = None
    prompt: int | None = None
    output: int | None = None
    cached: int | None = None
    gaps: dict[str, float] = field(default_factory=dict)
    finish: str = ""
    problem: str = ""
    notes: tuple[str, ...] = ()


class Tokens(NamedTuple):
    """The tokens that usage counts, None where it does not say or where that cannot be."""

    prompt: int | None
    output: int | None
    cached: int | None
    hidden: bool  # thought that is known to have been withheld
    odd_prompt: bool


def tokens_of(stream: Stream, sent: str) -> Tokens:
    """The tokens of a reply to the prompt `sent`. Where thought stands, and a cached part, the total decides."""
    prompt, output, total = (stream.counted(f"{name}_tokens") for name in ("prompt", "completion", "total"))
    counted = (stream.counted(*name) for name in CACHED)
    cached = next(filter(None, counted), stream.counted(*CACHED[0]))
    thought = stream.counted("completion_tokens_details", "reasoning_tokens") or stream.counted("reasoning_tokens") or 0
    over = 0 if None in (prompt, output, total) else total - prompt - output  # type: ignore[operator]
    least, most = len(sent.split()) / 2, len(sent) + TEMPLATE
    if prompt is not None and cached and (over == cached or (cached > prompt and prompt < least)):
        prompt, over = prompt + cached, max(0, over - cached)  # it is counted beside the prompt
    odd = bool(prompt) and (not least <= prompt <= most or (cached or 0) > prompt)  # type: ignore[operator]
    if odd:  # then what the total adds is not thought, either
        prompt, over = None, 0
    beside = max(0, over)
    thin_thought = _thin(stream.thought_size, stream.thought_chunks, thought, USUAL)
    hidden = stream.withheld or (not stream.thought_size and max(thought, beside) > 0) or thin_thought
    if beside and not hidden and output is not None:
        output += beside
    return Tokens(prompt or None, output, cached, hidden, odd)


def _thin(size: int, chunks: int, tokens: int, usual: float) -> bool:
    """Whether text of `size` bytes in `chunks` is less than half of what so many tokens have, and cannot be all."""
    return chunks < tokens - 1 and size < tokens * usual / 2


def pace_of(stream: Stream, tokens: Tokens, sent: str) -> tuple[float | None, str]:
    """TPOT in seconds, or None; and which of PACE is to be said, or ""."""
    chunks, output, gaps = len(stream.times), tokens.output, np.diff(stream.times)
    if output is None:
        return None, "no usage"
    if not chunks - 1 <= output <= stream.asked or stream.words > 1.5 * output + 1:
        return None, "miscounted"
    span, first, last = float(gaps.sum()), *_own_counts(stream, output)
    told = first is not None and last - first >= max(1, chunks - 2)
    if not told and tokens.hidden:
        return None, "hidden"
    if chunks == 1:
        return None, "one chunk" if output > 1 else ""
    if output < 2:
        return None, ""
    in_bursts = chunks >= FEW and float(np.median(gaps)) < AT_ONCE
    if span / max(output - 1, chunks - 1) < AT_ONCE or (in_bursts and np.sum(gaps >= AT_ONCE) <= 2):
        return None, "at once"
    if told:
        several = last > chunks
        return span / (last - first), "counted" if several else "bursts" if in_bursts else ""  # type: ignore[operator]
    usual = min(len(sent) / tokens.prompt, MOST) if tokens.prompt else USUAL
    if _thin(sum(stream.sizes), chunks, output, usual):
        return None, "thin"
    # One chunk more than tokens is a last bit of text: then each gap is a step.
    if chunks > output:
        return span / (chunks - 1), "more"
    if chunks == output - 1 and stream.finish == "stop":  # the last token, which ends the text, has none
        return span / max(chunks - 1, 1), "bursts" if in_bursts else ""
    if chunks < output - 1:
        return span / max(chunks - 1, output * (1 - stream.sizes[0] / sum(stream.sizes))), "fewer"
    return span / (output - 1), "bursts" if in_bursts else ""


def _own_counts(stream: Stream, output: int) -> tuple[int | None, int]:
    """Tokens up to the first and to the last chunk, as the chunks' own usage counts them; None where it cannot be."""
    own = [count for count in stream.counts if count is not None]
    sound = own and stream.counts[0] and own == sorted(own) and own[-1] <= output
    return (stream.counts[0] if sound else None), (stream.counts[-1] if stream.counts else None) or output


def reply_of(stream: Stream, sent: str, asked: Reply, problem: str, clean: Callable[[Any], str]) -> Reply:
    """`asked` with what came for the prompt `sent`, and with notes on what its numbers do not mean."""
    chunks, tokens = len(stream.times), tokens_of(stream, sent)
    notes, tpot, output = [], None, tokens.output
    if chunks:
        tpot, said = pace_of(stream, tokens, sent)
        output = None if said == "miscounted" else output
        notes += [PACE[said]] if said else []
    else:
        problem = problem or "the stream ended without any text"
    known = chunks and output is not None
    also = {
        "early": output is not None and output < stream.asked and not problem,
        "no prompt": known and tokens.prompt is None and not tokens.odd_prompt,
        "odd prompt": known and tokens.odd_prompt,
        "cached": tokens.cached,
        "garbage": stream.garbage,
    }
    percentiles = np.percentile(np.diff(stream.times), list(PERCENTILES.values())).tolist() if chunks > 1 else []
    return replace(
        asked,
        chunks=chunks,
        ttft=stream.times[0] - stream.sent if chunks else None,
        first_answer=None if stream.first_answer is None else stream.first_answer - stream.sent,
        last=stream.times[-1] - stream.sent if chunks else None,
        tpot=None if problem else tpot,
        prompt=tokens.prompt,
        output=output,
        cached=tokens.cached,
        gaps=dict(zip(PERCENTILES, percentiles, strict=False)),
        finish=clean(stream.finish)[:FINISH],
        problem=problem,
        notes=(*notes, *(ALSO[name] for name, holds in also.items() if holds)),
    )


def largest_reply(name: str, asked: int) -> Reply:
    """A reply that takes as much room in a record as any can: what bounds a record before anything is sent."""
    seconds, tokens, wide = 1.2345678901234567e-05, 2**31 - 1, "\N{GRINNING FACE}"  # of 12 bytes in JSON
    times: dict[str, Any] = dict.fromkeys(("ttft", "first_answer", "last", "tpot"), seconds)
    counts: dict[str, Any] = dict.fromkeys(("chunks", "prompt", "output", "cached"), tokens)
    return Reply(
        name=name,
        concurrency=64,
        asked=asked,
        **times,
        **counts,
        gaps=dict.fromkeys(PERCENTILES, seconds),
        finish=wide * FINISH,
        problem="x" * (5 * QUOTE),  # a quotation of at most 3 QUOTE, and the words around it
        notes=(max(PACE.values(), key=len), *ALSO.values()),
    )
