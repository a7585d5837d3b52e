"""Examples 54 and 55, as they are run."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys

import pytest
from beside import ROOT
from sample import longer

pytest.importorskip("pyspark")


def said(example: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / example, *args], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("where", [(), pytest.param(("spark",), marks=longer)])
def test_ensembles_vote(where):
    """On this machine, and on a local Spark."""
    out = said("54-ensemble/train.py", *where)
    one, *votes = [float(v) for v in re.findall(r"  (0\.\d+|1\.000)", out)]
    assert one > 0.95 and len(votes) == 4 and min(votes) > 0.9, out
    assert "rows [337, 337, 337, 336]" in out and "rows [1347, 1347, 1347, 1347]" in out


def test_predictions_become_a_column(spark, capsys):
    runpy.run_path(str(ROOT / "examples/55-inference/predict.py"))["main"](spark)
    out = capsys.readouterr().out
    assert "20,000 rows, 19,996 predicted" in out and out.count("column 'c' is null") == 4, out
    assert "as the model alone says: True" in out
