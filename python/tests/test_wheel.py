"""The wheels of dist/ (`make wheel`), installed into empty environments outside the tree."""

import hashlib
import os
import platform
import subprocess
import sys
import time
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
MACHINE = platform.machine()


def wheel(pattern: str) -> Path:
    found = sorted(DIST.glob(pattern))
    assert len(found) == 1, f"dist/ holds {[p.name for p in found]} for {pattern}; run `make wheel` first"
    return found[0]


def clean() -> dict[str, str]:
    """An environment in which nothing of the tree can be found."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("HORA", "PYTHON"))}


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """An empty environment with hora installed from dist/, without an index."""
    home = tmp_path_factory.mktemp("empty")
    venv.create(home / "venv", with_pip=True)
    begun = time.monotonic()
    subprocess.run(
        [home / "venv/bin/pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--find-links", DIST, "hora"],
        check=True, env=clean(), cwd=home,
    )  # fmt: skip
    took = time.monotonic() - begun
    assert took < 15, f"installing took {took:.1f} s"
    return home / "venv/bin"


def run(*command, cwd) -> str:
    done = subprocess.run(command, cwd=cwd, env=clean(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_contents(machine):
    path = wheel(f"hora-*manylinux_2_17_{machine}*.whl")
    assert path.stat().st_size < 20e6
    with zipfile.ZipFile(path) as z:
        names = z.namelist()
        version = (ROOT / "VERSION").read_text().strip()
        info = f"hora-{version}.dist-info"
        assert {"hora/libhora.so", "hora/hora.h", "hora/py.typed", f"hora-{version}.data/scripts/hora"} <= set(names)
        assert z.getinfo(f"hora-{version}.data/scripts/hora").external_attr >> 16 & 0o777 == 0o755
        assert "hora = hora.torch:register" in z.read(f"{info}/entry_points.txt").decode()
        wheel_file = z.read(f"{info}/WHEEL").decode()
        assert "Root-Is-Purelib: false" in wheel_file and wheel_file.count("Tag: ") == 2
        assert all(i.date_time == (2020, 1, 1, 0, 0, 0) for i in z.infolist())
        listed = dict(line.split(",")[:2] for line in z.read(f"{info}/RECORD").decode().splitlines())
        assert set(listed) == set(names)
        machine_code = {"x86_64": 62, "aarch64": 183}[machine]
        for elf in ("hora/libhora.so", f"hora-{version}.data/scripts/hora"):
            head = z.read(elf)[:20]
            assert head[:4] == b"\x7fELF" and int.from_bytes(head[18:20], "little") == machine_code


def test_auditwheel_agrees():
    path = wheel(f"hora-*manylinux_2_17_{MACHINE}*.whl")
    said = run(sys.executable, "-m", "auditwheel", "show", path, cwd=ROOT)
    assert f"manylinux_2_17_{MACHINE}" in said.replace("\n", " "), said


def test_in_an_empty_environment(empty, tmp_path):
    script = tmp_path / "first.py"
    script.write_text("import hora\nhora.init()\nprint('sum', hora.allreduce(hora.rank() + 1.0))\n")
    out = run(empty / "hora", "run", "-np", "2", empty / "python", script, cwd=tmp_path)
    assert out.count("sum 3.0") == 2
    where = run(empty / "python", "-c", "import hora; print(hora.__file__, hora.__version__)", cwd=tmp_path)
    assert str(empty.parent) in where and (ROOT / "VERSION").read_text().strip() in where
    assert run(empty / "python", "-m", "hora", "version", cwd=tmp_path) == run(empty / "hora", "version", cwd=tmp_path)


def test_nothing_is_needed(empty, tmp_path):
    assert run(empty / "pip", "list", "--format=freeze", cwd=tmp_path).count("==") <= 3  # pip, setuptools, hora


def test_same_sources_same_bytes(tmp_path):
    """The packing itself is reproducible; the compilers are told to be (-trimpath, no build id)."""
    sys.path.insert(0, str(ROOT / "tools/wheel"))
    import build

    digests = set()
    for i in range(2):
        folder = tmp_path / str(i)
        folder.mkdir()
        made = build.compat(folder)
        assert made is not None
        digests.add(hashlib.sha256(made.read_bytes()).hexdigest())
    assert len(digests) == 1


def test_compat_wheel():
    path = wheel("hora_compat-*-py3-none-any.whl")
    with zipfile.ZipFile(path) as z:
        script = next(n for n in z.namelist() if n.endswith("scripts/horovodrun"))
        assert z.read(script).decode() == '#!/bin/sh\nexec "$(dirname "$0")/hora" horovodrun "$@"\n'
        assert z.getinfo(script).external_attr >> 16 & 0o777 == 0o755
        metadata = z.read(next(n for n in z.namelist() if n.endswith("METADATA"))).decode()
        assert "Requires-Dist: hora==" in metadata and "Requires-Dist: cloudpickle" in metadata
