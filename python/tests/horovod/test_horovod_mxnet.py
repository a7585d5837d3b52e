"""horovod.mxnet on two ranks: its calls, optimizers and gluon's trainer, beside one process on the joined batch."""

import importlib
import sys
from pathlib import Path

import beside
import pytest

ROOT = Path(__file__).resolve().parents[3]

CALLS = """
import numpy as np, mxnet as mx
import horovod.mxnet as hvd
from mxnet import autograd, gluon, nd

hvd.init()
r, n = hvd.rank(), hvd.size()


def fails(call, kind, *says):
    try:
        call()
    except kind as e:
        assert all(s in str(e) for s in says), (says, str(e))
    else:
        raise AssertionError(f"no error: {says}")


for dtype in ("float32", "float64", "float16", "int32", "int64", "uint8", "int8"):
    x = nd.full((2, 3), r + 1, dtype=dtype)
    y = hvd.allreduce(x, op=hvd.Sum, name=f"t.{dtype}")
    assert y.dtype == x.dtype and y.shape == x.shape and (y.asnumpy() == 3).all() and (x.asnumpy() == r + 1).all()
x = nd.ones((4,)) * (r + 1)                                       # of MXNet's engine, perhaps not computed yet
assert hvd.allreduce(x * 2, name="lazy").asnumpy().tolist() == [3.0] * 4
assert hvd.allreduce_(x, average=False) is x and x.asnumpy().tolist() == [3.0] * 4
many = [nd.full((2,), i + r) for i in range(5)]
assert [y.asnumpy()[0] for y in hvd.grouped_allreduce(many, op=hvd.Sum, name="many")] == [2 * i + 1 for i in range(5)]
hvd.grouped_allreduce_(many, op=hvd.Max)
assert many[2].asnumpy().tolist() == [3, 3]
assert hvd.allgather(nd.full((r + 1, 2), r)).asnumpy()[:, 0].tolist() == [0, 1, 1]
assert hvd.grouped_allgather([nd.full((1,), r), nd.full((2,), r)])[1].asnumpy().tolist() == [0, 0, 1, 1]
assert hvd.broadcast(nd.array([r, 5.0]), 1).asnumpy().tolist() == [1, 5]
y = nd.array([float(r)])
assert hvd.broadcast_(y, 1) is y and float(y.asscalar()) == 1
rows, counts = hvd.alltoall(nd.arange(3) + 10 * r, splits=nd.array([2, 1]))
assert rows.asnumpy().tolist() == ([0, 1, 10, 11] if r == 0 else [2, 12]) and counts.asnumpy().tolist() == [2 - r] * 2
assert hvd.alltoall(nd.arange(2) + 10 * r, name="even").asnumpy().tolist() == [r, 10 + r]
assert hvd.reducescatter(nd.ones((2, 3)) * (r + 1), op=hvd.Sum).asnumpy().tolist() == [[3, 3, 3]]
assert len(hvd.grouped_reducescatter([nd.ones((2, 3))] * 2)) == 2
assert hvd.broadcast_object({"rank": r}, 1) == {"rank": 1} and hvd.allgather_object(r) == [0, 1]
back, context = hvd.Compression.fp16.compress(nd.ones((2,)))
assert back.dtype == np.float16 and hvd.Compression.fp16.decompress(back, context).dtype == np.float32
fails(lambda: hvd.allreduce(nd.ones((3 + r,)), name="differs"), Exception, "rank 1")
for many in (hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter):
    fails(lambda: many([nd.ones((2,))] * (2 + r)), RuntimeError, "Mismatched lengths", "rank 1")
fails(lambda: hvd.broadcast(nd.ones((2,)), 7), ValueError, "invalid root rank 7")
fails(lambda: hvd.broadcast_parameters([nd.ones((2,))]), ValueError, "invalid params")
fails(lambda: hvd.allreduce(nd.ones((2, 2)).tostype("row_sparse")), ValueError, "row_sparse")

# gluon: as one process on the joined batch, and equal bits on both ranks.
rng = np.random.RandomState(0)
X, Y = rng.randn(32, 5).astype("f"), rng.randn(32, 1).astype("f")


def train(x, y, distributed, seed, **how):
    mx.random.seed(seed)
    net = gluon.nn.Sequential()
    net.add(gluon.nn.Dense(8, activation="tanh"), gluon.nn.Dense(1))
    net.initialize(mx.init.Normal(0.3))
    x, y = nd.array(x), nd.array(y)
    if distributed:
        fails(lambda: hvd.broadcast_parameters(net.collect_params()), ValueError, "no shape yet")
    net(x)
    if distributed:
        hvd.broadcast_parameters(net.collect_params(), root_rank=0)
        trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, **how)
    else:
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    for _ in range(50):
        with autograd.record():
            loss = gluon.loss.L2Loss()(net(x), y)
        loss.backward()
        trainer.step(len(x))
    return np.concatenate([p.data().asnumpy().ravel() for _, p in sorted(net.collect_params().items(), key=lambda kv: kv[1].shape)])


alone = train(X, Y, False, 7)
for how in ({}, {"gradient_predivide_factor": 2.0, "num_groups": 2}):
    w = train(X[r::n], Y[r::n], True, 7 + r, **how)
    assert np.allclose(w, alone, atol=1e-4), np.abs(w - alone).max()
    assert len({bytes(b) for b in hvd.allgather_object(w.tobytes())}) == 1
train(X[r::n], Y[r::n], True, 7, compression=hvd.Compression.fp16)

net = gluon.nn.Dense(1, in_units=2)
net.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
with autograd.record():
    loss = sum(net(nd.ones((1, 2), ctx=c)).as_in_context(mx.cpu(0)) for c in (mx.cpu(0), mx.cpu(1)))
loss.backward()
fails(lambda: hvd.DistributedTrainer(net.collect_params(), "sgd").step(1), ValueError, "several devices")

# An optimizer of the symbolic interface: each gradient when its update comes.
opt = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0, rescale_grad=1.0))
weight, grad = nd.zeros((3,)), nd.ones((3,)) * (r + 1)
opt.update(0, weight, grad, opt.create_state(0, weight))
assert weight.asnumpy().tolist() == [-1.5] * 3 and opt.learning_rate == 1.0

# docs/horovod.md walked.
import re, sys
listed = set(re.findall(r"^\\| `horovod\\.mxnet\\.([^`]+)` \\| works \\|", open(sys.argv[1]).read(), re.M))
assert listed == {n for n in (*hvd.mpi_ops.__all__, *hvd.__all__)} and all(hasattr(hvd, n) for n in listed), listed
print("well", mx.__version__)
"""


def test_calls(launcher, tmp_path):
    if sys.version_info >= (3, 12):
        pytest.skip("MXNet has no wheel for this Python")
    run = beside.runner(launcher, tmp_path, [beside.folder("mxnet")], {})
    assert run(CALLS, args=(str(ROOT / "docs/horovod.md"),)).stdout.count("well 1.9.1") == 2


def test_mxnet_is_missing():
    with pytest.raises(
        ImportError, match=r"No module named 'mxnet'; its last release is 1\.9\.1 \(pip install .*horovod\.torch"
    ):
        importlib.import_module("horovod.mxnet")
