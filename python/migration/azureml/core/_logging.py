"""What a run may log."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from .._refuse import internal, refused
from ..exceptions import UserErrorException
from ._metrics import number, plain


class Logging:
    """log and its relatives; where it goes is said by who inherits it."""

    def _log_number(self, name: str, value: float, step: int | None) -> None:
        raise NotImplementedError

    def _record(self, name: str, kind: str, value: Any) -> None:
        raise NotImplementedError

    def _upload(self, path: str, content: Any) -> None:
        raise NotImplementedError

    def log(self, name: str, value: Any, description: str = "", step: int | None = None) -> None:
        """Logs a number, or a text. Logged several times it comes back as a list."""
        one = number(value)
        if one is None:
            self._record(name, "value", plain(value))
        else:
            self._log_number(str(name), one, step)

    def log_list(self, name: str, value: Any, description: str = "") -> None:
        """Logs a list."""
        if isinstance(value, (str, bytes)):
            raise UserErrorException(f"log_list({name!r}): {value!r} is one text: give a list, or use log")
        self._record(name, "list", plain(list(value)))

    def log_row(self, name: str, description: str | None = None, **kwargs: Any) -> None:
        """Logs a row of a table; several rows come back as a dict of lists."""
        self._record(name, "row", plain(kwargs))

    def log_table(self, name: str, value: dict[str, Any], description: str = "") -> None:
        """Logs a table: a dict of lists."""
        if not isinstance(value, dict):
            raise UserErrorException(f"log_table({name!r}): {type(value).__name__} is no table: give a dict of lists")
        self._record(name, "table", plain(value))

    def log_image(self, name: str, path: Any = None, plot: Any = None, description: str = "") -> None:
        """Logs an image: a file of the disk, or a figure of matplotlib. It comes back as a file of the run."""
        if (path is None) == (plot is None):
            raise UserErrorException(f"log_image({name!r}) takes path or plot")
        if plot is not None:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "plot.png"
                plot.savefig(file)
                self._image(name, file, ".png")
        else:
            file = Path(path)
            if not file.is_file():
                raise UserErrorException(f"log_image({name!r}): there is no file {path}")
            self._image(name, file, file.suffix)

    def _image(self, name: str, file: Path, suffix: str) -> None:
        kept = name if name.endswith(suffix) else name + suffix
        self._upload(kept, file.read_bytes())
        self._record(name, "image", f"aml://artifactId/{kept}")

    def _json(self, name: str, value: Any) -> None:
        try:
            self._record(name, "value", json.loads(value) if isinstance(value, str) else plain(value))
        except ValueError as e:
            raise UserErrorException(f"{name}: it is no JSON: {e}") from e

    def log_confusion_matrix(self, name: str, value: Any, description: str = "") -> None:
        """Logs a confusion matrix as JSON has it."""
        self._json(name, value)

    def log_predictions(self, name: str, value: Any, description: str = "") -> None:
        """Logs predictions as JSON has them."""
        self._json(name, value)

    def log_residuals(self, name: str, value: Any, description: str = "") -> None:
        """Logs residuals as JSON has them."""
        self._json(name, value)

    def log_accuracy_table(self, name: str, value: Any, description: str = "") -> None:
        """Logs an accuracy table as JSON has it."""
        self._json(name, value)

    def upload_file(self, name: str, path_or_stream: Any, datastore_name: str | None = None) -> None:
        """Adds a file to the run under a name such as outputs/model.pt."""
        content = path_or_stream
        if isinstance(content, (str, Path)):
            if not Path(content).is_file():
                raise UserErrorException(f"upload_file({name!r}): there is no file {content}")
            content = Path(content).read_bytes()
        elif hasattr(content, "read"):
            content = content.read()
        self._upload(name, content.encode() if isinstance(content, str) else bytes(content))

    def upload_files(self, names: list[str], paths: list[str], datastore_name: str | None = None, **given: Any) -> None:
        """Adds files to the run."""
        internal(Logging.upload_files, "Run.upload_files", given)
        if len(names) != len(paths):
            raise UserErrorException(
                f"upload_files takes as many names as paths: {len(names)} and {len(paths)} were given"
            )
        for name, path in zip(names, paths, strict=True):
            self.upload_file(name, path)

    def upload_folder(self, name: str, path: str, datastore_name: str | None = None) -> None:
        """Adds a folder's files to the run, below a name."""
        root = Path(path)
        if not root.is_dir():
            raise UserErrorException(f"upload_folder({name!r}): there is no folder {path}")
        for file in sorted(p for p in root.rglob("*") if p.is_file()):
            self.upload_file(f"{name.rstrip('/')}/{file.relative_to(root).as_posix()}", file)

    def log_artifact(self, *_: Any, **__: Any) -> None:
        """Refused."""
        refused("Run.log_artifact", "that is MLflow's name: use upload_file")
