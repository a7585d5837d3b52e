"""The sentences for framework modules that hora does not have."""

from __future__ import annotations

__all__ = ["INSTEAD", "refuse"]

# Module → what to use instead.
INSTEAD = {
    "horovod.tensorflow": "use hora.tensorflow: its tape averages gradients inside tf.function",
    "horovod.keras": "use hora.keras with Keras 3: DistributedOptimizer and the callbacks are there",
    "horovod._keras": "use hora.keras with Keras 3: DistributedOptimizer and the callbacks are there",
    "horovod.mxnet": "MXNet is retired upstream; move the model to PyTorch and use horovod.torch",
    "horovod.spark": "start the job with `hora run`, or with sparkdl.HorovodRunner(np=-2) on the driver's machine",
    "horovod.ray": "start the job with `hora run` on the hosts of the Ray cluster",
}


def refuse(module: str) -> ImportError:
    """The error that importing the module raises."""
    return ImportError(f"{module} is not part of hora: {INSTEAD[module]} (docs/horovod.md lists every name)", name=module)
