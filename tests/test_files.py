"""Reading and writing files: what is refused names the file whole, and nothing is lost to a race or an interruption."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Barrier

import pytest

from lessonlib.base import files
from lessonlib.base.errors import InvalidInputError
from lessonlib.base.files import GivenFile, Upload, place_of, write_new, write_together
from lessonlib.facts import config_file, own_traffic
from lessonlib.facts.config_file import read_config
from lessonlib.facts.own_traffic import read_traffic
from lessonlib.measured.timing.cpu import recorded_cpu
from lessonlib.measured.timing.record import read_record, read_records, write_record

READERS = {"Config file": read_config, "Traffic file": read_traffic, "Timing record": read_record}
WRITERS = 48


def refusal(read, given):
    with pytest.raises(InvalidInputError) as caught:
        read(given)
    return str(caught.value)


@pytest.mark.parametrize("what", READERS)
def test_each_reader_refuses_in_the_same_form_and_names_the_file_whole(what, tmp_path, monkeypatch):
    read, here = READERS[what], str(tmp_path / "absent")
    assert refusal(read, here) == refusal(read, Path(here))
    assert refusal(read, here).startswith(f"{what} {here!r} does not exist or is not a file; check the path ")
    assert refusal(read, tmp_path).startswith(f"{what} {str(tmp_path)!r} is a folder; pass the ")
    long = tmp_path.joinpath(*["a" * 100] * 12, f"{'the-log-of-november-' * 10}end.csv")
    long.parent.mkdir(parents=True)
    assert refusal(read, long).startswith(f"{what} '...") and f"/{long.name}' does not exist" in refusal(read, long)
    long.write_bytes(b"\xff")
    assert f"/{long.name}' is " in refusal(read, long)
    upload = Upload(b"\xff", f"mine \0 {'x' * 200}.json")
    assert refusal(read, upload).startswith(f"{what} 'mine \\x00 {'x' * 200}.json' is ")
    assert len(refusal(read, "x" * 5000)) < 300
    monkeypatch.setattr(own_traffic, "LARGEST_TRAFFIC", 2**20)
    monkeypatch.setattr(config_file, "LARGEST_CONFIG", 2**20)
    long.write_bytes(b" " * (2**20 + 1))
    said = refusal(read, long).partition("' ")[2]
    assert said.startswith("is over 1,048,576 bytes; ") and refusal(read, b" " * (2**20 + 1)).endswith(f"' {said}")
    monkeypatch.setattr("pathlib.Path.open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    assert refusal(read, long).endswith(".csv' cannot be read: Permission denied; check the path and its permissions.")


def test_a_folder_is_named_whole_too(tmp_path):
    no_folder = tmp_path.joinpath(*["a" * 100] * 4, "the-last-name")
    no_folder.parent.mkdir(parents=True)
    no_folder.touch()
    for use in (lambda path: place_of(path / "report"), read_records, lambda path: write_record(recorded_cpu(), path)):
        assert "/the-last-name'" in refusal(use, no_folder)


def test_text_is_utf_8_with_or_without_its_mark_and_a_fault_has_its_line():
    def given(content):
        return GivenFile(content, "Note", "note", 100, "write less")

    assert given(b"\xef\xbb\xbfa\r\n\xc3\xa9").text() == given(b"a\r\n\xc3\xa9").text() == "a\r\né"
    for content in (b"a\r\nb\rc\n\xe9", b"\xef\xbb\xbfa\nb\n\nc\xe9"):
        with pytest.raises(InvalidInputError, match="Note 'upload' is not UTF-8: it has the byte 0xe9 on line 4, as"):
            given(content).text()


def records():
    """As many records of one second, each another."""
    record = recorded_cpu()
    return [replace(record, device=record.device | {"cores": number + 1}) for number in range(WRITERS)]


def at_once(call, items):
    """Call it with each item in a thread of its own, all starting together."""
    start = Barrier(len(items))

    def run(item):
        start.wait()
        return call(item)

    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(run, items))


def test_records_that_race_are_all_kept(tmp_path):
    wanted = records()
    paths = at_once(lambda record: write_record(record, tmp_path), wanted)
    assert len(set(paths)) == WRITERS and [read_record(path) for path in paths] == wanted
    assert len(list(tmp_path.iterdir())) == WRITERS
    assert at_once(lambda _: write_record(wanted[0], tmp_path), wanted) == [paths[0]] * WRITERS


PROCESS = """
import sys
from dataclasses import replace
from lessonlib.measured.timing.cpu import recorded_cpu
from lessonlib.measured.timing.record import write_record
folder, numbers, record = sys.argv[1], map(int, sys.argv[2:]), recorded_cpu()
records = [replace(record, device=record.device | {"cores": number}) for number in numbers]
print("ready", flush=True)
sys.stdin.readline()
for record in records:
    write_record(record, folder)
"""


def test_records_of_processes_that_race_are_all_kept(tmp_path):
    cores = range(1, WRITERS + 1)
    running = []
    for first in range(3):
        command = [sys.executable, "-c", PROCESS, str(tmp_path), *map(str, cores[first::3])]
        running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    assert [process.stdout.readline() for process in running] == ["ready\n"] * 3
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate() for process in running] == [("", None)] * 3
    found, skipped = read_records(tmp_path)
    assert skipped == [] and {record.device["cores"] for record in found} == set(cores)


def test_a_file_system_without_links_keeps_all_too(tmp_path, monkeypatch):
    def no_links(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(files.os, "link", no_links)
    wanted = records()
    paths = at_once(lambda record: write_record(record, tmp_path), wanted)
    assert [read_record(path) for path in paths] == wanted and len(list(tmp_path.iterdir())) == WRITERS


@pytest.mark.parametrize("step", ["fdopen", "chmod", "link"])
def test_an_interrupted_write_leaves_nothing(step, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, step, interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_new([tmp_path / "a"], b"x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_files_written_together_come_back_together(step, error, tmp_path, monkeypatch):
    (tmp_path / "a.png").write_bytes(b"old a")
    (tmp_path / "c.html").write_bytes(b"old c")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    wanted = {tmp_path / name: b"new " + name.encode() for name in ("a.png", "b.md", "c.html")}
    real, calls = os.replace, []

    def fail_once(source, target):
        calls.append(target)
        if len(calls) == step:
            raise error
        real(source, target)

    monkeypatch.setattr(files.os, "replace", fail_once)
    with pytest.raises((InvalidInputError, KeyboardInterrupt)) as caught:
        write_together(wanted, replace=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert caught.type is KeyboardInterrupt or f"{calls[step - 1].name!r} cannot be written: No sp" in str(caught.value)
    monkeypatch.undo()
    assert write_together(wanted, replace=True)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == wanted


def test_reports_of_one_name_that_race_are_never_mixed(tmp_path):
    paths = [tmp_path / name for name in ("r.png", "r.md", "r.html")]

    def save(number, over=False):
        return write_together(dict.fromkeys(paths, b"%d" % number * 1000), over)

    for over, numbers in ((True, range(16)), (False, range(16, 32))):
        assert at_once(partial(save, over=over), numbers) == [over] * 16
        assert len({path.read_bytes() for path in paths}) == 1 and len(list(tmp_path.iterdir())) == 3
    before = paths[0].read_bytes()
    paths[0].unlink()
    assert not write_together(dict.fromkeys(paths, b"other")) and not paths[0].exists()  # none, not one of three
    assert write_together(dict.fromkeys(paths, before)) and len(list(tmp_path.iterdir())) == 3
    for path in paths:
        path.unlink()
    assert sum(at_once(save, range(16))) == 1


def test_a_lock_left_behind_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "PATIENCE", 2)
    (tmp_path / "r.lock").touch()
    with pytest.raises(InvalidInputError, match=r"'r\.lock' is there, .* delete that file"):
        write_together({tmp_path / "r.png": b"x"})
    assert [path.name for path in tmp_path.iterdir()] == ["r.lock"]
