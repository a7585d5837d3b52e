"""Runs tests of torch's own DistributedTest, which its wheel brings, with backend "hora" in the place of gloo.

`torchs_own.py RANKS plain|accelerated SECONDS [NAME…]` forks the ranks of each test from this process, which has torch
imported, and prints one line of JSON a test: its name, how it ended ("ok", "skipped", "failed" or "hangs"), and what
its ranks have said.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
import traceback
import types
import unittest


def load(ranks: int):
    """torch's module as it is for gloo, on which most of its tests are run; process groups are hora's all the same."""
    os.environ |= {
        "BACKEND": "gloo",
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "TEMP_DIR": tempfile.mkdtemp(),
    }
    os.environ |= {
        "INIT_METHOD": f"file://{os.environ['TEMP_DIR']}/store",
        "OMP_NUM_THREADS": "1",
        "PYTORCH_PRINT_REPRO_ON_FAILURE": "0",
    }
    try:
        import expecttest  # noqa: F401
    except ImportError:  # a package of torch's tests, for one class of which these use nothing
        sys.modules["expecttest"] = module = types.ModuleType("expecttest")
        module.TestCase = unittest.TestCase
    import torch.distributed as dist
    from torch.testing._internal.distributed import distributed_test

    import hora.torch  # noqa: F401

    inner = dist.init_process_group

    def start(*args, **settings):
        if settings.get("backend", "gloo") == "gloo":
            settings["backend"] = "hora"
        return inner(*args, **settings)

    dist.init_process_group = start
    distributed_test.PROFILING_SUPPORTED_BACKENDS.append("hora")
    distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.append("hora")
    return distributed_test


def accelerate_all() -> None:
    """Every model that DDP wraps is accelerated too."""
    from torch.nn.parallel import DistributedDataParallel

    import hora.torch

    inner = DistributedDataParallel.__init__

    def made(model, *args, **settings):
        inner(model, *args, **settings)
        try:
            hora.torch.accelerate(model)
        except TypeError:  # of another backend, as some tests make them
            pass

    DistributedDataParallel.__init__ = made


def clean(tests) -> str:
    """What one test leaves for the next is removed; the file for the ranks' store."""
    folder = os.environ["TEMP_DIR"]
    for name in ("barrier", "test_dir", "init_dir"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
        for left in os.listdir(os.path.join(folder, name)):
            os.unlink(os.path.join(folder, name, left))
    tests.Barrier.barrier_id = 0
    for name in ("store", "lockfile"):
        if os.path.exists(path := os.path.join(folder, name)):
            os.unlink(path)
    open(os.path.join(folder, "lockfile"), "w").close()
    return os.path.join(folder, f"rendezvous-{time.monotonic_ns()}")


def child(case, rank: int, name: str, meet: str, said: int) -> None:
    """One rank of one test; does not return."""
    os.setsid()
    os.dup2(said, 1)
    os.dup2(said, 2)
    code = 1
    try:
        import torch.multiprocessing

        code = case._run(rank, name, meet, torch.multiprocessing.Pipe()[1]) or 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run(tests, case, name: str, ranks: int, seconds: float) -> tuple[str, str]:
    """How a test ended, and what was said."""
    meet = clean(tests)
    outputs = [tempfile.TemporaryFile("w+") for _ in range(ranks)]
    pids = {}
    for rank, said in enumerate(outputs):
        pid = os.fork()
        if pid == 0:
            child(case, rank, name, meet, said.fileno())
        pids[pid] = rank
    codes: dict[int, int] = {}
    end = time.monotonic() + seconds
    failed = False
    while pids and time.monotonic() < end:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in pids:
            codes[pids.pop(pid)] = code = os.waitstatus_to_exitcode(status)
            if code == case.TEST_ERROR_EXIT_CODE and not failed:  # the others may wait for it, as they do on gloo
                failed, end = True, min(end, time.monotonic() + 3)
        time.sleep(0.02)
    for pid in pids:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    words = ""
    for rank, said in enumerate(outputs):
        said.seek(0)
        words += f"--- rank {rank}, exit code {codes.get(rank)}\n{said.read()[-3000:]}"
        said.close()
    skips = {skip.exit_code for skip in tests.TEST_SKIPS.values()}
    if pids and not failed:
        return "hangs", words
    if len(codes) == ranks and not any(codes.values()):
        return "ok", ""
    return (
        ("skipped", "")
        if all(code == 0 or code in skips for code in codes.values()) and not pids
        else ("failed", words)
    )


def main(ranks: int, way: str, seconds: float, wanted: list[str]) -> None:
    tests = load(ranks)
    if way == "accelerated":
        accelerate_all()

    class Case(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
        def setUp(self):
            """The ranks are forked, not spawned."""

    for name in wanted or sorted(n for n in dir(Case) if n.startswith("test_")):
        if getattr(getattr(Case, name), "__unittest_skip__", False):
            ended, said = "skipped", ""
        else:
            ended, said = run(tests, Case, name, ranks, seconds)
        print(json.dumps([name, ended, said]), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4:])
