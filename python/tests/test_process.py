"""The library inside a process: forks, signals, threads, ends in any order, many lives."""

import faulthandler
import os
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import hora
from hora import _lib
from hora.group import Call

SOAK = os.environ.get("HORA_SOAK") == "1"


# -- forked children


def child_says(work) -> str:
    """What work() prints in a forked child that then ends cleanly."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        try:
            os.write(w, str(work()).encode())
        except BaseException as e:
            os.write(w, f"{type(e).__name__}: {e}".encode())
        finally:
            os._exit(0)
    os.close(w)
    with os.fdopen(r) as f:
        said = f.read()
    assert os.waitpid(pid, 0)[1] == 0
    return said


ASKED = (hora.rank, hora.size, hora.local_rank, hora.local_size, hora.cross_rank, hora.cross_size, hora.host)


def work_fork():
    hora.init()
    x = np.ones(4)
    h = hora.allreduce(x, async_=True)
    plan = hora.world().plan(Call(1, 0, 13, 0, x.ctypes.data, x.ctypes.data, 4))
    sentence = "it is a forked child"
    assert sentence in child_says(lambda: hora.allreduce(np.ones(3)))
    assert sentence in child_says(lambda: h.wait())
    assert sentence in child_says(plan.run)
    assert sentence in child_says(hora.init)
    mine = [ask() for ask in ASKED]
    assert child_says(lambda: [ask() for ask in ASKED]) == str(mine)
    assert child_says(lambda: child_says(lambda: [ask() for ask in ASKED])) == str(mine)
    for call in (hora.world, hora.counters, hora.barrier, lambda: hora.Group([0]), lambda: hora.broadcast_object(1)):
        assert sentence in child_says(call)
    assert child_says(lambda: hora.is_initialized()) == "False"
    assert child_says(lambda: hora.shutdown()) == "None"
    # and it lives: threads, numpy, subprocesses, grandchildren
    assert child_says(lambda: np.linalg.inv(np.eye(3)).sum()) == "3.0"
    assert child_says(lambda: subprocess.check_output(["echo", "well"], text=True).strip()) == "well"
    assert child_says(lambda: child_says(lambda: 42)) == "42"
    # the C side refuses by itself too
    library = _lib.load()

    def below():
        return library.hora_run(0, b"x" * 200), library.hora_last_error().decode()

    assert "use hora: this process is a forked child" in child_says(below)
    h.wait()
    assert hora.allreduce(np.ones(3)).tolist() == [float(hora.size())] * 3


def test_fork(ranks):
    ranks(2, work_fork)


def test_fork_before_init_is_harmless(ranks):
    ranks(2, work_in_forked_child)


def work_in_forked_child():
    pid = os.fork()  # hora is imported, not initialized: the child may use it
    if pid:
        assert os.waitpid(pid, 0)[1] == 0
        return
    hora.init()
    assert hora.allreduce(1) == hora.size()
    hora.shutdown()
    os._exit(0)


def work_dataloader():
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    hora.init()

    class Whose(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return torch.tensor([hora.rank(), hora.size()])

    for batch in DataLoader(Whose(), num_workers=2):
        assert batch.tolist() == [[hora.rank(), hora.size()]]
    data = TensorDataset(torch.arange(64.0))
    for _ in range(2):
        for (batch,) in DataLoader(data, batch_size=8, num_workers=2):
            assert hora.allreduce(batch).tolist() == (batch * hora.size()).tolist()


def test_dataloader_workers(ranks):
    ranks(2, work_dataloader, warm=True)


SUBINTERPRETER = """
import sys
try:
    import _interpreters as several
except ImportError:
    import _xxsubinterpreters as several
if "before" in sys.argv:
    import hora
one = several.create()
several.run_string(one, "import sys; sys.path[:] = " + repr(sys.path) + '''
try:
    import hora
    import numpy
    hora.init()
    hora.allreduce(numpy.ones(3))
except ImportError as e:
    print("refused:", e, flush=True)
''')
if "before" in sys.argv:
    hora.init()
    assert hora.allreduce(1) == 1
"""


@pytest.mark.parametrize("before", ["", "before"])
def test_a_subinterpreter_is_refused(before):
    """It is left for the end of the process, which came never."""
    ended = subprocess.run(
        [sys.executable, "-c", SUBINTERPRETER, before], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(
        "refused: import hora: this is a subinterpreter, and hora works in a process's main interpreter only"
    ), ended


# -- signals


def late(seconds: float):
    """Rank 0 comes to the next operation after a while, so that rank 1 waits for it."""
    if hora.rank() == 0:
        time.sleep(seconds)


def work_interrupt():
    hora.init()
    hora.barrier()
    for how in ("blocking", "handle", "barrier"):
        if hora.rank() == 1:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            begun = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                if how == "blocking":
                    hora.allreduce(np.ones(1000))
                elif how == "handle":
                    hora.allreduce(np.ones(1000), async_=True).wait()
                else:
                    hora.barrier()
            waited = time.monotonic() - begun
            assert waited < 0.6, f"{how}: Ctrl-C took {waited - 0.3:.3f} s"
        else:
            time.sleep(1)
            hora.barrier() if how == "barrier" else hora.allreduce(np.ones(1000))
        # the operation that was left went on: the group still works
        assert hora.allreduce(1) == hora.size()


def test_interrupt_in_a_wait(ranks):
    ranks(2, work_interrupt)


def test_interrupt_in_a_wait_over_tcp(ranks):
    ranks(2, work_interrupt, links="tcp")


def work_interrupt_init():
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        hora.init()
    assert time.monotonic() - begun < 1.5
    assert not hora.is_initialized()


def test_interrupt_in_init(job):
    j = job(2, work_interrupt_init)
    os.killpg(j.processes[1].pid, signal.SIGKILL)  # rank 0 waits for it
    j.processes[1].wait()
    assert j.processes[0].wait(20) == 0, j.processes[0].stderr.read()


def work_signals(faults: str):
    if faults == "before":
        faulthandler.enable()
    hora.init()
    if faults == "after":
        faulthandler.enable()
    seen = []
    for s in (signal.SIGALRM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, lambda n, _: seen.append(n))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    for i in range(50):
        os.kill(os.getpid(), signal.SIGUSR1)
        if i % 10 == 0:
            subprocess.run(["true"], check=True)
        hora.allreduce(np.ones(10_000), out=np.empty(10_000))
    late(0.3)
    hora.barrier()
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert seen.count(signal.SIGUSR1) >= 40 and seen.count(signal.SIGALRM) >= 10 and signal.SIGCHLD in seen
    with pytest.raises(BrokenPipeError):
        r, w = os.pipe()
        os.close(r)
        os.write(w, b"x")


@pytest.mark.parametrize("faults", ["before", "after", "never"])
def test_signal_handlers_fire(ranks, faults):
    ranks(2, work_signals, args=(faults,))


def work_segfault(faults: str):
    if faults == "before":
        faulthandler.enable()
    hora.init()
    if faults == "after":
        faulthandler.enable()
    hora.barrier()
    import ctypes

    ctypes.string_at(0)


@pytest.mark.parametrize("faults", ["before", "after"])
def test_faulthandler_still_speaks(job, faults):
    for e in job(2, work_segfault, args=(faults,)).wait():
        assert e.code == -signal.SIGSEGV
        assert "Segmentation fault" in e.err and "work_segfault" in e.err


# -- threads


def work_threads():
    hora.init()
    n = hora.size()
    groups = [hora.Group(range(n), tag=f"thread {i}") for i in range(4)]
    wrong = []

    def loop(g, i):
        x = np.full(257, float(i))
        for _ in range(100):
            if not (hora.allreduce(x, group=g) == i * n).all():
                wrong.append(i)

    threads = [threading.Thread(target=loop, args=(g, i)) for i, g in enumerate(groups)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_threads(ranks):
    ranks(2, work_threads)


def work_gil_is_free():
    """While one thread waits for a peer, others run."""
    hora.init()
    hora.barrier()
    count = 0
    if hora.rank() == 1:
        t = threading.Thread(target=hora.barrier)
        t.start()
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            count += 1
            time.sleep(0.001)
        assert t.is_alive() and count > 100
        t.join()
    else:
        time.sleep(1)
        hora.barrier()


def test_gil_is_free_while_waiting(ranks):
    ranks(2, work_gil_is_free)


def work_one_core(traces: str):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    said, stderr = os.open(f"{traces}/{os.environ['HORA_RANK']}", os.O_CREAT | os.O_RDWR | os.O_APPEND), os.dup(2)
    os.dup2(said, 2)  # Go's scheduler writes there
    hora.init()
    early, later = hora.Group(range(2), tag="early"), hora.Group(range(2), tag="later")
    waiting = threading.Thread(target=lambda: hora.allreduce(np.ones(1000), group=later), daemon=True)
    if hora.rank() == 1:
        waiting.start()
    for _ in range(100):
        assert hora.allreduce(1, group=early) == 2
    assert hora.rank() == 0 or waiting.is_alive()
    hora.barrier()  # rank 1 has looked
    if hora.rank() == 0:
        waiting.start()
    waiting.join()
    end = time.monotonic() + 20
    while not any(int(n) >= 4 for n in re.findall(rb"gomaxprocs=(\d+)", os.pread(said, 1 << 20, 0))):
        assert time.monotonic() < end, os.pread(said, 2000, 0)
        time.sleep(0.01)
    os.dup2(stderr, 2)


def test_bound_to_one_core(ranks, tmp_path):
    """A thread that waits there does not stop the calls of another one."""
    ranks(2, work_one_core, args=(str(tmp_path),), env={"GODEBUG": "schedtrace=20"})


def work_one_group(how: str):
    """Four threads call the world at the same time."""
    hora.init()
    n, r = hora.size(), hora.rank()
    total, wrong, refused = n * (n + 1) / 2, [], []

    def loop(i):
        x = np.full(64 + i if how == "different" else 64, r + 1.0)
        for _ in range(50):
            try:
                if how == "named":
                    same = (hora.allreduce(x * i, name=f"thread {i}", named=True) == total * i).all()
                elif how == "async":
                    same = (hora.allreduce(x, async_=True).wait() == total).all()
                else:
                    same = (hora.allreduce(x) == total).all()
                if not same:
                    wrong.append(f"thread {i}: a wrong sum")
            except hora.MismatchError as e:
                refused.append(str(e))
            except Exception as e:
                wrong.append(repr(e))

    threads = [threading.Thread(target=loop, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong[:3]
    assert how == "different" or not refused, refused[:3]
    assert hora.allgather_object(len(refused)) == [len(refused)] * n  # what fails, fails on every rank
    assert hora.allreduce(np.ones(3)).tolist() == [float(n)] * 3


@pytest.mark.parametrize("links", ["", "tcp"])
@pytest.mark.parametrize("how", ["named", "ordered", "async", "different"])
def test_threads_of_one_group(ranks, how, links):
    """By name they get their own sums; in the order of calls threads that ask for different things are told so."""
    ranks(2, work_one_group, args=(how,), links=links)


# -- ends


def work_end(how: str):
    hora.init()
    x = np.ones(1000)
    hora.allreduce(x)
    if how == "shutdown":
        hora.shutdown()
    elif how == "twice":
        hora.shutdown()
        hora.shutdown()
    elif how == "pending":
        hora.barrier()
        work_end.handle = hora.allreduce(x, async_=True) if hora.rank() == 0 else None
    elif how == "callback":
        hora.allreduce(x, async_=True).add_done_callback(lambda h: time.sleep(0.05))
    elif how == "os._exit":
        hora.barrier()
        os._exit(0)
    elif how == "sys.exit":
        sys.exit(0)
    elif how == "thread":
        threading.Thread(target=lambda: (time.sleep(0.2), hora.allreduce(x))).start()
    elif how == "handle":
        work_end.handle = hora.allreduce(x, async_=True)
    elif how == "buffer":
        work_end.kept = hora.buffer(1000).numpy()
    elif how == "collected":
        import gc

        gc.disable()
        work_end.cycle = [
            hora.world().plan(Call(1, 0, 13, 0, x.ctypes.data, x.ctypes.data, 4)),
            hora.allreduce(x, async_=True),
        ]
        work_end.cycle.append(work_end.cycle)


ENDS = [
    "nothing",
    "shutdown",
    "twice",
    "pending",
    "callback",
    "os._exit",
    "sys.exit",
    "thread",
    "handle",
    "buffer",
    "collected",
]


@pytest.mark.parametrize("how", ENDS)
def test_clean_end(job, how):
    ends = job(2, work_end, args=(how,)).wait(30)
    if how == "pending":  # a call that the other rank never made: they part with a sentence, and nothing hangs
        assert any(e.code == 1 and "Mismatched numbers of calls" in e.err for e in ends), ends
        ends = [e for e in ends if e.code]
    for e in ends:
        assert (e.code == 1 and e.err.count("\n") == 1) if how == "pending" else (e.code == 0 and not e.err), (
            e.code,
            e.err,
        )


def work_after_shutdown():
    """What is kept from a life that is over: errors of the right class, memory that may still be read, and a next life
    that works."""
    import hora.elastic

    hora.init()
    r, n, x = hora.rank(), hora.size(), np.ones(1000)
    group, world, buffer, state = (
        hora.Group(range(n), tag="kept"),
        hora.world(),
        hora.buffer(1000),
        hora.elastic.State(step=0),
    )
    view = buffer.numpy()
    view[:] = 3
    handle = hora.allreduce(x, async_=True)
    handle.wait()
    pending = hora.allreduce(x, async_=True)
    plan = world.plan(Call(1, 0, 13, 0, x.ctypes.data, x.ctypes.data, 4))
    state.sync()
    hora.barrier()  # and what was begun before it has ended
    hora.shutdown()
    for call in (
        lambda: hora.allreduce(x), lambda: hora.allreduce(x, group=group), lambda: hora.allreduce(x, group=world),
        lambda: hora.allreduce(x, out=x),
        lambda: hora.allreduce(buffer, out=buffer), lambda: hora.buffer(3), lambda: hora.Group([0]),
        lambda: hora.barrier(),
        lambda: hora.allgather_object(1), lambda: hora.start_timeline("/nowhere"), hora.rank, hora.counters, state.sync,
        state.check,
    ):  # fmt: skip
        with pytest.raises(hora.NotInitializedError, match=r"call hora\.init\(\) first"):
            call()
    for call in (pending.wait, plan.run, group.counters, lambda: group.abort("too late")):
        with pytest.raises(hora.HoraError, match="closed|released|not initialized"):
            call()
    assert (handle.wait() == n).all() and (view == 3).all() and (group.rank, group.size) == (r, n)
    group.close()
    hora.init()
    with pytest.raises(hora.HoraError, match="closed"):
        hora.allreduce(x, group=group)
    with pytest.raises(hora.HoraError, match="closed|released"):
        plan.run()
    assert (hora.allreduce(buffer, out=buffer).numpy() == 3 * n).all() and hora.allreduce(1) == n
    hora.shutdown()


def test_after_shutdown(ranks):
    ranks(2, work_after_shutdown)


def work_raise():
    hora.init()
    hora.barrier()
    if hora.rank() == 1:
        raise RuntimeError("the user's own fault")
    hora.allreduce(np.ones(10))


def test_exception_on_one_rank_ends_the_others(job):
    begun = time.monotonic()
    ends = job(2, work_raise).wait(30)
    assert time.monotonic() - begun < 15
    assert ends[1].code == 1 and "the user's own fault" in ends[1].err
    assert ends[0].code == 1 and "PeerLostError" in ends[0].err and "rank 1" in ends[0].err


# -- lives


def work_cycles(n: int):
    for i in range(n):
        hora.init()
        assert hora.allreduce(i) == i * hora.size()
        hora.shutdown()
        assert not hora.is_initialized()
        with pytest.raises(hora.NotInitializedError):
            hora.allreduce(1)
    threads, files = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    assert threads < 40 and files < 40, f"{threads} threads, {files} open files after {n} lives"


def test_many_lives(ranks):
    n = 1000 if SOAK else 100
    ranks(4, work_cycles, args=(n,), timeout=60 + n)


# -- who waits for whom


def work_alone():
    if os.environ["HORA_RANK"] == "1":
        return
    began = time.monotonic()
    with pytest.raises(hora.HoraError, match=r"missing: 1 after 1s: .*HORA_START_TIMEOUT"):
        hora.init(start_timeout=1)
    assert time.monotonic() - began < 20


def test_a_start_timeout_of_the_programs_goes_before_the_launchers_patience(ranks):
    ranks(2, work_alone, env={"HORA_JOIN_TIMEOUT": "600"})
