"""Graphs and sessions of TensorFlow 1: independent operations in opposite orders, hooks, optimizers, and what goes
wrong."""

import re
import subprocess

import pytest
from guide import scripts
from sample import cases

ORDERS = """
import sys, threading
import tensorflow as tf
import horovod.tensorflow as hvd
v1 = tf.compat.v1
v1.disable_eager_execution()
hvd.init()
r = hvd.rank()
outs = {}
for i in range(200) if r == 0 else reversed(range(200)):
    outs[i] = hvd.allreduce(tf.fill([i % 7 + 1], float(i + r)), op=hvd.Sum, name=f"x{i}")
with v1.Session(config=v1.ConfigProto(inter_op_parallelism_threads=int(sys.argv[1]))) as s:
    for turn in range(4):
        got = s.run(outs)
        assert all((got[i] == 2 * i + 1).all() for i in range(200)), got
    one = s.run(outs[7])                      # of a graph no more is run than was asked for
    assert (one == 15).all()
    # Several threads of a program run the session, each its own operations.
    ends = [None, None]
    threads = [threading.Thread(target=lambda k=k: ends.__setitem__(k, s.run([outs[i] for i in range(k, 200, 2)]))) for k in (0, 1)]
    [t.start() for t in threads]; [t.join() for t in threads]
    assert all(e is not None and (e[0] == 2 * k + 1).all() for k, e in enumerate(ends)), ends
print("well")
"""

# A TensorFlow whose C interface has no kernels that end later, as 2.12 has none.
OLDER = """
import types, tensorflow as tf
load = tf.load_op_library
tf.load_op_library = lambda path: types.SimpleNamespace(**{k: v for k, v in vars(load(path)).items() if "_later" not in k})
"""
OLDER_WELL = """
assert not any(op.type.endswith("Later") for op in v1.get_default_graph().get_operations())
"""

CALLS = """
import numpy as np, tensorflow as tf
import horovod.tensorflow as hvd
import hora.tensorflow as ht
v1 = tf.compat.v1
v1.disable_eager_execution()
hvd.init(process_sets="dynamic")
r, n = hvd.rank(), hvd.size()
one = hvd.add_process_set([1])


def equal(a, b):
    assert np.allclose(np.asarray(a), np.asarray(b)), (a, b)


x = tf.fill([2, 3], r + 1.0)
w = v1.get_variable("w", [], initializer=v1.constant_initializer(float(r)))
ref = v1.Variable([r, r], use_resource=False)
u = tf.constant(2.0)
y, came = hvd.alltoall(tf.range(3) + 10 * r, splits=[2, 1])
calls = {
    "mean": hvd.allreduce(x), "max": hvd.allreduce(x, op=hvd.Max), "grouped": hvd.grouped_allreduce([x, x * 2], op=hvd.Sum),
    "fp16": hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16), "rows": hvd.allgather(tf.fill([r + 1], r)),
    "root": hvd.broadcast(tf.constant([r]), 1), "alltoall": y, "came": came, "part": hvd.reducescatter(tf.ones([3, 2]), op=hvd.Sum),
    "sparse": tf.convert_to_tensor(hvd.allreduce(tf.IndexedSlices(tf.ones([1, 2]), tf.constant([r]), tf.constant([2, 2])))),
    "where": [hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op(), hvd.process_set_included_op(),
              hvd.size_op(one.process_set_id), hvd.process_set_included_op(one.process_set_id)],
    "back": tf.gradients(hvd.allreduce(u * (r + 1.0), op=hvd.Sum), u)[0],
    "twice": [hvd.allreduce(x, name="same"), hvd.allreduce(x + 1, name="same")],
    "loop": tf.while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, hvd.allreduce(a, op=hvd.Sum)), [tf.constant(0), tf.ones(2)])[1],
    "hora": ht.allreduce([x, x], "max"),
}
every = hvd.broadcast_global_variables(1)
import horovod.keras, horovod.tensorflow.keras
others = [horovod.keras.broadcast_global_variables(0), horovod.tensorflow.keras.broadcast_global_variables(1)]
with v1.Session() as s:
    s.run(v1.global_variables_initializer())
    for _ in range(3):
        got = s.run(calls)
    equal(got["mean"], np.full((2, 3), 1.5)); equal(got["max"], np.full((2, 3), 2)); equal(got["grouped"][1], np.full((2, 3), 6))
    equal(got["fp16"], np.full((2, 3), 3)); equal(got["rows"], [0, 1, 1]); equal(got["root"], [1])
    equal(got["alltoall"], [0, 1, 10, 11] if r == 0 else [2, 12]); equal(got["came"], [2, 2] if r == 0 else [1, 1])
    equal(got["part"], np.full((2 - r, 2), 2)); equal(got["sparse"], np.full((2, 2), 0.5)); equal(got["back"], 2 * (r + 1))
    equal(got["where"], [r, 2, r, 2, 1, 1, r]); equal(got["twice"][1], np.full((2, 3), 2.5)); equal(got["loop"], [32, 32])
    equal(got["hora"][1], np.full((2, 3), 2))
    for root, one in zip((0, 1), others):
        s.run(v1.assign(w, 9.0 + r)); s.run(one); equal(s.run(w), 9.0 + root)
    s.run([v1.assign(w, float(r)), v1.assign(ref, [r, r])])
    s.run(every)
    equal(s.run(w), 1); equal(s.run(ref), [1, 1])
    assert hvd.broadcast_object({"r": r}, 1, session=s) == {"r": 1}

    # A mismatch is TensorFlow's own class, on every rank, and the next operation works.
    for bad in (lambda: hvd.allreduce(tf.ones([3 + r]), name="bad"), lambda: hvd.alltoall(tf.ones([3])), lambda: hvd.allreduce(tf.constant(["a"]))):
        try:
            s.run(bad())
        except (tf.errors.FailedPreconditionError, tf.errors.InvalidArgumentError, TypeError) as e:
            text = str(e)
        else:
            raise AssertionError("no error")
    equal(s.run(hvd.allreduce(tf.ones(1), op=hvd.Sum)), [2])
    ends = s.run(hvd.allreduce(tf.ones(1), op=hvd.Sum) if r else hvd.join()) # whoever has no more data joins
    equal(ends, [1] if r else 1) if r else None
    last = None if not r else s.run(hvd.join())

    # An elastic state of a session's variables.
    state = hvd.elastic.TensorFlowState(session=s, batch=3)
    s.run(v1.assign(w, 9.0))
    state.restore(); equal(s.run(w), 1)
    s.run(v1.assign(w, 5.0 + r)); state.sync(); equal(s.run(w), 5.0)
print("well")
"""

TRAIN = """
import sys, numpy as np, tensorflow as tf
import hora, hora.tensorflow, horovod.tensorflow as hvd
v1 = tf.compat.v1
v1.disable_eager_execution()
hvd.init()
r, n, passes, dense = hvd.rank(), hvd.size(), int(sys.argv[1]), sys.argv[2] == "dense"


def train(optimizer, feeds, wrap):
    with tf.Graph().as_default():
        v1.set_random_seed(0 if wrap is None else r)
        table = v1.get_variable("table", [8, 4], initializer=v1.random_normal_initializer(seed=1 if wrap is None else 1 + r))
        w = v1.get_variable("w", [4, 1], initializer=v1.random_normal_initializer(seed=2))
        mine = v1.get_variable("mine", [], initializer=v1.zeros_initializer())
        ids, target = v1.placeholder(tf.int32, [None]), v1.placeholder(tf.float32, [None, 1])
        loss = tf.reduce_mean(tf.square(tf.matmul(tf.gather(table, ids), w) + mine - target))
        step = v1.train.get_or_create_global_step()
        opt = optimizer() if wrap is None else wrap(optimizer())
        op = opt.minimize(loss, global_step=step)
        hooks = [v1.train.StopAtStepHook(last_step=1000)] + ([] if wrap is None else [hvd.BroadcastGlobalVariablesHook(0)])
        with v1.train.MonitoredTrainingSession(hooks=hooks, config=v1.ConfigProto(inter_op_parallelism_threads=1)) as s:
            for f in feeds:
                s.run(op, {ids: f[0], target: f[1]})
            t, v, count = s.run([table, w, step])
        return np.concatenate([t.ravel(), v.ravel()]), int(count), opt


rng = np.random.RandomState(3)
steps = [[(rng.randint(0, 8, 5), rng.rand(5, 1)) for _ in range(n)] for _ in range(12)]
sgd = lambda: v1.train.GradientDescentOptimizer(0.1)
how = {"backward_passes_per_step": passes, "sparse_as_dense": dense}
if sys.argv[3] == "horovod":
    wrap = lambda o: hvd.DistributedOptimizer(o, average_aggregated_gradients=passes > 1, **how)
else:
    wrap = lambda o: hora.tensorflow.DistributedOptimizer(o, average_passes=passes > 1, **how)
got, count, opt = train(sgd, [s[r] for s in steps], wrap)
assert count == 12 and opt.get_slot_names() == []
both = hora.allgather(got[None])
assert (both[0] == both[1]).all(), np.abs(both[0] - both[1]).max()
joined = [tuple(np.concatenate([b[k] for s in steps[i : i + passes] for b in s]) for k in (0, 1)) for i in range(0, 12, passes)]
alone, _, _ = train(sgd, joined, None)     # one process on all ranks' and passes' rows together
assert np.allclose(got, alone, atol=1e-5), np.abs(got - alone).max()
print("well")
"""

LOST = """
import os, signal, time
import tensorflow as tf
import horovod.tensorflow as hvd
v1 = tf.compat.v1
v1.disable_eager_execution()
hvd.init()
x = [hvd.allreduce(tf.ones(3), name=f"x{i}") for i in range(20)]
with v1.Session() as s:
    s.run(x)
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        while True:
            s.run(x)
    except tf.errors.AbortedError as e:
        assert "rank 1" in str(e), e
        print("told after", time.monotonic() - began < 9)
"""


# Ranks whose name scopes differ: what ignores them matches all the same, by its name or by its tensor's, and so does
# what goes back.
SCOPES = """
import numpy as np, tensorflow as tf
import horovod.tensorflow as hvd
v1 = tf.compat.v1
v1.disable_eager_execution()
hvd.init()
r = hvd.rank()
with v1.name_scope("one/deep" if r == 0 else None):
    x = tf.fill([2], r + 1.0, name="x")
    rows = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([r]), tf.constant([2, 2]))
    given = {
        "named": hvd.allreduce(x, op=hvd.Sum, name="x", ignore_name_scope=True),
        "again": hvd.allreduce(x + 1, op=hvd.Sum, name="x", ignore_name_scope=True),
        "unnamed": hvd.allreduce(x, op=hvd.Sum, ignore_name_scope=True),
        "group": hvd.grouped_allreduce([x, x], op=hvd.Sum, ignore_name_scope=True)[1],
        "sparse": tf.convert_to_tensor(hvd.allreduce(rows, op=hvd.Sum, name="rows", ignore_name_scope=True)),
        "gather": hvd.allgather(x, ignore_name_scope=True), "gathers": hvd.grouped_allgather([x, x], ignore_name_scope=True)[1],
        "root": hvd.broadcast(x, 1, ignore_name_scope=True), "all": hvd.alltoall(x, ignore_name_scope=True),
        "part": hvd.mpi_ops._reducescatter(x, ignore_name_scope=True), "inner": hvd._allreduce(x, ignore_name_scope=True),
        "long": hvd.allreduce(x, op=hvd.Sum, name="n" * 150, ignore_name_scope=True),
    }
    given["back"] = tf.gradients(hvd.allreduce(x * (r + 1), op=hvd.Sum, ignore_name_scope=True), x)[0]
with v1.Session() as s:
    got = {k: v.tolist() for k, v in s.run(given).items()}
sums = [3, 3]
assert got == {
    "named": sums, "again": [5, 5], "unnamed": sums, "group": sums, "sparse": [[1, 1], [1, 1]], "gather": [1, 1, 2, 2],
    "gathers": [1, 1, 2, 2], "root": [2, 2], "all": [1, 2], "part": [3], "inner": sums, "long": sums,
    "back": [2 * (r + 1)] * 2,
}, got
print("well")
"""


def test_ranks_whose_name_scopes_differ(run):
    assert run(SCOPES, timeout=60).stdout.count("well") == 2


# What the guide takes as given: data, a network, a folder.
GIVEN = """
import os, sys
import numpy as np
folder, batch, mine = sys.argv[1], int(os.environ["BATCH"]), int(os.environ["HORA_RANK"])
numbers = np.random.RandomState(0)
images, weights = numbers.randn(64, 4).astype("float32"), numbers.randn(4, 1).astype("float32")
labels = images @ weights
def network(x, y):
    global w
    w = tf.get_variable("w", [4, 1], initializer=tf.constant_initializer(float(mine)))
    return tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
"""
SAY = """
        kept = kept if session.should_stop() else session.run(w)
print("got", [float(v).hex() for v in kept.ravel()])
"""


def test_the_guides_diff_changes_nothing_that_is_learned(run, tmp_path):
    """Two ranks after the diff, and one process before it, with batches twice as large."""
    got = []
    for program, ranks, batch in zip(scripts("From a session of TensorFlow 1"), ("1", "2"), ("16", "8"), strict=True):
        folder = tmp_path / ranks
        said = run(GIVEN + program + SAY.lstrip("\n"), "-np", ranks, args=(str(folder),), BATCH=batch).stdout
        found = [eval(text) for text in re.findall(r"got (.*)", said)]
        assert len(found) == int(ranks) and all(f == found[0] for f in found), said
        assert list(folder.glob("model.ckpt-*.index"))
        got.append([float.fromhex(v) for v in found[0]])
    assert max(abs(a - b) for a, b in zip(*got, strict=True)) < 1e-5 and abs(got[0][0]) > 0.01, got


@pytest.mark.parametrize("threads", ["1", "8"])
def test_opposite_orders(run, threads):
    assert run(ORDERS, args=(threads,)).stdout.count("well") == 2


def test_calls(run):
    assert run(CALLS).stdout.count("well") == 2


def test_calls_without_kernels_that_end_later(run):
    assert run(OLDER + CALLS + OLDER_WELL).stdout.count("well") == 2


@pytest.mark.parametrize("threads", cases("1", rest=["8"]))
def test_opposite_orders_without_kernels_that_end_later(run, threads):
    assert run(OLDER + ORDERS + OLDER_WELL, args=(threads,)).stdout.count("well") == 2


@pytest.mark.parametrize(
    ("passes", "form", "names"),
    cases(
        ("1", "rows", "horovod"),
        ("3", "dense", "horovod"),
        ("3", "dense", "hora"),
        rest=[("1", "dense", "horovod"), ("1", "rows", "hora")],
    ),
)
def test_training(run, passes, form, names):
    assert run(TRAIN, args=(passes, form, names)).stdout.count("well") == 2


def test_a_rank_that_is_killed(run):
    assert "told after True" in run(LOST, code=137).stdout


def test_example(run, tmp_path):
    from beside import ROOT

    program = (ROOT / "examples/34-horovod-session/train.py").read_text()
    done = run(program, args=(str(tmp_path / "saved"),), cold=True)
    assert re.search(r"step 100: \d+ %", done.stdout) and list((tmp_path / "saved").glob("model.ckpt-*.index")), (
        done.stdout
    )


SEVERAL = """
import tensorflow as tf
import hora, hora.tensorflow as ht

hora.init()
v1 = tf.compat.v1
with tf.Graph().as_default(), v1.Session() as s:
    made = []
    for name, grow in (("a", 1.0), ("b", 100.0)):
        v = v1.get_variable(name, initializer=0.0, use_resource=True)
        opt = ht.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2)
        made.append((v, opt.minimize(grow * v, var_list=[v])))
    s.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
    for turn in range(4):
        for _, step in made:
            s.run(step)
        a, b = (float(s.run(v)) for v, _ in made)
        assert a != 0 or turn == 0, "the first optimizer does nothing"
        assert b == 100 * a, (turn, a, b)
print("well")
"""


def test_two_optimizers_of_a_graph_add_up_apart(run):
    assert run(SEVERAL).stdout.count("well") == 2


# A program that ends while its threads run sessions, and while an operation waits that nobody else makes.
LEAVES = """
import ctypes, sys, threading
import tensorflow as tf
import horovod.tensorflow as hvd
v1 = tf.compat.v1
v1.disable_eager_execution()
hvd.init()
r = hvd.rank()
look = ctypes.CDLL(sys.argv[1])                # what it has registered runs after what comes later, so after hora's
x = [hvd.allreduce(tf.ones(64), op=hvd.Sum, name=f"x{i}") for i in range(40)]
alone = hvd.allreduce(tf.ones(3), name=f"alone{r}")
s = v1.Session()
s.run(x)
assert look.threads() == 1, "it looks for the thread by its name"
turns = threading.Semaphore(0)


def on():
    try:
        while True:
            s.run(x)
            turns.release()
    except tf.errors.OpError:                  # the other rank was through first
        turns.release(3)


threading.excepthook = lambda args: None       # this one hears it too
for f in (on, lambda: s.run(alone)):
    threading.Thread(target=f, daemon=True).start()
for _ in range(3):
    turns.acquire()
print("well", flush=True)
"""

LOOKS = r"""
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int threads(void) {
    int n = 0;
    DIR *all = opendir("/proc/self/task");
    for (struct dirent *e; (e = readdir(all));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        FILE *f = fopen(path, "r");
        if (!f) continue;
        if (fgets(name, sizeof name, f) && !strcmp(name, "hora-later\n")) n++;
        fclose(f);
    }
    closedir(all);
    return n;
}

// The kernel takes a thread away a moment after it has been joined; one that is idle stays for a second.
static void look(void) {
    struct timespec begun, now;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do {
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (threads() && now.tv_sec * 10 + now.tv_nsec / 100000000 < begun.tv_sec * 10 + begun.tv_nsec / 100000000 + 4);
    fprintf(stderr, "left with %d\n", threads());
}
__attribute__((constructor)) static void begin(void) { atexit(look); }
"""


@pytest.mark.parametrize("jobs", cases(2, rest=[10]))
def test_a_process_ends_with_operations_under_way(run, tmp_path, jobs):
    (tmp_path / "looks.c").write_text(LOOKS)
    looks = tmp_path / "looks.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", looks, tmp_path / "looks.c"], check=True)
    for _ in range(jobs):
        done = run(LEAVES, args=(str(looks),), timeout=60)
        assert done.stdout.count("well") == done.stderr.count("left with 0") == 2, done.stdout + done.stderr
