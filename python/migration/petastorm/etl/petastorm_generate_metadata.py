"""petastorm-generate-metadata.py: write the schema beside a dataset that has none, or an old one as a pickle."""

from __future__ import annotations

import argparse
import pydoc
import sys

from . import dataset_metadata


def generate_petastorm_metadata(
    spark, dataset_url, unischema_class=None, use_summary_metadata=False, hdfs_driver="libhdfs3"
):
    """Write a dataset's schema: the one that a name says, else the one that it has."""
    if unischema_class:
        schema = pydoc.locate(unischema_class)
        if schema is None:
            raise ValueError(
                f"The specified class {unischema_class} can not be loaded: give a name that can be imported"
            )
    else:
        try:
            schema = dataset_metadata.get_schema_from_dataset_url(dataset_url, hdfs_driver)
        except dataset_metadata.PetastormMetadataError as e:
            raise ValueError(f"{dataset_url} has no schema yet: name it with --unischema_class") from e
    with dataset_metadata.materialize_dataset(spark, dataset_url, schema, use_summary_metadata=use_summary_metadata):
        pass


def main(args=None):
    a = argparse.ArgumentParser(
        prog="petastorm-generate-metadata.py",
        description="Write a dataset's schema beside it, as JSON. It needs no Spark.",
    )
    a.add_argument("--dataset_url", "--dataset-url", required=True, help="the dataset's address, as file:///data/set")
    a.add_argument(
        "--unischema_class",
        "--unischema-class",
        help="the schema's full name, as package.module.Schema; default: the one that is there",
    )
    a.add_argument(
        "--use-summary-metadata", action="store_true", help="put all files' footers together in _metadata, too"
    )
    a.add_argument("--master", help="accepted; Spark is not needed")
    a.add_argument("--hdfs-driver", default="libhdfs3", help="accepted")
    said = a.parse_args(args)
    try:
        generate_petastorm_metadata(None, said.dataset_url, said.unischema_class, said.use_summary_metadata)
    except (
        ValueError,
        dataset_metadata.PetastormMetadataError,
        dataset_metadata.PetastormMetadataGenerationError,
    ) as e:
        sys.exit(f"petastorm-generate-metadata.py: {e}")


if __name__ == "__main__":
    main()
