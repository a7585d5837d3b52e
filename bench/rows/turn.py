"""One contestant of data_bench.py: a process that waits for its turns and tells what each took.

    python turn.py PART NAME FOLDER

For each line on standard input that says how the turn goes (`check`, `go` or `cold`) it makes a pass over its data, or
several in 0.8 s, and prints the last one's rows and sum, which are compared between contestants, and the mean seconds
of a pass: of the processor (its children's too), of the wall, and of the calling thread on a processor.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from pathlib import Path

LEAST = 0.8  # seconds of a turn: short passes are made again, so that what is cold after a wait does not count for much


def seconds() -> float:
    t = os.times()
    return t.user + t.system + t.children_user + t.children_system


def forget(folder: Path) -> None:
    """The files' pages leave memory."""
    for path in folder.rglob("*.*"):
        if path.is_file():
            with open(path, "rb") as f:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    part, name, folder = sys.argv[1:]
    sys.path.insert(0, str(Path(__file__).parent))
    contestant = importlib.import_module("samples" if part == "images" else part).CONTESTANTS[name]
    answers, sys.stdout = sys.stdout, sys.stderr
    answers.write("ready\n")
    answers.flush()
    seed = 0
    for line in sys.stdin:
        check, passes = line.strip() == "check", 0
        if line.strip() == "cold":
            forget(Path(folder))
        gc.collect()
        cpu, main, wall = seconds(), time.thread_time(), time.perf_counter()
        while not passes or line.strip() == "go" and time.perf_counter() - wall < LEAST:
            rows, total, *more = contestant(Path(folder), seed, check)
            seed, passes = seed + 1, passes + (more[0] if more else 1)
        took, main = time.perf_counter() - wall, time.thread_time() - main
        gc.collect()  # workers end with their loader
        out = {"rows": rows, "sum": total, "cpu": (seconds() - cpu) / passes, "wall": took / passes, "main": main / passes}
        answers.write(json.dumps(out) + "\n")
        answers.flush()


main()
