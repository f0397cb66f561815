"""A room of simulated learners: a real hub on this machine, and N who come at once and run notebook 02.

    .venv-hub/bin/python tools/hub_room.py 5                     one room, a table
    .venv-hub/bin/python tools/hub_room.py --series 1,5,10,20,30   several, and the table of docs/hub.md anew

Needs root, and for figures that mean something a machine that does nothing else: `make bench-hub` runs the series. Each
room has a hub of its own, whose learners come for the first time: users and working copies are made within the time.
"""

import argparse
import asyncio
import os
import platform
import re
import statistics
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from hub_env import ROOT
from hub_learner import Learner, Visit, visit
from hub_start import Hub, HubFailedError, processes

NOTEBOOK = "my_notebooks/02_chat_versus_reasoning.ipynb"
PAGE = ROOT / "docs" / "hub.md"
MARKS = "<!-- the room's figures: tools/hub_room.py --series writes them -->", "<!-- end of the room's figures -->"
MOST = 60
IDLE_LOAD = 0.5
HEADER = (
    "learners",
    "server ready",
    "first cell",
    "all cells of 02",
    "processor time a learner",
    "memory a learner",
    "hub and proxy",
    "failed",
)


@dataclass(frozen=True)
class Room:
    """What N learners saw who came at once: seconds from the click, and what failed; what each took, in the mean.

    `learner_seconds` are of one core: those of the server and of the kernel, from their start to the last cell.
    """

    visits: list[Visit]
    learner_seconds: list[float]
    learner_bytes: list[int]
    hub_bytes: int

    @property
    def failures(self) -> list[str]:
        return [f"{visit.learner.name}: {visit.failed}" for visit in self.visits if visit.failed]

    def row(self) -> tuple[str, ...]:
        went = [visit for visit in self.visits if not visit.failed]
        times = (
            [visit.server for visit in went],
            [visit.cells[0] for visit in went],
            [visit.cells[-1] for visit in went],
        )
        took, size = "-", "-"
        if went:
            took = f"{statistics.mean(self.learner_seconds):.1f} s"
            size = f"{statistics.mean(self.learner_bytes) / 1e6:.0f} MB"
        hub = f"{self.hub_bytes / 1e6:.0f} MB"
        return (str(len(self.visits)), *map(both, times), took, size, hub, str(len(self.failures)))


def both(seconds: list[float]) -> str:
    """The median and the worst of the learners."""
    return f"{statistics.median(seconds):.0f} / {max(seconds):.0f} s" if seconds else "-"


def memory(running: Iterable[psutil.Process]) -> int:
    """Bytes of memory of these processes, what several share divided among them (PSS)."""
    total = 0
    for process in running:
        with suppress(psutil.Error):  # one that ended while it was asked
            total += process.memory_full_info().pss
    return total


def processor_time(running: Iterable[psutil.Process]) -> float:
    """Seconds of one core that these processes have taken."""
    total = 0.0
    for process in running:
        with suppress(psutil.Error):
            total += sum(process.cpu_times()[:2])
    return total


async def come(hub: Hub, number: int) -> list[Visit]:
    learners = [Learner(hub.url, f"room{place:02d}", hub.password) for place in range(number)]
    return await asyncio.gather(*(visit(learner, NOTEBOOK) for learner in learners))


async def measured(hub: Hub, number: int) -> Room:
    """A room of `number` learners who come at once; their servers and kernels are left running."""
    visits = await come(hub, number)
    each = [processes({hub.uid(one.learner.name)}) for one in visits if not one.failed]
    assert hub.process is not None
    own = memory([psutil.Process(hub.process.pid), *hub.proxies()])
    return Room(visits, [processor_time(one) for one in each], [memory(one) for one in each], own)


def machine() -> str:
    """This machine in words: cores, model of the processor, memory, system."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    found = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    model = found[1].strip() if found else platform.machine()
    cores, size = len(os.sched_getaffinity(0)), psutil.virtual_memory().total
    return f"{cores} cores ({model}), {size / 2**30:.0f} GiB of memory, Python {platform.python_version()}"


def table(rooms: Iterable[Room], load: float) -> str:
    """The figures as a Markdown table, with the machine and what else it did before."""
    rows = [HEADER, tuple("---" for _ in HEADER), *(room.row() for room in rooms)]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    others = f"Its load was {load:.1f} before the first learner came"
    others += "." if load < IDLE_LOAD else ": it did other things too, so these times are too long."
    return f"Measured on {machine()}. {others} Times are the median and the slowest learner's.\n\n{lines}"


def write(text: str, page: Path) -> None:
    """Put the figures between the two marks of the page."""
    found = page.read_text(encoding="utf-8")
    before, first, rest = found.partition(MARKS[0])
    _, last, after = rest.partition(MARKS[1])
    if not first or not last:
        raise SystemExit(f"{page} has no marks for the figures; expected {MARKS[0]!r} and {MARKS[1]!r}.")
    page.write_text(f"{before}{first}\n\n{text}\n\n{last}{after}", encoding="utf-8")


def rooms(numbers: list[int]) -> list[Room]:
    found = []
    for number in numbers:
        with Hub() as hub:
            found.append(asyncio.run(measured(hub, number)))
        print(" | ".join(found[-1].row()), *found[-1].failures, sep="\n", flush=True)
    return found


def count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"got {text!r}; expected learners, a whole number from 1 to {MOST}")
    return int(text)


def series(text: str) -> list[int]:
    return [count(part) for part in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("learners", nargs="?", type=count, default=5, help=f"how many come at once, 1 to {MOST}")
    parser.add_argument("--series", type=series, help="several rooms, such as 1,5,10; writes the table of docs/hub.md")
    chosen = parser.parse_args()
    load = os.getloadavg()[0]
    try:
        found = rooms(chosen.series or [chosen.learners])
    except HubFailedError as error:
        print(error, file=sys.stderr)
        return 1
    text = table(found, load)
    print(f"\n{text}")
    failed = any(room.failures for room in found)
    if chosen.series and not failed:
        write(text, PAGE)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
