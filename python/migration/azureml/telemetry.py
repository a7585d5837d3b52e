"""Nothing is sent to anybody."""

from __future__ import annotations


def set_diagnostics_collection(send_diagnostics: bool = True, verbosity: object = None) -> None:
    """Changes nothing: nothing is collected."""
