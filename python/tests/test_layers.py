"""What Python's layers may know of each other, read from the sources: as layout_test.go holds Go's."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from hora.group import Call, Group

PYTHON = Path(__file__).resolve().parents[1]
MOST_LINES = 400  # past it a file is split by idea
MOST_COLUMNS = 140  # the formatter's


def sources(*folders: str) -> dict[str, ast.Module]:
    """The modules below these folders of python/, by path."""
    found = {
        str(p.relative_to(PYTHON)): ast.parse(p.read_text(encoding="utf-8")) for f in folders for p in sorted((PYTHON / f).rglob("*.py"))
    }
    assert found, folders
    return found


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def imported(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """What a module imports: the module, the name in it ("" for the module itself), and what it is called here."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for a in node.names:
                yield a.name, "", a.asname or a.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            for a in node.names:
                yield "." * node.level + (node.module or ""), a.name, a.asname or a.name


def test_no_file_is_long():
    long = {}
    for path in sources("hora", "compat", "migration"):
        lines = len((PYTHON / path).read_text(encoding="utf-8").splitlines())
        if lines > MOST_LINES:
            long[path] = lines
    assert not long, f"longer than {MOST_LINES} lines, split by idea: {long}"


def test_no_line_is_long():
    """What the formatter does not break, it leaves: comments, docstrings, and what is kept from it."""
    quoted = re.compile(r"""\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'""")  # a sentence stands in one piece
    long = []
    for path in sources("hora", "compat", "migration", "../server", "../tools"):
        if path.startswith("hora/spark/"):
            continue  # to be broken where its text is worked on
        for n, line in enumerate((PYTHON / path).read_text(encoding="utf-8").splitlines(), 1):
            if len(quoted.sub('""', line)) > MOST_COLUMNS:
                long.append(f"{path}:{n}")
    assert not long, f"more than {MOST_COLUMNS} columns: {long}"


def test_compat_knows_public_names_only():
    """hora-compat could be another project's package: it imports no private name of hora, and asks none of what it imports."""
    wrong = []
    for path, tree in sources("compat").items():
        ours = set()  # names here that are modules or objects of hora's
        for module, name, called in imported(tree):
            if module == "hora" or module.startswith("hora."):
                ours.add(called)
                if any(map(private, [*module.split("."), name])):
                    wrong.append(f"{path} imports {module} {name}")
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and private(node.attr):
                root = node.value
                while isinstance(root, ast.Attribute):
                    root = root.value
                if isinstance(root, ast.Name) and root.id in ours:
                    wrong.append(f"{path}:{node.lineno} asks {ast.unparse(node)}")
    assert not wrong, "\n".join(wrong)


def test_compat_knows_no_byte_of_the_interface():
    """Neither the layout of hora.h's structures nor addresses of their fields: a Call has them."""
    wrong = []
    for path, tree in sources("compat").items():
        wrong += [f"{path} imports {module}" for module, _, _ in imported(tree) if module.partition(".")[0] in ("struct", "ctypes", "cffi")]
        wrong += [f"{path}:{n.lineno} reads .packed" for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == "packed"]
    assert not wrong, "\n".join(wrong)


def test_one_module_knows_ctypes():
    users = {path for path, tree in sources("hora").items() if any(module == "ctypes" for module, _, _ in imported(tree))}
    assert users == {"hora/_abi.py"}


def test_gradients_know_no_framework():
    allowed = {"__future__", "collections", "typing"}
    for path, tree in sources("hora/gradients").items():
        for module, _, _ in imported(tree):
            near = module in ("..errors", "..call") or re.fullmatch(r"\.\w+", module)
            assert near or module.partition(".")[0] in allowed, f"{path} imports {module}"


def test_calls_are_made_by_one_object():
    """What a call may say is said once, with a sentence for each argument; the group's methods take the object."""
    said = set(inspect.signature(Call.__init__).parameters) - {"self"}
    told = set(re.findall(r"\b\w+\b", re.sub(r">>>.*", "", Call.__doc__ or "")))
    assert said <= told, f"Call's docstring does not tell {said - told}"
    for method in (Group.run, Group.begin, Group.submit, Group.plan):
        assert list(inspect.signature(method).parameters)[:3] == ["self", "call", "keep"], method
