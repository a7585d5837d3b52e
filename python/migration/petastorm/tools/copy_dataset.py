"""petastorm-copy-dataset.py: copy a dataset, some of its fields, or the rows that have some values."""

from __future__ import annotations

import argparse
import operator
import sys
from functools import reduce

from ..etl.dataset_metadata import get_schema_from_dataset_url, materialize_dataset
from ..unischema import match_unischema_fields
from .spark_session_cli import add_configure_spark_arguments, configure_spark


def copy_dataset(
    spark,
    source_url,
    target_url,
    field_regex,
    not_null_fields,
    overwrite_output,
    partitions_count,
    row_group_size_mb,
    hdfs_driver="libhdfs3",
):
    """Copy a dataset with Spark."""
    schema = get_schema_from_dataset_url(source_url, hdfs_driver)
    fields = match_unischema_fields(schema, field_regex) if field_regex else None
    if field_regex and not fields:
        raise ValueError(f"Regular expressions ({field_regex}) do not match any fields ({list(schema.fields)})")
    view = schema.create_schema_view(fields) if fields else schema
    with materialize_dataset(spark, target_url, view, row_group_size_mb):
        frame = spark.read.parquet(source_url)
        if fields:
            frame = frame.select(*(f.name for f in fields))
        if not_null_fields:
            frame = frame.filter(reduce(operator.and_, (frame[n].isNotNull() for n in not_null_fields)))
        if partitions_count:
            frame = frame.repartition(partitions_count)
        frame.write.mode("overwrite" if overwrite_output else "error").parquet(target_url)


def args_parser():
    a = argparse.ArgumentParser(prog="petastorm-copy-dataset.py", description="Copy a dataset with Spark.")
    a.add_argument("source_url", help="the dataset's address")
    a.add_argument("target_url", help="where the copy goes")
    a.add_argument("--overwrite-output", action="store_true", help="replace what is there")
    a.add_argument("--field-regex", nargs="+", help="copy fields that one of these expressions fits")
    a.add_argument("--not-null-fields", nargs="+", help="copy rows in which none of these is null")
    a.add_argument("--partition-count", type=int, help="files of the copy")
    a.add_argument("--row-group-size-mb", type=int, help="MiB of a row group; 1")
    a.add_argument("--hdfs-driver", default="libhdfs3", help="accepted")
    add_configure_spark_arguments(a)
    return a


def main(args=None):
    said = args_parser().parse_args(args)
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        sys.exit(
            "petastorm-copy-dataset.py: Spark is needed and pyspark is not installed: install it, or copy with hora.dataset.read and hora.dataset.write"
        )
    spark = configure_spark(SparkSession.builder.appName("petastorm-copy"), said).getOrCreate()
    copy_dataset(spark, said.source_url, said.target_url, said.field_regex, said.not_null_fields, said.overwrite_output,
                 said.partition_count, said.row_group_size_mb, said.hdfs_driver)  # fmt: skip


if __name__ == "__main__":
    main()
