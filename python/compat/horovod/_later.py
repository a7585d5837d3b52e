"""The sentences for framework modules that hora does not have."""

from __future__ import annotations

__all__ = ["INSTEAD", "refuse"]

# Module → what to use instead.
INSTEAD = {
    "horovod.spark.common": "there are no estimators; train in a function, with horovod.spark.run, or hora.spark.run(fn, dataframe=df)",
    "horovod.spark.keras": "there is no KerasEstimator; train in a function, with horovod.spark.run, or hora.spark.run(fn, dataframe=df)",
    "horovod.spark.lightning": "there is no estimator; train in a function, with horovod.spark.run, or hora.spark.run(fn, dataframe=df)",
    "horovod.spark.torch": "there is no TorchEstimator; train in a function, with horovod.spark.run, or hora.spark.run(fn, dataframe=df)",
    "horovod.ray": "start the job with `hora run` on the hosts of the Ray cluster",
}


def refuse(module: str) -> ImportError:
    """The error that importing the module raises."""
    return ImportError(f"{module} is not part of hora: {INSTEAD[module]} (docs/horovod.md lists every name)", name=module)
