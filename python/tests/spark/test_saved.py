"""Folders of models that are larger than what Spark takes in one task or message, and what is left of a torn one."""

from __future__ import annotations

import glob
import os

import numpy as np
import pytest
from sample import longer

import hora

torch = pytest.importorskip("torch")


def forward(model, row):
    with torch.no_grad():
        return model(torch.from_numpy(np.asarray(row, np.float32))[None])


@longer
@pytest.mark.parametrize("size", [5 << 20, 45 << 20])
def test_a_stage_of_many_megabytes(spark, tmp_path, size):
    """Horovod's model, and ours: of four bytes for each weight, twice of what is in one stage of Horovod's."""
    from horovod.spark.torch import TorchModel

    model = torch.nn.Sequential(
        torch.nn.Linear(1, size, bias=False),
        torch.nn.Linear(size, 1, bias=False) if size < 1 << 23 else torch.nn.Flatten(),
    )
    kept = TorchModel(model=model, feature_columns=["x"], label_columns=["y"])
    kept.save(str(tmp_path / "kept"))
    again = TorchModel.load(str(tmp_path / "kept"))
    assert torch.equal(again.getModel()[0].weight, model[0].weight) and again.uid == kept.uid
    assert sum(os.path.getsize(p) for p in glob.glob(f"{tmp_path}/kept/data/*.parquet")) > 3 * size
    kept.write().overwrite().save(str(tmp_path / "kept"))
    with pytest.raises(hora.ArgumentError, match="is there already; remove it"):
        kept.save(str(tmp_path / "kept"))
    files = sorted(glob.glob(f"{tmp_path}/kept/data/*.parquet"))
    assert len(files) > 1
    os.remove(files[0])
    with pytest.raises(hora.HoraError, match=r"lacks \d+ of \d+ rows; a save that did not end leaves such"):
        TorchModel.load(str(tmp_path / "kept"))


@longer
def test_predict_takes_horovods_models(spark):
    from horovod.spark.torch import TorchModel

    torch.manual_seed(0)
    table = spark.createDataFrame([([float(i), 1.0],) for i in range(20)], "x array<double>")
    line, classes = torch.nn.Linear(2, 1), torch.nn.Linear(2, 3)
    for model, kind in ((line, "double"), (classes, "bigint")):
        given = TorchModel(model=model, feature_columns=["x"], label_columns=["y"], input_shapes=[[-1, 2]])
        scored = hora.spark.predict(given, table)
        assert scored.schema["prediction"].dataType.simpleString() == kind
        for r in scored.collect():
            out = forward(model, r.x)[0]
            assert r.prediction == pytest.approx(out.item() if kind == "double" else int(out.argmax()), rel=1e-5)
            assert r.prediction_error is None
    with pytest.raises(hora.ArgumentError, match=r"features are \['z'\]; the model was fitted with \['x'\]"):
        hora.spark.predict(given, table, features="z")
