"""What `pip install .` makes: a lessonlib that has its data, and reads it from whatever folder it is used in."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import setup_env
from lessonlib import accelerator_names, load_model, model_names, workload_names

ROOT = Path(__file__).parent.parent.parent
CODE = """
import json, lessonlib
from lessonlib.facts import DATA, load_measurements, read_traffic
from lessonlib.measured import recorded_cpu
print(json.dumps({
    "file": lessonlib.__file__,
    "names": [lessonlib.model_names(), lessonlib.accelerator_names(), lessonlib.workload_names()],
    "parameters": lessonlib.load_model("llama-3.1-8b").parameters,
    "rows": [len(load_measurements()), len(read_traffic(DATA / "sample_traffic.csv")), len(recorded_cpu().points)],
}))
"""


def run(*command, folder=ROOT):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The Python of a fresh environment that has this checkout's wheel, and NumPy alone of what it depends on."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    venv.create(folder / "env", with_pip=True)
    made = setup_env.venv_python(str(folder / "env"))
    install = (made, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*install, "--no-deps", *folder.glob("lessonlib-*.whl"))
    run(*install, "--constraint", "constraints.txt", "numpy")
    return made


def test_an_installed_lessonlib_reads_its_data_from_another_folder(python, tmp_path):
    found = json.loads(run(python, "-c", CODE, folder=tmp_path))
    assert not Path(found["file"]).is_relative_to(ROOT)
    assert found["names"] == [list(model_names()), list(accelerator_names()), list(workload_names())]
    assert found["parameters"] == load_model("llama-3.1-8b").parameters == 8_030_261_248
    assert all(found["rows"])
