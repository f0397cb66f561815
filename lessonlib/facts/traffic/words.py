"""What titles of columns and labels of rows say, word by word, where no table has their whole name.

`cacheReadTokens`, `tokens.cache.read` and `Cache read (tokens)` have the same words. What these rules find is used only
where the cells agree: a column of thought tokens holds whole numbers.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+|\d+")
# Words of what is measured in something else than tokens.
MEASURES = set(
    "time ms us ns sec secs second seconds minute minutes latency latencies duration durations timestamp "
    "cost costs price prices pricing usd eur dollar dollars credits spend fee fees "
    "char chars character characters byte bytes letter letters word words "
    "rate rates ratio share percent percentage pct fraction per tps speed throughput logprob logprobs".split()
)
TEXT = {"content", "text"}  # in a title that says tokens, too
WRITTEN = {"write", "writes", "written", "create", "created", "creation", "store", "stored", "storage"}
# What may stand beside "cache" or "thought" in a title that counts tokens.
COUNTING = WRITTEN | set(
    "tokens token count counts total value used n num number read reads hit hits of in out input prompt output "
    "completion response native billed ephemeral h m 1 5".split()
)
MANY = set("requests calls invocations queries hits".split())
ONE, COUNTED = {"request", "call", "invocation", "query"}, {"count", "counts", "cnt"}
MANY_ALONE = set(
    "count counts cnt frequency freq occurrences occurrence multiplicity repetitions repeats anzahl anfragen aufrufe "
    "nombre requetes appels solicitudes peticiones llamadas requisicoes chamadas 请求数 次数 件数 回数".split()
)
HOW_MANY = (
    MANY_ALONE
    | set(
        "num number n no of the total sum all api llm model chat http successful succeeded completed processed served "
        "failed aggregated".split()
    )
    | ONE
)
# Under such a name stand sums of many requests; under such a title the span of time that a row may sum.
SUMMED = set("daily weekly monthly hourly totals total summary aggregate aggregates aggregated buckets".split())
SPANS = set("date day week month hour year datum tag monat jour mois fecha mes".split())
SUMS = set(
    "total totals subtotal subtotals sum sums average averages avg mean median overall gesamt gesamtsumme summe "
    "zwischensumme insgesamt mittelwert durchschnitt somme moyenne totaal gemiddelde totale media suma promedio soma "
    "итого всего сумма среднее 合计 总计 小计 平均 合計 小計 総計 σ ∑".split()
)
STATISTICS = set("count std min max".split())  # of a table with a mean and a standard deviation
FILLERS = set("grand general of for all the and row rows requests request".split())
QUANTILE = re.compile(r"p\d{1,2}([._]\d+)?", re.IGNORECASE)
LONGEST_LABEL = 40


def words(title: str) -> list[str]:
    """The words of a title in small letters, without accents: at marks, and where a capital begins one."""
    bare = title if title.isascii() else unicodedata.normalize("NFKD", title)
    return [word.casefold() for word in WORD.findall("".join(c for c in bare if not unicodedata.combining(c)))]


def part_of(title: str) -> str | None:
    """The kind of part of a prompt or output (cached, written, thought) that a title speaks of, or "total"."""
    parent, _, last = title.rpartition(".")
    leaf, around = words(last), words(parent.rpartition(".")[2])
    if set(leaf) <= {"total", "usage"} and "total" in leaf:
        return "total" if MEASURES.isdisjoint(around) else None
    allowed = COUNTING | TEXT if "token" in title.lower() else COUNTING
    for said in (leaf, leaf + around):
        kinds = {kind for kind in map(_kind, said) if kind}
        if len(kinds) == 1 and {word for word in leaf if not _kind(word)} <= allowed:
            (kind,) = kinds
            return "written" if kind == "cached" and not WRITTEN.isdisjoint(said) else kind
    return None


def _kind(word: str) -> str | None:
    thought = word.startswith(("reasoning", "thinking", "thought"))
    return "thought" if thought else "cached" if word.startswith("cach") else None


def counts_requests(title: str) -> bool:
    """Whether a title names a number of requests: one row then stands for many."""
    named = set(words(title))
    several = named & MANY or (named & ONE and named & COUNTED)
    return bool(named) and (named <= MANY_ALONE or (bool(several) and named <= MANY | HOW_MANY))


def names_sums(way: str) -> bool:
    """Whether the names on the way to a row or a count say that it sums many requests."""
    return not SUMMED.isdisjoint(words(way))


def names_span(title: str) -> bool:
    """Whether a title is that of a day, a month or the like."""
    return bool(title) and set(words(title)) <= SPANS


def sums_among(labels: Sequence[str]) -> list[bool]:
    """Which of some rows' labels name sums or statistics of other rows, and no request."""
    found = list(map(_is_sum, labels))
    lowered = [label.strip().casefold() for label in labels]
    if {"mean", "std"} <= set(lowered):  # a description of a table
        found = [one or label in STATISTICS or label[-1:] == "%" for one, label in zip(found, lowered, strict=True)]
    return found


@lru_cache(1000)
def _is_sum(label: str) -> bool:
    if len(label) > LONGEST_LABEL or label.isdigit():
        return False
    said = [word for word in words(label) if word not in FILLERS and not word.isdigit()] or [label.strip().casefold()]
    whole = set(said) <= SUMS or QUANTILE.fullmatch(label.strip())
    return bool(whole) or (len(said) <= 3 and said[0].startswith(("total", "subtotal")) and said[0] in SUMS)
