"""Write the tables of docs/abi.md from cmd/libhora/hora.h; with --check only say whether they are up to date."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = (
    "<!-- generated from cmd/libhora/hora.h -->",
    "<!-- end of what is generated -->",
)


def functions(body: str) -> list[str]:
    """A row for each section and each function."""
    lines = []
    for line in body.splitlines():
        if m := re.match(r"/\* -- (.*?)(?:\*/)?$", line):
            section = m.group(1).strip()
            lines.append(
                f"| **{section.split('.')[0].replace('|', '/')}** | {section.partition('. ')[2]} |"
            )
        elif m := re.match(r"(\w+ hora_\w+\([^)]*\);)\s*(?:/\* (.*?) \*/)?", line):
            lines.append(f"| `{m.group(1)}` | {m.group(2) or ''} |")
    return lines


def tables(header: str, data: str) -> str:
    """The functions, error numbers and structures, as Markdown."""
    lines = ["", "| function | what it does |", "| --- | --- |"]
    lines += functions(header[header.index("/* -- the library */") :])
    lines += functions(data[data.index("/* -- ") :])
    lines += bridges()
    lines += ["", "| number | name | meaning |", "| --- | --- | --- |"]
    for name, number, meaning in re.findall(
        r"^    (HORA_\w+) = (\d+),?\s*(?:/\* (.*?) \*/)?$", header, flags=re.M
    ):
        lines.append(f"| {number} | `{name}` | {meaning or 'no failure'} |")
    for struct in ("hora_op", "hora_outcome", "hora_batch"):
        text = re.search(
            rf"typedef struct {struct} \{{.*?\}} {struct};", header + data, flags=re.S
        ).group(0)
        lines += ["", "```c", text, "```"]
    lines += ["", *numbers(), ""]
    return "\n".join(lines)


def bridges() -> list[str]:
    """The functions of bridges.h, which frameworks' compilers call by address."""
    header = (ROOT / "cmd/libhora/bridges.h").read_text()
    lines = ["", "| bridges.h | what it does |", "| --- | --- |"]
    for what, comment in re.findall(r"^([\w *]+hora_\w+\([^)]*\);) *(?:/\* (.*?) \*/)?$", header, flags=re.M):
        lines.append(f"| `{what}` | {comment} |")
    return lines


def numbers() -> list[str]:
    """Operators, kinds and element types by number."""
    sys.path.insert(0, str(ROOT / "python"))
    from hora.group import DTYPE_NAMES, Kind, Op

    def row(what: str, pairs: list[tuple[int, str]]) -> str:
        return f"| {what} | {', '.join(f'{n} {name}' for n, name in pairs)} |"

    return [
        "| field | numbers |",
        "| --- | --- |",
        row("kind", [(int(k), k.name.lower()) for k in Kind]),
        row("op", [(int(o), o.name.lower()) for o in Op]),
        row("dtype", [(i, n) for i, n in enumerate(DTYPE_NAMES) if i]),
    ]


def main() -> None:
    page = ROOT / "docs/abi.md"
    text = page.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    fresh = (
        before + BEGIN + tables((ROOT / "cmd/libhora/hora.h").read_text(), (ROOT / "cmd/libhora/hora_data.h").read_text()) + END + after
    )
    if "--check" in sys.argv:
        if fresh != text:
            sys.exit("docs/abi.md is not up to date: run python tools/wheel/abidoc.py")
        return
    page.write_text(fresh)


if __name__ == "__main__":
    main()
