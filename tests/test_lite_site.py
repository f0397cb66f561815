"""The site that runs in the browser: what goes in is what the plan names, or is refused. Built by `make test-lite`."""

import hashlib
import json
import re

import nbformat
import pytest

import lite
import sites

PLAN = json.loads((lite.PLAN / "pyodide.json").read_text(encoding="utf-8"))
PINS = dict(
    re.findall(r"^([\w.-]+)==(\S+)$", (lite.PLAN / "requirements.txt").read_text(encoding="utf-8"), re.MULTILINE)
)
CONTENT = b"a file of Pyodide"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def distribution(tmp_path):
    """A folder served as Pyodide's distribution, and a plan that names it."""
    folder = tmp_path / "distribution"
    folder.mkdir()
    with sites.served(folder) as address:
        yield folder, PLAN | {"distribution": f"{address}/"}


def source(plan, tmp_path, *folders):
    return lite.Pyodide(plan, folders, tmp_path / "kept")


def test_a_file_is_taken_from_the_folder_that_has_it_whole(distribution, tmp_path):
    other, whole = tmp_path / "other", tmp_path / "whole"
    for folder, content in ((other, b"another file of that name"), (whole, CONTENT)):
        folder.mkdir()
        (folder / "some.whl").write_bytes(content)
    assert source(distribution[1], tmp_path, other, whole).file("some.whl", SHA256) == whole / "some.whl"


def test_it_is_fetched_once_and_kept(distribution, tmp_path):
    folder, plan = distribution
    (folder / "some.whl").write_bytes(CONTENT)
    found = source(plan, tmp_path).file("some.whl", SHA256)
    (folder / "some.whl").unlink()
    assert source(plan, tmp_path).file("some.whl", SHA256) == found == tmp_path / "kept" / "some.whl"
    assert found.read_bytes() == CONTENT


def test_what_has_another_hash_is_refused_and_not_kept(distribution, tmp_path):
    folder, plan = distribution
    (folder / "some.whl").write_bytes(CONTENT + b", changed")
    with pytest.raises(lite.NotToBeHadError, match=r"some\.whl .*sha256 differs.*make lite PYODIDE=folder"):
        source(plan, tmp_path).file("some.whl", SHA256)
    assert not (tmp_path / "kept" / "some.whl").exists()


def test_where_no_source_has_a_file_it_is_said_and_the_command_ends_with_3(distribution, tmp_path, monkeypatch, capsys):
    _, plan = distribution
    (tmp_path / "pyodide.json").write_text(json.dumps(plan), encoding="utf-8")
    monkeypatch.setattr(lite, "PLAN", tmp_path)
    monkeypatch.setattr(lite, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(lite.shutil, "which", lambda _: None)  # npm has the core
    monkeypatch.setattr(lite.sys, "argv", ["lite.py"])
    monkeypatch.delenv("PYODIDE", raising=False)
    assert lite.main() == lite.MISSING
    said = capsys.readouterr().err
    assert plan["distribution"] in said and "404" in said and "make lite PYODIDE=folder" in said


def test_a_folder_that_is_none_is_named(monkeypatch):
    monkeypatch.setattr(lite.sys, "argv", ["lite.py"])
    monkeypatch.setenv("PYODIDE", "no/such/folder")
    with pytest.raises(SystemExit, match="no/such/folder, which is no folder"):
        lite.main()


def test_every_wheel_beside_pyodide_has_a_hash_and_the_version_that_is_pinned():
    for name, entry in PLAN["wheels"].items():
        if name == "lessonlib":
            continue
        assert entry["file"] == f"{name}-{PINS[name]}-py3-none-any.whl"
        assert re.fullmatch("[0-9a-f]{64}", entry["sha256"])


def test_every_file_of_the_core_has_a_hash():
    assert all(re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in PLAN["core"].values())
    assert {lite.LOCK, "pyodide.js", "pyodide.asm.wasm"} <= set(PLAN["core"])


def test_the_kernel_loads_what_the_plan_names():
    settings = json.loads((lite.PLAN / "jupyter-lite.json").read_text(encoding="utf-8"))["jupyter-config-data"]
    kernel = settings["litePluginSettings"]["@jupyterlite/pyodide-kernel-extension:kernel"]
    loaded = set(kernel["loadPyodideOptions"]["packages"])
    assert {"lessonlib", "ssl"} <= loaded <= {*PLAN["packages"], *PLAN["wheels"]}
    assert kernel["disablePyPIFallback"] and not re.match("https?:", kernel["pyodideUrl"])


def test_the_learner_finds_copies_without_outputs_and_the_pages_they_link_to(tmp_path):
    lite.put_files(tmp_path)
    copies = sorted((tmp_path / lite.FOLDER).glob("*.ipynb"))
    assert [copy.name for copy in copies] == [path.name for path in sorted((lite.ROOT / "notebooks").glob("*.ipynb"))]
    for copy in copies:
        cells = nbformat.read(copy, as_version=4).cells
        assert not any(cell.get("outputs") for cell in cells)
    text = "\n".join(copy.read_text(encoding="utf-8") for copy in copies)
    linked = set(re.findall(r"\]\((\.\./[^)#\s]+)", text))
    assert linked and all((tmp_path / lite.FOLDER / target).exists() for target in linked)
