"""Datasets as Spark's collections."""

from __future__ import annotations

from .etl.dataset_metadata import get_schema_from_dataset_url
from .utils import decode_row


def dataset_as_rdd(dataset_url, spark_session, schema_fields=None, hdfs_driver="libhdfs3"):
    """A dataset's rows, decoded, as an RDD of namedtuples."""
    schema = get_schema_from_dataset_url(dataset_url, hdfs_driver)
    frame = spark_session.read.parquet(dataset_url)
    if schema_fields is not None:
        schema = schema.create_schema_view(schema_fields)
        frame = frame.select(*schema.fields)
    return frame.rdd.map(lambda row: schema.make_namedtuple(**decode_row(row.asDict(), schema)))
