"""What tells hosts apart."""

from __future__ import annotations

import hashlib
import os
import platform

__all__ = ["host_hash"]


def host_hash(salt: str | None = None) -> str:
    """Equal for processes that share a machine's name and namespaces, as those of one container do.

    >>> host_hash() == host_hash()
    True
    """
    spaces = []
    for name in ("ipc", "mnt", "net", "pid", "uts"):
        try:
            spaces.append(os.readlink(f"/proc/self/ns/{name}"))
        except OSError:
            pass
    name = platform.node()
    text = "\0".join([name, *spaces, salt or ""])
    return f"{name.split('.')[0]}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
