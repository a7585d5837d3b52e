"""Ranks with JAX on the CPU."""

from __future__ import annotations

import beside
import pytest


@pytest.fixture(scope="session")
def jax_folder():
    return beside.folder("jax")


@pytest.fixture
def run(jax_folder, launcher, tmp_path):
    """See beside.runner."""
    return beside.runner(launcher, tmp_path, [jax_folder], {"JAX_PLATFORMS": "cpu"})
