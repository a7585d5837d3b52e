"""The version: the builder of wheels writes it here; in the source tree it is that of the file VERSION."""

from pathlib import Path


def _read() -> str:
    try:
        return (Path(__file__).resolve().parents[2] / "VERSION").read_text().strip()
    except OSError:
        return "0.0.0"


__version__ = _read()
