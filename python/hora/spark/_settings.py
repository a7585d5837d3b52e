"""What a prediction sets in the environment of Spark's worker. Spark gives that process to other jobs later: a gang
that starts there leaves these out."""

from __future__ import annotations

import os

ours: dict[str, str] = {}  # what this process has set itself


def put(name: str, value: str) -> None:
    """Sets a variable, unless the user has."""
    if os.environ.get(name) in (None, ours.get(name)):
        os.environ[name] = ours[name] = value
