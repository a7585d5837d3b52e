"""Graphs of TensorFlow 1, and labels of calls that have no name."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["Unnamed", "plain_graph"]


def plain_graph() -> bool:
    """Whether what is called now becomes part of a graph of TensorFlow 1, which runs whatever is ready, in no order of its own."""
    return not tf.executing_eagerly() and not tf.compat.v1.get_default_graph().building_function


class Unnamed(str):
    """A label that nobody chose."""
