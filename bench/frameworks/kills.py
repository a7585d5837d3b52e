"""kill -9 inside a step: how long until the survivors have done their next one.

Three ranks under `hora run --on-loss continue`; a thread of rank 2 ends its process while the main thread is inside the
step, and leaves the time. The clock is the machine's. Survivors recover, take the last commit and go on; the first step
that all of them have done afterwards counts.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

from checks import Wrong
from frameworks.ranks import ROOT, around

STEPS, AT, BOUND = 30, 10, 1.0

HEAD = """
import os, signal, sys, threading, time
import numpy as np
import hora, hora.elastic

STEPS, AT, mark = {steps}, {at}, sys.argv[1]
hora.init()
inside = threading.Event()


def kill():
    inside.wait()
    time.sleep(0.03)                                       # the step takes longer than that
    with open(mark, "w") as f:
        f.write(repr(time.monotonic()))
    os.kill(os.getpid(), signal.SIGKILL)


if hora.rank() == 2:
    threading.Thread(target=kill, daemon=True).start()
told = False


def done():
    global told
    if os.path.exists(mark) and hora.size() == 2 and not told:
        told = True
        print("next step after", time.monotonic() - float(open(mark).read()), flush=True)
"""

STEP = """
state = hora.elastic.State(w=np.zeros(3, "f"), step=0)


@hora.elastic.run
def train(state):
    while state.step < STEPS:
        if state.step == AT and hora.rank() == 2:
            inside.set()
        got = step()
        assert got[0] == got[-1] == sum(range(1, hora.size() + 1)), got
        done()
        state.w += 1
        state.step += 1
        state.commit()


train(state)
assert state.w[0] == STEPS, state.w
print("well", flush=True)
"""

TENSORFLOW = """
import tensorflow as tf, hora.tensorflow as ht
big = tf.fill([1 << 20], 1.0 + hora.rank())


@tf.function
def chain():
    y = big
    for i in range(60):
        y = ht.allreduce(big + 0 * y)
    return y


step = lambda: chain().numpy()
"""

JAX = """
import jax, jax.numpy as jnp, hora.jax as hj
big = jnp.full(1 << 20, 1.0 + hora.rank())


@jax.jit
def chain(x):
    y = x
    for i in range(60):
        y = hj.allreduce(x + 0 * y)
    return y


step = lambda: np.asarray(chain(big))
"""

FIT = """
import keras, tensorflow as tf, hora.keras
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.layers.Input((512,)), *[keras.layers.Dense(512) for _ in range(6)], keras.layers.Dense(1)])
x = np.random.RandomState(hora.rank()).randn(1024, 512).astype("f")      # a step of some 100 ms
data = tf.data.Dataset.from_tensors((x, x[:, :1])).repeat(STEPS)
model.compile(hora.keras.DistributedOptimizer(keras.optimizers.SGD(1e-6)), loss="mse", jit_compile=False)
state = hora.keras.KerasState(model, epoch=0, batch=0)


class Watch(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == AT and hora.rank() == 2:
            inside.set()

    def on_train_batch_end(self, batch, logs=None):
        done()


@hora.elastic.run
def train(state):
    callbacks = [Watch(), hora.keras.callbacks.UpdateEpochState(state), hora.keras.callbacks.UpdateBatchState(state),
                 hora.keras.callbacks.CommitState(state, every=5)]
    model.fit(data, epochs=1 - state.epoch, callbacks=callbacks, verbose=0)


train(state)
weights = b"".join(w.tobytes() for w in model.get_weights())
assert len(set(hora.allgather_object(weights))) == 1
print("well", flush=True)
"""

KINDS = {"tf.function": HEAD + TENSORFLOW + STEP, "jit": HEAD + JAX + STEP, "fit": HEAD + FIT}


def program() -> str:
    """The program hora of this tree, built if it is not there."""
    made = ROOT / "bin" / "hora"
    if not made.exists():
        if shutil.which("go") is None:
            sys.exit("frameworks_bench: the part kill needs bin/hora: run make build")
        subprocess.run(["go", "build", "-o", str(made), "./cmd/hora"], cwd=ROOT, check=True)
    return str(made)


def measure(rounds: int) -> list[dict]:
    hora, lines = program(), []
    for kind, text in KINDS.items():
        took = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "program.py")
                with open(path, "w") as f:
                    f.write(text.format(steps=STEPS, at=AT))
                command = [hora, "run", "-np", "3", "--on-loss", "continue", "--min-np", "2", sys.executable, path, os.path.join(folder, "mark")]
                done = subprocess.run(command, env=around({}), capture_output=True, text=True, timeout=180)
                found = [float(s) for s in re.findall(r"next step after ([0-9.]+)", done.stdout)]
                if done.returncode or len(found) != 2 or done.stdout.count("well") != 2:
                    raise Wrong(f"kill in {kind}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
                took.append(max(found))
        lines.append({"what": f"kill -9 in {kind}", "value": f"next step after {statistics.median(took):.2f} s ({min(took):.2f}-{max(took):.2f}, {len(took)} runs)",
                      "goal": f"{BOUND} s", "reached": max(took) <= BOUND})  # fmt: skip
    return lines
