"""Ranks with TensorFlow and Keras, and JAX for Keras on it, on the CPU."""

from __future__ import annotations

import os
from pathlib import Path

import beside
import pytest
from warm import Nursery

PYTHON = Path(__file__).resolve().parents[2]
if (PYTHON / "hora" / "libhora.so").exists():  # else the installed packages are tested, horovod too
    os.environ["PYTHONPATH"] = f"{PYTHON / 'compat'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"


@pytest.fixture(scope="session")
def folders():
    return [beside.folder("tensorflow"), beside.folder("jax")]


QUIET = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}


@pytest.fixture(scope="session")
def nursery_of(folders):
    """Gives what starts ranks that have imported what a backend of Keras takes."""
    made = {}

    def get(env):
        backend = env["KERAS_BACKEND"]
        if backend not in made:
            made[backend] = Nursery(
                [*beside.TREE, *map(str, folders)], {"tensorflow": "tensorflow"}.get(backend, "keras"), QUIET | env
            )
        return made[backend]

    yield get
    for n in made.values():
        n.close()


@pytest.fixture
def run(folders, launcher, tmp_path, nursery_of):
    """See beside.runner."""
    return beside.runner(launcher, tmp_path, folders, QUIET, nursery_of)
