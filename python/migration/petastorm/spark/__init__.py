"""A frame of Spark, or of pandas, Polars and Arrow, as loaders."""

from .spark_dataset_converter import SparkDatasetConverter, make_spark_converter, register_delete_dir_handler

__all__ = ["SparkDatasetConverter", "make_spark_converter", "register_delete_dir_handler"]
