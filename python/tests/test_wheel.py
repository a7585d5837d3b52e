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
    installed = run(home / "venv/bin/pip", "list", "--format=freeze", cwd=home)
    assert {line.split("==")[0] for line in installed.split()} <= {"hora", "pip", "setuptools"}, installed  # nothing else is needed
    return home / "venv/bin"


@pytest.fixture(scope="module")
def full(empty):
    """The same with hora-compat: what it depends on from the index, itself from dist/."""
    metadata = next(n for n in zipfile.ZipFile(wheel("hora_compat-*.whl")).namelist() if n.endswith("METADATA"))
    text = zipfile.ZipFile(wheel("hora_compat-*.whl")).read(metadata).decode()
    needs = [line.split(": ")[1] for line in text.splitlines() if line.startswith("Requires-Dist: ") and "hora" not in line]
    assert needs == ["cloudpickle", "psutil", "pyyaml"]
    pip = [empty / "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *needs], check=True, env=clean(), cwd=empty)
    subprocess.run([*pip, "--no-index", "--find-links", DIST, "hora-compat"], check=True, env=clean(), cwd=empty)
    return empty


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


def test_compat_in_an_empty_environment(full, tmp_path):
    """Horovod's launcher and sparkdl's runner, without any framework."""
    script = tmp_path / "notebook.py"
    script.write_text(
        "from sparkdl import HorovodRunner\n"
        "def train(x):\n"
        "    import hora\n"
        "    hora.init()\n"
        "    return hora.allreduce(hora.rank() + x)\n"
        "print('result', HorovodRunner(np=-2).run(train, x=1.0))\n"
    )
    assert "result 3.0" in run(full / "python", script, cwd=tmp_path)
    run(full / "python", "-c", "import horovod, horovod.runner, sparkdl", cwd=tmp_path)
    script = tmp_path / "first.py"
    script.write_text("import hora\nhora.init()\nprint('sum', hora.allreduce(hora.rank() + 1.0))\n")
    out = run(full / "horovodrun", "-np", "2", "-H", "localhost:2", full / "python", script, cwd=tmp_path)
    assert out.count("sum 3.0") == 2


def foreign(folder: Path) -> Path:
    """A wheel of somebody else's horovod."""
    path = folder / "horovod-0.28.1-py3-none-any.whl"
    files = {
        "horovod/__init__.py": "__version__ = '0.28.1'\n",
        "horovod-0.28.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1\n",
        "horovod-0.28.1.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as z:
        for name, text in files.items():
            z.writestr(name, text)
        record = "".join(f"{n},,\n" for n in (*files, "horovod-0.28.1.dist-info/RECORD"))
        z.writestr("horovod-0.28.1.dist-info/RECORD", record)
    return path


def test_a_foreign_horovod_over_ours_is_named(full, tmp_path):
    cure = ["pip uninstall -y horovod", "pip install --force-reinstall --no-deps hora-compat"]
    pip = [full / "pip", "-q", "--disable-pip-version-check"]
    run(*pip, "install", "--no-index", foreign(tmp_path), cwd=tmp_path)
    try:
        done = subprocess.run(
            [full / "python", "-c", "import horovod, hora; hora.init()"],
            cwd=tmp_path,
            env=clean(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0 and all(c in done.stderr for c in cure), done.stderr
        env = clean() | {"PATH": f"{full}:{os.environ['PATH']}"}
        done = subprocess.run([full / "hora", "doctor"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
        assert all(c in done.stdout + done.stderr for c in cure), done.stdout + done.stderr
    finally:
        run(*pip, "uninstall", "-y", "horovod", cwd=tmp_path)  # takes our files of the same names with it
        run(*pip, "install", "--no-index", "--find-links", DIST, "--force-reinstall", "--no-deps", "hora-compat", cwd=tmp_path)
    done = subprocess.run(
        [full / "python", "-c", "import horovod, hora; hora.init()"], cwd=tmp_path, env=clean(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and not done.stderr, done.stderr  # cured


def test_another_version_is_refused(full, tmp_path):
    """A package and a library of different versions do not work together by chance."""
    library = tmp_path / "libhora.so"
    source = tmp_path / "old.c"
    source.write_text("int hora_abi(void) { return 999; }\n")
    subprocess.run(["gcc", "-shared", "-o", library, source], check=True)
    code = "import hora\ntry:\n    hora.init()\nexcept hora.VersionError as e:\n    print(e)"
    done = subprocess.run(
        [full / "python", "-c", code], env=clean() | {"HORA_LIBRARY": str(library)}, capture_output=True, text=True, cwd=tmp_path
    )
    assert "interface 999" in done.stdout and "reinstall hora" in done.stdout, done.stderr


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
