"""DistributedGradientTape with Horovod's arguments and checks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

import hora.tensorflow as ht
from hora.tensorflow.tape import inner_variable

from ..common.basics import OPERATORS, Adasum, Average
from ..common.process_sets import ProcessSet, global_process_set
from ..common.translate import group_of
from ._errors import translated
from .compression import Compression

__all__ = ["DistributedGradientTape", "PartialDistributedGradientTape"]


def check_options(op: Any, gradient_predivide_factor: float, groups: Any, num_groups: int = 0) -> None:
    """What tapes and optimizers refuse alike."""
    if op not in OPERATORS:
        raise ValueError(f"Unknown reduction operation {op}: use hvd.Average, hvd.Sum or hvd.Adasum")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if groups is not None and not (isinstance(groups, list) or (isinstance(groups, int) and groups >= 0)):
        raise ValueError("groups should be a non-negative integer or a list of list of tf.Variable.")
    if num_groups < 0:
        raise ValueError("num_groups should be a non-negative integer; 0 packs all gradients into one call")


class _Methods:
    """What Horovod's tape has besides; in front of hora's."""

    @translated
    def gradient(
        self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False, **kwargs: Any
    ) -> Any:
        return super().gradient(target, sources, output_gradients, **kwargs)  # type: ignore[misc]

    def get_local_and_global_gradients(
        self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """Pairs of source and gradient: of the registered local sources, and of the others, whose gradients are
        reduced."""
        sources = tf.nest.flatten(sources)
        grads = self.gradient(target, sources, output_gradients, use_generic_names)
        mine = [id(inner_variable(s)) in self._hora_local for s in sources]  # type: ignore[attr-defined]
        each = list(zip(sources, grads, mine, strict=True))
        return [(s, g) for s, g, m in each if m], [(s, g) for s, g, m in each if not m]


def DistributedGradientTape(
    gradtape: tf.GradientTape, device_dense: str = "", device_sparse: str = "", compression: Any = Compression.none,
    sparse_as_dense: bool = False, op: Any = Average, gradient_predivide_factor: float = 1.0, num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set, scale_local_gradients: bool = True,
) -> tf.GradientTape:  # fmt: skip
    """`gradtape` with its gradients reduced over all ranks (of the process set), in one call.

    `num_groups` and `groups` are of no effect: one call has all gradients.
    """
    check_options(op, gradient_predivide_factor, groups, num_groups)
    if op == Adasum and process_set.process_set_id != 0:
        raise NotImplementedError("Adasum does not support non-global process sets yet: use hvd.global_process_set")
    alone = process_set.included() is False
    made = ht.DistributedGradientTape(
        gradtape, OPERATORS[op], group=None if alone else group_of(process_set), compression=compression,
        sparse_as_dense=sparse_as_dense,
        prescale=1.0 / gradient_predivide_factor, postscale=gradient_predivide_factor,
        scale_local=scale_local_gradients, named=True,
    )  # fmt: skip
    made.__class__ = type(type(made).__name__, (_Methods, type(made)), {})
    if alone:
        made._hora_reduce = lambda grads, where: grads
        made._hora_ranks = lambda: None
    return made


def PartialDistributedGradientTape(
    gradtape: tf.GradientTape, device_dense: str = "", device_sparse: str = "", compression: Any = Compression.none,
    sparse_as_dense: bool = False, op: Any = Average, gradient_predivide_factor: float = 1.0, num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set, local_layers: Any = None, scale_local_gradients: bool = True,
) -> tf.GradientTape:  # fmt: skip
    """DistributedGradientTape but for the variables of `local_layers`, whose gradients stay each rank's own."""
    made = DistributedGradientTape(
        gradtape, device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor, num_groups,
        groups,
        process_set, scale_local_gradients,
    )  # fmt: skip
    for v in variables_of(local_layers):
        made.register_local_source(v)
    return made


def variables_of(layers: Any) -> list[Any]:
    """The trainable variables of a layer or of several."""
    layers = [] if layers is None else list(layers) if isinstance(layers, (list, tuple, set)) else [layers]
    if not all(hasattr(layer, "trainable_weights") for layer in layers):
        raise ValueError(
            "local_layers holds something that is no layer: give Keras layers, as in local_layers=[model.layers[0]]"
        )
    return [v for layer in layers for v in layer.trainable_weights]
