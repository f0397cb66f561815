"""environment.yml, pyproject.toml and constraints.txt agree: the same packages, the same bounds, versions within."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from rattler import BuildString, MatchSpec, PackageRecord

import setup_env

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")
PINS = [Requirement(line) for line in CONSTRAINTS.splitlines() if line and not line.startswith("#")]

DEPENDENCIES = [Requirement(line) for line in PROJECT["dependencies"]]
EXTRAS = [Requirement(line) for lines in PROJECT["optional-dependencies"].values() for line in lines]
CONDA_SPECS = [entry for entry in CONDA["dependencies"] if isinstance(entry, str)]
PYPI_NAME = {"matplotlib-base": "matplotlib"}  # conda's names that differ
SYSTEMS = {
    "Linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "macOS": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
    "Windows": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
}
PYTHONS = [f"3.{minor}" for minor in range(setup_env.OLDEST[1], setup_env.NEWEST[1] + 1)]


def pins(name: str, python: str, system: str) -> list[str]:
    """The versions that constraints.txt gives a package on this Python and system."""
    # The last patch release of a Python: a marker that splits within a minor version gives the newer side.
    where = SYSTEMS[system] | {"python_version": python, "python_full_version": f"{python}.99"}
    return [
        next(iter(pin.specifier)).version
        for pin in PINS
        if canonicalize_name(pin.name) == canonicalize_name(name) and (not pin.marker or pin.marker.evaluate(where))
    ]


def pypi_name(spec: MatchSpec) -> str:
    return PYPI_NAME.get(spec.name.normalized, spec.name.normalized)


def test_uv_run_and_uv_sync_take_the_same_versions():
    """They read pyproject.toml alone; `make counts` copies the lines."""
    uv = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["uv"]
    assert uv["constraint-dependencies"] == [line for line in CONSTRAINTS.splitlines() if line and line[0] != "#"]


def test_constraints_are_exact_versions_and_name_no_address():
    assert len(PINS) > 50
    for pin in PINS:
        assert pin.url is None and [one.operator for one in pin.specifier] == ["=="], str(pin)
        assert "*" not in str(pin.specifier), str(pin)
    assert not re.search(r"://|-(?:url|links)\b|\b[\w-]+\.(?:org|com|net|io|dev)\b", CONSTRAINTS)


@pytest.mark.parametrize("requirement", DEPENDENCIES + EXTRAS, ids=lambda requirement: requirement.name)
def test_each_dependency_has_a_lower_bound_and_one_pin_that_satisfies_it(requirement):
    assert [bound.operator for bound in requirement.specifier] == [">="]
    for python in PYTHONS:
        for system in SYSTEMS:
            found = pins(requirement.name, python, system)
            assert len(found) == 1, f"{requirement.name} on Python {python}, {system}: {found}"
            assert requirement.specifier.contains(found[0])


def test_conda_has_the_packages_that_the_project_has():
    names = {pypi_name(MatchSpec(spec)) for spec in CONDA_SPECS} - {"python", "pip"}
    assert names == {requirement.name for requirement in DEPENDENCIES}
    assert CONDA["channels"] == ["conda-forge", "nodefaults"]
    assert CONDA["name"] == PROJECT["name"]
    assert CONDA["dependencies"][-1] == {"pip": ["-e ."]}


@pytest.mark.parametrize("text", [spec for spec in CONDA_SPECS if spec.split("=")[0] not in ("python", "pip")])
def test_conda_spec_has_the_same_bound_and_takes_the_pinned_version(text):
    spec = MatchSpec(text, strict=True)
    wanted = next(requirement for requirement in DEPENDENCIES if requirement.name == pypi_name(spec))
    assert str(spec.version) == str(wanted.specifier)
    (version,) = pins(wanted.name, PYTHONS[-1], "Linux")
    record = PackageRecord(spec.name.normalized, version, build=BuildString("0"), build_number=0, subdir="noarch")
    assert spec.matches(record)


def test_the_oldest_and_newest_python_are_the_same_everywhere():
    # Binder's builder reads a Python version only in this form; a range gives another, old Python.
    assert f"python={PYTHONS[-1]}" in CONDA_SPECS
    assert SpecifierSet(PROJECT["requires-python"]) == SpecifierSet(f">={PYTHONS[0]}")
    named = re.findall(r"Python :: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), flags=re.MULTILINE)
    assert named == PYTHONS
