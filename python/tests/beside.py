"""What tests of every folder need: where the tree is, and programs under `hora run` with frameworks that `make deps`
installs beside."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable
from pathlib import Path

from warm import Nursery

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "python"
# A tree that has its library (build.py --library-only) is tested as it stands; else what is installed is.
TREE = [str(PYTHON), str(PYTHON / "compat")] if (PYTHON / "hora" / "libhora.so").exists() else []


def folder(name: str) -> Path:
    """Where a framework lies."""
    said = subprocess.run(["sh", "tools/deps.sh", "path", name], cwd=ROOT, capture_output=True, text=True, check=True)
    path = Path(said.stdout.strip())
    assert (path / ".complete").exists(), f"{name} is not installed; run make deps"
    return path


# What a framework's folder leaves to the tests' environment, and hora itself where it is installed there.
_COMMON = ("numpy", "numpy.libs", "typing_extensions.py", "cloudpickle", "psutil", "yaml")
_OURS = ("hora", "horovod", "sparkdl", "hora-*.dist-info", "hora_compat-*.dist-info", "_hora_jax.py", "hora_*.pth")

Place = tuple[str, list[Path]]  # an interpreter, and folders that it gets besides


def alone(name: str, tmp: Path) -> Place:
    """A framework in an environment of its own: with hora and what both need, and nothing else that the tests have."""
    venv.create(tmp / "env", symlinks=True)
    site, own = (Path(sysconfig.get_path("purelib", vars={"base": str(base)})) for base in (sys.prefix, tmp / "env"))
    for pattern in (*_COMMON, *(() if TREE else _OURS)):
        found = list(site.glob(pattern))
        assert found, f"{site} has no {pattern}"
        for path in found:
            (own / path.name).symlink_to(path)
    return str(tmp / "env" / "bin" / "python"), [folder(name)]


def environments(n: int, tmp: Path) -> list[dict[str, str]]:
    """What the ranks of a job of one host have without a launcher."""
    secret = tmp / f"secret-{secrets.token_hex(4)}"
    secret.write_text(secrets.token_hex(32))
    secret.chmod(0o600)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    base = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("HORA_", "HOROVOD_", "OMPI_", "PMI", "SLURM_")) or k == "HORA_LIBRARY"
    }
    base |= {
        "PYTHONPATH": os.pathsep.join([*TREE, os.environ.get("PYTHONPATH", "")]), "HORA_SIZE": str(n),
        "HORA_LOCAL_SIZE": str(n),
        "HORA_CROSS_RANK": "0", "HORA_CROSS_SIZE": "1", "HORA_ADDR": f"127.0.0.1:{port}", "HORA_SERVE": "1",
        "HORA_SECRET_FILE": str(secret), "HORA_JOB": secret.name, "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    return [base | {"HORA_RANK": str(r), "HORA_LOCAL_RANK": str(r)} for r in range(n)]


def runner(
    launcher: Path,
    tmp_path: Path,
    folders: list[Path],
    settings: dict[str, str],
    nursery: Callable[[dict[str, str]], Nursery] | None = None,
    place: Callable[[dict[str, str]], Place] | None = None,
):
    """run(program, flags…) runs a program's text and gives how it ended, which must be with `code`.

    `place` says for an environment's variables which interpreter that is, and which folders it gets; else it is this
    one, and gets `folders`.
    With a nursery, ranks of which nothing else is asked are forked from it instead of started by hora run; cold=True
    for programs that look at their launcher.
    """

    def run(
        program: str,
        *flags: str,
        args: tuple[str, ...] = (),
        code: int = 0,
        timeout: float = 150,
        cold: bool = False,
        **env: str,
    ):
        path = tmp_path / "program.py"
        path.write_text(program)
        asked = flags or ("-np", "2")
        plain = (
            code == 0
            and asked[0] == "-np"
            and len(asked) == 2
            and all(k.startswith(("HORA_", "HOROVOD_", "KERAS_BACKEND")) for k in env)
        )
        if nursery is not None and plain and not cold:
            done = _forked(nursery(settings | env), path, args, int(asked[1]), settings | env, timeout)
        else:
            # The first import of a framework takes its time beside other tests.
            given = os.environ | {"HORA_START_TIMEOUT": "120", **settings, **env}
            python, paths = place(given) if place else (sys.executable, folders)
            given["PYTHONPATH"] = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH", "")]), *map(str, paths)])
            command = [launcher, "run", *asked, python, path, *args]
            done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=timeout)
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


def _forked(
    nursery: Nursery, path: Path, args: tuple[str, ...], n: int, env: dict[str, str], timeout: float
) -> subprocess.CompletedProcess:
    """A program's ranks out of a nursery; what they say, as hora run shows it."""
    code = (
        f"import sys; sys.argv[:] = {[str(path), *map(str, args)]!r}; sys.path.insert(0, {str(path.parent)!r}); __file__ = {str(path)!r}\n"
        "exec(compile(open(__file__).read(), __file__, 'exec'))"
    )
    ranks = [nursery.start(code, e | {"HORA_START_TIMEOUT": "120"} | env) for e in environments(n, path.parent)]
    end = time.monotonic() + timeout
    said = []
    try:
        for r in ranks:
            said.append(r.communicate(timeout=max(0.1, end - time.monotonic())))
    finally:
        for r in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(r.pid, signal.SIGKILL)
    out, err = (
        "".join(f"[{r}]<{name}>:{line}" for r, texts in enumerate(said) for line in texts[k].splitlines(keepends=True))
        for k, name in enumerate(("stdout", "stderr"))
    )
    return subprocess.CompletedProcess(path, max(abs(r.returncode) for r in ranks), out, err)
