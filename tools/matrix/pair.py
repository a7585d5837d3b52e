"""Two ranks that try one feature after the other, for the programs beside this one."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import traceback


def run(script: str, folder: str, ends: tuple[int, int] = (0, 0), **more: str) -> int:
    """Start the script as two ranks, whose files lie in folder; 0 where each ended as it is to, else the worse of their
    exit codes."""
    env = dict(os.environ) | {
        "HORA_SIZE": "2", "HORA_LOCAL_SIZE": "2", "HORA_SERVE": "1", "HORA_ADDR": f"127.0.0.1:{free_port()}",
        "HORA_JOB": "matrix",
        "HORA_SECRET_FILE": os.path.join(folder, "secret"), "OMP_NUM_THREADS": "1", "HORA_START_TIMEOUT": "120",
    } | more  # fmt: skip
    with open(os.open(env["HORA_SECRET_FILE"], os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
        f.write(secrets.token_hex(32))
    ranks = [subprocess.Popen([sys.executable, script], env=env | {"HORA_RANK": str(r), "HORA_LOCAL_RANK": str(r)}) for r in range(2)]
    return max(0 if p.wait() == end else abs(p.returncode) or 1 for p, end in zip(ranks, ends, strict=True))


def tell(rank: int, features, needed) -> int:
    """Try each (name, function); rank 0 says how it went. 1 when one of those that are needed failed."""
    bad = 0
    for name, f in features:
        try:
            f()
            line = f"yes {name}"
        except Exception as e:
            line = f"no {name}: {type(e).__name__}: {_first(e)}"
            bad |= name in needed
            if name in needed:
                traceback.print_exc()
        if rank == 0:
            print(line, flush=True)
    return bad


def _first(error: Exception) -> str:
    """The first line of what it says, less what is another in each run; the last where the first only says where."""
    lines = str(error).strip().splitlines() or [""]
    line = lines[-1 if lines[0] == "in user code:" else 0].strip().partition(" (/")[0]
    return line.partition(" __inference_")[0][:160]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
