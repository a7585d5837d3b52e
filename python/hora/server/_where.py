"""Which server is meant, and its token: as the commands of the program `hora` find them."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from ._types import ServerError


def _folder() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    return Path(base) / "hora" if base else Path.home() / ".config" / "hora"


def _file(url: str) -> str:
    """The name under which `hora up` and `hora login` keep a server."""
    host = urlsplit(url).netloc.rpartition("@")[2]
    return "server-" + host.replace(":", "_").replace("[", "").replace("]", "")


def _kept(name: str) -> list[str]:
    try:
        return (_folder() / name).read_text().split("\n")
    except OSError:
        return []


def _check(url: str) -> None:
    """Refuses what would send a token where anybody can read it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ServerError(
            f"{url!r} is no address of a server: write it as https://HOST:PORT#FINGERPRINT, as hora up prints it"
        )
    loopback = parts.hostname in ("localhost", "::1") or parts.hostname.startswith("127.")
    if parts.scheme == "http" and not loopback:
        raise ServerError(
            f"{url} is not encrypted, and the token would go in clear: give the https:// address that hora up --listen prints"
        )


def find(url: str | None, token: str | None) -> tuple[str, str]:
    """The address and the token of a server: what is given, else HORA_SERVER and HORA_TOKEN[_FILE], else what `hora up`
    and `hora login` keep."""
    url = url or os.environ.get("HORA_SERVER")
    token = token or os.environ.get("HORA_TOKEN")
    if not token and os.environ.get("HORA_TOKEN_FILE"):
        try:
            token = Path(os.environ["HORA_TOKEN_FILE"]).read_text().strip()
        except OSError as e:
            raise ServerError(f"HORA_TOKEN_FILE: {e}: name the file with the server's token") from e
    if url:
        _check(url)
    kept = _kept(_file(url) if url else "current")
    if url and "#" not in url and kept and kept[0].startswith(url.rstrip("/") + "#"):
        url = kept[0].strip()  # with the authority that hora login was told of
    if not url:
        if not kept or not kept[0].strip():
            raise ServerError(
                "there is no server: start one with hora up, or name one with HORA_SERVER or hora login URL"
            )
        url = kept[0].strip()
    if not token:
        token = kept[1].strip() if len(kept) > 1 else ""
        if not token:
            raise ServerError(f"there is no token for {url}: give it as HORA_TOKEN, or once with hora login {url}")
    return url.rstrip("/"), token
