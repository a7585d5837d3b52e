"""The run of a process that no server has started: what is logged is printed."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

from ._logging import Logging


class OfflineRun(Logging):
    """What scripts log when they run by themselves."""

    def __init__(self) -> None:
        self.id = f"OfflineRun_{uuid.uuid4()}"
        self.number = -1
        self.tags: dict[str, str] = {}
        self.properties: dict[str, str] = {}
        self._found: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"OfflineRun(Id: {self.id})"

    def _log_number(self, name: str, value: float, step: int | None) -> None:
        print(f"{name} = {value:g}", flush=True)

    def _record(self, name: str, kind: str, value: Any) -> None:
        print(f"{name} = {value}", flush=True)

    def _upload(self, path: str, content: Any) -> None:
        print(f"{path}: {len(content)} bytes would be uploaded", flush=True)

    def upload_folder(self, name: str, path: str, datastore_name: str | None = None) -> None:
        """Prints what would be uploaded."""
        print(f"{name}: the folder {path} would be uploaded", flush=True)

    def download_file(self, name: str, output_file_path: str | None = None, **_: Any) -> None:
        """Copies a file of this folder."""
        if output_file_path:
            shutil.copyfile(
                name,
                output_file_path if not Path(output_file_path).is_dir() else Path(output_file_path) / Path(name).name,
            )

    def tag(self, key: str, value: str | None = None) -> None:
        """Keeps a tag while the process lives."""
        self.tags[key] = value or ""

    def set_tags(self, tags: dict[str, str]) -> None:
        """Keeps tags while the process lives."""
        self.tags.update(tags)

    def get_tags(self) -> dict[str, str]:
        """The tags."""
        return dict(self.tags)

    def add_properties(self, properties: dict[str, str]) -> None:
        """Keeps properties while the process lives."""
        self.properties.update(properties)

    def get_properties(self) -> dict[str, str]:
        """The properties."""
        return dict(self.properties)

    def get_status(self) -> str:
        """It runs."""
        return "Running"

    def get_metrics(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Nothing is kept."""
        return {}

    def get_children(self, *_: Any, **__: Any) -> list[Any]:
        """There are none."""
        return []

    def flush(self, timeout_seconds: float = 300) -> None:
        """Everything is printed already."""

    def start(self) -> None:
        """Nothing is done."""

    def complete(self, _set_status: bool = True) -> None:
        """Nothing is done."""

    def fail(self, error_details: Any = None, error_code: str | None = None, _set_status: bool = True) -> None:
        """Prints why."""
        print(f"failed: {error_details or error_code or ''}", flush=True)

    def cancel(self) -> None:
        """Nothing is done."""

    def child_run(self, name: str | None = None, *_: Any, **__: Any) -> OfflineRun:
        """Another one like this."""
        return OfflineRun()
