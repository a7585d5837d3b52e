"""Small things that scripts and test suites import from horovod.tensorflow.util."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..common.util import _cache

__all__ = ["refs_to_vars", "vars_to_refs"]


def _executing_eagerly() -> bool:
    return tf.executing_eagerly()


def _make_subgraph(f: Any) -> Any:
    return tf.function(f)


def vars_to_refs(vars: Any) -> Any:
    """The same structure with references, which can be keys."""
    return tuple(vars_to_refs(v) for v in vars) if isinstance(vars, (list, tuple)) else vars.ref()


def refs_to_vars(refs: Any) -> Any:
    return [refs_to_vars(r) for r in refs] if isinstance(refs, (list, tuple)) else refs.deref()


_ = _cache
