"""Cases of which `make test` takes a few, and `make soak` all."""

from __future__ import annotations

import os
from typing import Any

import pytest

soak = pytest.mark.skipif(not os.environ.get("HORA_SOAK"), reason="make soak has the other cases")


def cases(*kept: Any, rest: list[Any]) -> list[Any]:
    """For parametrize: the kept ones run always."""
    return [*kept, *(pytest.param(*(r if isinstance(r, tuple) else (r,)), marks=soak) for r in rest)]
