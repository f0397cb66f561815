"""Where there is no browser, each folder of tests that needs one says so, names what to install, and runs nothing."""

import os
import subprocess
import sys

import pytest
from lab import ROOT


@pytest.mark.parametrize("folder", ["browser", "with_book", "with_lite"])
def test_it_is_said(folder):
    command = [sys.executable, "-m", "pytest", f"--confcutdir=tests/{folder}", f"tests/{folder}"]
    environment = os.environ | {"CHROMIUM": "/no/such/browser"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    said = run.stdout + run.stderr
    assert run.returncode == 3 and " passed" not in said
    assert "No Chromium: /no/such/browser is not there. Install it" in said and "CHROMIUM" in said
