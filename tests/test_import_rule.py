"""Nothing lower imports anything higher: the rooms of lessonlib, from the bottom up, and what each may import."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import lessonlib

FOLDER = Path(lessonlib.__file__).parent
# A module may import its own room and those before it. A new module gets its room here.
ARITHMETIC = (
    ("errors", "units"),
    ("part",),
    ("attention", "feedforward"),
    ("model", "families", "config_reader"),
    ("precision",),
    ("folded",),
    ("work",),  # below the accelerator: work knows no hardware
    ("accelerator", "deployment"),
    ("roofline",),
    ("request", "explain"),
    ("cache", "batching", "levers", "traffic", "serving_report", "continuous", "calibration"),
    ("traffic_cost",),
)
ROOMS = (
    *ARITHMETIC,
    ("catalogue", "published", "own_traffic"),
    (
        "timing",
        "figures",
        "widgets",
        "explorers",
        "exercises",
        "exercise_book",
        "report",
        "report_page",
        "report_figure",
        "own_files",
    ),
)
RANK = {module: rank for rank, room in enumerate(ROOMS) for module in room}
PURE = {module for room in ARITHMETIC for module in room}
LAZY = {("continuous", "tqdm")}  # a progress bar, imported by the call that asks for one


def imported(source: str, package: str = "lessonlib") -> set[tuple[str, bool]]:
    """(dotted name, whether it runs when the module is imported) for each import anywhere in a module of `package`."""
    found = set()

    def visit(node: ast.AST, at_once: bool) -> None:
        if isinstance(node, ast.Import):
            found.update((name.name, at_once) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: 1 - node.level or None]) if node.level else ""
            stem = ".".join(filter(None, (base, node.module)))
            # `from lessonlib import work` names a module, `from lessonlib.work import Work` something in it.
            names = [f"{stem}.{name.name}" for name in node.names] if stem == "lessonlib" else [stem]
            found.update((name, at_once) for name in names)
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        lazy = typing_only or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            visit(child, at_once and not lazy)

    visit(ast.parse(source), True)
    return found


def breaches(modules: dict[str, list[tuple[str, str]]]) -> list[str]:
    """What breaks the rule, in {module: [(package, source) of each of its files]}."""
    said = []
    at_once: dict[str, set[str]] = {}
    for module, files in sorted(modules.items()):
        if module not in RANK:
            said.append(f"{module} has no room in the table of this test")
            continue
        for name, now in sorted({one for package, source in files for one in imported(source, package)}):
            root, _, rest = name.partition(".")
            target = rest.partition(".")[0]
            if root != "lessonlib":
                allowed = {
                    "numpy",
                    *sys.stdlib_module_names,
                    *(lazy for who, lazy in LAZY if who == module and not now),
                }
                if module in PURE and root not in allowed:
                    said.append(f"{module} imports {root}: the arithmetic imports NumPy and nothing else")
            elif target not in RANK:
                said.append(f"{module} imports {name}, which is no module with a room")
            elif RANK[target] > RANK[module]:
                said.append(f"{module} imports {target}, which stands above it")
            elif now and target != module:
                at_once.setdefault(module, set()).add(target)
    try:
        TopologicalSorter(at_once).prepare()
    except CycleError as error:
        said.append(f"modules import each other: {' -> '.join(error.args[1])}")
    return said


def test_nothing_imports_upward():
    modules: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(FOLDER.rglob("*.py")):
        parts = path.relative_to(FOLDER).with_suffix("").parts
        if parts != ("__init__",):  # the door, which opens on all rooms
            package = ".".join(("lessonlib", *parts[:-1]))
            modules.setdefault(parts[0], []).append((package, path.read_text(encoding="utf-8")))
    assert len(modules) > 10
    assert breaches(modules) == []


def test_the_rule_sees_each_kind_of_breach():
    def of(module, source):
        return breaches({module: [("lessonlib", source)]})

    assert of("work", "from lessonlib.model import Model\nimport numpy, math\nfrom . import errors") == []
    assert of("figures", "import matplotlib\nfrom lessonlib.request import Request") == []
    assert of("work", "from lessonlib.accelerator import A") == ["work imports accelerator, which stands above it"]
    assert of("request", "def f():\n    from .levers import rho") == ["request imports levers, which stands above it"]
    assert of("model", "from lessonlib import request") == ["model imports request, which stands above it"]
    assert of("work", "from . import roofline") == ["work imports roofline, which stands above it"]
    assert of("work", "from .hardware import H") == ["work imports lessonlib.hardware, which is no module with a room"]
    assert "NumPy and nothing else" in of("batching", "def f():\n    import pandas")[0]
    assert "NumPy and nothing else" in of("continuous", "import tqdm")[0]
    assert of("continuous", "def f():\n    from tqdm import tqdm") == []
    assert of("helpers", "") == ["helpers has no room in the table of this test"]
    both = {"model": [("lessonlib", "from .families import F")], "families": [("lessonlib", "from .model import M")]}
    assert "import each other" in breaches(both)[0]
    both["model"] = [("lessonlib", "def f():\n    from .families import F")]
    assert breaches(both) == []


def test_relative_imports_are_read_in_a_package_below():
    source = "from ..catalogue import load_model\nfrom .record import save\nfrom .. import units"
    assert imported(source, "lessonlib.timing") == {
        ("lessonlib.catalogue", True),
        ("lessonlib.timing.record", True),
        ("lessonlib.units", True),
    }


def test_import_loads_no_face():
    code = "import sys, lessonlib; print(sorted({'matplotlib', 'ipywidgets', 'pandas', 'IPython'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
