"""Ranks with TensorFlow and Keras, and JAX for Keras on it, on the CPU."""

from __future__ import annotations

import os
from pathlib import Path

import beside
import pytest

PYTHON = Path(__file__).resolve().parents[2]
if (PYTHON / "hora" / "libhora.so").exists():  # else the installed packages are tested, horovod too
    os.environ["PYTHONPATH"] = f"{PYTHON / 'compat'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"


@pytest.fixture(scope="session")
def folders():
    return [beside.folder("tensorflow"), beside.folder("jax")]


@pytest.fixture
def run(folders, launcher, tmp_path):
    """See beside.runner."""
    quiet = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    return beside.runner(launcher, tmp_path, folders, quiet)
