"""Plain multi-process JAX under `hora run`: `jax.distributed.initialize()` without arguments finds this job.

JAX asks classes that describe clusters. Ours is added to them when JAX's module of them is imported, whether or not the
program imports hora: the wheel holds this file a second time outside the package, for hora_jax.pth, which loads it in
processes that `hora run` has started; else `import hora` does. It stands alone, since every Python of a job reads it:
nothing here may take time.
"""

from __future__ import annotations

import os
import sys
from typing import Any, cast

CLUSTERS = "jax._src.clusters"


def _cluster(base: Any) -> Any:
    class HoraCluster(base):  # type: ignore[misc]
        """The job that `hora run` has started."""

        name = "hora"

        @classmethod
        def is_env_present(cls) -> bool:
            return all(n in os.environ for n in ("HORA_RANK", "HORA_SIZE", "JAX_COORDINATOR_ADDRESS"))

        @classmethod
        def get_coordinator_address(cls, *_: Any, **__: Any) -> str:
            return os.environ["JAX_COORDINATOR_ADDRESS"]

        @classmethod
        def get_process_count(cls) -> int:
            return int(os.environ["HORA_SIZE"])

        @classmethod
        def get_process_id(cls) -> int:
            return int(os.environ["HORA_RANK"])

        @classmethod
        def get_local_process_id(cls) -> int | None:
            """Which of the host's accelerators is this process': all where it is alone there, or was given its own by
            --gpus."""
            alone = os.environ.get("HORA_LOCAL_SIZE", "1") == "1"
            given = os.environ.get("CUDA_VISIBLE_DEVICES", "").count(",") == 0 and "CUDA_VISIBLE_DEVICES" in os.environ
            return None if alone or given else int(os.environ["HORA_LOCAL_RANK"])

    return HoraCluster


def give(clusters: Any) -> None:
    """Add our class before the others: a job of hora's on Slurm's or mpirun's hosts is hora's."""
    base = getattr(clusters, "ClusterEnv", None)
    known = getattr(base, "_cluster_types", None)
    if not isinstance(known, list) or any(c.__name__ == "HoraCluster" for c in known):
        return
    made = _cluster(base)  # which adds itself at the end
    if made in known:
        known.remove(made)
    known.insert(0, made)


class _Finder:
    """Finds JAX's module as the other finders do, and completes it once it has run."""

    busy = False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != CLUSTERS or self.busy:
            return None
        import importlib.util

        self.busy = True  # the others are asked, this one aside
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.busy = False
        if spec is not None and spec.loader is not None:
            spec.loader = cast(Any, _Loader(spec.loader))
        return spec


class _Loader:
    """The module's own loader, and then our class."""

    def __init__(self, own: Any) -> None:
        self.own = own

    def create_module(self, spec: Any) -> Any:
        return self.own.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self.own  # whoever looks at it sees what there always is
        self.own.exec_module(module)
        give(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


def install() -> None:
    """Give JAX our class, or have it given when it is imported."""
    if CLUSTERS in sys.modules:
        give(sys.modules[CLUSTERS])
    elif not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


install()
