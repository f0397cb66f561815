"""What cannot be timed by Python in a browser says so at once; all that is recorded can be read there.

Here the platform's name alone is a browser's. Pyodide itself runs in tests/with_lite (`make test-lite`).
"""

import subprocess
import sys
import threading

import pytest
from helpers import refuses

from lessonlib.measured import recorded_cpu, recorded_engine, time_cpu, time_engine, time_gpu, time_server
from lessonlib.measured.timing.browser import in_browser
from lessonlib.measured.timing.cpu import TimingFailedError
from lessonlib.measured.timing.engine import EngineMissingError
from lessonlib.measured.timing.gpu import GpuUnavailableError
from lessonlib.measured.timing.server import ServerTimingError

TIMINGS = [
    (time_cpu, TimingFailedError, "recorded_cpu()"),
    (time_gpu, GpuUnavailableError, "read_records"),
    (time_engine, EngineMissingError, "recorded_engine()"),
    (lambda: time_server("http://localhost:1/v1", "a-model"), ServerTimingError, "recorded run"),
]


@pytest.fixture
def a_browser(monkeypatch):
    def never(*_, **__):
        raise OSError(138, "emscripten does not support processes")

    monkeypatch.setattr(sys, "platform", "emscripten")
    monkeypatch.setattr(subprocess.Popen, "__init__", never)
    monkeypatch.setattr(threading.Thread, "start", never)


def test_here_is_no_browser():
    assert not in_browser()


@pytest.mark.parametrize(("timing", "kind", "instead"), TIMINGS, ids=["cpu", "gpu", "engine", "server"])
def test_a_timing_says_what_a_browser_cannot_do_and_what_to_show(a_browser, timing, kind, instead):
    words = refuses(timing, "browser", "no processes", "no threads", instead, "make lab", kind=kind)
    assert words.startswith("time_")


def test_the_records_can_be_read_in_a_browser(a_browser):
    assert recorded_cpu().points and recorded_engine().points
