"""Tests the wheel on other releases of torch and writes their table into docs/compatibility.md.

    python tools/matrix/run.py CACHE [NAME…]

Every tools/matrix/NAME.txt is the lock file of one environment; it is made once, under CACHE, and found again by the file's
hash. A torch of the package index brings some GB of CUDA libraries: what is downloaded stays under CACHE/wheels. This
interpreter's own torch is the first row.
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
BEGIN, END = "<!-- make matrix writes from here -->", "<!-- to here -->"


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


def check(python: str, site: Path) -> tuple[str, dict[str, str], bool]:
    """torch's version, what each feature's line said, and whether all that must hold does."""
    pip(python, "install", "--no-index", "--no-deps", "--upgrade", "--target", str(site), "--find-links", str(ROOT / "dist"), "hora")
    done = subprocess.run(
        [python, str(HERE / "check.py")], check=False, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(site)}, capture_output=True, text=True
    )
    version, answers = "?", {}
    for line in done.stdout.splitlines():
        word, _, rest = line.partition(" ")
        if word == "torch":
            version = rest.split("+")[0]
        elif word in ("yes", "no"):
            name, _, why = rest.partition(": ")
            answers[name] = "yes" if word == "yes" else f"no: {why}"
    if not answers:
        print(done.stdout[-2000:], done.stderr[-4000:], file=sys.stderr)
    return version, answers, done.returncode == 0


def table(rows: list[tuple[str, dict[str, str]]]) -> str:
    """One row a feature, one column a torch; what a no was for stands below."""
    names = list(rows[0][1])
    lines = ["| | " + " | ".join(f"torch {v}" for v, _ in rows) + " |", "| --- |" + " --- |" * len(rows)]
    for n in names:
        lines.append(f"| {n} | " + " | ".join(a.get(n, "no").split(":")[0] for _, a in rows) + " |")
    reasons = [f"- torch {v}, {n}: {a[n][4:]}" for v, a in rows for n in names if a.get(n, "").startswith("no: ")]
    return "\n".join([*lines, "", *reasons]).strip()


def main() -> int:
    import tempfile

    cache, wanted = Path(sys.argv[1]), sys.argv[2:]
    locks = [p for p in sorted(HERE.glob("torch-*.txt"), reverse=True) if not wanted or p.stem in wanted]
    rows, bad = [], 0
    for python in (sys.executable, *(environment(cache, p) for p in locks)):
        with tempfile.TemporaryDirectory() as site:
            version, answers, well = check(python, Path(site))
        print(f"matrix: torch {version}: {'all that must hold does' if well else 'FAILED'}; {answers}", flush=True)
        rows.append((version, answers))
        bad |= not well
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(rows)}\n\n{END}{rest.split(END)[1]}")
    return bad


if __name__ == "__main__":
    sys.exit(main())
