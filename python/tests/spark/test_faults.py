"""Faults at random moments of a job, and a standalone cluster of several hosts."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import faults
import hosts
import pytest

SOAK = os.environ.get("HORA_SOAK") == "1"
SEED = int(os.environ.get("HORA_TEST_SEED", random.randrange(1 << 30)))


def test_some_faults(spark, tmp_path):
    print(f"replay with HORA_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    for i, kind in enumerate(["worker", "cancel", "executor"] * 4 if SOAK else ["worker", "cancel"]):
        print(faults.one(spark, chance, kind, tmp_path / str(i), comes_and_goes=i % 2 == 0 or SOAK))


@pytest.mark.skipif(
    not SOAK and os.environ.get("HORA_SPARK") != "all", reason="needs a cluster of its own (make test-spark, make soak)"
)
@pytest.mark.skipif(not hosts.possible(), reason="needs root")
def test_a_cluster_of_hosts(tmp_path):
    """A master and two workers, each a host of its own: test_front_ends.py's program, and a cut cable; in make soak 49
    other faults."""
    count = int(os.environ.get("HORA_TEST_FAULTS", "50" if SOAK else "1"))
    print(f"replay with HORA_TEST_SEED={SEED}")
    net = hosts.Hosts(tmp_path, "driver", "one", "two")
    try:
        cluster = hosts.Standalone(tmp_path, net)
        (tmp_path / "session").mkdir()
        driver = net.start(
            1,
            [
                sys.executable,
                faults.__file__,
                str(tmp_path / "session"),
                str(count),
                str(SEED),
                str(net.holder),
                *map(str, net.pids),
            ],
        )
        try:
            code = driver.wait(300 + 2 * faults.LIMIT * count)
        except subprocess.TimeoutExpired:
            code = None
        said = cluster.said()
        print(said)
        assert code == 0 and "the same\n" in said and "all ended\n" in said, said
        told = [json.loads(line) for line in said.splitlines() if line.startswith('{"kind"')]
        after = next(t["goes_on_after"] for t in told if t.get("goes_on_after"))
        assert after < 3 * 7, f"the survivor trained again {after:.1f} s after the cut"
    finally:
        net.close()
