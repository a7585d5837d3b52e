"""sparkdl's Keras callback on a cluster: its lines alone come to the driver, with the epochs' and, where asked for, the
batches' metrics."""

from __future__ import annotations

import sys

import beside
import pytest
from sample import longer
from sparkdl import HorovodRunner

FOLDERS = [str(beside.folder(n)) for n in ("tensorflow", "jax")]


def train(folders, per_batch):
    import os
    import sys

    sys.path.extend(folders)
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras
    import numpy as np
    from sparkdl.horovod import log_to_driver
    from sparkdl.horovod.tensorflow.keras import LogCallback

    print("a line of the program's own", flush=True)
    log_to_driver("a word to the driver")
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    called = LogCallback(per_batch_log=True) if per_batch else LogCallback()
    model.fit(np.ones((6, 2)), np.ones((6, 1)), batch_size=2, epochs=2, verbose=2, callbacks=[called])


@pytest.mark.parametrize("per_batch", [pytest.param(False, marks=longer), True])
def test_only_what_the_callback_says_is_shown(spark, capsys, per_batch):
    HorovodRunner(np=2, driver_log_verbosity="log_callback_only").run(train, folders=FOLDERS, per_batch=per_batch)
    said = capsys.readouterr().out.splitlines()
    for rank in (0, 1):
        mine = [line.removeprefix(f"[{rank}]<stdout>:") for line in said if line.startswith(f"[{rank}]<stdout>:")]
        assert "a word to the driver" in mine, said
        told = [line.split(" at ")[0] for line in mine if " at " in line]
        batches = [f"Batch {b} ends" for b in range(3)] if per_batch else []
        assert told == ["Epoch 0 begins", *batches, "Epoch 0 ends", "Epoch 1 begins", *batches, "Epoch 1 ends"], said
        assert all(", loss: " in line for line in mine if " ends at " in line), said
    assert not any("own" in line or "step" in line for line in said), said


def test_the_signature_is_the_reference_s(monkeypatch):
    import inspect

    monkeypatch.setattr(sys, "path", [*sys.path, *FOLDERS])
    from sparkdl.horovod.tensorflow.keras import LogCallback

    spec = inspect.getfullargspec(LogCallback.__init__)
    assert spec.args == ["self", "per_batch_log"] and spec.defaults == (False,)
