"""Cases of which `make test` takes a few, and `make soak` or `make test-spark` all."""

from __future__ import annotations

import os
from typing import Any

import pytest

soak = pytest.mark.skipif(not os.environ.get("HORA_SOAK"), reason="make soak has the other cases")

longer = pytest.mark.skipif(
    os.environ.get("HORA_SPARK") != "all", reason="takes longer than the main path (make test-spark)"
)

# Of what a client of Spark Connect has not, such as a SparkContext or a task's word on its progress.
classic = pytest.mark.skipif(
    os.environ.get("HORA_SPARK_CONNECT") == "1", reason="asks for what Spark Connect has not (HORA_SPARK_CONNECT)"
)


def cases(*kept: Any, rest: list[Any]) -> list[Any]:
    """For parametrize: the kept ones run always."""
    return [*kept, *(pytest.param(*(r if isinstance(r, tuple) else (r,)), marks=soak) for r in rest)]
