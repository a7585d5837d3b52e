"""`hora run --legacy tf1`: scripts for TensorFlow 1 and Keras 2 on today's releases."""

import os

import beside

CLASSIC = """
import tensorflow as tf
import keras
from keras.models import Sequential
from keras.layers import Dense, Dropout, Flatten, Conv2D, MaxPooling2D
from keras.layers.core import Activation
from keras.utils import np_utils
from keras import backend as K
config = tf.ConfigProto()
import horovod.keras as hvd
import math, sys
import numpy as np

hvd.init()
config.gpu_options.allow_growth = True
config.gpu_options.visible_device_list = str(hvd.local_rank())
K.set_session(tf.Session(config=config))
epochs = int(math.ceil(4.0 / hvd.size()))
rng = np.random.RandomState(hvd.rank())
labels = rng.randint(0, 8, 128)
x = 0.3 * rng.rand(128, 8, 8, 1)
x[np.arange(128), labels] += 1
y = np_utils.to_categorical(labels, 10) if hasattr(np_utils, "to_categorical") else keras.utils.to_categorical(labels, 10)
model = Sequential()
model.add(Conv2D(8, kernel_size=(3, 3), input_shape=(8, 8, 1)))
model.add(Activation("relu"))
model.add(MaxPooling2D(pool_size=(2, 2)))
model.add(Flatten())
model.add(Dense(10, activation="softmax"))
assert keras.optimizers.Adam(lr=0.1, decay=1e-3).get_config()["learning_rate"]["config"]["decay_rate"] == 1e-3
opt = keras.optimizers.SGD(lr=0.05 * hvd.size(), momentum=0.9)
opt = hvd.DistributedOptimizer(opt)
model.compile(loss=keras.losses.categorical_crossentropy, optimizer=opt, metrics=["accuracy"])
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
if hvd.rank() == 0:
    callbacks.append(keras.callbacks.ModelCheckpoint(sys.argv[1] + "/checkpoint-{epoch}.h5"))

def batches():
    while True:
        for i in range(0, 128, 16):
            yield x[i : i + 16], y[i : i + 16]

model.fit_generator(batches(), steps_per_epoch=8, epochs=epochs, verbose=0, callbacks=callbacks, workers=2)
model.fit(x, y, batch_size=16, callbacks=callbacks, epochs=epochs, verbose=0, validation_data=(x, y))
K.set_value(model.optimizer.lr, 0.01)
assert abs(float(K.get_value(model.optimizer.lr)) - 0.01) < 1e-6
score = model.evaluate(x, y, verbose=0)
assert score[1] > 0.5, score
weights = np.concatenate([w.ravel() for w in model.get_weights()])
both = np.array(hvd.allgather(weights[None]))
assert (both[0] == both[1]).all()
print("well")
"""

SESSION = """
import tensorflow as tf
import horovod.tensorflow as hvd

tf.disable_eager_execution()
tf.logging.set_verbosity(tf.logging.ERROR)
hvd.init()
with tf.name_scope("net"), tf.variable_scope("net"):
    w = tf.get_variable("w", [3], initializer=tf.random_normal_initializer())
loss = tf.losses.mean_squared_error(tf.to_float(tf.constant([1, 2, 3])), w)
loss += 0 * tf.reduce_sum(tf.squared_difference(w, 1.0))
opt = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.1))
global_step = tf.train.get_or_create_global_step()
train_op = opt.minimize(loss, global_step=global_step)
hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=50)]
config = tf.ConfigProto(allow_soft_placement=True)
with tf.train.MonitoredTrainingSession(hooks=hooks, config=config) as session:
    while not session.should_stop():
        _, said = session.run([train_op, loss])
assert said < 0.1, said
assert tf.train.Checkpoint and tf.function and tf.io.gfile and tf.gfile.Exists("/") and tf.app.run
try:
    tf.no_such_name
except AttributeError as e:
    assert "no attribute 'no_such_name'" in str(e), e
else:
    raise AssertionError("no error")
print("well")
"""

# The same names by other paths, which are modules of their own; and names that nobody has.
PATHS = """
import hora
from tensorflow.keras.backend import get_session, set_session
import tensorflow.keras.backend as K
import keras, tensorflow as tf
from keras.layers.noise import GaussianNoise
from keras.engine.base_layer import Layer
from keras.utils.vis_utils import plot_model
from keras.utils.data_utils import get_file
from keras.losses import mse
from keras.optimizers import adam, sgd
import tensorflow.keras.losses as losses

set_session(tf.Session())
for backend in (K, tf.keras.backend, keras.backend):
    assert backend.set_session and backend.get_session() is get_session() and backend.square
    assert not hasattr(backend, "no_such_name")
assert adam is keras.optimizers.Adam and mse is keras.losses.mean_squared_error and losses.softmax_cross_entropy
assert not hasattr(keras.losses, "no_such_name") and not hasattr(losses, "no_such_name") and not hasattr(keras, "no_such_name")
with tf.Graph().as_default(), tf.Session() as session:
    data = tf.data.Dataset.range(3)
    assert data.output_types == tf.int64 and data.output_shapes == []
    row = data.make_one_shot_iterator().get_next()
    assert [session.run(row) for _ in range(3)] == [0, 1, 2]
print("well")
"""

# More names: what today's Keras has elsewhere, what Keras 2's package has, and what is refused by name.
MORE = """
import hora
import tensorflow as tf, keras
import numpy as np
from keras import backend as K
from keras.engine import InputSpec, Layer, Model
from keras.initializers import normal, uniform
from keras.preprocessing.text import Tokenizer
from keras.utils import multi_gpu_model
import tensorflow.keras.backend as TK
from tensorflow.keras.layers.experimental.preprocessing import Rescaling
import tensorflow.keras.utils

assert Layer is keras.layers.Layer and InputSpec is keras.layers.InputSpec and Model is keras.Model
assert normal is keras.initializers.RandomNormal and keras.preprocessing.text.Tokenizer is Tokenizer
text = Tokenizer()
text.fit_on_texts(["one two", "two"])
assert text.word_index == {"two": 1, "one": 2}
assert tf.keras.layers.experimental.preprocessing.Rescaling is Rescaling is keras.layers.experimental.preprocessing.Rescaling
assert K.tf is tf is TK.tf and K.image_dim_ordering() == TK.image_dim_ordering() == "tf"
K.set_image_dim_ordering("th")
assert K.image_dim_ordering() == "th" and keras.config.image_data_format() == "channels_first"
assert K.learning_phase() == 0
K.set_learning_phase(1)
assert K.learning_phase() == TK.learning_phase() == 1


def refused(kind, text, *says):
    try:
        exec(text, globals())
    except kind as e:
        assert all(s in str(e) for s in says), (text, e)
    else:
        raise AssertionError(text)


for utils in ("keras.utils", "tf.keras.utils", "tensorflow.keras.utils"):
    refused(NotImplementedError, f"import tensorflow; {utils}.multi_gpu_model(None, 2)", "multi_gpu_model", "hora run")
refused(AttributeError, "tf.estimator.Estimator", "tf.estimator", "Keras' fit")
refused(AttributeError, "tf.contrib.learn", "tf.contrib", "tf.compat.v1")
refused(ModuleNotFoundError, "import tensorflow.contrib.slim", "tf.contrib")
refused(ModuleNotFoundError, "from tensorflow.examples.tutorials.mnist import input_data", "tf.keras.datasets")
refused(AttributeError, "tf.layers.dense", "tf.layers.dense", "tf_keras")
refused(AttributeError, "tf.nn.rnn_cell.BasicLSTMCell", "tf.nn.rnn_cell.BasicLSTMCell", "tf_keras")
assert not hasattr(tf, "contrib") and tf.nn.relu(-1.0) == 0
with tf.Graph().as_default(), tf.Session() as session:
    phase = K.learning_phase()
    assert phase is K.learning_phase() and session.run(phase) == 1 and session.run(phase, {phase: 0}) == 0
print("well")
"""

# What Keras 3 has the parts of, and what it has not.
PARTS = """
import hora
import tensorflow as tf, keras, numpy as np
from keras import backend as K
from keras.layers import CuDNNGRU, CuDNNLSTM, DenseFeatures, LocallyConnected1D, LocallyConnected2D
from keras.models import model_from_config, model_from_yaml
from keras.losses import cosine, cosine_proximity
import tensorflow.keras.backend as TK

into = keras.layers.Input((4,))
inside = keras.layers.Dense(3, kernel_initializer="ones")(into)
out = keras.layers.Dropout(0.5)(inside)
model = keras.Model(into, out)
x = np.ones((2, 4), "f")
assert (K.function([model.input], [inside])([x])[0] == 4).all()
both = K.function([model.input, K.learning_phase()], [inside, out])
first, second = both([np.ones((100, 4), "f"), 1])
assert (first == 4).all() and set(second.ravel()) == {0.0, 8.0} and (both([x, 0])[1] == 4).all()
assert K.placeholder((None, 4)).shape == (None, 4) and K.placeholder(ndim=3).shape == (None, None, None)
for k in (K, TK, tf.keras.backend):
    assert k.in_train_phase(1, 2) == 2 and k.in_test_phase(lambda: 1, 2) == 1 and k.in_train_phase(1, 2, training=True) == 1
    with k.learning_phase_scope(1):
        assert k.learning_phase() == 1 and k.in_train_phase(1, 2) == 1
    assert k.learning_phase() == 0
    k.manual_variable_initialization(True)
    assert (np.asarray(keras.layers.Embedding(2, 2, embeddings_initializer="ones")(np.zeros(1))) == 1).all()
    k.manual_variable_initialization(False)
assert int(K.in_train_phase(tf.constant(1), tf.constant(2), tf.constant(True))) == 1
assert float(K.print_tensor(tf.constant(3.0), "said")) == 3 == float(tf.function(lambda: K.print_tensor(tf.constant(3.0), "too"))())
drawn = np.asarray(K.random_binomial((1000,), 0.25, seed=1))
assert set(drawn) == {0.0, 1.0} and 0.15 < drawn.mean() < 0.35 and drawn.dtype == "float32"
K.reset_uids()
assert keras.layers.Dense(1).name == "dense"
again = model_from_config({"class_name": "Functional", "config": model.get_config()})
assert again.count_params() == model.count_params()
y = np.random.RandomState(0).rand(2, 3).astype("f")
assert np.allclose(cosine(y, y), -1) and cosine_proximity is cosine is keras.losses.cosine_similarity
assert type(CuDNNLSTM(3)) is keras.layers.LSTM and type(CuDNNGRU(3, return_sequences=True)) is keras.layers.GRU
for name, call, says in (
    ("LocallyConnected1D", lambda: LocallyConnected1D(3, 2), "Conv"), ("LocallyConnected2D", lambda: LocallyConnected2D(3, 2), "tf_keras"),
    ("DenseFeatures", lambda: DenseFeatures([]), "FeatureSpace"), ("model_from_yaml", lambda: model_from_yaml(""), "model_from_json"),
    ("local_conv1d", lambda: K.local_conv1d(), "Conv"),
):
    try:
        call()
    except NotImplementedError as e:
        assert name in str(e) and says in str(e), e
    else:
        raise AssertionError(name)
with tf.Graph().as_default(), tf.Session() as session:
    fed = K.placeholder((2,))
    y = K.in_train_phase(fed * 2, fed)
    assert session.run(y, {fed: [1, 2], K.learning_phase(): 1}).tolist() == [2, 4] and session.run(y, {fed: [1, 2]}).tolist() == [1, 2]
print("well")
"""

# The layers and cells of tf.layers and tf.nn.rnn_cell lie in Keras 2's package.
LAYERS = """
import sys
sys.path.append(sys.argv[1])
import hora, tensorflow as tf
tf.disable_eager_execution()
y = tf.layers.dense(tf.ones([2, 3]), 4, kernel_initializer=tf.ones_initializer())
cell = tf.nn.rnn_cell.BasicLSTMCell(5)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    assert session.run(y).tolist() == [[3.0] * 4] * 2 and cell.output_size == 5
print("well")
"""

# What hora_legacy.pth in the wheel does before a program's first line.
FIRST = 'import os; os.environ.get("HORA_LEGACY") and __import__("hora._legacy")\n'


def test_scripts(run, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    (tmp_path / "sitecustomize.py").write_text(FIRST)
    for program in (CLASSIC, SESSION):
        done = run(program, "-np", "2", "--legacy", "tf1", args=(str(tmp_path),))
        assert done.stdout.count("well") == 2, done.stdout + done.stderr
    assert list(tmp_path.glob("checkpoint-*.h5"))


def test_names_by_other_paths(run):
    assert "well" in run(PATHS, "-np", "1", "--legacy", "tf1").stdout


def test_more_names(run):
    assert "well" in run(MORE, "-np", "1", "--legacy", "tf1").stdout


def test_names_that_are_made_of_others(run):
    assert "well" in run(PARTS, "-np", "1", "--legacy", "tf1").stdout


def test_layers_of_tensorflow_one(run):
    done = run(LAYERS, "-np", "1", "--legacy", "tf1", args=(str(beside.folder("keras-2")),))
    assert "well" in done.stdout


def test_nothing_that_exists_changes(run):
    program = """
import sys
import tensorflow as tf, keras
from keras import backend
before = {m.__name__: dict(vars(m)) for m in (tf, tf.train, tf.nn, tf.io, keras, backend, keras.optimizers, keras.layers)}
sgd = keras.optimizers.SGD(0.5).get_config()
import hora
for m in (tf, tf.train, tf.nn, tf.io, keras, backend, keras.optimizers, keras.layers):
    now = {k: v for k, v in vars(m).items() if k != "__getattr__"}
    old = {k: v for k, v in before[m.__name__].items() if k != "__getattr__"}
    other = [k for k in now.keys() | old.keys() if now.get(k) is not old.get(k)]
    assert other in ([], ["keras"]), (m, other)  # tf.keras is found when it is first asked for
assert keras.optimizers.SGD(0.5).get_config() | {"name": ""} == sgd | {"name": ""}
assert tf.executing_eagerly() and not hasattr(tf, "nothing") and hasattr(tf, "ConfigProto")
print("well")
"""
    assert "well" in run(program, "-np", "1", "--legacy", "tf1").stdout


LR = "import keras\nkeras.optimizers.SGD(lr=0.1)"


def test_without_it_one_sentence_says_so(run):
    for program in ("import tensorflow as tf\ntf.ConfigProto()", "from keras.layers.core import Dense", LR):
        done = run(program, "-np", "1", code=1)
        last = done.stderr.strip().splitlines()[-1]
        assert last.startswith("hora: rank 0") and last.endswith("start it with --legacy tf1"), last
    said = run("import hora", "-np", "1", cold=True, HORA_LEGACY="tf9").stderr
    assert "is no set of old names: the one there is is tf1" in said
