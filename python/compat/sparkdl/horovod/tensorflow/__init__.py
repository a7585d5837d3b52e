"""Parts of sparkdl for TensorFlow."""
