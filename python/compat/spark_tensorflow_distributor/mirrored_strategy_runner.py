"""MirroredStrategyRunner: a function under MultiWorkerMirroredStrategy, in barrier tasks of a Spark job.

The function runs in each task's own Python worker, where BarrierTaskContext is usable, and TensorFlow's workers meet by
themselves. hora's agent beside each guards it: the first that fails ends all, and nothing that a task started outlives
the job.
"""

from __future__ import annotations

import logging
import math
import os
import random
import re
from collections.abc import Callable
from typing import Any

__all__ = ["MirroredStrategyRunner"]


class MirroredStrategyRunner:
    """Run a function on `num_slots` GPUs, or CPU task slots with use_gpu=False, of the active Spark session's cluster.

    Each task gets its GPUs by CUDA_VISIBLE_DEVICES, and all a TF_CONFIG that names the others; the function is called
    within tf.distribute.MultiWorkerMirroredStrategy, or, with use_custom_strategy=True, makes its own. local_mode=True
    runs it here.

    >>> MirroredStrategyRunner(num_slots=2, use_gpu=False).run(train, epochs=3)
    """

    def __init__(
        self, *, num_slots: int, local_mode: bool = False, use_gpu: bool = True, gpu_resource_name: str = "gpu",
        use_custom_strategy: bool = False,
    ) -> None:  # fmt: skip
        if isinstance(num_slots, bool) or not isinstance(num_slots, int) or num_slots <= 0:
            raise ValueError(f"MirroredStrategyRunner: num_slots={num_slots!r} is no number of slots; give 1 or more")
        self._num_slots, self._local_mode, self._use_gpu = num_slots, local_mode, use_gpu
        self._gpu_resource_name, self._use_custom_strategy = gpu_resource_name, use_custom_strategy
        self._log = logging.getLogger("MirroredStrategyRunner")
        if local_mode and not use_gpu and num_slots != 1:
            raise ValueError(
                f"MirroredStrategyRunner: num_slots={num_slots} with local_mode=True and use_gpu=False: this machine's CPU is one slot; give num_slots=1"
            )
        self._session = _session()
        if not local_mode:
            self._refuse_ssl()
            self._tasks = self._count_tasks()

    def run(self, train_fn: Callable[..., Any], **kwargs: Any) -> Any:
        """Call train_fn(**kwargs) in every task and return what that of partition 0 returned."""
        return self._run_here(train_fn, kwargs) if self._local_mode else self._run_on_cluster(train_fn, kwargs)

    def _setting(self, name: str, default: str = "") -> str:
        from hora.spark.frontend import spark_setting

        return str(spark_setting(self._session, name, default))

    def _refuse_ssl(self) -> None:
        if (
            self._setting("spark.ssl.enabled") == "true"
            and self._setting("tensorflow.spark.distributor.ignoreSsl") != "true"
        ):
            raise RuntimeError(
                "MirroredStrategyRunner: spark.ssl.enabled is true, and what TensorFlow's workers say to each other would not be encrypted; "
                "set tensorflow.spark.distributor.ignoreSsl=true if that may be"
            )

    def _count_tasks(self) -> int:
        if not self._use_gpu:
            return self._num_slots
        key = f"spark.task.resource.{self._gpu_resource_name}.amount"
        amount = self._setting(key)
        if not amount:
            raise RuntimeError(
                f"MirroredStrategyRunner: {key} is not set, so that Spark gives its tasks no GPU; set it, or give use_gpu=False"
            )
        each = self._each = int(float(amount))
        if each < 1:
            raise RuntimeError(
                f"MirroredStrategyRunner: {key}={amount}: a task must have whole GPUs; set it to 1 or more"
            )
        tasks = math.ceil(self._num_slots / each)
        if tasks * each > self._num_slots:
            self._log.warning(
                "MirroredStrategyRunner: %d tasks have %d GPUs in all, of which %d are used",
                tasks,
                tasks * each,
                self._num_slots,
            )
        return tasks

    def _run_here(self, train_fn: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
        before = os.environ.get("CUDA_VISIBLE_DEVICES")
        try:
            if self._use_gpu:
                mine = self._devices_here()
                if len(mine) < self._num_slots:
                    raise ValueError(
                        f"MirroredStrategyRunner: num_slots={self._num_slots}, this machine has {len(mine)} GPUs; give num_slots={len(mine) or 1}"
                        + ("" if mine else " and use_gpu=False")
                    )
                os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(random.sample(mine, self._num_slots))
            else:
                os.environ["CUDA_VISIBLE_DEVICES"] = ""
            if self._use_custom_strategy:
                return train_fn(**kwargs)
            import tensorflow as tf

            with tf.distribute.MirroredStrategy().scope():
                return train_fn(**kwargs)
        finally:
            if before is None:
                os.environ.pop("CUDA_VISIBLE_DEVICES", None)
            else:
                os.environ["CUDA_VISIBLE_DEVICES"] = before

    def _devices_here(self) -> list[str]:
        resources = (
            {} if self._session is None or not hasattr(self._session, "_jsc") else self._session.sparkContext.resources
        )
        mine = list(resources[self._gpu_resource_name].addresses) if self._gpu_resource_name in resources else []
        visible = [d for d in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
        if mine and visible:
            return [visible[int(d)] for d in mine if d.isdigit() and int(d) < len(visible)]
        if mine or visible:
            return mine or visible
        import tensorflow as tf

        return [str(i) for i, _ in enumerate(tf.config.list_physical_devices("GPU"))]

    def _run_on_cluster(self, train_fn: Callable[..., Any], kwargs: dict[str, Any]) -> Any:
        from hora.errors import HoraError
        from hora.spark.frontend import Wording, launch

        share = [len(range(i, self._num_slots, self._tasks)) for i in range(self._tasks)]
        within = _make_around({
            "share": share if self._use_gpu else None, "resource": self._gpu_resource_name,
            "strategy": not self._use_custom_strategy,
        })  # fmt: skip
        word = "num_slots" if self._tasks == self._num_slots else "tasks"
        words = Wording(word, elastic=None, restarts=None, who="MirroredStrategyRunner", rows=None)
        try:
            results = launch(train_fn, (), kwargs, self._tasks, spark=self._session, inside=within, words=words)
        except HoraError as e:
            if word == "tasks" and e.args and re.search(r"\btasks=|smaller tasks,", str(e.args[0])):
                e.args = (
                    f"{e.args[0]}; num_slots={self._num_slots} takes {self._tasks} tasks, of {self._each} GPUs each",
                    *e.args[1:],
                )
            raise
        return next(value for place, value in results if place == 0)


def _session() -> Any:
    from hora.spark.frontend import active_session

    found = active_session()
    if found is None:
        try:
            from pyspark.sql import SparkSession
        except ImportError:
            return None
        found = SparkSession.builder.getOrCreate()
    return found


def _make_around(config: dict[str, Any]) -> Callable[[Callable[[], Any]], Any]:
    """What a task does around the call; nested, so that it travels by value."""

    def around(call: Callable[[], Any]) -> Any:
        import json
        import os
        import random
        import socket
        import sys

        from pyspark import BarrierTaskContext

        def hold_port() -> socket.socket:
            """A port below those that the system deals out itself, so that none takes it between here and
            TensorFlow."""
            try:
                with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
                    first = int(f.read().split()[0])
            except OSError:
                first = 32768
            for _ in range(1000):
                s = socket.socket()
                try:
                    s.bind(("", random.randrange(max(1024, first - 12000), first)))
                    return s
                except OSError:
                    s.close()
            raise RuntimeError("hora.spark: no free port is left for TensorFlow's worker")

        def begin_anew() -> None:
            """Where this worker of Spark's, which runs one task after another, has used TensorFlow, a cluster is news
            too late for it."""
            eager = sys.modules.get("tensorflow.python.eager.context")
            used = eager.context_safe() if hasattr(eager, "context_safe") else None
            if getattr(used, "_context_handle", None) is not None and hasattr(eager, "_reset_context"):
                eager._reset_context()

        context = BarrierTaskContext.get()
        place = context.partitionId()
        before = {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "TF_CONFIG")}
        try:
            if config["share"] is not None:
                mine = list(context.resources()[config["resource"]].addresses)
                visible = [d for d in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]
                mine = [visible[int(d)] if d.isdigit() and int(d) < len(visible) else d for d in mine]
                os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(random.sample(mine, config["share"][place]))
            else:
                os.environ["CUDA_VISIBLE_DEVICES"] = ""
            if os.environ.get("OMP_NUM_THREADS") == str(context.cpus() if hasattr(context, "cpus") else 1):
                del os.environ["OMP_NUM_THREADS"]  # Spark's, which would leave TensorFlow one thread
            held = hold_port()
            host = context.getTaskInfos()[place].address.rsplit(":", 1)[0]
            workers = context.allGather(f"{host}:{held.getsockname()[1]}")
            os.environ["TF_CONFIG"] = json.dumps(
                {"cluster": {"worker": workers}, "task": {"type": "worker", "index": place}}
            )
            held.close()
            begin_anew()
            if not config["strategy"]:
                return call()
            import tensorflow as tf

            with tf.distribute.MultiWorkerMirroredStrategy().scope():
                return call()
        finally:  # Spark's worker goes on to other tasks, which have other GPUs
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value

    return around
