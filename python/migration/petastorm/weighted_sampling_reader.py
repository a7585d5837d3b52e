"""Readers in one, by chance."""

from __future__ import annotations

import numpy as np


class WeightedSamplingReader:
    """Each row or batch comes from one of some readers, chosen with their probabilities; it ends with the first that
    does."""

    def __init__(self, readers, probabilities):
        if len(readers) < 1:
            raise ValueError("one or more readers are needed")
        if len(readers) != len(probabilities):
            raise ValueError("there are as many probabilities as readers")
        first = readers[0]
        for r in readers[1:]:
            if set(r.schema.fields) != set(first.schema.fields):
                raise ValueError("all readers should have the same schema: name the same fields with schema_fields")
            if (
                r.batched_output != first.batched_output
                or (r.ngram is None) != (first.ngram is None)
                or r.ngram != first.ngram
            ):
                raise ValueError(
                    "all readers should answer the same kind of items: rows or batches, with the same ngram or none"
                )
        self._readers, self._next = readers, None
        self._bounds = np.cumsum(np.asarray(probabilities, float) / np.sum(probabilities))
        self.last_row_consumed = False
        self.schema, self.batched_output, self.ngram = first.schema, first.batched_output, first.ngram

    def __len__(self):
        return sum(len(r) for r in self._readers)

    def __iter__(self):
        return self

    def __next__(self):
        which = min(int(np.searchsorted(self._bounds, np.random.random(), "right")), len(self._readers) - 1)
        try:
            return next(self._readers[which])
        except StopIteration:
            self.last_row_consumed = True
            raise

    def next(self):
        return self.__next__()

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_val, exc_tb):
        self.stop()
        self.join()

    def stop(self):
        for r in self._readers:
            r.stop()

    def join(self):
        for r in self._readers:
            r.join()
