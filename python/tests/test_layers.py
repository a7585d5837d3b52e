"""What Python's layers may know of each other, read from the sources: as layout_test.go holds Go's."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from hora.group import Call, Group
from hora.spark import frontend

PYTHON = Path(__file__).resolve().parents[1]
MOST_LINES = 400  # past it a file is split by idea
MOST_COLUMNS = 120  # the formatter's


def sources(*folders: str) -> dict[str, ast.Module]:
    """The modules below these folders of python/, by path."""
    found = {
        str(p.relative_to(PYTHON)): ast.parse(p.read_text(encoding="utf-8"))
        for f in folders
        for p in sorted((PYTHON / f).rglob("*.py"))
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


def kept_texts(tree: ast.Module) -> set[int]:
    """The lines of texts over several lines that are no docstrings: programs of tests, and what users read."""
    documented = {
        id(n.body[0].value)
        for n in ast.walk(tree)
        if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and n.body
        and isinstance(n.body[0], ast.Expr)
    }
    lines: set[int] = set()
    for n in ast.walk(tree):
        if isinstance(n, (ast.Constant, ast.JoinedStr)) and id(n) not in documented:
            end = n.end_lineno or n.lineno
            lines.update(range(n.lineno, end + 1) if end > n.lineno else ())
    return lines


def test_no_line_is_long():
    """As in Go: a text in quotes counts for nothing, since a sentence that a user reads stands in one piece."""
    quoted = re.compile(r"""\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'""")
    for_tools = re.compile(r"  # (type: ignore|noqa|fmt: ).*")
    long = []
    for path, tree in sources(
        "hora", "compat", "migration", "tests", "../server", "../tools", "../bench", "../examples"
    ).items():
        kept = kept_texts(tree)
        for n, line in enumerate((PYTHON / path).read_text(encoding="utf-8").splitlines(), 1):
            if n not in kept and len(for_tools.sub("", quoted.sub('""', line))) > MOST_COLUMNS:
                long.append(f"{path}:{n}")
    assert not long, f"more than {MOST_COLUMNS} columns: {long}"


def test_compat_knows_public_names_only():
    """hora-compat could be another project's package: it imports no private name of hora, and asks none of what it
    imports."""
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


def listed(module: str) -> set[str] | None:
    """The names of a module's __all__, read from its source; None where it has no list, or that is no list of texts."""
    at = PYTHON / module.replace(".", "/")
    tree = ast.parse((at / "__init__.py" if at.is_dir() else at.with_suffix(".py")).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            if ast.unparse(node.value) == "sorted(_HOMES)":  # names that are looked up when they are first used
                return set(importlib.import_module(module).__all__)
            return set(ast.literal_eval(node.value))
    return None


def is_module(name: str) -> bool:
    at = PYTHON / name.replace(".", "/")
    return at.is_dir() or at.with_suffix(".py").is_file()


def test_what_compat_imports_is_listed():
    """Public is what a module says it is by __all__, not what has a name without a line before it."""
    wrong, seen = [], 0
    for path, tree in sources("compat").items():
        for module, name, _ in imported(tree):
            if (module == "hora" or module.startswith("hora.")) and name and not is_module(f"{module}.{name}"):
                seen += 1
                if name not in (listed(module) or ()):
                    wrong.append(f"{path} imports {name} of {module}, whose __all__ lacks it")
    assert not wrong, "\n".join(wrong)
    assert seen > 50, "the search is broken"


def test_what_is_looked_up_late_is_where_it_is_said():
    """hora.spark.frontend imports nothing before it is asked, tells of each name, and has each."""
    program = (
        "import sys, hora.spark.frontend as f; late = [m for m in sys.modules if m.startswith('hora.spark._')]; "
        "print(late, sorted(f._HOMES) == sorted(f.__all__), [n for n in f.__all__ if n not in f.__doc__])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[] True []\n", done.stdout
    for name, home in frontend._HOMES.items():
        tree = ast.parse((PYTHON / f"hora/spark/{home}.py").read_text(encoding="utf-8"))
        made = [n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name == name]
        assert made and ast.get_docstring(made[0]), (
            f"hora/spark/{home}.py: {name} is not there, or says not what it does"
        )


def test_compat_knows_no_byte_of_the_interface():
    """Neither the layout of hora.h's structures nor addresses of their fields: a Call has them."""
    wrong = []
    for path, tree in sources("compat").items():
        wrong += [
            f"{path} imports {module}"
            for module, _, _ in imported(tree)
            if module.partition(".")[0] in ("struct", "ctypes", "cffi")
        ]
        wrong += [
            f"{path}:{n.lineno} reads .packed"
            for n in ast.walk(tree)
            if isinstance(n, ast.Attribute) and n.attr == "packed"
        ]
    assert not wrong, "\n".join(wrong)


def test_one_module_knows_ctypes():
    users = {
        path for path, tree in sources("hora").items() if any(module == "ctypes" for module, _, _ in imported(tree))
    }
    assert users == {"hora/_abi.py"}


def test_gradients_know_no_framework():
    allowed = {"__future__", "collections", "typing"}
    for path, tree in sources("hora/gradients").items():
        for module, _, _ in imported(tree):
            near = module in ("..errors", "..call") or re.fullmatch(r"\.\w+", module)
            assert near or module.partition(".")[0] in allowed, f"{path} imports {module}"


FRAMEWORKS = ("torch", "tensorflow", "keras", "jax")
# Keras computes with one of the others, and TensorFlow's package has an optimizer and a layer of Keras'.
MAY_KNOW = {
    "keras/_backend.py": {"tensorflow", "jax"}, "keras/_compiled.py": {"tensorflow"}, "keras/data.py": {"tensorflow"},
    "keras/passes.py": {"tensorflow"}, "tensorflow/normalization.py": {"keras"}, "tensorflow/optimizer.py": {"keras"},
}  # fmt: skip


def test_no_framework_knows_another():
    """What they share lies below them; where one of our packages imports another it says so here, and Keras' does it in
    functions, once it is known what Keras computes with."""

    def others(tree: ast.Module, of: str) -> set[str]:
        names = set()
        for module, name, _ in imported(tree):
            inside = re.fullmatch(r"(?:\.\.|hora\.)(\w+).*", module)
            names.add(inside[1] if inside else name if module in ("..", "hora") else "")
        return names & {*FRAMEWORKS} - {of}

    found = {}
    for of in FRAMEWORKS:
        for path, tree in sources(f"hora/{of}").items():
            if known := others(tree, of):
                found[path.removeprefix("hora/")] = known
            early = [n for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))]
            assert of != "keras" or not others(ast.Module(early, []), of), path
    assert found == MAY_KNOW


def test_calls_are_made_by_one_object():
    """What a call may say is said once, with a sentence for each argument; the group's methods take the object."""
    said = set(inspect.signature(Call.__init__).parameters) - {"self"}
    told = set(re.findall(r"\b\w+\b", re.sub(r">>>.*", "", Call.__doc__ or "")))
    assert said <= told, f"Call's docstring does not tell {said - told}"
    for method in (Group.run, Group.begin, Group.submit, Group.plan):
        assert list(inspect.signature(method).parameters)[:3] == ["self", "call", "keep"], method


def test_compiled_programs_call_no_python():
    """The library runs inside of them: nothing that calls back into Python stands between."""
    calls = {
        "numpy_function", "py_function", "py_func", "eager_py_func", "pure_callback", "io_callback", "host_callback",
    }  # fmt: skip
    wrong = []
    for path, tree in sources("hora", "compat").items():
        for node in ast.walk(tree):
            names = {getattr(node, "attr", ""), getattr(node, "id", "")}
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = {part for a in node.names for part in a.name.split(".")}
            wrong += [f"{path}:{getattr(node, 'lineno', 0)} uses {n}" for n in sorted(names & calls)]
    assert not wrong, "\n".join(wrong)
