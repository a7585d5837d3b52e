"""hora.tensorflow when graphs differ between ranks, a rank raises, is killed or interrupted inside a step: TensorFlow's
class, a sentence, no hang."""

import os
import signal
import subprocess
import sys
import time

import pytest
from sample import cases

GRAPHS = """
import numpy as np, tensorflow as tf
import hora, hora.tensorflow as ht

hora.init()
r, n = hora.rank(), hora.size()
invalid = tf.errors.InvalidArgumentError


def works():
    assert float(ht.allreduce(tf.constant(r + 1.0))) == n * (n + 1) / 2, "the next operation works"


def fails(call, *says):
    try:
        call()
    except invalid as e:
        assert all(s in str(e) for s in says), (says, str(e))
        works()
    else:
        raise AssertionError(f"no error: {says}")


# Graphs that differ: another name, another order, more of them.
@tf.function
def differing(x):
    first, second = ("first", "second") if r == 0 else ("second", "first")
    return ht.allreduce(x, name=first) + ht.allreduce(x * 2.0, name=second)


fails(lambda: differing(tf.ones(3)), "rank 0", "rank 1", "first", "second")
fails(lambda: tf.function(lambda x: ht.allreduce([x] * (2 + r), name="many"))(tf.ones(3)), "many", "rank 1")


# A branch that one rank alone takes: its call meets the others' next one.
@tf.function
def branching(x, mine):
    if mine:
        x = ht.allreduce(x, name="in the branch")
    return ht.allreduce(x, name="after it")


for turn in range(2):
    fails(lambda: branching(tf.ones(3), tf.constant(r == 1)), "in the branch", "after it", "rank 0", "rank 1")
assert (branching(tf.ones(3), tf.constant(True)).numpy() == n * n).all()
assert (branching(tf.ones(3), tf.constant(False)).numpy() == n).all()


# Without names too: where a call is made is part of what ranks compare.
@tf.function
def unnamed(x, mine, times):
    if mine:
        x = ht.allreduce(x)
    for _ in tf.range(times):
        x = ht.allreduce(x)
    return ht.allreduce(x)


fails(lambda: unnamed(tf.ones(3), tf.constant(r == 1), tf.constant(0)), "allreduce in a branch", "rank 1")
fails(lambda: unnamed(tf.ones(3), tf.constant(False), tf.constant(1 + r)), "allreduce in a loop", "rank 1")
assert (unnamed(tf.ones(3), tf.constant(True), tf.constant(2)).numpy() == n**4).all()


# A step that a tape averages, in a branch that one rank alone takes, does not meet the others' next step.
v = tf.Variable([1.0, 2.0])


@tf.function
def training(mine):
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(v * v)
        return ht.DistributedGradientTape(tape).gradient(loss, v)

    if mine:
        v.assign_sub(0.0 * step())
    return step()


fails(lambda: training(tf.constant(r == 1)), "gradients in a branch", "rank 1")
assert (training(tf.constant(True)).numpy() == [2, 4]).all()


# A loop of another length, which has more to come when it fails.
@tf.function
def looping(x, times):
    for _ in tf.range(times):
        x = ht.allreduce(x, name="in the loop")
    return ht.allreduce(x, name="after the loop")


fails(lambda: looping(tf.ones(3), tf.constant(2 + r)), "in the loop", "after the loop")

# One rank traces anew, for another shape before and for a Python number: the calls are the same.
step = tf.function(lambda x, k: ht.allreduce(x * k))
for turn in range(6):
    if r == 1 and turn % 2:
        step.get_concrete_function(tf.TensorSpec([turn], tf.float32), 1.0)
    x = tf.fill([4], float(turn + r))
    assert (step(x, 2.0 if r == 0 else tf.constant(2.0)).numpy() == 2 * (n * turn + n * (n - 1) / 2)).all()

# Element types, and one that nobody sums.
for a, b in (("float32", "float64"), ("int32", "float32"), ("bfloat16", "float16")):
    fails(lambda: tf.function(ht.allreduce)(tf.ones(3, a if r else b)), a, b, "rank 1")
try:
    ht.allreduce(tf.constant(["text"]))
except (invalid, TypeError, tf.errors.NotFoundError, ValueError) as e:
    assert "string" in str(e), e
else:
    raise AssertionError("text was summed")
works()
print("well")
"""

# Sources in a dict: a gradient of "a" is not added to one of "b".
KEYS = """
import tensorflow as tf
import horovod.tensorflow as hvd
import hora.tensorflow as ht

hvd.init()
r, n = hvd.rank(), hvd.size()
v, w = tf.Variable([1.0, 2.0]), tf.Variable([3.0, 4.0])


def gradients(of, sources):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(v * v) + tf.reduce_sum(w * w)
    return of(tape).gradient(loss, sources)


def fails(call, *says):
    try:
        call()
    except tf.errors.InvalidArgumentError as e:
        said = str(e).replace(chr(92), "")           # a compiled assertion escapes quotation marks
        assert all(s in said for s in ("rank 0", "rank 1", "gradients", *says)), (says, said)
        assert float(ht.allreduce(tf.constant(r + 1.0))) == n * (n + 1) / 2, "the next operation works"
    else:
        raise AssertionError(f"no error: {says}")


for of in (ht.DistributedGradientTape, hvd.DistributedGradientTape):
    for call in (gradients, tf.function(gradients)):
        fails(lambda: call(of, {"a" if r == 0 else "b": v, "c": w}), "['a'] ['c']", "['b'] ['c']")
        fails(lambda: call(of, [{"k": v}, w] if r == 0 else [{"l": v}, w]), "[0]['k'] [1]", "[0]['l'] [1]")
        got = call(of, {"b": v, "a": [w]} if r == 0 else {"a": [w], "b": v})    # one order, whoever wrote which first
        assert (got["b"].numpy() == [2, 4]).all() and (got["a"][0].numpy() == [6, 8]).all()
        many = {f"weight {i:03}": v for i in range(60)} | {"last" if r == 0 else "end": v}
        fails(lambda: call(of, many), "weight 000")


# Calls of Horovod's that nobody named, in a branch or a loop that one rank alone goes into.
@tf.function
def branching(x, mine):
    if mine:
        x = hvd.allreduce(x, op=hvd.Sum)
    return hvd.allreduce(x, op=hvd.Sum)


@tf.function
def looping(x, times):
    for _ in tf.range(times):
        x = hvd.grouped_allreduce([x, x], op=hvd.Sum)[0]
    return hvd.grouped_allreduce([x, x], op=hvd.Sum)[0]


@tf.function
def training(mine):
    if mine:
        v.assign_sub(0.0 * gradients(hvd.DistributedGradientTape, v))
    return gradients(hvd.DistributedGradientTape, v)


x, yes, no, one, none = tf.ones(2), tf.constant(True), tf.constant(False), tf.constant(1), tf.constant(0)
mine, mine_too = (no, none) if r == 0 else (yes, one)
for turns in (1, 6):                                 # before the ranks know what comes next, and after
    for wrong, says in (
        (lambda: branching(x, mine), "HorovodAllreduce in a branch"),
        (lambda: looping(x, mine_too), "HorovodGroupedAllreduce in a loop"),
        (lambda: training(mine), "gradients in a branch"),
    ):
        for _ in range(turns):
            assert (branching(x, yes).numpy() == n * n).all() and (looping(x, one).numpy() == n * n).all()
            assert (training(no).numpy() == [2, 4]).all()
        try:
            got = wrong()
        except tf.errors.FailedPreconditionError as e:
            assert all(s in str(e) for s in ("rank 0", "rank 1", says)), e
        else:
            raise AssertionError(f"no error: {says}, but {got}")
print("well")
"""

# What one rank's step does, and what the others hear.
RAISES = """
import sys, os, signal
import tensorflow as tf
import hora, hora.tensorflow as ht

hora.init()
how = sys.argv[1]


@tf.function
def step(x, bad):
    if how == "assert":
        tf.debugging.assert_equal(bad, False, "the data are spoilt")
    x = ht.allreduce(x, "average")
    return x


x = step(tf.ones(4), tf.constant(False))
for turn in range(10**9):
    bad = turn == 5 and hora.rank() == 1
    if bad and how == "python":
        raise RuntimeError("no more data")
    if bad and how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        x = step(x, tf.constant(bad))
    except tf.errors.AbortedError as e:
        assert hora.rank() == 0 and "rank 1" in str(e), e
        print("told of rank 1", flush=True)
        raise
"""

WAITS = """
import os, sys, time
import tensorflow as tf
import hora, hora.tensorflow as ht

hora.init()


@tf.function(jit_compile="HORA_TF_XLA" in os.environ)
def step(x):
    for _ in tf.range(10**9 if sys.argv[1] == "loop" else 1):
        x = ht.allreduce(x, "average")
    return x


ht.allreduce(tf.ones(1))
if hora.rank() == 1 and sys.argv[1] == "wait":
    print("inside", flush=True)
    time.sleep(1000)
else:
    print("inside", flush=True)
    step(tf.ones(4))
"""

MISSING = """
import sys
try:
    import hora.tensorflow
except ImportError as e:
    assert sys.argv[1] in str(e) and "2.12 or newer" in str(e), e
    print("well")
"""


def test_graphs_that_differ(run):
    assert run(GRAPHS).stdout.count("well") == 2


def test_sources_of_other_keys(run):
    assert run(KEYS).stdout.count("well") == 2


@pytest.mark.parametrize("how", ["python", "assert", "kill"])
def test_a_rank_that_fails_inside_its_step(run, how):
    done = run(RAISES, args=(how,), code=137 if how == "kill" else 1, timeout=60)
    cause = {"python": "no more data", "assert": "the data are spoilt", "kill": "rank 1"}[how]
    assert cause in done.stderr and "told of rank 1" in done.stdout, done.stdout + done.stderr
    assert "core dumped" not in done.stderr and "terminate called" not in done.stderr


@pytest.mark.parametrize("how, xla", cases(("wait", None), ("loop", None), rest=[("wait", "1"), ("loop", "1")]))
def test_ctrl_c_inside_a_compiled_step(launcher, folders, tmp_path, monkeypatch, how, xla):
    if xla:
        monkeypatch.setenv("HORA_TF_XLA", xla)
    said, took, code = beside_interrupt(launcher, folders, tmp_path, WAITS, how)
    assert code in (130, -signal.SIGINT) and took < 30, (code, took, said)
    assert "terminate called" not in said and "core dumped" not in said, said


def beside_interrupt(launcher, folders, tmp_path, program, *args):
    """What `hora run` says when it gets Ctrl-C while the ranks are inside, how long it takes then, and how it ends."""
    path = tmp_path / "program.py"
    path.write_text(program)
    env = os.environ | {
        "HORA_START_TIMEOUT": "120",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "JAX_PLATFORMS": "cpu",
    }
    env["PYTHONPATH"] = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH", "")]), *map(str, folders)])
    job = subprocess.Popen(
        [launcher, "run", "-np", "2", sys.executable, path, *args],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    heard = ""
    while heard.count("inside") < 2:
        line = job.stdout.readline()
        assert line, heard
        heard += line
    time.sleep(0.5)
    begun = time.monotonic()
    job.send_signal(signal.SIGINT)
    rest, _ = job.communicate(timeout=120)
    return heard + rest, time.monotonic() - begun, job.returncode


def test_tensorflow_is_missing_or_too_old(run, tmp_path, monkeypatch):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "tensorflow.py").write_text("__version__ = '2.3.0'\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'old'}{os.pathsep}{os.environ['PYTHONPATH']}")
    assert (
        "well"
        in run(MISSING, "-np", "1", cold=True, args=("TensorFlow 2.3.0 is too old (it has no load_op_library)",)).stdout
    )
    (tmp_path / "old" / "tensorflow.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'tensorflow'\", name='tensorflow')\n"
    )
    assert "well" in run(MISSING, "-np", "1", cold=True, args=("TensorFlow is not installed",)).stdout


# An operation with a bound, which one rank does not come to: it reads a pipe until the other has heard.
LATE = """
import sys
import tensorflow as tf
import hora, hora.tensorflow as ht
from hora.frontend import behind

hora.init()
r, x = hora.rank(), tf.ones(3)
groups = [hora.Group([0, 1], tag=t) for t in "ab"]
for call in (lambda: ht.allreduce(x, group=groups[0]), tf.function(lambda: ht.allreduce(x, group=groups[1]))):
    if r == 1:
        assert open(sys.argv[1]).read() == "heard"
        continue
    try:
        call()
    except tf.errors.DeadlineExceededError as e:
        assert "allreduce" in str(e) and "rank 1" in str(e), e
        told = behind(e)
        assert isinstance(told, hora.DeadlineError), told
    else:
        raise AssertionError("it went on alone")
    with open(sys.argv[1], "w") as f:
        f.write("heard")
print("well", flush=True)
"""


def test_an_operations_bound_has_passed(run, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    done = run(LATE, args=(str(tmp_path / "pipe"),), code=1, timeout=60, HORA_OP_TIMEOUT="1")
    assert done.stdout.count("well") == 2 and "rank 0 made 1 call, rank 1 made 0 calls" in done.stderr, done.stderr
