"""Ranks with TensorFlow and Keras, and JAX for Keras on it, on the CPU."""

from __future__ import annotations

import os
import sys
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


# Files whose ranks have TensorFlow in an environment of its own: no JAX, no torch, nothing of the tests'.
ALONE = ("test_tensorflow", "test_data_service", "test_horovod_tensorflow", "test_horovod_keras")


@pytest.fixture(scope="session")
def alone(tmp_path_factory):
    """See beside.alone."""
    return beside.alone("tensorflow", tmp_path_factory.mktemp("alone"))


@pytest.fixture
def place(request, folders):
    """Where ranks run whose environment has these variables: an interpreter, and folders that it gets besides."""
    own = request.getfixturevalue("alone") if request.path.stem in ALONE else None
    return lambda env: own if own and env["KERAS_BACKEND"] == "tensorflow" else (sys.executable, folders)


@pytest.fixture(scope="session")
def nursery_of():
    """Gives what starts ranks that have imported what a backend of Keras takes."""
    made = {}

    def get(env, place):
        backend, (python, paths) = env["KERAS_BACKEND"], place(env)
        if (backend, python) not in made:
            modules = {"tensorflow": "tensorflow"}.get(backend, "keras")
            own = python if python != sys.executable else None
            made[backend, python] = Nursery([*beside.TREE, *map(str, paths)], modules, QUIET | env, own)
        return made[backend, python]

    yield get
    for n in made.values():
        n.close()


@pytest.fixture
def run(folders, launcher, tmp_path, nursery_of, place):
    """See beside.runner."""
    return beside.runner(launcher, tmp_path, folders, QUIET, lambda env: nursery_of(env, place), place)
