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
    assert "weights equal on 2 ranks: True" in done.stdout and "done: 3 epochs" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("in epoch 0") == 2 and done.stdout.count("of 2 in epoch 1") == 2, done.stdout
