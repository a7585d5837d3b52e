"""Petastorm's inner works, which hora-petastorm has not: files are read by threads of libhora."""

from petastorm._refuse import internal

__getattr__ = internal(
    "workers_pool", "it belongs to Petastorm's own workers; readers are made with make_reader and make_batch_reader"
)
