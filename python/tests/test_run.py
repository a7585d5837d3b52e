"""hora.run: a function on many processes, from a program."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import ClassVar

import cloudpickle
import numpy
import pytest

import hora
from hora import _settings, _task, _travel
from hora._run import program

ROOT = Path(__file__).resolve().parents[2]


pytestmark = pytest.mark.usefixtures("launcher")


def train(lr, *, add=0.0):
    import hora

    hora.init()
    return hora.rank(), hora.allreduce(lr) + add


def test_results_by_rank():
    assert hora.run(train, args=(0.5,), kwargs={"add": 1.0}, np=2) == [(0, 2.0), (1, 2.0)]


def test_a_host_with_its_slots():
    assert hora.run(train, args=(0.5,), np=2, hosts="localhost:2") == [(0, 1.0), (1, 1.0)]


def test_a_module_beside_the_notebook_travels_by_value(tmp_path):
    """Its file is gone when the workers start: they cannot import it."""
    (tmp_path / "helper.py").write_text(
        "FACTOR = 2\n\ndef inner(x):\n    return FACTOR * x\n\ndef double(x):\n    return inner(x)\n"
    )
    (tmp_path / "notebook.py").write_text(
        "import os, helper\nfrom helper import double\nimport hora\n"
        "os.remove(helper.__file__)\n"
        "if __name__ == '__main__':\n"
        "    print('result', hora.run(lambda x: (double(x), helper.inner(x)), args=(21,), np=2))\n"
    )
    command = [sys.executable, "-B", tmp_path / "notebook.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "result [(42, 42), (42, 42)]" in done.stdout, done.stderr
    assert not (tmp_path / "helper.py").exists() and not (tmp_path / "__pycache__").exists()


def test_a_closure_travels():
    factor = 7
    assert hora.run(lambda: factor * 6, np=2) == [42, 42]


def test_a_function_keeps_the_file_that_it_comes_from():
    """Also where cloudpickle leaves it out, as 3.1.3 does: else no traceback shows the user's lines."""

    def nameless(code):
        make, parts = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
        return make, tuple("<dynamic-code>" if part == code.co_filename else part for part in parts)

    class Pickler(cloudpickle.Pickler):
        dispatch_table: ClassVar = {**cloudpickle.Pickler.dispatch_table, types.CodeType: nameless}

    def outer():
        return [lambda: 1]

    for made in (cloudpickle, types.SimpleNamespace(Pickler=Pickler)):
        got = pickle.loads(_travel._dumps(made, outer))
        assert got.__code__.co_filename == got()[0].__code__.co_filename == __file__


def test_environment_reaches_the_workers(monkeypatch):
    monkeypatch.setenv("HOROVOD_FUSION_THRESHOLD", "12345")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("HORA_PEER_TIMEOUT", "7")
    want = ("12345", "INFO", "7", "mine")
    read = ("HOROVOD_FUSION_THRESHOLD", "NCCL_DEBUG", "HORA_PEER_TIMEOUT", "EXTRA")

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


def test_last_lines_do_not_act_on_a_terminal():
    def die():
        import os
        import sys

        sys.stderr.write("\x1b[2Jgone \u202eback\n")
        sys.stderr.flush()
        os._exit(3)

    with pytest.raises(hora.HoraError) as failed:
        hora.run(die, np=1)
    assert r"\x1b[2Jgone \u202eback" in str(failed.value)
    assert "\x1b" not in str(failed.value)


def test_what_cannot_travel_is_named():
    with pytest.raises(
        hora.ArgumentError,
        match=r"uses_lock uses the variable 'lock' \(a _thread.lock\) in line \d+ of test_run.py.*inside the function",
    ):
        hora.run(uses_lock, np=1)
    with pytest.raises(hora.ArgumentError, match=r"argument 1 of train \(a _thread.lock\)"):
        hora.run(train, args=(threading.Lock(),), np=1)


def test_a_variable_of_a_closure_is_named():
    key = threading.Lock()

    def closes():
        with key:
            return 1

    line = closes.__code__.co_firstlineno + 1
    with pytest.raises(
        hora.ArgumentError,
        match=rf"closes uses the variable 'key' \(a _thread.lock\) in line {line} of test_run.py.*inside the function",
    ):
        hora.run(closes, np=1)


def test_a_return_value_that_cannot_travel_is_named():
    def gives():
        return {"lock": threading.Lock()}

    with pytest.raises(
        hora.ArgumentError,
        match=r"the return value of gives \(a dict\) cannot be pickled: cannot pickle '_thread.lock' object; ret",
    ):
        hora.run(gives, np=1)


@pytest.mark.parametrize("np", [0, -1])
def test_no_processes_are_refused(np):
    with pytest.raises(hora.ArgumentError, match=f"np={np} is no number of processes; give 1 or more"):
        hora.run(train, args=(0.5,), np=np)


def test_an_interrupt_ends_the_job_without_another_word(tmp_path):
    (tmp_path / "notebook.py").write_text(
        "import os, time, hora\ndef sleeps():\n    print('asleep', os.getpid(), flush=True)\n    time.sleep(100)\nhora.run(sleeps, np=2)\n"
    )
    p = subprocess.Popen(
        [sys.executable, tmp_path / "notebook.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    workers = [int(p.stdout.readline().split()[-1]) for _ in range(2)]
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=30)
    assert p.returncode == -signal.SIGINT and err.rstrip().endswith("KeyboardInterrupt"), err
    assert not out and "hora: " not in err, (out, err)
    assert not [w for w in workers if Path(f"/proc/{w}").exists()]


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


def test_every_field_of_a_jobs_file_is_an_argument(tmp_path):
    def look():
        import os

        return os.environ["HORA_JOB"], os.environ.get("HOROVOD_START_TIMEOUT"), os.environ.get("HORA_TLS")

    got = hora.run(
        look, np=1, name="night", start_timeout=90, tls=True, log_dir=str(tmp_path / "logs"), network_interfaces=["lo"]
    )
    assert got == [("night", "90", "1")] and (tmp_path / "logs" / "rank.0" / "stdout").exists()
    assert hora.run(outlives, args=(str(tmp_path / "c"),), np=2, restarts=1) == [(0, 2, 20), (1, 2, 20)]
    with pytest.raises(TypeError, match="unexpected keyword argument 'restart'; did you mean restarts?"):
        hora.run(look, np=1, restart=1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'host'; did you mean hosts?"):
        hora.run(look, np=1, host="a:1")
    with pytest.raises(hora.HoraError, match='--bind: "all" is neither core nor none'):
        hora.run(look, np=1, bind="all")


def test_the_settings_are_flags_of_the_program():
    told = json.loads(subprocess.run([program(), "run", "--schema"], capture_output=True, text=True, check=True).stdout)
    own = {"command", "np", "min_np", "max_np", "hosts", "hostfile", "env"}
    assert set(told["properties"]) - own == set(_settings.FLAGS) == set(_settings.Settings.__annotations__)
    words = list(_settings.flags({"blacklist_cooldown_range": (10, "100s"), "tls": False, "port": None}, ["np"]))
    assert words == ["--blacklist-cooldown-range", "10", "100s", "--tls=false"]


def test_an_elastic_job_that_fails_says_why():
    with pytest.raises(KeyError, match="the worker's own"):
        hora.run(fail_on, args=(1,), np=2, min_np=2)


class Two(Exception):
    """Its constructor takes other arguments than those that it keeps."""

    def __init__(self, a, b):
        super().__init__(f"{a}/{b}")
        self.a = a


class More(Exception):
    def __init__(self, a, b=0):
        super().__init__(f"{a}/{b}")


def raises(what):
    raise what[0](*what[1:])


@pytest.mark.parametrize(("what", "args"), [((Two, 1, 2), ("1/2",)), ((More, 1), ("1/0",)), ((KeyError, "k"), ("k",))])
def test_an_exception_keeps_its_class(what, args):
    with pytest.raises(what[0]) as failed:
        hora.run(raises, (what,), np=1)
    assert failed.value.args == args and type(failed.value) is what[0]
    assert getattr(failed.value, "a", 1) == 1 and "raises" in str(failed.value.__cause__)


def test_an_exception_that_cannot_be_pickled_goes_by_its_words():
    two, lock = Two(1, 2), threading.Lock()
    two.lock = lock
    assert type(_task._portable(two)) is hora.HoraError and str(_task._portable(two)) == "Two: 1/2"
    array = ValueError(numpy.ones(2), "w")
    assert _task._portable(array) is array
    thing = ValueError(object())  # whose words have its address
    assert _task._portable(thing) is thing


# -- calls and ends that are not meant so


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: hora.run(train, (0.1,), 2),
            r"kwargs=2 is no dict of keyword arguments; the number of processes is np=2",
        ),
        (lambda: hora.run(train, (0.1,), [("add", 1)]), r"kwargs=\[\('add', 1\)\] is no dict of keyword arguments"),
        (
            lambda: hora.run(train, 0.1, np=2),
            r"args=0.1 is no sequence of arguments; for a single one give args=\(0.1,\)",
        ),
        (lambda: hora.run(train, "ab", np=2), r"args='ab' is no sequence"),
        (lambda: hora.run(train(1) if False else None, np=2), r"None is no function"),
        (lambda: hora.run(train, (0.1,), np="2"), r"np='2' is no number of processes"),
        (lambda: hora.run(train, (0.1,), np=0), r"np=0 is no number of processes"),
        (lambda: hora.run(train, (0.1,), np=1.5), r"np=1.5 is no number of processes"),
    ],
)
def test_a_call_that_is_not_meant_so(call, words):
    with pytest.raises(hora.ArgumentError, match=words):
        call()


def ends_by(how):
    import hora

    hora.init()
    if hora.rank() == 1:
        how = {
            "exit": SystemExit(3),
            "words": SystemExit("no data"),
            "interrupt": KeyboardInterrupt(),
            "close": GeneratorExit(),
        }[how]
        raise how
    return 1


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("exit", r"sys.exit\(3\)"),
        ("words", r"sys.exit\('no data'\)"),
        ("interrupt", "KeyboardInterrupt"),
        ("close", "GeneratorExit"),
    ],
)
def test_a_worker_that_exits_does_not_end_the_caller(how, words):
    with pytest.raises(hora.HoraError, match=f"run: rank 1 on .* ended with {words}; raise an exception") as failed:
        hora.run(ends_by, (how,), np=2)
    assert "ends_by" in str(failed.value.__cause__)


def asks():
    return input("name? ")


def test_a_function_that_asks_for_input_hears_how_to_debug():
    with pytest.raises(EOFError) as failed:
        hora.run(asks, np=1)
    assert "--stdin RANK python SCRIPT" in str(failed.value.__cause__)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            ((3, 9), cloudpickle.__version__),
            r"the function comes from Python 3\.9, and cannot be read by another one: have the workers started",
        ),
        (
            (sys.version_info[:2], "0.1"),
            r"which cannot read a function from cloudpickle 0\.1 \(Can't get attribute .*pip install cloudpickle==0\.1",
        ),
    ],
)
def test_a_function_from_another_python_or_cloudpickle_says_what_to_install(made, words):
    with pytest.raises(hora.HoraError, match=words):
        _travel.unpack(b"ccloudpickle.cloudpickle\n_unknown_setstate\n.", made)
