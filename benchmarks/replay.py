"""``replay`` as users run it beside the floor, in one run: ratios of CPU and memory, 100 to 100,000 cases; and start-up.

python benchmarks/replay.py [--cases 100 1000 10000 100000] [--runs 5] [--data FOLDER]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent


class Cost(NamedTuple):
    """What one process cost: CPU seconds, wall seconds, peak memory in MB."""

    cpu: float
    wall: float
    peak: float


def cost_of(command: Sequence[str], *, folder: Path | None = None) -> Cost:
    """Run a command to its end; its children count only as far as the operating system adds them."""
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    errors = process.stderr.read()
    _pid, status, usage = os.wait4(process.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    process.returncode = code
    if code not in {0, 3, 4}:  # among 100,000 made-up texts some are in no language that the refusal probe knows
        raise SystemExit(f"{' '.join(command)} ended with {code}: {errors.decode(errors='replace')}")
    return Cost(usage.ru_utime + usage.ru_stime, time.perf_counter() - start, usage.ru_maxrss / 1024)


def medians(costs: Sequence[Cost]) -> Cost:
    """The median of each figure."""
    return Cost(*(statistics.median(figures) for figures in zip(*costs, strict=True)))


def ours(project: Path, result: Path, workers: int) -> list[str]:
    """The command line of a replay that also writes every outcome."""
    command = [sys.executable, "-m", "canary_replay", "replay", "--project", str(project), "--output", str(result)]
    return [*command, "--quiet", "--workers", str(workers)]


def compare_sizes(sizes: Sequence[int], runs: int, data: Path) -> None:
    """A line for each size."""
    print(
        f"{'cases':>7}  {'floor s':>8}  {'replay s':>8}  {'CPU ratio':>9}  {'2 workers':>15}  {'floor MB':>8}  {'replay MB':>9}"
    )
    smallest = None
    for n in sizes:
        project = data / f"load-{n}"
        subprocess.run([sys.executable, str(HERE / "workload.py"), str(n), str(project)], check=True, cwd=PROJECT)
        floors, replays, spread = [], [], []
        for _ in range(runs if n < 100_000 else min(runs, 3)):  # in turn, so that a busy moment hits both
            floors.append(cost_of([sys.executable, str(HERE / "floor.py"), str(project), str(data / "floor.jsonl")]))
            replays.append(cost_of(ours(project, data / "replay.json", 1)))
            if n >= 10_000:
                spread.append(cost_of(ours(project, data / "replay2.json", 2)))
        floor, replay = medians(floors), medians(replays)
        smallest = smallest or replay
        two = f"{medians(spread).wall / replay.wall:.2f}x" if spread else "-"
        print(
            f"{n:>7}  {floor.cpu:>8.3f}  {replay.cpu:>8.3f}  {replay.cpu / floor.cpu:>8.2f}x  {two:>15}  {floor.peak:>8.1f}  "
            f"{replay.peak:>6.1f} ({replay.peak / smallest.peak:.2f}x)",
            flush=True,
        )
        if spread and (data / "replay.json").read_bytes() != (data / "replay2.json").read_bytes():
            raise SystemExit("two workers wrote other bytes than one")


def start_up(runs: int) -> None:
    """CPU of ``--help`` and of the replay of the shipped suites, as ratios to ``import pydantic``."""
    commands = {
        "import pydantic": [sys.executable, "-c", "import pydantic"],
        "--help": [sys.executable, "-m", "canary_replay", "--help"],
        "replay of the shipped suites": [sys.executable, "-m", "canary_replay", "replay", "--project", str(PROJECT)],
    }
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(2 * runs + 1):
        for name, command in commands.items():
            costs[name].append(cost_of(command, folder=PROJECT))
    anchor = medians(costs["import pydantic"]).cpu
    for name in commands:
        cpu = medians(costs[name]).cpu
        print(f"{name:<30} {cpu * 1000:6.1f} ms CPU  {cpu / anchor:5.2f}x")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="replay beside its floor, as ratios taken in one run")
    arguments.add_argument("--cases", type=int, nargs="+", default=[100, 1000, 10_000, 100_000])
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--data", type=Path, default=None, help="where to keep the generated projects (default: temporary)")
    given = arguments.parse_args()
    start_up(given.runs)
    with tempfile.TemporaryDirectory() as temporary:
        place = given.data or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        compare_sizes(given.cases, given.runs, place)
