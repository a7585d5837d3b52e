"""Elastic states of TensorFlow and Keras: what they keep, and fit that goes on after a kill on every backend."""

import pytest
from beside import ROOT
from sample import cases

STATES = """
import numpy as np, tensorflow as tf, keras
import hora, hora.elastic, hora.keras, hora.tensorflow

hora.init()
r = hora.rank()
v, n = tf.Variable([1.0 + r, 2.0]), tf.Variable(r)
model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2), keras.layers.BatchNormalization()])
model.compile(keras.optimizers.Adam(), "mse")
model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0, epochs=1 + r)
state = hora.tensorflow.TensorFlowState([v, n], step=r)
kept = hora.keras.KerasState(model, epoch=r, more=tf.Variable(float(r)))
plain = hora.elastic.State(model=model, optimizer=model.optimizer)
for s in (state, kept, plain):
    s.sync()
assert v.numpy().tolist() == [1, 2] and int(n) == 0 and state.step == 0 and kept.epoch == 0 and float(kept.more) == 0
mine = np.concatenate([np.ravel(x) for x in [*model.get_weights(), *(w.numpy() for w in model.optimizer.variables)]])
assert all((x == mine).all() for x in hora.allgather_object(mine)) and int(model.optimizer.iterations) == 1
v.assign([7.0, 7.0]); kept.epoch = 5; model.layers[0].kernel.assign(np.zeros((3, 2))); model.optimizer.iterations.assign(9)
state.restore(); kept.restore()
assert v.numpy().tolist() == [1, 2] and kept.epoch == 0 and int(model.optimizer.iterations) == 1
assert (np.concatenate([np.ravel(x) for x in [*model.get_weights(), *(w.numpy() for w in model.optimizer.variables)]]) == mine).all()
for wrong, kind in (
    (lambda: hora.keras.KerasState(keras.Sequential([keras.layers.Dense(1)])), "no variables yet"),
    (lambda: hora.tensorflow.TensorFlowState([1]), "model.variables"),
    (lambda: hora.elastic.State(v=tf.Variable(tf.zeros(2 + r))).sync(), "rank 1"),
):
    try:
        wrong()
    except hora.HoraError as e:
        assert kind in str(e), e
    else:
        raise AssertionError(kind)
print("well")
"""


def test_states(run):
    assert run(STATES).stdout.count("well") == 2


@pytest.mark.parametrize("backend", cases("tensorflow", rest=["jax", "torch"]))
def test_fit_goes_on_after_a_kill(run, backend, tmp_path):
    program = (ROOT / "examples/44-elastic-keras/train.py").read_text()
    done = run(program, "-np", "2", "--restarts", "3", args=(str(tmp_path / "killed"),), KERAS_BACKEND=backend)
    assert "weights equal on 2 ranks: True" in done.stdout and "done: 3 epochs" in done.stdout, (
        done.stdout + done.stderr
    )
    assert done.stdout.count("in epoch 0") == 2 and done.stdout.count("of 2 in epoch 1") == 2, done.stdout


@pytest.mark.parametrize(
    "how, env", cases(("jit_compile=True", {"HORA_TF_XLA": "1"}), rest=[("steps_per_execution=4", {})])
)
def test_fit_goes_on_after_a_kill_inside_compiled_steps(run, how, env, tmp_path):
    program = (ROOT / "examples/44-elastic-keras/train.py").read_text()
    told = program.replace('metrics=["accuracy"],', f'metrics=["accuracy"], {how},').replace(
        "batch == 25", "batch >= 25"
    )
    assert told.count(how) == 1 and "batch >= 25" in told
    done = run(told, "-np", "2", "--restarts", "3", args=(str(tmp_path / "killed"),), KERAS_BACKEND="tensorflow", **env)
    assert "weights equal on 2 ranks: True" in done.stdout and "done: 3 epochs" in done.stdout, (
        done.stdout + done.stderr
    )
    assert done.stdout.count("of 2 in epoch 1") == 2 and "jit_compile=True is not possible" not in done.stderr, (
        done.stdout + done.stderr
    )


COMMITS = """
import keras, numpy as np
import hora.keras


class Kept:
    at = 0

    def commit(self):
        commits.append(self.at)


class At(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        kept.at = batch


each = [3, 7, 11, 15, 19, 23, 27, 31, 31]  # and after the epoch
for steps, every, want in (
    (1, 10, [9, 19, 29, 31, 7, 17, 27, 31]), (4, 10, [11, 23, 31, 3, 15, 27, 31]), (4, 1, each + each),
):
    commits, kept = [], Kept()
    m = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    m.compile("sgd", "mse", steps_per_execution=steps)
    calls = [At(), hora.keras.callbacks.CommitState(kept, every=every)]
    m.fit(np.ones((32, 2)), np.ones((32, 1)), batch_size=1, epochs=2, callbacks=calls, verbose=0)
    assert commits == want, (steps, every, commits)
print("well")
"""


def test_commits_count_batches_however_many_a_call_takes(run):
    assert run(COMMITS, "-np", "1").stdout.count("well") == 1


# A function is traced once; its group is made again in every epoch, and nothing else names it.
GROUPS = """
import os, signal, sys
import tensorflow as tf
import hora, hora.elastic, hora.tensorflow as ht

hora.init()
state = hora.elastic.State(step=0)
held, traced = {}, []


@tf.function
def step(x):
    traced.append(1)
    return ht.allreduce(x, group=held["group"]), ht.size(held["group"])


@hora.elastic.run
def train(state):
    held["group"] = hora.Group([0, 1])
    while state.step < 8:
        if state.step == 4 and hora.rank() == 1 and not os.path.exists(sys.argv[1]):
            open(sys.argv[1], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if hora.rank() < 2:
            y, n = step(tf.constant(hora.rank() + 1.0))
            assert float(y) == 3 and int(n) == 2, (y, n)
        hora.barrier()
        state.step += 1
        state.commit()


train(state)
assert len(traced) == (hora.rank() < 2), traced
print("well")
"""


def test_a_function_goes_on_with_a_group_that_is_made_again(run, tmp_path):
    done = run(GROUPS, "-np", "3", "--restarts", "1", args=(str(tmp_path / "killed"),))
    assert done.stdout.count("well") == 3 and (tmp_path / "killed").exists(), done.stdout + done.stderr
