"""hora.dataset beside pyarrow, Polars, torch's DataLoader and, where they are installed, Petastorm, WebDataset and
MosaicML.

    make deps build
    python bench/data_bench.py [--rounds 5] [--only tabular,decode] [--folder FOLDER]
                               [--petastorm PYTHON] [--others PYTHON]

Each contestant is a process of its own that waits for its turns; in a round every one of them goes over the same files,
which lie in the page cache, so that what the machine does meanwhile meets all. The first round compares what they have
read (rows, and the sum of all values) and is not counted. What is compared are processor seconds, those of worker
processes included; ratios are medians over the rounds with their quartiles. Everything runs with one thread where it
can be told to.
Petastorm needs an environment of its own (petastorm 0.13.1 with pyarrow 12.0.1, numpy 1.26.4, pandas 1.5.3), WebDataset
and MosaicML another.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROWS = Path(__file__).parent / "rows"
NOT_COMPARED = -1.0  # the sum of who hands nothing out
# of each part: the contestants, and the goals: (ours, theirs, at least how many times as fast)
PARTS: dict[str, tuple[list[str], list[tuple[str, str, float]]]] = {
    "tabular": (
        [
            "hora, shuffled", "hora, shuffled, all rows held", "hora, file order", "pyarrow in this process, shuffled",
            "DataLoader, 2 workers with pyarrow, shuffled", "Petastorm, shuffled (queue of 200,000)",
            "Petastorm, rows in file order",
        ],
        [
            ("hora, shuffled", "Petastorm, shuffled (queue of 200,000)", 10),
            ("hora, shuffled", "DataLoader, 2 workers with pyarrow, shuffled", 8),
            ("hora, shuffled", "pyarrow in this process, shuffled", 1.4),
            ("hora, file order", "Petastorm, rows in file order", 2),
        ],
    ),
    "decode": (
        [f"{who}, {what}" for what in ("flat", "dictionary, nulls", "list, zstd", "bytes") for who in ("hora", "hora's decoder alone", "pyarrow", "Polars")],
        [
            (f"hora's decoder alone, {what}", f"{peer}, {what}", goal)
            for peer, goals in (("pyarrow", (2, 1.5, 1, 1.1)), ("Polars", (1.2, 1, 1.3, 0.95)))
            for what, goal in zip(("flat", "dictionary, nulls", "list, zstd", "bytes"), goals, strict=True)
        ],
    ),
    "samples": (
        ["hora, 11 kB samples", "WebDataset, 11 kB samples", "MosaicML, 11 kB samples", "Petastorm, 11 kB samples"],
        [
            ("hora, 11 kB samples", "WebDataset, 11 kB samples", 15),
            ("hora, 11 kB samples", "MosaicML, 11 kB samples", 15),
            ("hora, 11 kB samples", "Petastorm, 11 kB samples", 2),
        ],
    ),
    "images": (
        ["hora, JPEG to batches", "DataLoader, 2 workers, torchvision, JPEG to batches"],
        [("hora, JPEG to batches", "DataLoader, 2 workers, torchvision, JPEG to batches", 1.3)],
    ),
    "training": (
        ["hora, loaded while it trains", "all batches ready in memory"],
        [("hora, loaded while it trains", "all batches ready in memory", 0.9)],
    ),
}  # fmt: skip


class Contestant:
    """A process that makes a pass over the data when it is its turn."""

    def __init__(self, part: str, name: str, folder: Path, python: str, paths: list[str]) -> None:
        self.name = name
        env = {k: v for k, v in os.environ.items() if not k.startswith(("HORA_", "HOROVOD_")) or k == "HORA_LIBRARY"}
        env |= {
            "PYTHONPATH": os.pathsep.join(paths),
            "OMP_NUM_THREADS": "1",
            "POLARS_MAX_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
        }
        self.process = subprocess.Popen(
            [python, "-W", "ignore", str(ROWS / "turn.py"), part, name, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )

    def ready(self) -> None:
        if self._line() != "ready":
            raise SystemExit(f"data_bench: {self.name} did not start")

    def turn(self, how: str) -> dict:
        assert self.process.stdin is not None
        print(how, file=self.process.stdin, flush=True)
        return json.loads(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"data_bench: {self.name} ended with {self.process.wait()}")
        return line.strip()

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def installed(name: str) -> str:
    """Where `make deps` has put something."""
    return subprocess.run(
        ["sh", "tools/deps.sh", "path", name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def contestants(part: str, names: list[str], folder: Path, options: argparse.Namespace) -> list[Contestant]:
    ours, out = [str(ROOT / "python"), installed("data")], []
    for name in names:
        foreign = (
            options.petastorm if name.startswith("Petastorm") else options.others if name.startswith(("WebDataset", "MosaicML")) else None
        )
        if name.startswith(("Petastorm", "WebDataset", "MosaicML")) and not foreign:
            print(f"  without {name}: no environment was given for it", file=sys.stderr)
            continue
        out.append(
            Contestant(
                part,
                name,
                folder,
                foreign or sys.executable,
                {options.petastorm: [], options.others: [installed("data")]}.get(foreign, ours),
            )
        )
    for one in out:
        one.ready()
    return out


def median(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.2f}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


def data(part: str, name: str) -> str:
    """Which data a contestant reads: those of the same are compared."""
    return name.split(", ", 1)[1] if part == "decode" else ""


def measure(part: str, folder: Path, options: argparse.Namespace) -> dict[str, list[dict]]:
    """What each contestant took in each round; the first compares what was read."""
    running = contestants(part, PARTS[part][0], folder, options)
    took: dict[str, list[dict]] = {c.name: [] for c in running}
    try:
        read = {c.name: c.turn("check") for c in running}
        firsts: dict[str, str] = {}
        for name, r in read.items():
            other = firsts.setdefault(data(part, name), name)
            first = read[other]
            if r["sum"] == NOT_COMPARED or name.startswith("Petastorm") and r["rows"] < first["rows"]:
                continue  # Petastorm now and then ends before its last row groups: the page says so
            if r["rows"] != first["rows"] or abs(r["sum"] - first["sum"]) > 1e-6 * max(1, abs(first["sum"])):
                raise SystemExit(
                    f"data_bench: {name} read {r['rows']} rows with the sum {r['sum']}, {other} {first['rows']} and {first['sum']}"
                )
        for _ in range(options.rounds):
            for c in running:
                took[c.name].append(r := c.turn("cold" if options.cold else "go"))
                if c.name.startswith("hora") and r["rows"] != read[c.name]["rows"]:
                    raise SystemExit(f"data_bench: {c.name} read {r['rows']} rows of {read[c.name]['rows']}")
    finally:
        for c in running:
            c.end()
    return took


def page(part: str, took: dict[str, list[dict]]) -> list[str]:
    """The part as tables of Markdown."""
    # With a core of its own the training thread takes as long as it takes of a processor, and loading takes the spare
    # one.
    clock = "main" if part == "training" else "cpu"
    lines = [
        f"## {part}",
        "",
        "| who | CPU s | of them the calling thread | wall s | thousand rows per CPU s |",
        "| --- | --- | --- | --- | --- |",
    ]
    whole = {data(part, name): max(t["rows"] for t in turns) for name, turns in took.items()}
    for name, turns in took.items():
        lost = [n for t in turns if (n := whole[data(part, name)] - t["rows"])]
        note = f" (in {len(lost)} of {len(turns)} rounds without {max(lost)} rows)" if lost else ""
        rate = statistics.median(t["rows"] / t["cpu"] for t in turns) / 1e3
        lines.append(
            f"| {name}{note} | {median([t['cpu'] for t in turns])} | {median([t['main'] for t in turns])} | {median([t['wall'] for t in turns])} | {rate:.0f} |"
        )
    lines += [
        "",
        f"| ratio of {'processor' if clock == 'cpu' else 'the training thread’s processor'} seconds, round by round | median (quartiles) | goal | |",
        "| --- | --- | --- | --- |",
    ]
    for ours, theirs, goal in PARTS[part][1]:
        if ours in took and theirs in took:
            ratios = [b[clock] / b["rows"] / (a[clock] / a["rows"]) for a, b in zip(took[ours], took[theirs], strict=True)]
            reached = "reached" if statistics.median(ratios) >= goal else "short"
            lines.append(f"| {theirs} ÷ {ours} | {median(ratios)} | {goal:g} | {reached} |")
    return [*lines, ""]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument(
        "--folder",
        type=Path,
        help="where the files are kept for the next time (1.2 GB)",
    )
    parser.add_argument("--cold", action="store_true", help="the files leave the page cache before each pass")
    parser.add_argument("--petastorm", metavar="PYTHON")
    parser.add_argument("--others", metavar="PYTHON")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if options.rounds < 1:
        parser.error("--rounds: there is at least one")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        paths = os.pathsep.join([str(ROWS), installed("data")])
        make = "import make, pathlib, sys; make.everything(pathlib.Path(sys.argv[1]))"
        subprocess.run(
            [sys.executable, "-c", make, str(folder)],
            env=os.environ | {"PYTHONPATH": paths},
            check=True,
        )
        subprocess.run(
            ["go", "test", "-c", "-o", str(folder / "decode.test"), "./dataset"],
            cwd=ROOT,
            check=True,
        )
        for part in PARTS:
            if part in wanted:
                begun, load = time.monotonic(), os.getloadavg()[0]
                print("\n".join(page(part, measure(part, folder, options))))
                print(
                    f"{options.rounds} rounds in {time.monotonic() - begun:.0f} s, load before {load:.1f}, after {os.getloadavg()[0]:.1f}\n",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
