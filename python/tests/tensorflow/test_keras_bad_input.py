"""hora.keras in `fit` when ranks' models, data or steps differ, or a rank raises inside a step: a sentence in the
backend's class, no hang."""

import re
import signal

import pytest
from sample import cases
from test_tensorflow_bad_input import beside_interrupt

DIFFER = """
import sys
import numpy as np, keras
import hora, hora.keras

hora.init()
r, n = hora.rank(), hora.size()
backend = keras.backend.backend()
rng = np.random.RandomState(r)
X, Y = rng.randn(64, 5).astype("f"), rng.randn(64, 1).astype("f")


def model(width, seed=1):
    keras.utils.set_random_seed(seed)
    m = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(width), keras.layers.Dense(1)])
    m.compile(hora.keras.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
    return m


def fails(call, *says):
    try:
        call()
    except Exception as e:
        assert all(s in str(e) for s in says), (says, type(e), str(e))
        assert isinstance(e, hora.HoraError) or backend == "jax" or type(e).__name__ == "InvalidArgumentError", type(e)
        if backend == "jax":
            from hora.jax import recover  # `import hora.jax` would make `hora` a name of this function alone
            recover()
        assert hora.allreduce(np.float32(r + 1)) == n * (n + 1) / 2, "the next operation works"
        return
    raise AssertionError(f"no error: {says}")


fit = {"batch_size": 16, "epochs": 1, "verbose": 0}
# Another model on each rank.
fails(lambda: model(3 + r).fit(X, Y, **fit), "rank 0", "rank 1")
fails(lambda: model(3 + r).fit(X, Y, callbacks=[hora.keras.callbacks.BroadcastGlobalVariables()], **fit), "rank 0", "rank 1")


# Metrics that one rank alone has, as many others, and none: the sentence names them.
average = hora.keras.callbacks.MetricAverage()
fails(lambda: average.on_epoch_end(0, {"loss": 1.0} | ({"mine": 2.0} if r else {})), "mine", "rank 1: loss, mine")
fails(lambda: average.on_epoch_end(0, {"loss": 1.0, "mine" if r else "yours": 2.0}), "loss, mine", "rank 0: loss, yours")
fails(lambda: average.on_epoch_end(0, {"loss": 1.0} if r else None), "rank 0: none", "rank 1: loss")
logs = {"loss": float(r)}
average.on_epoch_end(0, logs)
assert logs["loss"] == (n - 1) / 2
m = model(3)
m.fit(X, Y, **fit)
print("well", backend, flush=True)
m.fit(X[: 64 - 32 * r], Y[: 64 - 32 * r], **fit)        # rank 1 has fewer steps, and ends: rank 0 hears of it
print("not reached by rank 0", r, flush=True)
"""

RAISES = """
import os, signal, sys
import numpy as np, keras
import hora, hora.keras

hora.init()
r, how = hora.rank(), sys.argv[1]


class Data(keras.utils.PyDataset):
    def __len__(self):
        return 1000

    def __getitem__(self, i):
        if i == 7 and r == 1:
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("row 7 cannot be read")
        return np.ones((4, 5), "f"), np.ones((4, 1), "f")


m = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(1)])
m.compile(hora.keras.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
try:
    m.fit(Data(), epochs=5, verbose=0, callbacks=[hora.keras.callbacks.BroadcastGlobalVariables()])
except Exception as e:
    if r == 0:
        print(" ".join(f"told: {type(e).__name__}: {e}".split()), flush=True)
    raise
"""

# Steps without end, of which one rank waits for data; or all go on.
ENDLESS = """
import os, sys, threading
import numpy as np, keras
import hora, hora.keras

hora.init()
r, how, took = hora.rank(), sys.argv[1], []


class Data(keras.utils.PyDataset):
    def __len__(self):
        return 10**5

    def __getitem__(self, i):
        took.append(i)
        if len(took) == 20:
            print("inside", flush=True)
            if how == "wait" and r == 1:
                threading.Event().wait()
        return np.ones((4, 5), "f"), np.ones((4, 1), "f")


m = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(1)])
m.compile(hora.keras.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
m.fit(Data(), verbose=0)
"""


@pytest.mark.parametrize("backend", cases("tensorflow", rest=["jax"]))
def test_ranks_that_differ(run, backend):
    done = run(DIFFER, code=1, timeout=90, KERAS_BACKEND=backend)
    assert done.stdout.count(f"well {backend}") == 2, done.stdout + done.stderr
    assert "not reached by rank 0 0" not in done.stdout
    assert "rank 1" in done.stderr and "terminate called" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("how", "backend"),
    cases(
        ("kill", "jax"),
        rest=[("raise", "torch"), ("raise", "tensorflow"), ("raise", "jax"), ("kill", "tensorflow"), ("kill", "torch")],
    ),
)
def test_a_rank_that_fails_in_the_middle_of_fit(run, how, backend):
    done = run(RAISES, args=(how,), code=1 if how == "raise" else 137, timeout=60, KERAS_BACKEND=backend)
    assert ("row 7 cannot be read" if how == "raise" else "rank 1") in done.stderr, done.stderr
    told = re.findall(r"told: (\w+): (.*)", done.stdout)
    assert len(told) == 1 and "rank 1" in told[0][1], done.stdout + done.stderr
    assert told[0][0] == {"tensorflow": "AbortedError", "jax": "JaxRuntimeError", "torch": "PeerLostError"}[backend]
    assert "terminate called" not in done.stderr and "core dumped" not in done.stderr


@pytest.mark.parametrize(
    ("backend", "how"),
    cases(("tensorflow", "go on"), ("jax", "wait"), rest=[("tensorflow", "wait"), ("torch", "wait")]),
)
def test_ctrl_c_in_the_middle_of_fit(launcher, folders, tmp_path, monkeypatch, backend, how):
    monkeypatch.setenv("KERAS_BACKEND", backend)
    said, took, code = beside_interrupt(launcher, folders, tmp_path, ENDLESS, how)
    assert code in (130, -signal.SIGINT) and took < 30, (code, took, said)
    assert "KeyboardInterrupt" in said or "stopped by SIGINT" in said, said
    assert "terminate called" not in said and "core dumped" not in said, said


BEFORE_INIT = """
import keras
import numpy as np
import hora
import hora.keras

r = int(__import__("os").environ["HORA_RANK"])
x = np.random.RandomState(r).randn(32, 3).astype("f")


def model():
    m = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    m.compile(hora.keras.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    return m


m = model()
try:
    m.fit(x, x[:, :1], batch_size=8, verbose=0)
except Exception as e:
    assert "call hora.init() first" in str(e), e
else:
    raise SystemExit("it trained by itself")
hora.init()
if keras.backend.backend() == "jax":
    m = model()     # a fit that failed has left the other without weights
m.fit(x, x[:, :1], batch_size=8, verbose=0, callbacks=[hora.keras.callbacks.BroadcastGlobalVariables()])
w = np.concatenate([np.asarray(keras.ops.convert_to_numpy(v)).ravel() for v in m.trainable_variables])
both = hora.allgather(w[None])
assert np.array_equal(both[0], both[1]), both
print("well")
"""


@pytest.mark.parametrize("backend", cases("tensorflow", rest=["jax", "torch"]))
def test_a_rank_that_has_not_joined_does_not_train_by_itself(run, backend):
    """Nor is what is traced then kept for later."""
    assert run(BEFORE_INIT, KERAS_BACKEND=backend).stdout.count("well") == 2
