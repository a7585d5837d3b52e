"""Images are not used here: what describes their registry is taken and changes nothing."""

from __future__ import annotations


class ContainerRegistry:
    """Where images would come from."""

    def __init__(self) -> None:
        self.address: str | None = None
        self.username: str | None = None
        self.password: str | None = None
