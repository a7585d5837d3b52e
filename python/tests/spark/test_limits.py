"""Results above spark.driver.maxResultSize: one sentence, or a way that Spark's limit does not bound."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import limits
import pytest

pytest.importorskip("torch")


@pytest.mark.skipif(os.environ.get("HORA_SPARK") != "all", reason="a session of its own (make test-spark)")
def test_what_is_larger_than_the_driver_takes(tmp_path):
    done = subprocess.run(
        [sys.executable, Path(limits.__file__), tmp_path], stdout=subprocess.PIPE, text=True, timeout=400
    )
    said = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    more = "larger than the driver takes; raise spark.driver.maxResultSize, or"
    assert said == {
        "ensemble": f"HoraError: PartitionEnsemble.fit: the models together are {more} fit fewer or smaller models",
        "sql": f"HoraError: sql: train_classifier: the models together are {more} fit fewer or smaller models",
        "held out": f"HoraError: PartitionEnsemble.fit: the rows held out for validation are {more} lower validation=",
        "estimator": 3 * (limits.LARGE // 8) + 1,  # a model of 4.5 MiB, which comes by hora's own connections
        "run": limits.LARGE,
    }
