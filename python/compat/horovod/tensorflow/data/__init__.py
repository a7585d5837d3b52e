"""tf.data's service as a job of its own: `hora run -np 4 python -m horovod.tensorflow.data.compute_worker FILE`
computes, another job trains."""
