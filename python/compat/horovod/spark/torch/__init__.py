"""Horovod's estimator for PyTorch modules."""

from horovod.spark.common.params import EstimatorParams  # first: it says what to install where there is no pyspark
from horovod.spark.torch.estimator import TorchEstimator, TorchModel

__all__ = ["EstimatorParams", "TorchEstimator", "TorchModel"]
