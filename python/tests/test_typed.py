"""The package is typed (py.typed), and what a type checker tells its users is true."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import hora

PACKAGE = Path(hora.__file__).parent

# torch and the others are looked at by nobody here: what comes from them is Any.
CONFIG = """
[mypy]
python_version = 3.10
ignore_missing_imports = True
disallow_untyped_defs = True
disallow_incomplete_defs = True
warn_redundant_casts = True
[mypy-torch.*,numpy.*,ml_dtypes.*,cloudpickle.*]
follow_imports = skip
follow_imports_for_stubs = True
"""

# hora-compat's modules that mypy cannot follow: functions kept as attributes of a class (basics, mpi_ops), a class that
# is mixed into the user's own (data_loader_base), values that are None until init (process_sets, _more_ops), and loops
# over options of several types (runner, util).
FREE = """
[mypy-horovod.common.basics,horovod.torch.mpi_ops,horovod.data.data_loader_base,horovod.common.process_sets]
ignore_errors = True
[mypy-horovod.torch._more_ops,horovod.runner,horovod.common.util]
ignore_errors = True
"""

PROGRAM = """
import hora
reveal_type(hora.rank())
reveal_type(hora.Group([0]).ranks)
reveal_type(hora.wait_all([]))
reveal_type(hora.counters())
reveal_type(hora.buffer(3).memory)
reveal_type(hora.run(print))
hora.broadcast(1, root="zero")
hora.allreduce(1, into=2)
"""


def mypy(folder: Path, *what: object) -> str:
    """What mypy says, with a copy of the package in folder: beside an installed one it would find its own parts."""
    shutil.copytree(PACKAGE, folder / "hora", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (folder / "mypy.ini").write_text(CONFIG + FREE)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        folder / "mypy.ini",
        "--cache-dir",
        folder / "cache",
        *what,
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_the_packages(tmp_path):
    """hora with its bridges, and the names of hora-compat."""
    for name in ("horovod", "sparkdl", "spark_tensorflow_distributor"):
        home = Path(importlib.util.find_spec(name).origin).parent
        shutil.copytree(home, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    said = mypy(tmp_path, *(tmp_path / name for name in ("hora", "horovod", "sparkdl")))
    assert "Success: no issues found" in said, said


def test_a_program(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    said = mypy(tmp_path, tmp_path / "program.py")
    for n, type_ in enumerate(
        ["int", "tuple[int, ...]", "list[Any]", "dict[str, int]", "memoryview[int]", "list[Any]"], 3
    ):
        line = next(text for text in said.splitlines() if f"program.py:{n}: note" in text)
        assert type_ in line.replace("builtins.", "").replace("typing.", ""), said
    assert 'program.py:9: error: Argument "root"' in said, said
    assert 'program.py:10: error: Unexpected keyword argument "into"' in said, said
    assert "(py.typed" not in said
