"""What cannot be meant is refused: a test for every rule of every checked function and dataclass, made from the rules.

Refusals are held by their class and by what they name, never by their words: those stand in test_wording.py.
"""

import inspect
import math
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import pytest
from helpers import EVERY, gqa_model, h100, llama, refuses, server, some

import lessonlib
from lessonlib.base import checks
from lessonlib.base.checks import (
    Checked,
    Rule,
    a,
    between,
    checked,
    choice,
    count,
    flag,
    fraction,
    items,
    named,
    numbers,
    optional,
    rate,
    text,
)
from lessonlib.base.errors import UnknownNameError, shown
from lessonlib.face.figures.style import new_figure
from lessonlib.facts.measurements import load_measurements
from lessonlib.facts.own_traffic import OwnTraffic
from lessonlib.facts.workloads import load_workload
from lessonlib.measured.own_runs import TimedRun
from lessonlib.measured.published import points
from lessonlib.measured.timing.cpu import recorded_cpu
from lessonlib.measured.timing.decoder import NumpyDecoder, toy_model
from lessonlib.measured.timing.server_client import Limits
from lessonlib.model.attention import (
    ChunkedAttention,
    GroupedQueryAttention,
    MultiHeadLatentAttention,
    SharedCacheAttention,
)
from lessonlib.model.compressed import CompressedAttention, Entries, EntryIndexer
from lessonlib.model.draft import DraftHead
from lessonlib.model.feedforward import DenseFeedForward, MixtureOfExperts
from lessonlib.model.hybrid import DifferentialAttention, SeveralMixers, SharedBlockAttention
from lessonlib.model.precision import Precision
from lessonlib.model.recurrent import GatedLinearRecurrence, LightningAttention, MatrixLstm, Rwkv4
from lessonlib.model.sparse import BlockIndexer, BlockSparseAttention, Indexer, SparseLatentAttention
from lessonlib.model.state import (
    ConstantState,
    Convolutions,
    GatedDeltaNet,
    KimiDeltaAttention,
    Mamba1,
    Mamba2,
    ShortConvolution,
)
from lessonlib.policy.full_server import steady_state
from lessonlib.policy.levers import batch_to_limit
from lessonlib.policy.serving.traffic import Traffic
from lessonlib.request.cost import request_cost
from lessonlib.request.lengths import LengthQuantiles
from lessonlib.request.request import Case, Request
from lessonlib.time.deployment import Efficiency, Speculation

EXAMPLES: dict[type, Any] = {  # of what rules ask for, and of what has rules
    type(example): example
    for example in (
        llama(),
        h100(),
        gqa_model().blocks[0][1],
        DraftHead.mtp(gqa_model()),
        Precision(),
        server(),
        Efficiency(),
        Speculation(4, 0.7, "free"),
        Request(128, 12_800),
        Case(server(), Request(128, 12_800)),
        Traffic([0.0], 5, 5),
        OwnTraffic("own", np.array([5]), np.array([5]), np.array([0])),
        load_workload("chat"),
        load_measurements()[0],
        points()[0],
        TimedRun(server(), 0.01),
        recorded_cpu(),
        batch_to_limit(),
        NumpyDecoder(toy_model(1, 4, 2, 4, 4), 4),
        request_cost(server(), Request(5, 5)),
        new_figure("a figure")[0],
        steady_state(server(), Request(5, 5)),
        LengthQuantiles((0.5, 1), (10, 20)),
        GroupedQueryAttention(width=8, heads=4, kv_heads=2, head_dim=2),
        MultiHeadLatentAttention(width=8, heads=4, kv_rank=4, nope_dim=2, rope_dim=2, value_dim=2),
        ChunkedAttention(width=8, heads=4, kv_heads=2, head_dim=2, chunk=4),
        Indexer(width=8, heads=4, key_dim=2, query_rank=4),
        SparseLatentAttention(width=8, heads=4, kv_rank=4, nope_dim=2, rope_dim=2, value_dim=2, top_k=3),
        SharedCacheAttention(width=8, heads=4, kv_heads=2, head_dim=2),
        BlockIndexer(width=8, heads=4, key_dim=2, query_rank=4),
        BlockSparseAttention(width=8, heads=4, kv_heads=2, head_dim=2, top_k=3, block=4, index_heads=2, index_dim=2),
        Entries(width=8, heads=4, entry_dim=8, rate=4, series=1),
        EntryIndexer(width=8, heads=4, entry_dim=8, rate=4, series=2, query_rank=4),
        CompressedAttention(width=8, heads=4, head_dim=2, query_rank=4, groups=2, group_rank=2, window=8),
        ConstantState(width=8, conv_kernel=2),
        Convolutions(width=8, conv_kernel=2, channels=4),
        GatedDeltaNet(width=8, key_heads=2, value_heads=2, key_dim=2, value_dim=2, conv_kernel=2),
        KimiDeltaAttention(width=8, heads=4, head_dim=2, conv_kernel=2),
        Mamba2(width=8, heads=4, head_dim=2, groups=2, state_size=2, conv_kernel=2),
        Mamba1(width=8, inner=4, state_size=2, step_rank=2, conv_kernel=2),
        ShortConvolution(width=8, conv_kernel=2),
        LightningAttention(width=8, heads=4, head_dim=2),
        MatrixLstm(width=8, heads=4, key_dim=2, value_dim=2),
        GatedLinearRecurrence(width=8, inner=4, heads=2, conv_kernel=2),
        Rwkv4(width=8, inner=4),
        SeveralMixers(width=8, mixers=(Rwkv4(width=8, inner=4), Rwkv4(width=8, inner=4))),
        SharedBlockAttention(width=8, heads=4, kv_heads=2, head_dim=2),
        DifferentialAttention(width=8, heads=4, kv_heads=2, head_dim=2),
        DenseFeedForward(width=8, inner=4),
        MixtureOfExperts(width=8, experts=4, experts_per_token=2, expert_inner=4),
        Limits(),
    )
}


def modules() -> Iterator[Any]:
    for found in pkgutil.walk_packages(lessonlib.__path__, "lessonlib."):
        if not found.name.endswith("__main__"):
            try:
                yield import_module(found.name)
            except ModuleNotFoundError as error:
                if error.name != "torch":  # which only a machine with a GPU of its own has
                    raise


def checked_functions() -> dict[str, Any]:
    found = {}
    for module in modules():
        own = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
        methods = [method for owner in own if inspect.isclass(owner) for method in vars(owner).values()]
        for value in (*own, *methods):
            value = getattr(value, "__func__", value)  # of a class method
            if inspect.isfunction(value) and hasattr(value, "rules"):
                found[f"{value.__module__}.{value.__qualname__}"] = value
    return found


def checked_classes() -> set[type]:
    found, new = set(), {Checked}
    for _ in modules():
        pass
    while new:
        new = {kind for parent in new for kind in parent.__subclasses__()}
        found |= {kind for kind in new if is_dataclass(kind) and kind.__module__.startswith("lessonlib.")}
    return found


# Values of all kinds, alone and in lists and dicts: what a rule refuses of them, a function that has it refuses too.
NOT_A_NUMBER = (math.nan, "1", None, True, np.True_, [1], np.array([1.0, 2.0]), 1j, 10**400)  # beyond all floats
MASKED: Any = np.ma.masked_equal([1, 2], 2)
HIDING = ([1, True], [[1, np.True_]], [np.array([True]), [2]], np.array([True]), MASKED, [np.ma.masked, 2])
NOT_NUMBERS = ("1", None, True, {}, [[1], [1, 2]], [10**400, 1], np.array("now", "M8[s]"), *HIDING)
NUMBERS = (
    1,
    0.5,
    0,
    3.0,
    1e-3,
    2,
    -1,
    -0.5,
    1.5,
    np.float32(1),
    np.int64(2),
    math.inf,
    -math.inf,
    1e308,
    -1e308,
    2**53 + 1,
)
WORDS = ("bf16", "first", "latency", "mbu", "blocks", "", "a word", "bf16 ", b"bf16", ("a", 1), (1, "a block"), int)
ALONE = (
    *NUMBERS,
    *WORDS,
    *EXAMPLES.values(),
    *NOT_A_NUMBER,
    Request([1, 2], 5),
    server(speculation=Speculation(4, 0.7, "free")),
)
POOL = (
    *(*ALONE, *NOT_NUMBERS, [], (), [2, 0.5, 7], np.array([[1.0, 2.0]]), np.array(1.0)),
    *([value] for value in (*NUMBERS, *WORDS, *EXAMPLES.values())),
    *([value, value, object()] for value in ALONE[:3]),
    *({"bf16": value} for value in (*NUMBERS, (16, 2), *EXAMPLES.values())),
    {5: 1},
    "independent",
)

FUNCTIONS = checked_functions()
CLASSES = {kind.__name__: kind for kind in sorted(checked_classes(), key=lambda kind: kind.__name__)}


def good(rule: Rule) -> Any:
    """A value that the rule takes: a word, a number, an instance of what has rules, or a list of one."""
    return next(value for value in POOL if not is_refused(rule, value))


def bad(rule: Rule) -> list[Any]:
    """The values of all kinds that the rule refuses. That it refuses the right ones is held below, for each rule."""
    return [value for value in POOL if is_refused(rule, value)]


def is_refused(rule: Rule, value: Any) -> bool:
    return rule.turn(value) is checks.REFUSED


def refused(call: Any, rule: Rule, owner: str, name: str, value: Any) -> None:
    part, what, _ = rule.fault(name, value)
    refuses(call, owner, part, shown(what), kind=rule.error)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_checked_function_refuses_what_its_rules_refuse(function, every):
    """By position and by name. What has no rule is never reached, so any object stands for it."""
    owner = function.__qualname__.removesuffix(".__init__").removesuffix(".__call__")
    parameters = inspect.signature(function).parameters
    given = {name: object() for name, it in parameters.items() if it.default is it.empty}
    given |= {name: good(rule) for name, rule in function.rules.items()}
    for name, rule in function.rules.items():
        default = parameters[name].default
        assert default is inspect.Parameter.empty or rule(owner, name, default) == default
        values = some(bad(rule), every, f"{owner} {name}")
        assert values
        for value in values:
            refused(lambda bad=given | {name: value}: function(**bad), rule, owner, name, value)
        if parameters[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            before = [given.get(other, it.default) for other, it in parameters.items()]
            before = before[: list(parameters).index(name)]
            refused(lambda bad=(*before, values[0]): function(*bad), rule, owner, name, values[0])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("kind", CLASSES.values(), ids=CLASSES)
def test_a_checked_dataclass_refuses_what_its_rules_refuse(kind, every):
    example = EXAMPLES[kind]
    assert kind.rules.keys() <= {field.name for field in fields(kind)}
    for name, rule in kind.rules.items():
        owner = kind.__name__ if name == "name" else example.owner
        for value in some(bad(rule), every, f"{owner} {name}"):
            refused(lambda bad={name: value}: replace(example, **bad), rule, owner, name, value)


def same(one: Any, other: Any) -> bool:
    holes = isinstance(one, np.ndarray)
    return type(one) is type(other) and np.array_equal(one, other, equal_nan=holes)


def below(number: float) -> float:
    return math.nextafter(number, -math.inf)


def above(number: float) -> float:
    return math.nextafter(number, math.inf)


NOT_COUNTS = (0, -1, 1.5, -math.inf, math.inf, *NOT_A_NUMBER)
NOT_RATES = (-5e-324, -1, -math.inf, *NOT_A_NUMBER)
NOT_ARRAYS = (*NOT_NUMBERS, math.nan)
ONES = np.array([[1, 1]])

# Of each rule, values that it takes and values that it refuses.
RULES: dict[str, tuple[Rule, tuple[Any, ...], tuple[Any, ...]]] = {
    "a": (a(int), (3,), (None, 1.5, "a word", ("a", 1), [], int)),
    "count": (count(), (1, 1.0, np.int64(1)), NOT_COUNTS),
    "count from 0 to 7": (count(0, 7), (0, 0.0, np.int64(0), 7), (-1, -2, 0.5, 8, math.inf, *NOT_A_NUMBER)),
    "rate": (rate("s"), (checks.LARGEST, 1.0, 1, np.float32(1), 5e-324), (0, math.inf, *NOT_RATES)),
    "rate or zero": (rate("s", zero=True), (0, checks.LARGEST, 1), (math.inf, *NOT_RATES)),
    "rate or infinity": (rate("s", infinite=True), (math.inf, 1, np.float32(1)), (0, *NOT_RATES)),
    "between": (between(1e-9, 1e-2, "s"), (1e-9, 1e-2), (below(1e-9), above(1e-2), -1, *NOT_A_NUMBER)),
    "between whole": (between(-3, 100, "s"), (-3, 1, 100), (below(-3), -4, above(100), *NOT_A_NUMBER)),
    "fraction": (fraction(), (1.0, 1, np.float32(1), 5e-324), (0, above(1), *NOT_RATES)),
    "fraction or zero": (fraction(zero=True), (1.0, 0, np.float32(1)), (above(1), *NOT_RATES)),
    "flag": (flag(), (True, False, np.True_), (None, 0, 1, "True", [], [True], np.array(True))),
    "choice": (choice(("one", "two")), ("one", "two"), (None, 1, True, "", "one ", b"one", ["one"], [])),
    "name": (choice(("one", "two"), UnknownNameError), ("one", "two"), (None, 1, True, "", "one ", b"one", ["one"])),
    "text": (text(), ("a word",), (None, 1, "", b"a word", ["a word"])),
    "numbers": (numbers(), (1, [1, 1], ONES), (*NOT_ARRAYS, math.inf, -math.inf, [1, math.inf], [1, math.nan])),
    "flat numbers": (numbers(flat=True), (1, [1, 1]), (*NOT_ARRAYS, ONES)),
    "numbers above zero": (
        numbers(checks.ABOVE_ZERO, math.inf),
        (1, [1, math.inf], 5e-324, ONES),
        (*NOT_ARRAYS, 0, -1, [1, 0], [1, math.nan]),
    ),
    "whole numbers": (
        numbers(1, 2**53, whole=True),
        (1, [1, 2**53], ONES),
        (*NOT_ARRAYS, below(1), above(2**53), 1.5, [1, 1.5], [1, below(1)], [1, above(2**53)]),
    ),
    "numbers and holes": (numbers(0, holes=True), (1, [1, math.nan], ONES), (*NOT_ARRAYS, -5e-324, [1, -5e-324])),
    "any numbers": (numbers(-math.inf, math.inf, holes=True), (1, [-math.inf, math.inf, math.nan]), NOT_ARRAYS),
    "items": (items(count()), ([1], (1.0, np.int64(1)), []), (None, 12, "12", np.array(1.0), *zip(NOT_COUNTS))),
    "two items": (items(fraction(), least=2), ([1, 0.5], (1, 1, 1)), (None, 12, "12", [], [1], [1, 0], [1, math.nan])),
    "names to rates": (
        named(rate("s"), "{'one': 1}"),
        ({"a": 1}, {"a": 1, "b": 2.0}),
        (None, 12, "a word", [], {}, {5: 1}, *({"b": 1, "a": miss} for miss in (0, *NOT_RATES))),
    ),
    "optional": (optional(count(1)), (None, 1), tuple(value for value in NOT_COUNTS if value is not None)),
    "optional numbers": (optional(numbers(0)), (None, 1, [1, 1]), (math.nan, -5e-324, [1, -5e-324], *HIDING)),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rule, taken, not_taken", RULES.values(), ids=RULES)
def test_a_rule_takes_what_can_be_meant_and_refuses_what_cannot(rule, taken, not_taken):
    for value in taken:
        kept = rule("thing", "size", value)
        assert same(rule("thing", "size", kept), kept)
        assert np.array_equal(kept, value, equal_nan=isinstance(kept, np.ndarray))
    for value in not_taken:
        refused(lambda bad=value: rule("thing", "size", bad), rule, "thing", "size", value)


def test_a_rule_keeps_one_type():
    turned = [
        (count(), 3.0, 3),
        (count(), np.int64(3), 3),
        (rate("s"), 3, 3.0),
        (rate("s"), np.float64(3), 3.0),
        (fraction(), np.float32(0.5), 0.5),
        (flag(), np.True_, True),
        (items(count()), iter([1, 2.0]), (1, 2)),
        (optional(count()), None, None),
    ]
    for rule, given, kept in turned:
        assert same(rule("thing", "size", given), kept)
    array = numbers()("thing", "size", [1, 2])
    assert array.dtype == np.float64 and not array.flags.writeable


def test_a_refusal_names_the_part_that_is_wrong():
    for rule, value, part in (
        (numbers(1, whole=True), [[1, 2], [1.5, 2]], "size[1, 0]"),
        (items(fraction()), [1, 0.5, 7], "size[2]"),
        (items(items(count())), [[1], [1, 2, 0]], "size[1][2]"),
        (optional(numbers(0)), [1, -1], "size[1]"),
        (named(rate("s"), ""), {"a": 1, "b": 0}, "size['b']"),
    ):
        refuses(lambda rule=rule, value=value: rule("thing", "size", value), part)


def test_arguments_reach_a_checked_function_as_its_rules_turn_them():
    @checked(size=count(), share=optional(fraction()))
    def function(first, size=1, *rest, share=None, **others):
        """Words."""
        return first, size, rest, share, others

    assert function("x") == ("x", 1, (), None, {})
    assert function("x", 2.0, 3, share=1, k=4) == ("x", 2, (3,), 1.0, {"k": 4}) == function("x", 2, 3, k=4, share=1.0)
    assert type(function("x", 2.0)[1]) is type(function("x", size=2.0)[1]) is int
    assert function.__doc__ == "Words." and list(inspect.signature(function).parameters)[1] == "size"
    for wrong in (lambda: function(), lambda: function(1, 2, size=2)):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(KeyError):  # a rule for what is no parameter
        checked(sise=count())(lambda size: size)


def test_a_checked_dataclass_keeps_what_its_rules_turn_and_then_completes_itself():
    @dataclass(frozen=True)
    class Box(Checked):
        width: int
        height: int = 2
        rules: ClassVar = {"width": count(), "height": count()}

        def complete(self):
            if self.height > self.width:
                raise checks.wrong(self.owner, "height", self.height, f"at most {self.width}")

    assert type(Box(3.0).width) is int and Box(3.0) == Box(3)
    refuses(lambda: Box(1), "Box: height")
    refuses(lambda: Box(0), "Box: width")
