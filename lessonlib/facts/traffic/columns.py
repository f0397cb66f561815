"""Which columns of a log hold what: the shapes of data/traffic_shapes.csv, and the names that other logs use.

A name is compared in small letters without punctuation, so usage.prompt_tokens is usage_prompt_tokens. What stands
before a shape's names is the same before each of them: response.body.usage.prompt_tokens and ...completion_tokens.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from lessonlib.base.errors import shown
from lessonlib.facts.tables import rows_of
from lessonlib.facts.traffic.words import MEASURES, counts_requests, part_of, words

MOST_COLUMNS = 1000
KINDS = ("prompt", "output", "cached", "written", "tool", "thought", "total")
# Names in the logs of engines, gateways and traces that are no known shape: those that say tokens; and, where there is
# none of these, those that may hold tokens, or text, which is then refused.
NAMES = {
    "prompt": (
        "prompttokens inputtokens contexttokens requesttokens numprompttokens numinputtokens prompttokencount "
        "inputtokencount tokensprompt tokensinput promptlength promptlen inputlength inputlen nin usageprompttokens "
        "usageinputtokens nprompttokens ninputtokens numberinputtokens inputsequencelength isl tokensin inputlens",
        "prompt input",
    ),
    "output": (
        "outputtokens completiontokens generatedtokens generationtokens responsetokens numoutputtokens "
        "numcompletiontokens numgeneratedtokens numgenerationtokens outputtokencount completiontokencount "
        "candidatestokencount tokensoutput tokenscompletion outputlength outputlen completionlength generatedlength "
        "nout usagecompletiontokens usageoutputtokens noutputtokens numberoutputtokens outputsequencelength osl "
        "tokensout outputlens",
        "output completion",
    ),
    "cached": (
        "cachedtokens cachedprompttokens cachedinputtokens cachereadtokens cachereadinputtokens inputcachedtokens "
        "promptcachehittokens cachehittokens cachedtokencount cachedcontenttokencount numcachedtokens",
    ),
    "written": ("cachecreationinputtokens cachewriteinputtokens cachecreationtokens cachewritetokens",),
    "tool": ("tooluseprompttokencount",),
    "thought": (
        "reasoningtokens thinkingtokens thoughttokens thoughtstokens thoughtstokencount reasoningtokencount "
        "reasoningoutputtokens outputreasoningtokens numreasoningtokens",
    ),
    "total": ("totaltokens totaltokencount numtotaltokens numbertotaltokens tokenstotal",),
}
STATISTIC = re.compile(r"(total|sum|mean|avg|average|median|max|min|p\d+|std|percentiles?|cumulative|requested)$")
PARTS = re.compile(r"cache|detail|reason|think|thought|audio|image|video|modality|estimat|limit|budget")
WHOLE = {"total", "numberint", "numberlong", "n"}  # as the last part of a name
CHARACTERS = re.compile(r"char|byte|letter|word")
# Names of columns that say whether a request was served, by what a cell says: that something went wrong, how it ended,
# yes it failed, yes it was served, which step of a trace it is. Before a name may stand "is", "http" and the like.
FAILED = {
    **dict.fromkeys("error errors err errorcode errormsg errormessage errortype exception".split(), "problem"),
    **dict.fromkeys("status statuscode state outcome code level finishreason stopreason".split(), "end"),
    **dict.fromkeys("failed failure cancelled canceled aborted timeout timedout rejected".split(), "failed"),
    **dict.fromkeys("success succeeded successful ok completed".split(), "served"),
    **dict.fromkeys("runtype spankind spantype observationtype".split(), "step"),
}
# The same behind a dot.
INNER = set("error errorcode errormessage statuscode failed cancelled canceled runtype spankind".split())
BEFORE = re.compile(r"^(is|has|was|did|http|request|response|call)+(?=.)")
IDS = ("requestid", "messageid", "responseid", "generationid", "completionid", "id")
# Counts of requests whose words no mark parts.
MANY = set("numrequests nrequests requestcount requestscount apirequests numcalls callcount llmcalls apicalls".split())


class ColumnsError(Exception):
    """Why the columns cannot be told; the sentence begins with where they stand."""


@dataclass(frozen=True)
class Shape:
    """A known kind of log. `names`: kind to the names that its column has, best first.

    `signs`: columns of which one combination tells this shape from others of like names. `failed`: those that tell what
    was not served. `cache`, `thinking`: "within" where cached tokens count within the prompt, thought tokens within the
    output; "beside" where they do not; "" where only totals tell.
    """

    name: str
    names: Mapping[str, tuple[str, ...]]
    signs: tuple[tuple[str, ...], ...]
    failed: tuple[str, ...]
    cache: str
    thinking: str


@dataclass(frozen=True)
class Columns:
    """`places`: kind to a place among the columns. `failed`: places that say whether a request was served, to how.

    `many`: places that count requests. `named`: that of the requests' ids. `shape`: None if it is unknown.
    """

    places: Mapping[str, int]
    failed: Mapping[int, str]
    many: tuple[int, ...]
    named: int | None
    shape: Shape | None


def plain(title: str) -> str:
    return re.sub(r"[^a-z0-9]", "", title.lower())


@cache
def part_names() -> frozenset[str]:
    """The last parts of the names of columns that are neither prompt nor output."""
    names = {name for kind in KINDS[2:] for line in NAMES[kind] for name in line.split()}
    cells = (row[kind] or "" for row in rows_of("traffic_shapes") for kind in KINDS[2:])
    return frozenset(names | {plain(name.rpartition(".")[2]) for cell in cells for name in cell.split("|")} - {""})


def is_part(title: str) -> bool:
    """Whether a dotted title may be a part that comes up in later rows: by its last name, or by its words."""
    return plain(title.rpartition(".")[2]) in part_names() or ("token" in title.lower() and bool(part_of(title)))


@cache
def shapes() -> tuple[Shape, ...]:
    def of(cell: str | None, mark: str = "|") -> tuple[str, ...]:
        return tuple(plain(name) for name in (cell or "").split(mark) if plain(name))

    return tuple(
        Shape(
            row["name"],
            {kind: of(row[kind]) for kind in KINDS},
            tuple(of(sign, "+") for sign in row["sign"].split("|")),
            of(row["failed"], "+"),
            row["cache"] or "",
            row["thinking"] or "",
        )
        for row in rows_of("traffic_shapes")
    )


def find_columns(titles: Sequence[str], chosen: Mapping[str, str | None]) -> Columns:
    """The columns of a log; `chosen`: kind to the title that a reader gives. Raises ColumnsError."""
    if len(titles) > MOST_COLUMNS:
        raise ColumnsError(
            f"it has {len(titles):,} columns; expected at most {MOST_COLUMNS:,}. Is a line break missing?"
        )
    keys = [plain(title) for title in titles]
    places = {kind: _chosen(titles, kind, title) for kind, title in chosen.items() if title is not None}
    for kind, place in places.items():
        if CHARACTERS.search(titles[place].lower()) and "token" not in titles[place].lower():
            raise ColumnsError(
                f"{kind}_column={shown(titles[place])} does not count tokens, by its name; choose another."
            )
    fitting = (found for found in _known(keys) if all(found[1].get(k, p) == p for k, p in places.items()))
    shape, known = next(fitting, (None, {}))
    places = known | places
    for kind in KINDS:
        named = None if kind in places else _place(titles, keys, kind, set(places.values()))
        if named is not None:
            places[kind] = named
    for kind in ("prompt", "output"):
        if kind not in places:
            raise ColumnsError(_missing(titles, kind))
    if len(set(places.values())) < len(places):
        twice = next(titles[place] for place in places.values() if list(places.values()).count(place) > 1)
        raise ColumnsError(f"one column, {shown(twice)}, is chosen for two things; choose two.")
    others = [(place, key) for place, key in enumerate(keys) if place not in places.values()]
    failed = {place: says for place, key in others if (says := _says(titles[place], key, shape))}
    beside = len(titles[places["prompt"]].rpartition(".")[0])  # a count of requests may stand beside those of tokens
    way = titles[places["prompt"]][:beside]
    leaves = {place: title[beside:] if title.startswith(way) else title for place, title in enumerate(titles)}
    many = tuple(place for place, key in others if key in MANY or counts_requests(leaves[place]))
    return Columns(places, failed, many, _named(titles, places), shape)


def _named(titles: Sequence[str], places: Mapping[str, int]) -> int | None:
    """The column of the requests' ids: of several the one that stands nearest to the counts."""
    way, found = titles[places["prompt"]].split("."), []
    for place, title in enumerate(titles):
        *parent, last = title.split(".")
        if plain(last) in IDS and parent == way[: len(parent)] and place not in places.values():
            found.append((-len(parent), IDS.index(plain(last)), place))
    return min(found)[2] if found else None


def _says(title: str, key: str, shape: Shape | None) -> str:
    """What the cells of a column say of whether a request was served; "" where they do not."""
    if name := next((name for name in (shape.failed if shape else ()) if key.endswith(name)), ""):
        return "cachehit" if name == "cachehit" else FAILED.get(name, "problem")
    if title.lower().endswith("status.code"):  # of a span
        return "span"
    names = [key] + [name for name in _ends(title) if BEFORE.sub("", name) in INNER]
    return next((FAILED[name] for name in (*names, *(BEFORE.sub("", name) for name in names)) if name in FAILED), "")


def more_parts(titles: Sequence[str], columns: Columns) -> dict[str, int]:
    """Columns whose words say that they are parts or totals, of kinds that no name told: kind to place.

    Raises ColumnsError where several may be what only a reader can choose.
    """
    found: dict[str, list[int]] = {}
    for place, title in enumerate(titles):
        if place not in columns.places.values() and (kind := part_of(title)) and kind not in columns.places:
            found.setdefault(kind, []).append(place)
    return {kind: places[0] for kind, places in found.items() if len(places) == 1}


def _chosen(titles: Sequence[str], kind: str, title: str) -> int:
    fitting = [place for place, name in enumerate(titles) if name == title.strip()]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ColumnsError(f"{len(fitting)} columns are named {shown(title)}; give each its own name.")
    raise ColumnsError(
        _only_numbers(titles) or f"there is no column {shown(title)}; the columns are {_listed(titles)}."
    )


def _known(keys: Sequence[str]) -> Iterator[tuple[Shape, dict[str, int]]]:
    """The shapes that the columns may be, with the places of their kinds."""
    place_of = {key: place for place, key in enumerate(keys)}
    once = {key for key in place_of if keys.count(key) == 1} if len(place_of) < len(keys) else place_of.keys()
    for shape in shapes():
        (first,) = shape.names["prompt"]
        for before in sorted((key.removesuffix(first) for key in once if key.endswith(first)), key=len):
            names = {k: next((before + n for n in alts if before + n in once), "") for k, alts in shape.names.items()}
            told = any(all(before + name in once or name in once for name in sign) for sign in shape.signs)
            if names["output"] and told and not STATISTIC.search(before):
                yield shape, {kind: place_of[name] for kind, name in names.items() if name}


def _place(titles: Sequence[str], keys: Sequence[str], kind: str, taken: set[int]) -> int | None:
    """The one column, not yet taken, whose name says that kind: all of it, or what stands behind its last dot."""
    for names in NAMES[kind]:
        known = names.split()
        fitting = [place for place, key in enumerate(keys) if key in known and place not in taken]
        if not fitting:
            inner = [
                (title.count("."), place)
                for place, title in enumerate(titles)
                if "." in title
                and place not in taken
                and any(end in known for end in _ends(title, titles))
                and not (kind in ("prompt", "output") and _of_a_part(title))
            ]
            fitting = [place for depth, place in inner if depth == min(inner)[0]]
        if len(fitting) == 1:
            return fitting[0]
        if fitting and kind not in ("total", "tool"):
            raise ColumnsError(
                f"{len(fitting)} columns may hold the {kind} tokens "
                f"({', '.join(shown(titles[place]) for place in fitting[:8])}); choose with {kind}_column='...', and "
                "give each its own name."
            )
    return None


def _ends(title: str, titles: Sequence[str] = ()) -> list[str]:
    """The names that a dotted title may end with: the last, the last two as one, and that of which it is the total."""
    parent, _, last = title.rpartition(".")
    near = parent.rpartition(".")[2]
    ends = [plain(last), plain(near + last)]
    if plain(last) not in WHOLE or any(
        other.startswith(f"{parent}.") and other != title and STATISTIC.fullmatch(plain(other[len(parent) :]))
        for other in titles
    ):
        return ends
    return [*ends, plain(near)]


def _of_a_part(title: str) -> bool:
    """Whether a title speaks of a part of the tokens, or of what is no count of tokens, such as their cost."""
    *_, near, last = ("", *title.split("."))
    return bool(PARTS.search(title.lower())) or not MEASURES.isdisjoint(words(f"{near} {last}"))


def _missing(titles: Sequence[str], kind: str) -> str:
    """Why no column is known to hold that kind, and the call that names it."""
    if numbers := _only_numbers(titles):
        return numbers
    if not titles:
        return "it has no named numbers; expected those of a request, such as prompt_tokens and output_tokens."
    if len(titles) == 1:
        return (
            f"it has one column, {shown(titles[0])}; expected two or more, with a comma, a semicolon, a tab or a bar "
            "between them."
        )
    hint = ""
    if any(re.match(r"(total|sum|mean|avg|p\d\d)_?(input|prompt|output)", title.lower()) for title in titles):
        hint = (
            " Sums and means over many requests are not requests: expected a row a request (vLLM: --save-detailed, "
            "SGLang: --output-details)."
        )
    elif counted := [title for title in titles if CHARACTERS.search(title.lower())]:
        hint = f" {shown(counted[0])} does not count tokens, by its name: count with the model's tokenizer."
    return (
        f"no column is known to hold the {kind} tokens; choose one of {_listed(titles)} with {kind}_column='...', as "
        f"in read_traffic(path, prompt_column='...', output_column='...').{hint}"
    )


def _only_numbers(titles: Sequence[str]) -> str:
    numbers = [title for title in titles if re.fullmatch(r"\s*[-+]?\d+([.,]\d*)?\s*", title)]
    return (
        f"it holds {shown(numbers[0])}, a number, where column names are expected; add a first line such as "
        "prompt_tokens,output_tokens."
        if numbers
        else ""
    )


def _listed(titles: Sequence[str]) -> str:
    return ", ".join(map(shown, titles[:8])) + (f" and {len(titles) - 8} more" if len(titles) > 8 else "")
