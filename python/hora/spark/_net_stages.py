"""Folders of Estimators and of what they fitted, and the files that other programs read."""

from __future__ import annotations

import json
import pickle
from typing import Any

from .. import _version
from ..errors import ArgumentError, HoraError
from . import _net, _safetensors, _store, _travel
from ._stages import MLReader, _fill, _Writer, read_saved


def packed(estimator: Any) -> bytes:
    """All of an estimator that is no Param."""
    from . import _kinds

    e = estimator
    kind = _kinds.kind_of(e.model)
    model = _net.keras_bytes(e.model) if kind == "keras" else e.model
    rest = {
        "kind": kind, "model": model, "loss": e.loss, "optimizer": e.optimizer, "metrics": e.metrics,
        "transform": e.row_transform,
        "package": _kinds.keras_of(e.model).__name__ if kind == "keras" else "",
        "callbacks": e.callbacks, "custom_objects": e.custom_objects, "env": e.env, "minibatch": e.minibatch,
    }  # fmt: skip
    return _travel.pickled_with_code(rest, "the estimator's model, loss, optimizer, metrics or transform")


class EstimatorWriter(_Writer):
    """Of Estimator."""

    def contents(self) -> tuple[dict[str, Any], list[tuple[int, bytes]]]:
        """What the metadata has besides the Params, and the blobs."""
        return {"hora": {"version": _version.__version__, "kind": "trainer"}}, [(0, packed(self.instance))]


class ModelWriter(_Writer):
    """Of EstimatorModel."""

    def contents(self) -> tuple[dict[str, Any], list[tuple[int, bytes]]]:
        """What the metadata has besides the Params, and the blobs."""
        m = self.instance
        said = {
            "version": _version.__version__,
            "kind": "trained",
            "history": m.history,
            "run_id": m.run_id,
            "of": m.net.kind,
        }
        return {"hora": said}, [(0, pickle.dumps(m.net, protocol=5))]


class EstimatorReader(MLReader):
    """Of Estimator."""

    def load(self, path: str) -> Any:
        """Reads the folder."""
        from ._estimator import Estimator

        meta, blobs = read_saved(path, getattr(self, "_sparkSession", None))
        if meta["hora"]["kind"] != "trainer":
            raise ArgumentError(
                f"{path} holds a {meta['class'].rsplit('.', 1)[-1]}, not an Estimator; load it with that class"
            )
        if 0 not in blobs:
            raise HoraError("load: the folder lacks the estimator's model; a save that did not end leaves such")
        given = pickle.loads(blobs[0])
        kind, package = given.pop("kind"), given.pop("package", "keras")
        if kind == "keras":
            given["model"] = _net.keras_model(
                given["model"], given["custom_objects"] or None, compile=given["loss"] is None, package=package
            )
        found = Estimator(**given)
        found._paramMap.clear()
        return _fill(found, meta)


class ModelReader(MLReader):
    """Of EstimatorModel."""

    def load(self, path: str) -> Any:
        """Reads the folder."""
        from ._estimator import EstimatorModel

        meta, blobs = read_saved(path, getattr(self, "_sparkSession", None))
        return _fill(EstimatorModel(net_of(meta, blobs), meta["hora"]["history"], meta["hora"]["run_id"]), meta)


def net_of(meta: dict[str, Any], blobs: dict[int, bytes]) -> _net.Net:
    """The fitted model from what `read` found."""
    if meta["hora"]["kind"] != "trained":
        raise ArgumentError(
            f"the folder holds a {meta['class'].rsplit('.', 1)[-1]}, not a fitted model; load it with that class"
        )
    if 0 not in blobs:
        raise HoraError("load: the folder lacks the model; a save that did not end leaves such")
    found = pickle.loads(blobs[0])
    assert isinstance(found, _net.Net)
    return found


def export(fitted: Any, folder: str) -> None:
    """The files that the frameworks and others read."""
    store, net = _store.Store(folder), fitted.net
    store.write("history.json", json.dumps(fitted.history, indent=1).encode())
    if net.kind == "torch":
        import io

        import torch

        out = io.BytesIO()
        torch.save(net.model, out)
        store.write("model.pt", out.getvalue())
        weights = {k: v for k, v in net.model.state_dict().items() if isinstance(v, torch.Tensor)}
        store.write("model.safetensors", _safetensors.dumps(weights))
    elif net.kind == "keras":
        store.write("model.keras", net.blob)
        store.write("model.safetensors", _safetensors.dumps(_net.keras_weights(net.model)))
    else:
        store.write("model.pickle", net.blob)
