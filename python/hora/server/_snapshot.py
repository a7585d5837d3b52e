"""The folder that goes along with a job, as the program `hora` takes it: files by hash, without what ignore files
name."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
from pathlib import Path
from typing import Any

from ._types import ServerError

LIMIT = 500 << 20
IGNORE = (".gitignore", ".amlignore", ".horaignore")


class Snapshot:
    """A folder as it was. Files can be added that the folder has not."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self.files: dict[str, dict[str, Any]] = {}
        self.content: dict[str, Path | bytes] = {}  # by hash
        self._rules: list[tuple[re.Pattern[str], bool, bool]] = []
        self.folder = os.path.abspath("." if folder is None else folder)
        if folder is not None:
            root = Path(folder)
            if not root.is_dir():
                raise ServerError(f"take the folder {root} along: there is no such folder")
            self._walk(root, "")
            self._check(root)
        self.own = frozenset(self.files)  # without what is added

    def _walk(self, folder: Path, below: str) -> None:
        for name in IGNORE:
            try:
                text = (folder / name).read_text(encoding="utf-8", errors="replace")
            except FileNotFoundError:
                continue
            self._rules += filter(None, (_rule(below, line) for line in text.split("\n")))
        for entry in sorted(os.scandir(folder), key=lambda e: os.fsencode(e.name)):
            path = below + entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in (".git", "__pycache__") and not self._ignored(path, True):
                    self._walk(folder / entry.name, path + "/")
            elif not self._ignored(path, False):
                self._file(folder / entry.name, path, entry)

    def _file(self, at: Path, path: str, entry: os.DirEntry[str]) -> None:
        info = entry.stat(follow_symlinks=False)
        if entry.is_symlink():
            to = os.readlink(at)
            end = posixpath.normpath(posixpath.join(posixpath.dirname(path), to))
            if not posixpath.isabs(to) and end != ".." and not end.startswith("../"):
                self.files[path] = {"path": path, "mode": info.st_mode & 0o777, "size": 0, "link": to}
        elif entry.is_file(follow_symlinks=False):
            self.files[path] = {"path": path, "mode": info.st_mode & 0o777, "size": info.st_size, "at": at}

    def _check(self, root: Path) -> None:
        total = sum(f["size"] for f in self.files.values())
        if total > LIMIT:
            sizes: dict[str, int] = {}
            for f in self.files.values():
                top = f["path"].partition("/")[0]
                sizes[top] = sizes.get(top, 0) + f["size"]
            largest = ", ".join(f"{n} ({s >> 20} MB)" for n, s in sorted(sizes.items(), key=lambda i: -i[1])[:3])
            raise ServerError(
                f"take the folder {root} along: it has {total >> 20} MB, and {LIMIT >> 20} MB go along at most: "
                f"list what the job does not need in .horaignore, most of all {largest}"
            )
        for f in self.files.values():
            if at := f.pop("at", None):
                f["hash"] = _hash(at)
                self.content[f["hash"]] = at

    def _ignored(self, path: str, folder: bool) -> bool:
        out = False
        for match, keep, folders in self._rules:
            if (folder or not folders) and match.match(path):
                out = not keep
        return out

    def add(self, path: str, content: bytes = b"", mode: int = 0o644) -> None:
        """Adds a file, in place of one that is there."""
        digest = hashlib.sha256(content).hexdigest()
        self.files[path] = {"path": path, "mode": mode, "size": len(content), "hash": digest}
        self.content[digest] = content

    def include(self, path: str, at: Path) -> None:
        """Adds a file or a folder of the disk, with all of its files."""
        files = [at] if at.is_file() else sorted(p for p in at.rglob("*") if p.is_file())
        for file in files:
            name = path if file == at else f"{path}/{file.relative_to(at).as_posix()}"
            digest = _hash(file)
            self.files[name] = {"path": name, "mode": 0o644, "size": file.stat().st_size, "hash": digest}
            self.content[digest] = file
        if sum(f["size"] for f in self.files.values()) > LIMIT:
            raise ServerError(
                f"take {at} along: with it the folder has more than {LIMIT >> 20} MB: read it where it is"
            )

    def link(self, path: str, to: str) -> None:
        """Adds a symbolic link within the folder."""
        self.files[path] = {"path": path, "mode": 0o777, "size": 0, "link": to}

    def encode(self) -> tuple[bytes, str]:
        """The list of files, and the hash by which a server knows it."""
        listed = [self.files[p] for p in sorted(self.files, key=lambda p: p.encode("utf-8", "surrogateescape"))]
        text = json.dumps({"files": listed or None}, separators=(",", ":"), ensure_ascii=False)
        for c in "&<>\u2028\u2029":
            text = text.replace(c, f"\\u{ord(c):04x}")
        try:
            content = text.encode()
        except UnicodeEncodeError as e:
            raise ServerError(
                f"take the folder along: a file's name is no UTF-8 near {text[max(0, e.start - 40) : e.start]!r}: rename it"
            ) from e
        return content, hashlib.sha256(content).hexdigest()


def _hash(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _slow_hash(f)


def _slow_hash(f: Any) -> str:
    h = hashlib.sha256()
    while block := f.read(1 << 20):
        h.update(block)
    return h.hexdigest()


def _rule(below: str, line: str) -> tuple[re.Pattern[str], bool, bool] | None:
    """One line of an ignore file, as git means it: what it matches, whether it keeps, whether folders only."""
    line = line.rstrip("\r")
    if not line.endswith("\\ "):
        line = line.rstrip(" \t")
    if not line or line.startswith("#"):
        return None
    keep = line.startswith("!")
    line = line.removeprefix("!")
    if not line:
        return None
    folders = line.endswith("/")
    line = line.removesuffix("/")
    anchored = "/" in line
    line = line.removeprefix("/")
    try:
        return re.compile(re.escape(below) + ("" if anchored else "(?:.*/)?") + _translate(line) + r"\Z"), keep, folders
    except re.error:
        return None


def _translate(p: str) -> str:
    out, i = "", 0
    while i < len(p):
        if p.startswith("**/", i) and (i == 0 or p[i - 1] == "/"):
            out, i = out + "(?:.*/)?", i + 3
        elif p.startswith("**", i) and i > 0 and p[i - 1] == "/" and i + 2 == len(p):
            out, i = out + ".+", i + 2
        elif p[i] == "*":
            out, i = out + "[^/]*", i + 1
        elif p[i] == "?":
            out, i = out + "[^/]", i + 1
        elif p[i] == "[" and "]" in p[i + 1 :]:
            end = p.index("]", i + 1)
            inside = p[i + 1 : end]
            inside = "^" + inside[1:] if inside.startswith("!") else inside
            out, i = out + "[" + inside.replace("\\", "\\\\") + "]", end + 1
        elif p[i] == "\\" and i + 1 < len(p):
            out, i = out + re.escape(p[i + 1]), i + 2
        else:
            out, i = out + re.escape(p[i]), i + 1
    return out
