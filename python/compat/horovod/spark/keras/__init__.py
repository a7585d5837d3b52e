"""Horovod's estimator for Keras models."""

from horovod.spark.common.params import EstimatorParams  # first: it says what to install where there is no pyspark
from horovod.spark.keras.estimator import KerasEstimator, KerasModel

__all__ = ["EstimatorParams", "KerasEstimator", "KerasModel"]
