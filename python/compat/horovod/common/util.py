"""Small helpers that scripts and test suites import from horovod.common.util."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

__all__ = [
    "ccl_built",
    "check_extension",
    "check_installed_version",
    "cuda_built",
    "ddl_built",
    "env",
    "extension_available",
    "get_average_backwards_compatibility_fun",
    "get_ext_suffix",
    "gloo_built",
    "gpu_available",
    "is_version_greater_equal_than",
    "mpi_built",
    "nccl_built",
    "num_rank_is_power_2",
    "rocm_built",
    "split_list",
    "support_non_legacy_keras_optimizers",
]


def _cache(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function that is to be asked once for each set of arguments."""
    answers: dict[Any, Any] = {}

    @functools.wraps(f)
    def asked(*args: Any, **kwargs: Any) -> Any:
        key = (args, frozenset(kwargs.items()))
        if key not in answers:
            answers[key] = f(*args, **kwargs)
        return answers[key]

    return asked


# Frameworks that this distribution has a module for, and the module that proves the framework is there.
_FRAMEWORKS = {"torch": "torch", "tensorflow": "tensorflow", "keras": "keras", "mxnet": "mxnet"}


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether `horovod.<name>` can be used here: the framework is installed and we have a module for it."""
    needed = _FRAMEWORKS.get(ext_base_name)
    found = needed is not None and importlib.util.find_spec(needed) is not None
    if verbose and not found:
        print(f"horovod.{ext_base_name} is not available: " + _why_not(ext_base_name))
    return found


def _why_not(name: str) -> str:
    if name in _FRAMEWORKS:
        return f"the package {_FRAMEWORKS[name]} is not installed; run `pip install {_FRAMEWORKS[name]}`"
    return f"hora has no horovod.{name}; see docs/horovod.md for what to use instead"


def check_extension(ext_name: str, ext_env_var: str = "", pkg_path: str = "", *args: str) -> None:
    """Raise ImportError when `horovod.<framework>` cannot be used."""
    name = ext_name.rsplit(".", 1)[-1]
    if not extension_available(name):
        raise ImportError(f"Extension {ext_name} has not been built: {_why_not(name)}")


def check_installed_version(name: str, version: str, exception: Exception | None = None) -> None:
    """Nothing is compiled against a framework, so every installed version will do."""


@_cache
def gloo_built(verbose: bool = False) -> bool:
    return True


@_cache
def mpi_built(verbose: bool = False) -> bool:
    return False


@_cache
def nccl_built(verbose: bool = False) -> int:
    return 0


@_cache
def ddl_built(verbose: bool = False) -> bool:
    return False


@_cache
def ccl_built(verbose: bool = False) -> bool:
    return False


@_cache
def cuda_built(verbose: bool = False) -> bool:
    return False


@_cache
def rocm_built(verbose: bool = False) -> bool:
    return False


@_cache
def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework sees a GPU (asked in this process, once)."""
    if ext_base_name == "torch" and extension_available("torch"):
        import torch

        return torch.cuda.is_available()
    if ext_base_name == "tensorflow" and extension_available("tensorflow"):
        import tensorflow

        return bool(tensorflow.config.list_physical_devices("GPU"))
    return False


def get_ext_suffix() -> str:
    import sysconfig

    return sysconfig.get_config_var("EXT_SUFFIX") or ".so"


@contextlib.contextmanager
def env(**changes: Any) -> Iterator[None]:
    """Set environment variables inside a `with`; None removes one. What was there comes back."""
    before = {k: os.environ.get(k) for k in changes}

    def put(values: dict[str, Any]) -> None:
        for k, v in values.items():
            if v is None:
                os.environ.pop(k, None)
            else:
                os.environ[k] = str(v)

    try:
        put(changes)
        yield
    finally:
        put(before)


def split_list(items: Sequence[Any], num_parts: int) -> list[Sequence[Any]]:
    """Cut a list into at most `num_parts` runs whose lengths differ by one at most; empty runs are left out."""
    each, more = divmod(len(items), num_parts)
    runs, at = [], 0
    for i in range(num_parts):
        n = each + (1 if i < more else 0)
        if n:
            runs.append(items[at : at + n])
        at += n
    return runs


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Compare versions of the form "a.b.c" (any suffix after the numbers is ignored)."""
    parts = target.split(".")
    if len(parts) != 3 or any(not p.isdigit() for p in parts):
        raise ValueError(f"Invalid version {target!r}: write it as three numbers, such as 1.2.0")

    def numbers(v: str) -> tuple[int, ...]:
        found = [int(n) for n in re.findall(r"\d+", v.split("+")[0])[:3]]
        return tuple(found + [0] * (3 - len(found)))

    return numbers(ver) >= numbers(target)


def num_rank_is_power_2(num_rank: int) -> bool:
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def support_non_legacy_keras_optimizers() -> bool:
    """Whether Keras 3's optimizers work."""
    return True


def get_average_backwards_compatibility_fun(reduce_ops: Any):
    """The rule by which `average=` and `op=` become one operator."""

    def rule(op: Any, average: Any) -> Any:
        if op is not None:
            if average is not None:
                raise ValueError("The op parameter supersedes average. Please provide only one of them.")
            return op
        if average is not None:
            return reduce_ops.Average if average else reduce_ops.Sum
        return reduce_ops.Average

    return rule
