"""The exceptions a Horovod script catches, under their old names."""

from __future__ import annotations

__all__ = [
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "get_version_mismatch_message",
]


class HorovodInternalError(RuntimeError):
    """A collective operation failed on this rank: ranks disagreed, a peer was lost, or hvd was shut down."""


class HostsUpdatedInterrupt(RuntimeError):
    """The hosts of an elastic job have changed; the state is committed and may be kept.

    `skip_sync` is True when hosts were only removed, so that nobody needs the state sent.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__()
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """Kept for scripts that catch it; hora binds at run time, so it is never raised."""

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    return f"Framework {name} is installed with version {installed_version}, but {version} was expected: install {name}=={version}"
