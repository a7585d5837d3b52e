"""Options of command lines that start a session of Spark."""

from __future__ import annotations


def add_configure_spark_arguments(argparser):
    """Add --master and --spark-session-config to a parser."""
    argparser.add_argument(
        "--master", help="where Spark runs, as local[4]; without it, where Spark's own configuration says"
    )
    argparser.add_argument(
        "--spark-session-config",
        nargs="+",
        metavar="KEY=VALUE",
        help="settings of the session, as spark.executor.cores=2",
    )


def configure_spark(spark_session_builder, args):
    """Give a SparkSession.builder what the command line says; answers the builder."""
    if not hasattr(args, "master") or not hasattr(args, "spark_session_config"):
        raise RuntimeError(
            "the parser knows no --master and --spark-session-config: call add_configure_spark_arguments(parser) before it parses"
        )
    for pair in args.spark_session_config or []:
        key, equals, value = pair.partition("=")
        if not equals or not key or " " in key:
            raise ValueError(
                f"--spark-session-config {pair!r}: settings are given as key=value pairs, as spark.executor.cores=2"
            )
        spark_session_builder.config(key, value)
    if args.master:
        spark_session_builder.master(args.master)
    return spark_session_builder
