"""Sessions of TensorFlow 1 when a rank raises, is killed or interrupted inside a run, when its graph lacks a call, and
where TensorFlow's way of telling that an operation has ended is not known."""

import re
import signal
import subprocess

import pytest
from sample import cases
from test_sessions import OLDER
from test_tensorflow_bad_input import beside_interrupt

# Twenty independent calls a run, as a step has them.
STEP = """
import os, signal, sys
import tensorflow as tf
import horovod.tensorflow as hvd
v1 = tf.compat.v1
v1.disable_eager_execution()
hvd.init()
r = hvd.rank()
bad = v1.placeholder(tf.bool, [])
with tf.control_dependencies([v1.debugging.assert_equal(bad, False, message="the data are spoilt")]):
    begin = tf.ones(3)
x = [hvd.allreduce(begin, op=hvd.Sum, name=f"x{i}") for i in range(20)]
s = v1.Session()
"""

RAISES = (
    STEP
    + """
s.run(x, {bad: False})
for turn in range(10**9):
    mine = turn == 5 and r == 1
    if mine and sys.argv[1] == "python":
        raise RuntimeError("no more data")
    try:
        s.run(x, {bad: mine})
    except tf.errors.AbortedError as e:
        assert r == 0 and "rank 1" in str(e), e
        print("told of rank 1", flush=True)
        raise
"""
)

WAITS = (
    STEP
    + """
loop = tf.while_loop(lambda i, a: i < 10**9, lambda i, a: (i + 1, hvd.allreduce(a, name="in the loop")), [0, tf.ones(2)])
s.run(x, {bad: False})
print("inside", flush=True)
if sys.argv[1] == "loop":
    s.run(loop)
elif r == 0:
    s.run(x, {bad: False})
else:
    signal.pause()
"""
)

LACKS = (
    STEP
    + """
alone = [] if r else [hvd.allreduce(begin, name="lacking")]
after = hvd.allreduce(tf.ones(2), op=hvd.Sum, name="after")
for turn in range(3):
    s.run(x, {bad: False})
try:
    s.run([x, alone], {bad: False})                 # rank 1's graph has no such call: it is through, and goes on
    s.run(after)
except tf.errors.OpError as e:
    assert all(t in str(e) for t in ("rank 0 is in allreduce lacking", "rank 1 is in allreduce after")), e
    print("well", type(e).__name__, flush=True)
else:
    raise AssertionError("no error")
"""
)

# More operations that stand side by side than fit into a list of some length; whether each is a thread's or none's.
MANY_LACK = """
import tensorflow as tf
import horovod.tensorflow as hvd
v1 = tf.compat.v1
v1.disable_eager_execution()
hvd.init()
r = hvd.rank()
x = tf.fill([2], float(r))
alone = [] if r else [hvd.allreduce(x, name=f"lacking{i}") for i in range(200)]
after = hvd.allreduce(x, op=hvd.Sum, name="after")
with v1.Session() as s:
    try:
        s.run(alone)
        s.run(after)
    except tf.errors.OpError as e:
        words = ("rank 0 is in allreduce lacking", "rank 1 is in allreduce after", "; and 193 more; make the same calls")
        assert all(t in str(e) for t in words), e
        print("well", type(e).__name__, flush=True)
    else:
        raise AssertionError("no error")
"""

# A graph and its session outlive the epoch; so do the set it was made with and the variables' values.
KILLED = """
import os, signal, sys
import tensorflow as tf
import horovod.tensorflow as hvd
v1 = tf.compat.v1
v1.disable_eager_execution()
hvd.init()
w = v1.get_variable("w", [3], initializer=v1.zeros_initializer())
x = [hvd.allreduce(tf.ones(3), op=hvd.Sum, name=f"x{i}") for i in range(20)]
size = hvd.size_op()
step = v1.assign_add(w, tf.add_n(x) / (20.0 * tf.cast(size, tf.float32)))
s = v1.Session()
s.run(v1.global_variables_initializer())
state = hvd.elastic.TensorFlowState(session=s, batch=0)
made = len(s.graph.get_operations())
lives = []
state.register_reset_callbacks([lambda: lives.append(hvd.size())])


@hvd.elastic.run
def train(state):
    while state.batch < 24:
        if state.batch == 12 and hvd.rank() == 1 and not os.path.exists(sys.argv[1]):
            open(sys.argv[1], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        s.run(step)
        state.batch += 1
        if state.batch % 5 == 0:
            state.commit()


train(state)
assert (s.run(w) == 24).all() and s.run(size) == hvd.size(), (s.run(w), s.run(size))
assert len(s.graph.get_operations()) - made < 20, "nothing is made anew at each commit"
print("well", hvd.size(), lives)
"""

# dladdr as it would answer were a std::function of another shape in TensorFlow's hand: none of its files has the words.
STRANGE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

int dladdr(const void *at, Dl_info *in) {
    static int (*real)(const void *, Dl_info *);
    if (!real) real = (int (*)(const void *, Dl_info *))dlsym(RTLD_NEXT, "dladdr");
    int found = real(at, in);
    if (found && in->dli_fname && strstr(in->dli_fname, "tensorflow")) in->dli_fname = "/lib/other.so";
    return found;
}
"""

UNKNOWN = """
import tensorflow as tf
import horovod.tensorflow as hvd
v1 = tf.compat.v1
hvd.init()
r = hvd.rank()
with tf.Graph().as_default(), v1.Session() as s:
    x = [hvd.allreduce(tf.ones(3), name=f"x{i}") for i in range(20)]
    for turn in range(3):
        for call in (x, x[0], hvd.allgather(tf.ones(2), name=f"rows{turn}"), hvd.join()):
            try:
                s.run(call)
            except tf.errors.OpError as e:
                assert "this TensorFlow's graphs and sessions of version 1 are not known to hora; use tf.function" in str(e), e
                kinds = type(e).__name__
            else:
                raise AssertionError("it ran")
    assert s.run(hvd.size_op()) == 2 and s.run(tf.ones(2)).sum() == 2
assert (tf.function(lambda y: hvd.allreduce(y, op=hvd.Sum))(tf.ones(2)).numpy() == 2).all(), "the rest goes on"
assert float(hvd.allreduce(tf.constant(r + 1.0), op=hvd.Sum)) == 3
print("well", kinds)
"""


@pytest.mark.parametrize("how", cases("assert", rest=["python"]))
def test_a_rank_that_fails_inside_a_run(run, how):
    done = run(RAISES, args=(how,), code=1, timeout=60)
    cause = {"python": "no more data", "assert": "the data are spoilt"}[how]
    assert cause in done.stderr and "told of rank 1" in done.stdout, done.stdout + done.stderr
    assert "core dumped" not in done.stderr and "terminate called" not in done.stderr


@pytest.mark.parametrize("how", cases("wait", rest=["loop"]))
def test_ctrl_c_inside_a_run(launcher, folders, tmp_path, how):
    said, took, code = beside_interrupt(launcher, folders, tmp_path, WAITS, how)
    assert code in (130, -signal.SIGINT) and took < 30, (code, took, said)
    assert "terminate called" not in said and "core dumped" not in said, said


def test_a_graph_that_lacks_a_call(run):
    done = run(LACKS, timeout=60, HORA_DEADLOCK_TIMEOUT="0.05")
    assert done.stdout.count("well DeadlineExceededError") == 2, done.stdout + done.stderr


@pytest.mark.parametrize("older", cases(True, rest=[False]))
def test_a_graph_that_lacks_many_calls(run, older):
    done = run(OLDER * older + MANY_LACK, timeout=60, HORA_DEADLOCK_TIMEOUT="0.05")
    assert done.stdout.count("well DeadlineExceededError") == 2, done.stdout + done.stderr


def test_a_killed_rank_is_replaced(run, tmp_path):
    done = run(KILLED, "-np", "2", "--restarts", "1", args=(str(tmp_path / "mark"),))
    assert len(re.findall(r"well 2 \[(?:2)?\]", done.stdout)) == 2 and "Traceback" not in done.stderr, (
        done.stdout + done.stderr
    )


def test_a_word_of_tensorflows_that_is_not_known(run, tmp_path):
    (tmp_path / "strange.c").write_text(STRANGE)
    strange = tmp_path / "strange.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", strange, tmp_path / "strange.c"], check=True)
    done = run(UNKNOWN, timeout=60, LD_PRELOAD=str(strange))
    assert done.stdout.count("well") == 2, done.stdout + done.stderr
