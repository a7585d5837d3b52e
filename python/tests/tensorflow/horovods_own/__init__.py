"""Horovod's own tests of TensorFlow and Keras, on the names of hora-compat: how they run, and which need not pass."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import beside
import own_tests

HERE = Path(__file__).resolve().parent
FOLDER = os.environ.get("HOROVOD_TESTS", "")
LONGEST = 40 * 60  # seconds, of one file

# The files, each with what it runs on: Keras 2 is tf_keras, which `import keras` gives there too.
KERAS_2 = {"TF_USE_LEGACY_KERAS": "1"}
FILES: dict[str, dict[str, str]] = {
    "parallel/test_tensorflow.py": KERAS_2,
    "parallel/test_tensorflow_process_sets.py": {},
    "parallel/test_tensorflow_process_sets_dynamic.py": {},
    "parallel/test_process_sets_static.py": {},
    "parallel/test_adasum_tensorflow.py": {},
    "parallel/test_compute_worker.py": {},
    "parallel/test_tensorflow2_keras.py": KERAS_2,
    "parallel/test_tensorflow2_keras_process_sets.py": KERAS_2,
    "parallel/test_tensorflow_keras.py": KERAS_2,
    "parallel/test_keras.py": KERAS_2,
    "parallel/test_xla.py": {"HOROVOD_ENABLE_XLA_OPS": "1"},
    "parallel/test_xla_process_sets.py": {"HOROVOD_ENABLE_XLA_OPS": "1"},
}


def files() -> list[str]:
    """Those that the copy has: each release has other ones."""
    return [name for name in FILES if Path(FOLDER, name).exists()]


def run(name: str, tmp: Path, launcher: Path) -> own_tests.Ends:
    """Every test's end, by its name, on two ranks: a failure on either is one."""
    path = [HERE, own_tests.NOTING, *beside.TREE, *map(beside.folder, ("tensorflow", "jax", "keras-2"))]
    ends = tmp / "ends-"
    env = os.environ | FILES[name] | {
        "PYTHONPATH": os.pathsep.join([*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PUBLISHED_ENDS": str(ends), "TMPDIR": str(tmp), "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3",
        "HORA_START_TIMEOUT": "120", "HORA_OP_TIMEOUT": "60", "JAX_PLATFORMS": "cpu",
    }  # fmt: skip
    at = Path(FOLDER, name).resolve()
    command = [launcher, "run", "-np", "2", sys.executable, "-m", "pytest", "-q", "--tb=native", "-p", "horovods_time",
               "-p", "noted_ends", "-p", "no:cacheprovider", "-W", "ignore", f"--rootdir={at.parents[1]}",
               f"--confcutdir={at.parent}", "-c", os.devnull, at]  # fmt: skip
    said = own_tests.run(command, LONGEST, cwd=at.parent, env=env)
    written = [Path(f"{ends}{rank}") for rank in range(2)]
    assert all(f.exists() for f in written), said.stdout[-4000:] + said.stderr[-4000:]
    return own_tests.noted(*written)


def left_out(name: str) -> dict[str, str]:
    """Those of a file that need not pass, with the reason."""
    told = own_tests.left_out(HERE / "left_out.txt")
    return {test: why for test, why in told.items() if test.partition("::")[0] == name}
