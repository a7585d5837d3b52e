"""HorovodEstimator on TensorFlow's own tf.estimator, which its releases up to 2.15 have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import beside
import pytest
from sample import soak

HERE = Path(__file__).resolve().parent
PACKAGES = (
    "tensorflow-cpu==2.15.1",
    "pyspark==3.5.9",
    "pandas==2.2.3",
    "pyarrow==18.1.0",
    "cloudpickle==3.1.2",
    "pytest==9.2.0",
)


def environment() -> Path:
    """A Python with that TensorFlow, which is made once; what hora keeps of the kind lies beside it."""
    folder = beside.folder("tensorflow").parent / f"tensorflow-2.15-{sys.version_info[0]}.{sys.version_info[1]}"
    python = folder / "bin/python"
    if not (folder / ".complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True, timeout=300)
        done = subprocess.run(
            [python, "-m", "pip", "install", "-q", *PACKAGES], capture_output=True, text=True, timeout=1800
        )
        if done.returncode:
            pytest.skip(f"TensorFlow 2.15, the last with tf.estimator, cannot be installed here: {done.stderr[-300:]}")
        (folder / ".complete").touch()
    return python


@soak
@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="TensorFlow 2.15, the last with tf.estimator, is for Python 3.9 to 3.11"
)
def test_model_fns_run_on_tensorflows_own_estimator(tmp_path, hora_program):
    path = os.pathsep.join([*beside.TREE, str(HERE), str(HERE.parent)])
    env = os.environ | {"PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    env["PATH"] = f"{hora_program.parent}{os.pathsep}{env['PATH']}"
    command = [environment(), HERE / "older_estimator.py", tmp_path]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0 and "fitted with 2.15" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]
