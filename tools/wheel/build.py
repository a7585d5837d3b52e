"""Build the wheels in dist/: hora and hora-server for each platform, hora-compat, hora-petastorm, hora-azureml, and
what says why no wheel fits elsewhere.

    python tools/wheel/build.py                     hora for x86_64 and aarch64 (zig) and hora-compat
    python tools/wheel/build.py --cc native         hora for this machine only, with its own C compiler
    python tools/wheel/build.py --library-only      libhora.so and _fast.abi3.so in python/hora, to run from the tree

A wheel is a zip file with a list of its contents: no build tool is needed. Times are fixed and names sorted, so the
same sources give the same bytes.
"""

from __future__ import annotations

import argparse
import base64
import concurrent.futures
import hashlib
import gzip
import importlib.util
import io
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIME = (2020, 1, 1, 0, 0, 0)
GLIBC = "2.17"
PLATFORMS = {
    "x86_64": (
        "amd64",
        "x86_64-linux-gnu",
        "manylinux_2_17_x86_64.manylinux2014_x86_64",
    ),
    "aarch64": (
        "arm64",
        "aarch64-linux-gnu",
        "manylinux_2_17_aarch64.manylinux2014_aarch64",
    ),
}
REQUIRES = ">=3.10"


def version() -> str:
    return (ROOT / "VERSION").read_text().strip()


def run(command: list[str], **env: str) -> None:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit(
            f"{' '.join(command)}\n{done.stdout}\nbuild wheel: the command above failed with exit code {done.returncode}"
        )


def compiler(machine: str, cc: str) -> tuple[str, str]:
    """The C compiler for a machine, and the one to archive with: this system's own, or zig with a low glibc."""
    if cc == "native":
        if machine != platform.machine():
            sys.exit(
                f"build wheel: --cc native builds for {platform.machine()} only; use --cc zig for {machine}"
            )
        return os.environ.get("CC", "gcc"), "ar"
    found = importlib.util.find_spec("ziglang")
    if found is None or found.origin is None:
        sys.exit(
            "build wheel: zig is needed for wheels that run on older systems; run `pip install ziglang`, or use --cc native"
        )
    zig = shlex.quote(str(Path(found.origin).parent / "zig"))
    return f"{zig} cc -target {PLATFORMS[machine][1]}.{GLIBC}", f"{zig} ar"


def library(machine: str, cc: str, to: Path) -> None:
    """The shared library for one machine."""
    c, ar = compiler(machine, cc)
    exports = ROOT / "cmd/libhora/exports.map"
    flags = f"-s -w -buildid= -X main.version={version()} \"-extldflags='-Wl,--version-script={exports}'\""
    run(
        ["go", "build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", f"-ldflags={flags}", "-o", str(to), "./cmd/libhora"],
        CGO_ENABLED="1", GOOS="linux", GOARCH=PLATFORMS[machine][0], CC=c, AR=ar, CGO_CFLAGS="-O2 -g0",
    )  # fmt: skip
    to.with_suffix(".h").unlink(missing_ok=True)  # cgo's; ours is cmd/libhora/hora.h


def module(machine: str, cc: str, to: Path) -> None:
    """The extension module hora._fast for one machine. It declares what it uses of Python's stable ABI itself."""
    c, _ = compiler(machine, cc)
    flags = "-O2 -g0 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Wl,-s -Wl,--build-id=none"
    run([*shlex.split(c), *flags.split(), "-I", "cmd/libhora", "-o", str(to), "python/hora/_fast.c"])


def stub(machine: str, cc: str, so: Path, to: Path) -> None:
    """The library of some KB that TensorFlow opens: it registers the operations of libhora.so, which lies beside it."""
    c, _ = compiler(machine, cc)
    beside = to.parent / f".{to.name}.d"
    beside.mkdir(exist_ok=True)
    try:
        shutil.copy(so, beside / "libhora.so")
        flags = "-O2 -g0 -fPIC -shared -Wall -Wextra -Wl,-s -Wl,--build-id=none -Wl,-rpath,$ORIGIN"
        run([*shlex.split(c), *flags.split(), "-o", str(to), "cmd/libhora/stub/tf_stub.c", f"-L{beside}", "-lhora"])
    finally:
        shutil.rmtree(beside)


def programs(machine: str, folder: Path) -> None:
    """The programs hora and horad for one machine, without a C library. One command builds what both have once."""
    folder.mkdir(exist_ok=True)
    run(["go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=", "-o", f"{folder}/", "./cmd/hora", "./cmd/horad"],
        CGO_ENABLED="0", GOOS="linux", GOARCH=PLATFORMS[machine][0])  # fmt: skip


def libraries(machine: str, cc: str, folder: Path) -> None:
    """What Python opens on one machine: libhora.so, TensorFlow's way to it, and the extension module."""
    folder.mkdir(exist_ok=True)
    library(machine, cc, folder / "libhora.so")
    stub(machine, cc, folder / "libhora.so", folder / "libhora_tf.so")
    module(machine, cc, folder / "_fast.abi3.so")


class Wheel:
    """One wheel being written."""

    def __init__(self, name: str, tags: list[str]) -> None:
        self.name, self.tags = name, tags
        self.info = f"{name}-{version()}.dist-info"
        self.data = f"{name}-{version()}.data"
        self.files: dict[str, tuple[bytes, int]] = {}

    def add(self, path: str, content: bytes | str, mode: int = 0o644) -> None:
        self.files[path] = (
            content.encode() if isinstance(content, str) else content,
            mode,
        )

    def tree(self, source: Path, to: str) -> None:
        """Every source file below a folder."""
        for p in sorted(source.rglob("*")):
            if (
                p.is_file()
                and "__pycache__" not in p.parts
                and p.suffix in {".py", ".pyi", ".typed"}
                or p.name == "py.typed"
            ):
                self.add(f"{to}/{p.relative_to(source).as_posix()}", p.read_bytes())

    def save(self, folder: Path, summary: str, extra: list[str], pure: bool) -> Path:
        metadata = [
            "Metadata-Version: 2.1",
            f"Name: {self.name.replace('_', '-')}",
            f"Version: {version()}",
            f"Summary: {summary}",
            "License: Apache-2.0",
            f"Requires-Python: {REQUIRES}",
            *extra,
        ]
        self.add(f"{self.info}/METADATA", "\n".join(metadata) + "\n")
        tags = [f"Tag: {t}" for t in self.tags]
        self.add(
            f"{self.info}/WHEEL",
            "\n".join(
                [
                    "Wheel-Version: 1.0",
                    "Generator: hora",
                    f"Root-Is-Purelib: {str(pure).lower()}",
                    *tags,
                ]
            )
            + "\n",
        )
        self.add(f"{self.info}/LICENSE", (ROOT / "LICENSE").read_bytes())
        record = []
        for path, (content, _) in sorted(self.files.items()):
            digest = (
                base64.urlsafe_b64encode(hashlib.sha256(content).digest())
                .rstrip(b"=")
                .decode()
            )
            record.append(f"{path},sha256={digest},{len(content)}")
        self.add(
            f"{self.info}/RECORD", "\n".join([*record, f"{self.info}/RECORD,,"]) + "\n"
        )
        python, abi = self.tags[0].split("-")[:2]
        platforms = ".".join(t.split("-")[2] for t in self.tags)
        path = folder / f"{self.name}-{version()}-{python}-{abi}-{platforms}.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as z:
            for name, (content, mode) in sorted(
                self.files.items(), key=lambda f: (".dist-info/" in f[0], f[0])
            ):
                entry = zipfile.ZipInfo(name, TIME)
                entry.external_attr = (0o100000 | mode) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                z.writestr(entry, content)
        return path


def hora(machine: str, cc: str, dist: Path, libs: Path, bins: Path) -> Path:
    """The wheel of hora for one machine."""
    platforms = (
        PLATFORMS[machine][2].split(".") if cc == "zig" else [f"linux_{machine}"]
    )
    w = Wheel("hora", [f"py3-none-{p}" for p in platforms])
    w.tree(ROOT / "python/hora", "hora")
    w.add("hora/_version.py", f'__version__ = "{version()}"\n')
    for name in ("libhora.so", "libhora_tf.so", "_fast.abi3.so"):
        w.add(f"hora/{name}", (libs / name).read_bytes(), 0o755)
    w.add(
        "hora_legacy.pth",
        'import os; os.environ.get("HORA_LEGACY") and __import__("hora._legacy")\n',
    )
    w.add(
        "hora_jax.pth",
        'import os; "HORA_RANK" in os.environ and "JAX_COORDINATOR_ADDRESS" in os.environ and __import__("_hora_jax")\n',
    )
    w.add("_hora_jax.py", (ROOT / "python/hora/_hora_jax.py").read_bytes())
    for header in ("hora.h", "hora_data.h"):
        w.add(f"hora/{header}", (ROOT / "cmd/libhora" / header).read_bytes())
    w.add(f"{w.data}/scripts/hora", (bins / "hora").read_bytes(), 0o755)
    w.add(
        f"{w.info}/entry_points.txt",
        "[torch.distributed.backends]\nhora = hora.torch:register\n",
    )
    extra = ["Provides-Extra: run", 'Requires-Dist: cloudpickle; extra == "run"']
    return w.save(
        dist,
        "Distributed training for any framework: collectives, launcher and elasticity in one library",
        extra,
        pure=False,
    )


def compat(dist: Path) -> Path | None:
    """The wheel with the names horovod, sparkdl and spark_tensorflow_distributor."""
    source = ROOT / "python/compat"
    packages = sorted(
        p.parent for p in source.glob("*/__init__.py") if p.parent.name != "tests"
    )
    if not packages:
        return None
    w = Wheel("hora_compat", ["py3-none-any"])
    for p in packages:
        w.tree(p, p.name)
    w.add(
        f"{w.data}/scripts/horovodrun",
        '#!/bin/sh\nexec "$(dirname "$0")/hora" horovodrun "$@"\n',
        0o755,
    )
    extra = [
        f"Requires-Dist: {r}"
        for r in (f"hora=={version()}", "cloudpickle", "psutil", "pyyaml")
    ]
    return w.save(dist, "Horovod's and sparkdl's names on hora", extra, pure=True)


def petastorm(dist: Path) -> Path:
    """The wheel with the name petastorm."""
    w = Wheel("hora_petastorm", ["py3-none-any"])
    w.tree(ROOT / "python/migration/petastorm", "petastorm")
    scripts = {
        "petastorm-generate-metadata.py": "petastorm.etl.petastorm_generate_metadata:main",
        "petastorm-copy-dataset.py": "petastorm.tools.copy_dataset:main",
    }
    w.add(
        f"{w.info}/entry_points.txt",
        "\n".join(["[console_scripts]", *(f"{k} = {v}" for k, v in scripts.items())])
        + "\n",
    )
    extra = [
        f"Requires-Dist: {r}"
        for r in (f"hora=={version()}", "numpy", "pandas", "pillow", "pyarrow")
    ]
    return w.save(dist, "Petastorm's names on hora.dataset", extra, pure=True)


def azureml(dist: Path) -> Path:
    """The wheel with the name azureml."""
    w = Wheel("hora_azureml", ["py3-none-any"])
    w.tree(ROOT / "python/migration/azureml", "azureml")
    extra = [f"Requires-Dist: {r}" for r in (f"hora=={version()}", "pyyaml")]
    return w.save(dist, "The names of Azure Machine Learning's first SDK on a server of hora", extra, pure=True)


def server(machine: str, cc: str, dist: Path, bins: Path) -> Path:
    """The wheel of the server's program, which lies beside hora when both are installed."""
    platforms = PLATFORMS[machine][2].split(".") if cc == "zig" else [f"linux_{machine}"]
    w = Wheel("hora_server", [f"py3-none-{p}" for p in platforms])
    w.add(f"{w.data}/scripts/horad", (bins / "horad").read_bytes(), 0o755)
    return w.save(dist, "A server that queues hora's jobs", [f"Requires-Dist: hora=={version()}"], pure=False)


def elsewhere(dist: Path) -> Path:
    """What pip takes where no wheel fits: a source distribution that says why, and what to do."""
    name = f"hora-{version()}"
    project = '[build-system]\nrequires = []\nbuild-backend = "refuse"\nbackend-path = ["."]\n'
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: hora\nVersion: {version()}\nRequires-Python: {REQUIRES}\n",
        "pyproject.toml": f'[project]\nname = "hora"\nversion = "{version()}"\nrequires-python = "{REQUIRES}"\n\n{project}',
        "refuse.py": (ROOT / "tools/wheel/refuse.py").read_text(),
    }
    path = dist / f"{name}.tar.gz"
    with path.open("wb") as f, gzip.GzipFile("", "wb", fileobj=f, mtime=0) as z, tarfile.open(fileobj=z, mode="w") as t:
        for file, text in sorted(files.items()):
            entry = tarfile.TarInfo(f"{name}/{file}")
            entry.size, entry.mode = len(text.encode()), 0o644
            t.addfile(entry, io.BytesIO(text.encode()))
    return path


def main() -> None:
    a = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    a.add_argument("--cc", choices=["zig", "native"], default="zig")
    a.add_argument(
        "--machine",
        choices=[*PLATFORMS, "all"],
        default=None,
        help="default: all with zig, else this one",
    )
    a.add_argument("--library-only", dest="for_tree", action="store_true")
    a.add_argument("--dist", type=Path, default=ROOT / "dist")
    args = a.parse_args()
    if args.for_tree:
        for name, build in (("libhora.so", library), ("_fast.abi3.so", module)):
            so = ROOT / "python/hora" / name
            fresh = so.with_name(f"{os.getpid()}-{name}")
            build(platform.machine(), "native", fresh)
            fresh.replace(so)  # never written in place: running programs have it mapped
        fresh = ROOT / "python/hora" / f"{os.getpid()}-libhora_tf.so"
        stub(platform.machine(), "native", ROOT / "python/hora/libhora.so", fresh)
        fresh.replace(ROOT / "python/hora/libhora_tf.so")
        return
    machines = (
        list(PLATFORMS)
        if (args.machine or ("all" if args.cc == "zig" else "")) == "all"
        else [args.machine or platform.machine()]
    )
    args.dist.mkdir(parents=True, exist_ok=True)
    names = ("hora", "hora_compat", "hora_petastorm", "hora_azureml", "hora_server")
    for old in (*(w for n in names for w in args.dist.glob(f"{n}-*.whl")), *args.dist.glob("hora-*.tar.gz")):
        old.unlink()
    work = args.dist / ".work"
    work.mkdir(exist_ok=True)
    try:
        libs, bins = ({m: work / f"{what}-{m}" for m in machines} for what in ("libraries", "programs"))
        # Linking keeps one core busy, compiling as many as there are.
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            built = [
                *(pool.submit(libraries, m, args.cc, libs[m]) for m in machines),
                *(pool.submit(programs, m, bins[m]) for m in machines),
            ]
            for done in built:
                done.result()
            made = [
                *pool.map(lambda m: hora(m, args.cc, args.dist, libs[m], bins[m]), machines),
                *pool.map(lambda m: server(m, args.cc, args.dist, bins[m]), machines),
                compat(args.dist),
                petastorm(args.dist),
                azureml(args.dist),
                elsewhere(args.dist),
            ]
    finally:
        shutil.rmtree(work, ignore_errors=True)
    for path in filter(None, made):
        size = path.stat().st_size
        print(
            f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}  {size / 1e6:.1f} MB"
        )
        if size > 20e6:
            sys.exit(f"build wheel: {path.name} is larger than 20 MB")


if __name__ == "__main__":
    main()
