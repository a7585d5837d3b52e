"""Files of a run: names as scripts have them (outputs/…, logs/…), and what the server keeps."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..exceptions import UserErrorException
from ._metrics import HIDDEN

if TYPE_CHECKING:
    from hora.server import Client

_LOG = "azureml-logs/70_driver_log_"


def path_of(name: str) -> str:
    """Where the server keeps a run's file: its paths are below outputs/."""
    clean = posixpath.normpath(name.replace("\\", "/"))
    if clean.startswith(("../", "/")) or clean in ("..", "."):
        raise UserErrorException(f"{name!r} is no name of a run's file: write it as outputs/model.pt")
    return clean.removeprefix("outputs/") if clean.startswith("outputs/") else HIDDEN + clean


def name_of(path: str) -> str | None:
    """The run's name of a file that the server keeps; None for what is no file of its script."""
    if not path.startswith(HIDDEN):
        return "outputs/" + path
    name = path.removeprefix(HIDDEN)
    return None if name.startswith("metrics-") or name.endswith("/.keep") else name


class Files:
    """Reading a run's files."""

    number: int

    @property
    def _client(self) -> Client:
        raise NotImplementedError

    def _log_names(self) -> list[str]:
        spec = self._client.job(self.number).document
        count = spec.get("nodes", 0) * max(spec.get("per_node", 0), 1) or max(spec["spec"].get("np", 1), 1)
        return [f"{_LOG}{rank}.txt" for rank in range(count)]

    def _log(self, name: str) -> str:
        rank = int(name.removeprefix(_LOG).removesuffix(".txt"))
        return "".join(line.text + "\n" for line in self._client.logs(self.number, rank=rank))

    def _found(self) -> dict[str, Any]:
        named = {name_of(a.path): a for a in self._client.artifacts(self.number)}
        return {k: v for k, v in named.items() if k is not None}

    def get_file_names(self) -> list[str]:
        """The names of the run's files."""
        return sorted([*self._found(), *self._log_names()])

    def download_file(self, name: str, output_file_path: str | None = None, _validate_checksum: bool = False) -> None:
        """Writes one of the run's files to the disk: to a path, into a folder that is there, or under its own name
        here."""
        to = Path(output_file_path) if output_file_path else Path(posixpath.basename(name))
        if to.is_dir() or output_file_path and output_file_path.endswith("/"):
            to = to / posixpath.basename(name)
        if name.startswith(_LOG):
            content = self._log(name).encode()
        else:
            found = self._found()
            if name not in found:
                near = ", ".join(sorted(found)[:10]) or "none yet"
                raise UserErrorException(f"the run has no file {name}: it has {near}")
            content = self._client.read(found[name])
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(content)

    def download_files(
        self,
        prefix: str | None = None,
        output_directory: str | None = None,
        output_paths: list[str] | None = None,
        batch_size: int = 100,
        append_prefix: bool = True,
        timeout_seconds: float | None = None,
    ) -> None:
        """Writes the run's files below a prefix to the disk."""
        names = [n for n in self.get_file_names() if n.startswith(prefix or "")]
        if output_paths is not None and len(output_paths) != len(names):
            raise UserErrorException(
                f"download_files: {len(names)} files begin with {prefix!r}, and {len(output_paths)} output_paths were given"
            )
        root = Path(output_directory or ".")
        for i, name in enumerate(names):
            below = (
                name
                if append_prefix or not prefix
                else name.removeprefix(prefix).lstrip("/") or posixpath.basename(name)
            )
            to = Path(output_paths[i]) if output_paths is not None else root / below
            self.download_file(name, str(to))

    def get_all_logs(self, destination: str | None = None) -> list[str]:
        """Writes what the run's processes have written to files; their paths."""
        root, made = Path(destination or "."), []
        for name in self._log_names():
            self.download_file(name, str(root / name))
            made.append(str(root / name))
        return made
