"""Packages that a run needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ..exceptions import UserErrorException


class CondaDependencies:
    """An environment of conda's, as a file has it. What pip installs needs no conda."""

    def __init__(
        self, conda_dependencies_file_path: str | None = None, _underlying_structure: dict[str, Any] | None = None
    ) -> None:
        self._conda: list[str] = []
        self._pip: list[str] = []
        self._channels: list[str] = []
        self._python: str | None = None
        found = _underlying_structure
        if conda_dependencies_file_path is not None:
            try:
                found = yaml.safe_load(Path(conda_dependencies_file_path).read_text(encoding="utf-8"))
            except (OSError, yaml.YAMLError) as e:
                raise UserErrorException(f"read {conda_dependencies_file_path}: {e}") from e
            if not isinstance(found, dict):
                raise UserErrorException(
                    f"read {conda_dependencies_file_path}: it is no environment of conda, which has lines such as dependencies:"
                )
        for one in (found or {}).get("dependencies") or []:
            if isinstance(one, dict):
                self._pip += [str(p) for p in one.get("pip") or []]
            else:
                self.add_conda_package(str(one))
        self._channels = list((found or {}).get("channels") or [])

    @staticmethod
    def create(
        pip_indexurl: str | None = None,
        pip_packages: list[str] | None = None,
        conda_packages: list[str] | None = None,
        python_version: str | None = None,
        pin_sdk_version: bool = True,
    ) -> CondaDependencies:
        """Packages from lists."""
        made = CondaDependencies()
        made._python = python_version
        for name in conda_packages or []:
            made.add_conda_package(name)
        if pip_indexurl:
            made.set_pip_index_url(pip_indexurl)
        made._pip += list(pip_packages or [])
        return made

    @property
    def conda_packages(self) -> list[str]:
        """What conda installs."""
        return list(self._conda)

    @property
    def pip_packages(self) -> list[str]:
        """What pip installs, without options."""
        return [p for p in self._pip if not p.startswith("-")]

    @property
    def pip_options(self) -> list[str]:
        """Lines that say where pip looks."""
        return [p for p in self._pip if p.startswith("-")]

    @property
    def conda_channels(self) -> list[str]:
        """Where conda looks."""
        return list(self._channels)

    @property
    def python_version(self) -> str | None:
        """The release of Python that was asked for."""
        return self._python

    def add_conda_package(self, conda_package: str) -> None:
        """One more package of conda's."""
        name, _, release = conda_package.replace("==", "=").partition("=")
        if name.strip() == "python":
            self._python = release or None
        elif name.strip() not in ("pip", "setuptools", "wheel"):
            self._conda.append(conda_package)

    def add_pip_package(self, pip_package: str) -> None:
        """One more package of pip's."""
        self._pip.append(pip_package)

    def add_channel(self, channel: str) -> None:
        """One more place where conda looks."""
        self._channels.append(channel)

    def remove_conda_package(self, conda_package: str) -> None:
        """One package of conda's less."""
        self._conda = [p for p in self._conda if p != conda_package]

    def remove_pip_package(self, pip_package: str) -> None:
        """One package of pip's less."""
        self._pip = [p for p in self._pip if p != pip_package]

    def remove_channel(self, channel: str) -> None:
        """One place less."""
        self._channels = [c for c in self._channels if c != channel]

    def set_python_version(self, version: str) -> None:
        """The release of Python: the pool's own is taken, and the run's output says so."""
        self._python = version

    def set_pip_index_url(self, index_url: str) -> None:
        """Where pip looks."""
        self._pip.insert(0, f"--index-url {index_url}")

    def set_pip_option(self, pip_option: str) -> None:
        """A line that says where pip looks."""
        self._pip.insert(0, pip_option)

    def _structure(self) -> dict[str, Any]:
        rows: list[Any] = [*([f"python={self._python}"] if self._python else []), *self._conda]
        if self._pip:
            rows.append({"pip": list(self._pip)})
        return {
            "name": "project_environment",
            "dependencies": rows,
            **({"channels": self._channels} if self._channels else {}),
        }

    def as_dict(self) -> dict[str, Any]:
        """As a file has it."""
        return self._structure()

    def serialize_to_string(self) -> str:
        """As a file has it."""
        return str(yaml.safe_dump(self._structure(), sort_keys=False))

    def save_to_file(self, base_directory: str, conda_file_path: str | None = None) -> str:
        """Writes the file; its path below the folder."""
        name = conda_file_path or "conda_dependencies.yml"
        (Path(base_directory) / name).write_text(self.serialize_to_string())
        return name

    save = save_to_file
