"""The workflows, which nothing here can run, read as data: what they call is there, and pages say they have not run."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def steps(path):
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_what_it_calls_and_a_page_says_that_it_has_not_run(path):
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
    assert all(0 < job["timeout-minutes"] <= 60 for job in jobs)
    called = [words.split() for step in steps(path) for words in re.findall(r"^make (.+)$", step.get("run", ""), re.M)]
    named = {word for words in called for word in words if "=" not in word}
    assert named and named <= TARGETS
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]) for step in steps(path) if "uses" in step)
    said = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").replace("\n", " ")
    assert re.search(rf"\(\.github/workflows/{path.name}\)[^-]*?has not run yet", said)


def test_the_book_and_its_live_notebooks_are_published_together():
    (path,) = (path for path in WORKFLOWS if path.name == "book.yml")
    text = path.read_text(encoding="utf-8")
    assert yaml.safe_load(text)["permissions"] == {"contents": "read", "pages": "write", "id-token": "write"}
    made = [step["run"].split() for step in steps(path) if step.get("run", "").startswith("make ")]
    assert made == [["make", "book", "lite", "PYTHON=python"]]
    used = [step["uses"].partition("@")[0] for step in steps(path) if "uses" in step]
    assert used[-2:] == ["actions/upload-pages-artifact", "actions/deploy-pages"]


def test_all_notebooks_run_in_a_browser_weekly():
    (path,) = (path for path in WORKFLOWS if path.name == "browser.yml")
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert re.fullmatch(r"\d+ \d+ \* \* \d", found[True]["schedule"][0]["cron"])  # YAML reads `on` as true
    assert [step["run"] for step in steps(path) if "run" in step] == ["make test-lite PYTHON=python"]
