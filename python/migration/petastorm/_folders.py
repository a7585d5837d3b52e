"""Folders called name=value: what they say of the rows below them, and which row groups a predicate on them alone
wants."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote

import numpy as np

_NULL = "__HIVE_DEFAULT_PARTITION__"
_SUFFIXES = (".parquet", ".parq", ".pq")


def seen_from_above(path):
    """The path of one file such that the folders called name=value above it are columns, as where their parent is
    given.

    A pattern's folders count from its first wildcard on: a class of one character, in the first such folder's name, is
    a wildcard that fits this file alone.
    """
    folders = path.split("/")
    first = next((i for i, f in enumerate(folders[:-1]) if f.find("=") > 0), None)
    if first is None or not posixpath.basename(path).endswith(_SUFFIXES) or any(c in path for c in "*?[]\\"):
        return path
    folders[first] = f"[{folders[first][0]}]{folders[first][1:]}"
    return "/".join(folders)


def named(groups):
    """The names of the columns that the folders of row groups are."""
    return {part.partition("=")[0] for g in groups for part in g["file"].split("/")[:-1] if part.find("=") > 0}


def _below(file, sources):
    """The folders of a file below the source that it is of; only those are columns."""
    for source in sources:
        root = source.partition("[")[0]
        root = root if root == source else root.rpartition("/")[0]
        if file.startswith(f"{root}/"):
            return file[len(root) + 1 :].split("/")[:-1]
    return []


def _values(group, sources, schema):
    """What the folders of a row group's file say, in the types of a schema's fields."""
    found = {}
    for folder in _below(group["file"], sources):
        name, _, text = folder.partition("=")
        if name in schema.fields:
            kind = schema.fields[name].numpy_dtype
            number = isinstance(kind, type) and issubclass(kind, np.number)
            found[name] = None if text == _NULL else kind(unquote(text)) if number else unquote(text)
    return found


def wanted(groups, sources, predicate, schema):
    """The numbers of the row groups that have rows and that a predicate wants; None where it asks for more than the
    folders' names."""
    asked = set(predicate.get_fields())
    known, numbers = {}, []
    for i, group in enumerate(groups):
        if not group["rows"]:
            continue
        values = {n: v for n, v in _values(group, sources, schema).items() if n in asked}
        if set(values) != asked:
            return None
        key = tuple(values.items())
        if key not in known:
            known[key] = bool(predicate.do_include(values))
        if known[key]:
            numbers.append(i)
    return numbers
