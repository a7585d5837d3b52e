"""What Horovod's estimators share: parameters, stores, back ends, and helpers. What they do is told in
docs/spark.md."""
