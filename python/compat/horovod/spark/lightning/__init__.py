"""Horovod's estimator for Lightning's modules."""

from horovod.spark.common.params import EstimatorParams  # first: it says what to install where there is no pyspark
from horovod.spark.lightning.estimator import TorchEstimator, TorchModel

__all__ = ["EstimatorParams", "TorchEstimator", "TorchModel"]
