"""torch's own tests of a backend, with hora in the place of gloo: a sample, and in `make soak` all of them on two and
three ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from beside import TREE

SOAK = os.environ.get("HORA_SOAK") == "1"

# Tests that fail, and why that is so.
KNOWN = {
    "test_static_graph_api_cpu": "accelerated, DDP's reducer has slept through the steps after which a static graph comes too late for it",
    "test_ddp_logging_data_cpu": "torch's C++ side calls the backend of every plugin custom, and DDP's log asks it",
    "test_get_backend": "it wants the name gloo, for which the module is loaded",
}

SAMPLE = [
    "test_all_gather_coalesced_simple", "test_all_reduce_sum_async", "test_barrier_timeout_global", "test_broadcast",
    "test_ddp_uneven_input_join_disable", "test_monitored_barrier_gloo", "test_monitored_barrier_gloo_rank_0_timeout",
    "test_send_recv_any_source_autograd_profiler",
]  # fmt: skip


def results(ranks: int, way: str, names: list[str]) -> dict[str, tuple[str, str]]:
    command = [sys.executable, str(Path(__file__).with_name("torchs_own.py")), str(ranks), way, "60", *names]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([*TREE, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return {name: (ended, said) for name, ended, said in lines}


def judge(found: dict[str, tuple[str, str]]) -> None:
    print(Counter(ended for ended, _ in found.values()))
    bad = [
        f"{name} {ended}\n{said}"
        for name, (ended, said) in found.items()
        if ended in ("failed", "hangs") and name not in KNOWN
    ]
    assert not bad, "\n".join(bad)
    assert any(ended == "ok" for ended, _ in found.values())


def test_a_sample():
    judge(results(2, "plain", SAMPLE))


@pytest.mark.skipif(not SOAK, reason="make soak")
@pytest.mark.parametrize(("ranks", "way"), [(2, "plain"), (3, "plain"), (2, "accelerated")])
def test_all(ranks, way):
    judge(results(ranks, way, []))
