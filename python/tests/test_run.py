"""hora.run: a function on many processes, from a program."""

import os
import threading
from pathlib import Path

import pytest

import hora

ROOT = Path(__file__).resolve().parents[2]


pytestmark = pytest.mark.usefixtures("launcher")


def train(lr, *, add=0.0):
    import hora

    hora.init()
    return hora.rank(), hora.allreduce(lr) + add


def test_results_by_rank():
    assert hora.run(train, args=(0.5,), kwargs={"add": 1.0}, np=2) == [(0, 2.0), (1, 2.0)]


def test_a_closure_travels():
    factor = 7
    assert hora.run(lambda: factor * 6, np=2) == [42, 42]


def test_environment_reaches_the_workers(monkeypatch):
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "12345")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    want = ("12345", "INFO", "mine")
    read = ("HOROVOD_FUSION_THRESHOLD", "NCCL_DEBUG", "EXTRA")

    def look():

        return tuple(os.environ.get(k) for k in read)

    assert hora.run(look, np=2, env={"EXTRA": "mine"}) == [want, want]


def fail_on(rank):
    import hora

    hora.init()
    if hora.rank() == rank:
        raise KeyError("the worker's own")
    hora.barrier()


def test_the_first_exception_is_raised_here():
    with pytest.raises(KeyError, match="the worker's own") as e:
        hora.run(fail_on, args=(1,), np=2)
    cause = e.value.__cause__
    assert cause.rank == 1 and "fail_on" in str(cause) and 'raise KeyError("the worker\'s own")' in str(cause)


def test_a_killed_worker_is_an_error():
    def die():
        import signal

        import hora

        hora.init()
        if hora.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        hora.barrier()

    with pytest.raises(hora.HoraError):
        hora.run(die, np=2)


lock = threading.Lock()


def uses_lock():
    with lock:
        return 1


def test_what_cannot_travel_is_named():
    with pytest.raises(
        hora.ArgumentError, match=r"uses_lock uses the variable 'lock' \(a _thread.lock\) in line \d+ of test_run.py.*inside the function"
    ):
        hora.run(uses_lock, np=1)
    with pytest.raises(hora.ArgumentError, match=r"argument 1 of train \(a _thread.lock\)"):
        hora.run(train, args=(threading.Lock(),), np=1)


def test_hosts_and_hostfile_exclude_each_other():
    with pytest.raises(hora.ArgumentError, match="give one of them"):
        hora.run(train, hosts="a:1", hostfile="b")


def outlives(killed):
    import signal

    import hora
    import hora.elastic

    hora.init()
    state = hora.elastic.State(step=0)

    @hora.elastic.run
    def train(state):
        while state.step < 20:
            if state.step == 10 and hora.rank() == 0 and not os.path.exists(killed):
                open(killed, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            hora.barrier()
            state.step += 1
            state.commit()
        return hora.rank(), hora.size(), state.step

    return train(state)


def test_an_elastic_job_gives_the_results_of_who_is_there_at_the_end(tmp_path):
    assert hora.run(outlives, args=(str(tmp_path / "a"),), np=3, min_np=2) == [(0, 2, 20), (1, 2, 20)]
    replaced = hora.run(outlives, args=(str(tmp_path / "b"),), np=2, min_np=2, flags=["--restarts", "1"])
    assert replaced == [(0, 2, 20), (1, 2, 20)]


def test_an_elastic_job_that_fails_says_why():
    with pytest.raises(KeyError, match="the worker's own"):
        hora.run(fail_on, args=(1,), np=2, min_np=2)
