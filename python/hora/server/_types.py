"""What a server answers."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class ServerError(RuntimeError):
    """The server refuses something, or is not there: one sentence that says what to do next. `status` is HTTP's, 0
    without an answer."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Job:
    """One job as the server knows it. `raw` has all that it answered."""

    id: int
    state: str  # queued, preparing, running, paused, finished, failed, cancelled
    exit_code: int
    text: str  # how it ended, in a sentence
    reason: str  # why it waits, in a sentence
    tags: Mapping[str, str]
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def ended(self) -> bool:
        return self.state in ("finished", "failed", "cancelled")

    @property
    def document(self) -> Mapping[str, Any]:
        """What was submitted."""
        return self.raw["document"]  # type: ignore[no-any-return]


def job(raw: Mapping[str, Any]) -> Job:
    return Job(
        raw["id"],
        raw["state"],
        raw["exit_code"],
        raw.get("text", ""),
        (raw.get("reason") or {}).get("text", ""),
        dict(raw.get("tags") or {}),
        raw,
    )


@dataclass(frozen=True)
class Line:
    """One line of a job's output; rank -1 is hora itself. data has its bytes, which may be no UTF-8."""

    rank: int
    text: str
    err: bool
    at: str
    attempt: int
    number: int
    data: bytes = b""


def line(raw: Mapping[str, Any]) -> Line:
    text = raw["text"]
    data = b64decode(raw["bytes"]) if "bytes" in raw else text.encode()
    return Line(raw["rank"], text, raw.get("err", False), raw["at"], raw["attempt"], raw["number"], data)


@dataclass(frozen=True)
class Metric:
    """What one rank reported under a name: points are (step, milliseconds since 1970, value)."""

    name: str
    rank: int
    count: int
    last: float
    min: float
    max: float
    points: list[tuple[int, int, float]]


def metric(raw: Mapping[str, Any]) -> Metric:
    points = [(p["step"], p["at"], float(p["value"])) for p in raw.get("points") or []]
    last = float(raw.get("last_is") or raw["last"])  # NaN and the infinite ones come as words
    return Metric(raw["name"], raw["rank"], raw["count"], last, float(raw["min"]), float(raw["max"]), points)


@dataclass(frozen=True)
class Artifact:
    """A file that came back: its path is below outputs/."""

    path: str
    size: int
    hash: str
    at: str


def artifact(raw: Mapping[str, Any]) -> Artifact:
    return Artifact(raw["path"], raw["size"], raw["hash"], raw["at"])
