"""TensorFlow's data service on a Spark cluster: `compute_worker`."""
