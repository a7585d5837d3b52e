"""Ranks at different places of a program with TensorFlow: told where each is, and where nothing proves that they are
stuck, only told."""

import re

PLACES = """
import threading, time
import tensorflow as tf
import hora, hora.tensorflow as ht
import horovod.tensorflow as hvd

hvd.init()
r = hvd.rank()
x = tf.ones(2)
for call in (lambda: ht.allreduce(x), lambda: ht.allreduce([x, x]), lambda: ht.allgather([x, x]), lambda: ht.broadcast(x),
             lambda: ht.reducescatter(tf.ones([2, 2])), lambda: hvd.grouped_reducescatter([tf.ones([2, 2])] * 2), lambda: hvd.allreduce(x)):
    call(), call()
traced = tf.function(lambda y: ht.allreduce(y) + hvd.allreduce(y))
assert (traced(x).numpy() == 3).all()
try:
    if r == 0:
        ht.allreduce(x)
    else:
        ht.allreduce(x)
except tf.errors.InvalidArgumentError as e:
    assert "program.py:17 on rank 0" in str(e) and "program.py:19 on rank 1" in str(e), e
else:
    raise AssertionError("two places went together")


def crosswise(first, then):
    '''Rank 0 does both in order; rank 1 begins with the second, and a thread of its frees both after a while.'''
    if r == 0:
        return first(), then()
    late = threading.Thread(target=lambda: (time.sleep(2.5), first()))
    late.start()
    then()
    late.join()


def one():
    return hvd.allreduce(x)


def other():
    return hvd.allreduce(x)


crosswise(one, other)
v1 = tf.compat.v1
with tf.Graph().as_default():
    p, q = (hvd.allreduce(tf.ones([2]), name=n) for n in "pq")
    with v1.Session() as s:
        crosswise(lambda: s.run(p), lambda: s.run(q))
print("well")
"""


def test_ranks_that_wait_at_different_places_are_told(run):
    done = run(PLACES, HORA_CHECK_CALLS="1", HORA_DEADLOCK_TIMEOUT="0.5")
    assert done.stdout.count("well") == 2
    told = [line for line in done.stderr.splitlines() if "wait for each other" in line]
    assert len(told) == 2 and all(
        "nothing is ended for 1m0s, since rank 0 runs a framework's compiled program" in line for line in told
    ), done.stderr
    assert len(re.findall(r"HorovodAllreduce at program\.py:\d+", told[0])) >= 2, told[0]
    assert re.search(r"rank 0 is in allreduce p\b.* rank 1 is in allreduce q\b", told[1]), told[1]


OTHER_KINDS = """
import tensorflow as tf
import hora, horovod.tensorflow as hvd

hvd.init()
r, n = hvd.rank(), hvd.size()


@tf.function
def step(x, mine):
    if mine:
        x = hvd.allreduce(x, op=hvd.Sum)
    return hvd.broadcast(x, 0)


x = tf.ones(2)
assert (step(x, tf.constant(True)).numpy() == n).all() and (step(x, tf.constant(False)).numpy() == 1).all()
try:
    step(x, tf.constant(r == 0))
except tf.errors.OpError as e:
    assert all(s in str(e) for s in ("rank 0 is in", "rank 1 is in", "it has been so for 6s")), e
    print("well", flush=True)
"""


def test_a_branch_that_one_rank_alone_takes_before_a_call_of_another_kind_ends(run):
    done = run(OTHER_KINDS, HORA_DEADLOCK_TIMEOUT="0.05")
    assert done.stdout.count("well") == 2, done.stderr
