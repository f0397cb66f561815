"""The import rule of the house: the table in lessonlib/__init__.py, held against every import, lazy ones too."""

import ast
import json
import pickle
import subprocess
import sys
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

from lessonlib import ROOMS
from lessonlib import __file__ as door

PURE = list(ROOMS)[: list(ROOMS).index("facts")]
FACES = {"matplotlib", "ipywidgets", "anywidget", "traitlets", "PIL", "IPython"}
FOLDER = Path(door).parent.parent
DOORS = {"lessonlib"} | {
    f"lessonlib.{door}" for door in "policy facts measured face face.figures face.widgets face.report".split()
}


def imported(source: str, files: Iterable[str]) -> set[str]:
    """The dotted name of each module that a source imports, wherever in it the import stands."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "imports say the whole name"
            names = {f"{node.module}.{name.name}" for name in node.names}
            found |= names & set(files) or {str(node.module)}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return found


def breaches(files: Mapping[str, str]) -> list[str]:
    """What breaks the rule, in {dotted name: source}."""
    said, graph = [], {}
    for file, source in files.items():
        room, graph[file] = file.split(".")[1], imported(source, files)
        for name in sorted(graph[file]):
            root, _, rest = name.partition(".")
            if root == "lessonlib":
                if rest.partition(".")[0] not in (room, *ROOMS[room]):
                    said.append(f"{file} imports {name}: {room} may import {', '.join(ROOMS[room]) or 'no room'}")
            elif room in PURE and root not in {"numpy", *sys.stdlib_module_names}:
                said.append(f"{file} imports {name}: below facts, NumPy alone comes from outside")
            elif room != "face" and root in FACES:
                said.append(f"{file} imports {name}, which belongs in face")
    try:
        TopologicalSorter({file: names & set(files) for file, names in graph.items()}).prepare()
    except CycleError as error:
        said.append(f"files import each other: {' -> '.join(error.args[1])}")
    return said


def test_every_import_keeps_the_rule():
    paths = [path.relative_to(FOLDER).with_suffix("") for path in sorted((FOLDER / "lessonlib").rglob("*.py"))]
    files = {".".join(path.parts).removesuffix(".__init__"): FOLDER / f"{path}.py" for path in paths[1:]}
    assert len(files) > 40 and {name.split(".")[1] for name in files} == set(ROOMS)
    assert breaches({name: path.read_text(encoding="utf-8") for name, path in files.items()}) == []


def test_the_rule_sees_each_kind_of_breach():
    def of(**sources):
        return breaches({f"lessonlib.{name.replace('__', '.')}": source for name, source in sources.items()})

    assert of(work__a="from lessonlib.model.model import Model\nimport numpy, math") == []
    assert of(face__a="import matplotlib\nfrom lessonlib.request.cost import Request") == []
    assert "work may import" in of(work__a="from lessonlib.time.accelerator import A")[0]
    assert "request may import" in of(request__a="def f():\n    from lessonlib.policy.levers import rho")[0]
    assert "model may import" in of(model__a="if TYPE_CHECKING:\n    from lessonlib import request")[0]
    assert "NumPy alone" in of(policy__a="def f():\n    import tqdm")[0]
    assert "belongs in face" in of(measured__a="import ipywidgets")[0]
    two = {"model__a": "from lessonlib.model.b import B", "model__b": "def f():\n    from lessonlib.model import a"}
    assert "import each other" in of(**two)[0]


@pytest.mark.parametrize("path", sorted((FOLDER / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_imports_from_doors(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    names = {name for name in imported(code, ()) if name.partition(".")[0] == "lessonlib"}
    assert names and names <= DOORS


def loaded_by(code: str) -> set[str]:
    """The modules that are loaded after `code` in an interpreter of its own."""
    code += "; import sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_import_loads_what_it_needs_alone():
    loaded = loaded_by("import lessonlib")
    assert not loaded & {"matplotlib", "ipywidgets", "pandas", "IPython", "tqdm"}
    rooms = "model.config model.state model.hybrid facts.traffic facts.measurements policy.levers measured"
    assert "lessonlib.request.cost" in loaded and not loaded & {f"lessonlib.{room}" for room in rooms.split()}
    more = loaded_by("import lessonlib.policy; lessonlib.policy.omega; lessonlib.load_model('llama-3.1-8b')") - loaded
    assert "lessonlib.model.config.reader" in more and not more & {"lessonlib.policy.levers", "lessonlib.measured"}


@pytest.mark.parametrize("room", ["model", "policy", "facts", "measured"])
def test_a_door_gives_what_it_lists(room):
    door = import_module(f"lessonlib.{room}")
    brought: dict[str, object] = {}
    exec(f"from lessonlib.{room} import *", brought)
    names = brought.keys() - {"__builtins__"}
    assert len(names) > 15 and names <= set(dir(door)) and "__doc__" in dir(door)
    for name in names:
        assert getattr(door, name) is brought[name]
        if isinstance(brought[name], type):
            assert pickle.loads(pickle.dumps(brought[name])) is brought[name]
    files = {path.stem for path in Path(str(door.__file__)).parent.iterdir()}
    assert not names & files, "a file that is loaded would take the place of the name"
    with pytest.raises(AttributeError, match=f"module 'lessonlib.{room}' has no attribute 'no_such_name'"):
        _ = door.no_such_name
    with pytest.raises(ImportError, match="no_such_name"):
        exec(f"from lessonlib.{room} import no_such_name")
