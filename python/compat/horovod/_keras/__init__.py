"""What horovod.keras and horovod.tensorflow.keras share: Keras 3 on whichever backend it runs, or Keras 2."""

from __future__ import annotations

from typing import Any

try:
    import hora.keras  # noqa: F401  what it raises is told here
except ImportError as error:  # no Keras, or an older one, which hora.keras says
    raise ImportError(f"horovod.keras needs Keras: {error}", name="keras") from error

from hora import comm
from hora.keras.passes import distributed
from hora.keras.which import array, keras

from ..common.basics import OPERATORS, Average, HorovodBasics, Sum
from ..common.process_sets import ProcessSet, global_process_set
from ..common.translate import group_of, root_in, translated
from ..common.util import get_average_backwards_compatibility_fun

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "load_model",
    "reducescatter",
]

_basics = HorovodBasics(__file__)
_operator = get_average_backwards_compatibility_fun(_basics)


class Compression:
    """The choices for `compression=`."""

    none = None
    fp16 = "fp16"
    bf16 = "bf16"


@translated
def DistributedOptimizer(
    optimizer: Any, name: str | None = None, device_dense: str = "", device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False, gradient_predivide_factor: float = 1.0, op: Any = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False, num_groups: int = 0, groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:  # fmt: skip
    """A Keras optimizer with its gradients reduced over all ranks (of the process set), in one call a step.

    It keeps the class name and configuration of the one it is made of: saved models load without Horovod. The device
    and group arguments are of no effect: operations run on the processor, and one call has all gradients.
    """
    if op not in (Average, Sum):
        raise ValueError("op currently only supports Average and Sum")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if (
        num_groups < 0
        or groups is not None
        and not (isinstance(groups, list) or (isinstance(groups, int) and groups >= 0))
    ):
        raise ValueError("groups should be a non-negative integer or a list of list of tf.Variable.")
    passes = int(backward_passes_per_step)
    if passes < 1:
        raise ValueError(
            f"backward_passes_per_step={backward_passes_per_step}: there is at least one backward pass in a step"
        )
    alone = process_set.included() is False
    made = distributed(
        optimizer, passes, average_aggregated_gradients, op=OPERATORS[op],
        group=None if alone else group_of(process_set), compression=compression, sparse_as_dense=sparse_as_dense,
        prescale=1.0 / gradient_predivide_factor, postscale=gradient_predivide_factor,
        scale_local=scale_local_gradients, named=True,
    )  # fmt: skip
    # Of Keras 2 the one inside a scale is ours. The class is this optimizer's own, and what from_config() makes of it
    # is distributed likewise.
    type(made if hasattr(made, "_hora_times") else made.inner_optimizer)._hora_alone = alone
    made.process_set = process_set
    if name:
        made.name = name
    return made


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: Any = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """keras.models.load_model, with the saved optimizer made distributed."""
    known = {c.__name__: c for c in custom_optimizers or ()} | dict(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=known)
    if getattr(model, "optimizer", None) is not None:
        model.optimizer = DistributedOptimizer(model.optimizer, compression=compression)
    return model


# -- values


def _tensor(value: Any) -> Any:
    """As a tensor of what Keras runs on."""
    if hasattr(keras, "ops"):
        return keras.ops.convert_to_tensor(value)
    import tensorflow as tf

    return tf.convert_to_tensor(value)


@translated
def allreduce(
    value: Any, name: str | None = None, average: Any = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, op: Any = None,
    compression: Any = None,
) -> Any:  # fmt: skip
    """Reduce a value (a number, an array, a tensor) over all ranks, at once; a tensor of the backend's comes back."""
    operator = OPERATORS[_operator(op, average)]
    got = comm.allreduce(
        array(value),
        operator,
        prescale=prescale_factor,
        postscale=postscale_factor,
        name=f"allreduce.{name or 'value'}",
        named=True,
    )
    return _tensor(got)


@translated
def allgather(value: Any, name: str | None = None) -> Any:
    """All ranks' values, joined along the first dimension, which may differ."""
    return _tensor(comm.allgather(array(value), name=f"allgather.{name or 'value'}", named=True))


@translated
def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Root's value."""
    root = root_in(global_process_set, root_rank)
    return _tensor(comm.broadcast(array(value), root, name=f"broadcast.{name or 'value'}", named=True))


@translated
def reducescatter(value: Any, name: str | None = None, op: Any = Average) -> Any:
    """Reduce over all ranks; each gets its part of the rows."""
    if op not in (Average, Sum):
        raise ValueError("Reducescatter currently only supports Sum and Average: use hvd.Average or hvd.Sum")
    got = comm.reduce_scatter(array(value), OPERATORS[op], name=f"reducescatter.{name or 'value'}", named=True)
    return _tensor(got)


def broadcast_global_variables(root_rank: int) -> Any:
    """In a graph of TensorFlow 1, the operation that gives all its variables root's values; elsewhere it is refused."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if not tf.executing_eagerly():
            from ..tensorflow.sessions import broadcast_global_variables as in_graph

            return in_graph(root_rank)
    raise RuntimeError(
        "hvd.broadcast_global_variables() does not support eager execution: there is no list of all variables; add "
        "hvd.callbacks.BroadcastGlobalVariablesCallback(0) to fit's callbacks"
    )
