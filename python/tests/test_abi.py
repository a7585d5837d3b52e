"""hora.h, the library's exports, and what Python declares are one thing."""

import ast
import ctypes
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import hora
from hora import _abi, _lib, call, errors, group
from hora._find import find

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "cmd" / "libhora" / "hora.h"
DATA = ROOT / "cmd" / "libhora" / "hora_data.h"

C_TYPES = {
    "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64,
    "hora_str": ctypes.c_char_p, "void": None,
}  # fmt: skip
# Pointers: ctypes takes bytes where the library only reads, an address where it writes.
POINTERS = {
    "void": ctypes.c_void_p,
    "const void *": ctypes.c_void_p,
    "const hora_op": ctypes.c_char_p,
    "uint64_t": ctypes.c_void_p,
    "hora_outcome": ctypes.c_void_p,
    "int32_t": ctypes.c_void_p,
    "hora_batch": ctypes.c_void_p,
}


def header(of: Path = HEADER) -> str:
    return re.sub(r"/\*.*?\*/", "", of.read_text(), flags=re.S)


def declared(of: Path = HEADER) -> dict:
    """Every function of a header: what it answers and takes."""
    functions = {}
    for answer, name, arguments in re.findall(r"^(\w+)\s+(hora_\w+)\(([^)]*)\);", header(of), flags=re.M):
        takes = []
        for a in arguments.split(","):
            a = a.strip()
            if a == "void":
                continue
            kind, star = re.match(r"(.*?)\s*(\*?)\s*\w+$", a).groups()
            takes.append(POINTERS[kind] if star else C_TYPES[kind])
        functions[name] = (C_TYPES[answer], tuple(takes))
    return functions


def test_header_and_python_agree():
    assert declared() == _abi.DECLARATIONS
    assert declared(DATA) == _abi.DATA_DECLARATIONS


def test_what_tensorflow_is_asked_for_is_looked_for_when_it_is_imported():
    wanted = re.findall(r'^    F\([^"]*"(TF_\w+)"', (HEADER.parent / "tf.h").read_text(), flags=re.M)
    source = (Path(hora.__file__).parent / "tensorflow/_needs.py").read_text()
    (value,) = [s.value for s in ast.parse(source).body if isinstance(s, ast.Assign) and s.targets[0].id == "FUNCTIONS"]
    assert list(ast.literal_eval(value)) == wanted and len(wanted) > 30


def test_at_most_thirty_functions():
    assert 20 <= len(declared()) <= 30


def bridges() -> dict:
    """Every function of bridges.h, which has nothing that hora.h has."""
    return declared(HEADER.parent / "bridges.h")


def test_the_bridges_and_python_agree():
    assert bridges() == {name: f for name, f in _abi.BRIDGES.items() if name != "hora_xla"}
    assert "void *hora_xla(void *frame);" in (HEADER.parent / "bridges.h").read_text()


def test_exports_are_the_headers():
    out = subprocess.run(["nm", "-D", "--defined-only", find()], check=True, capture_output=True, text=True).stdout
    exported = {line.split()[-1] for line in out.splitlines()}
    assert exported == {*declared(), *_abi.BRIDGES, *declared(DATA)}


def test_operation_layout():
    """struct hora_op as C lays it out has the size that Python packs."""
    body = re.search(r"typedef struct hora_op \{(.*?)\} hora_op;", header(), flags=re.S).group(1)
    sizes = {"uint32_t": "I", "uint8_t": "B", "int32_t": "i", "double": "d", "uint64_t": "Q", "hora_str": "P"}
    letters = ""
    for line in body.split(";"):
        line = line.strip()
        if not line:
            continue
        if "*" in line:
            letters += "P" * len(line.split(","))
            continue
        kind, names = line.split(None, 1)
        letters += sizes[kind] * len(names.split(","))
    assert struct.calcsize("@" + letters) == call.OP_SIZE
    assert struct.calcsize("@" + letters.replace("P", "Q")) == struct.calcsize(call._OP.format)


def test_the_page_is_up_to_date():
    """docs/abi.md says what hora.h says."""
    subprocess.run([sys.executable, ROOT / "tools/wheel/abidoc.py", "--check"], check=True)


def test_kinds_have_classes():
    kinds = dict(re.findall(r"(HORA_\w+) = (\d+)", header()))
    numbers = {int(n) for k, n in kinds.items() if k != "HORA_OK"}
    assert numbers == set(errors.BY_KIND)


def test_abi_number():
    assert int(re.search(r"#define HORA_ABI (\d+)", HEADER.read_text()).group(1)) == _abi.ABI == _lib.load().hora_abi()


def test_numbers_are_those_of_go():
    """Operators, kinds and element types are numbered as in package tensor and package collective."""
    go = (ROOT / "tensor" / "tensor.go").read_text()
    names = re.findall(r'^\t\w+:\s+\{"(\w+)", (\d+)\},', go, flags=re.M)
    assert [n for n, _ in names] == list(group.DTYPE_NAMES)
    assert [int(s) for _, s in names] == list(group.DTYPE_SIZES)
    ops = re.search(r"opNames = \[opEnd\]string\{(.*?)\}", (ROOT / "tensor" / "op.go").read_text(), flags=re.S).group(1)
    assert [o.strip().strip('"') for o in ops.split(",") if o.strip()] == [o.name.lower() for o in group.Op]
    kinds = re.search(
        r"kindNames = \[kindEnd\]string\{(.*?)\}", (ROOT / "collective" / "call.go").read_text(), flags=re.S
    ).group(1)
    names = [k.strip().strip('"') for k in kinds.split(",") if k.strip()][1:]
    assert names == [k.name.lower().replace("_", "") for k in group.Kind]


def test_wrong_library_is_refused(tmp_path):
    """A library of another version is one sentence, at once."""
    source = tmp_path / "old.c"
    source.write_text("int hora_abi(void) { return 999; }\n")
    so = tmp_path / "libold.so"
    subprocess.run(["gcc", "-shared", "-o", so, source], check=True)
    with pytest.raises(errors.VersionError, match=r"interface 999, this package .* needs 1; reinstall hora"):
        _abi.open_library(str(so))


def test_missing_library_is_refused(tmp_path):
    with pytest.raises(errors.VersionError, match="there is no such file; install the wheel"):
        _abi.open_library(str(tmp_path / "libhora.so"))


@pytest.mark.parametrize("libc", [None, "", "musl 1.2.5", ValueError])
def test_a_musl_system_is_one_sentence(tmp_path, monkeypatch, libc):
    """Where glibc's own name is not known, a library that cannot be loaded is explained by that."""

    def confstr(_):
        if libc is ValueError:
            raise ValueError("unrecognized configuration name")
        return libc

    monkeypatch.setattr("os.confstr", confstr)
    so = tmp_path / "libhora.so"
    so.write_bytes(b"no library that this system loads")
    with pytest.raises(errors.VersionError, match=r"need glibc 2\.17 or newer .* \(musl\?\); use an image with glibc"):
        _abi.open_library(str(so))


def test_foreign_library_is_refused(tmp_path):
    source = tmp_path / "other.c"
    source.write_text("int other(void) { return 0; }\n")
    so = tmp_path / "libother.so"
    subprocess.run(["gcc", "-shared", "-o", so, source], check=True)
    with pytest.raises(errors.VersionError, match="it is not hora's library"):
        _abi.open_library(str(so))


def test_the_page_has_a_program_that_runs(tmp_path):
    """The C program of docs/abi.md compiles against hora.h and runs."""
    source = tmp_path / "page.c"
    source.write_text(
        re.search(r"```c\n(#include <hora.h>.*?)```", (ROOT / "docs/abi.md").read_text(), flags=re.S).group(1)
    )
    library = Path(find())
    subprocess.run(
        ["gcc", "-Wall", "-Werror", "-I", HEADER.parent, "-o", tmp_path / "page", source, library], check=True
    )
    out = subprocess.run(
        [tmp_path / "page"], env={"LD_LIBRARY_PATH": str(library.parent)}, check=True, capture_output=True, text=True
    )
    assert out.stdout == "4\n"
