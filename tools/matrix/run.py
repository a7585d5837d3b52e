"""Tests the wheel on other releases of torch, TensorFlow and JAX and writes a table of each into docs/compatibility.md.

    python tools/matrix/run.py CACHE [FRAMEWORK…] [NAME…]

Every tools/matrix/NAME.txt is the lock file of one environment, called after its framework; it is made once, under
CACHE, and found again by the file's hash. A torch of the package index brings some GB of CUDA libraries: what is
downloaded stays under CACHE/wheels. The releases that `make test` runs with are the first rows.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PIP = ["-m", "pip", "--quiet", "--disable-pip-version-check"]
PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- make matrix writes {} from here -->", "<!-- to here -->"
# Framework → the program that tries it, and the folders of tools/deps.sh that have this interpreter's, where it lies in
# such; JAX's Keras lies in TensorFlow's.
FRAMEWORKS: dict[str, tuple[str, list[str]]] = {
    "torch": ("check.py", []), "tensorflow": ("check_tensorflow.py", ["tensorflow"]), "jax": ("check_jax.py", ["jax", "tensorflow"]),
}  # fmt: skip


def environment(cache: Path, lock: Path) -> str:
    """The Python of the lock file's environment, made if it is not there."""
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    folder = cache / f"matrix-{lock.stem}-{sys.version_info[0]}.{sys.version_info[1]}-{digest}"
    python = folder / "bin" / "python"
    if not (folder / ".complete").exists():
        wheels = fetch(cache, lock)
        print(f"matrix: making {folder}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        pip(python, "install", "--no-compile", *wheels)
        (folder / ".complete").touch()
    return str(python)


def fetch(cache: Path, lock: Path) -> list[str]:
    """pip's arguments for the lock file's wheels, which are downloaded if they are not there."""
    wheels = cache / "wheels"
    offline = ["--no-index", "--no-deps", "--find-links", str(wheels), "-r", str(lock)]
    have = subprocess.run([sys.executable, *PIP, "install", "--dry-run", "--ignore-installed", *offline], check=False, capture_output=True)
    if have.returncode:
        print(f"matrix: fetching the wheels of {lock.name} (some GB)", flush=True)
        pip(sys.executable, "download", "--no-deps", "--dest", str(wheels), "-r", str(lock))
    return offline


def pip(python: Path | str, *what: str) -> None:
    subprocess.run([str(python), *PIP, *what], check=True)


def check(python: str, site: Path, framework: str, beside: str) -> tuple[str, dict[str, str], bool]:
    """The framework's version, what each feature's line said, and whether all that must hold does."""
    ours = ["hora", "hora-compat"]
    pip(python, "install", "--no-index", "--no-deps", "--upgrade", "--target", str(site), "--find-links", str(ROOT / "dist"), *ours)
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(filter(None, [str(site), beside]))}
    command = [python, str(HERE / FRAMEWORKS[framework][0])]
    done = subprocess.run(command, check=False, env=env, capture_output=True, text=True)
    version, answers = "?", {}
    for line in done.stdout.splitlines():
        word, _, rest = line.partition(" ")
        if word in ("version", "torch"):
            version = rest.split("+")[0]
        elif word in ("yes", "no"):
            name, _, why = rest.partition(": ")
            answers[name] = "yes" if word == "yes" else f"no: {why}"
    if not answers or done.returncode:
        print(done.stdout[-2000:], done.stderr[-4000:], file=sys.stderr)
    return version, answers, done.returncode == 0


def table(framework: str, rows: list[tuple[str, dict[str, str]]]) -> str:
    """One row a feature, one column a release; what a no was for stands below."""
    names = list(rows[0][1])
    lines = ["| | " + " | ".join(f"{framework} {v}" for v, _ in rows) + " |", "| --- |" + " --- |" * len(rows)]
    for n in names:
        lines.append(f"| {n} | " + " | ".join(a.get(n, "no").split(":")[0] for _, a in rows) + " |")
    reasons = [f"- {framework} {v}, {n}: {a[n][4:]}" for v, a in rows for n in names if a.get(n, "").startswith("no: ")]
    return "\n".join([*lines, "", *reasons]).strip()


def folder(name: str) -> str:
    """Where `make deps` has put a framework."""
    return subprocess.run(["sh", "tools/deps.sh", "path", name], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def matrix(framework: str, cache: Path, wanted: list[str]) -> bool:
    """Try one framework's releases and write their table; whether all that must hold does."""
    import tempfile

    locks = [p for p in sorted(HERE.glob(f"{framework}-*.txt"), reverse=True) if not wanted or p.stem in wanted]
    own = FRAMEWORKS[framework][1]
    rows, good = [], True
    for python, beside in ((sys.executable, ":".join(map(folder, own))), *((environment(cache, p), "") for p in locks)):
        with tempfile.TemporaryDirectory() as site:
            version, answers, well = check(python, Path(site), framework, beside)
        print(f"matrix: {framework} {version}: {'all that must hold does' if well else 'FAILED'}; {answers}", flush=True)
        rows.append((version, answers))
        good &= well
    begin = BEGIN.format(framework)
    before, rest = PAGE.read_text().split(begin)
    PAGE.write_text(f"{before}{begin}\n\n{table(framework, rows)}\n\n{END}{rest.partition(END)[2]}")
    return good


def main() -> int:
    cache, asked = Path(sys.argv[1]), sys.argv[2:]
    names = [a for a in asked if a not in FRAMEWORKS]
    chosen = [f for f in FRAMEWORKS if f in asked or any(n.startswith(f"{f}-") for n in names)] or list(FRAMEWORKS)
    return int(not all([matrix(f, cache, [n for n in names if n.startswith(f"{f}-")]) for f in chosen]))


if __name__ == "__main__":
    sys.exit(main())
