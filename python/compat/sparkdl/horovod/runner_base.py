"""HorovodRunner: a training function in the task slots of a Spark cluster, or on several processes of the driver's
machine."""

from __future__ import annotations

import inspect
import logging
import os
import secrets
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["HorovodRunner"]

_VERBOSITIES = ("all", "log_callback_only")


class HorovodRunner:
    """Run a function that uses horovod on `np` processes.

    np > 0 runs it in that many task slots of the active Spark session, at once, and np = 0 in all of them; where there
    is no session np > 0 starts local processes, with a warning. np = -1 calls the function in this process, np < -1 on
    that many local processes. `run` returns what rank 0 returned.

    driver_log_verbosity="all" shows every line that workers write, "log_callback_only" what they tell with
    sparkdl.horovod.log_to_driver and LogCallback; of local processes all lines are shown.

    >>> HorovodRunner(np=-2).run(train, epochs=3)
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> HorovodRunner:
        if args or "np" not in kwargs:
            raise TypeError("HorovodRunner takes its arguments by name: HorovodRunner(np=2)")
        return super().__new__(cls)

    def __init__(self, *, np: int, driver_log_verbosity: str = "log_callback_only") -> None:
        if isinstance(np, bool) or not isinstance(np, int):
            raise TypeError(f"HorovodRunner: np={np!r} must be a whole number, for example HorovodRunner(np=-2)")
        if np == 0 and _session() is None:
            raise ValueError(
                "HorovodRunner: np=0 is all task slots of a Spark session, and there is none; use np=-1 for this process or np=-2 for two local processes"
            )
        if driver_log_verbosity not in _VERBOSITIES:
            raise ValueError(
                f"HorovodRunner: driver_log_verbosity={driver_log_verbosity!r}: use one of {', '.join(_VERBOSITIES)}"
            )
        self.num_processor = np
        self.driver_log_verbosity = driver_log_verbosity

    @property
    def np(self) -> int:
        return self.num_processor

    def run(self, main: Callable[..., Any], **kwargs: Any) -> Any:
        """Call main(**kwargs) on every process and return rank 0's result."""
        log = logging.getLogger("HorovodRunner")
        if self.np == -1:
            return main(**kwargs)
        session = _session()
        if self.np >= 0 and session is not None:
            if self.np == 0:
                log.warning(
                    "HorovodRunner(np=0): it uses all task slots of the cluster; say how many you mean with np=N"
                )
            return _gang(session, main, kwargs, self.np or None, self.driver_log_verbosity)
        processes = abs(self.np)
        if self.np > 0:
            log.warning(
                "HorovodRunner(np=%d): there is no active Spark session, so %d processes start on this machine, as with np=%d",
                self.np, self.np, -self.np,
            )  # fmt: skip
        _warn_of_gpus(log, processes)
        import hora

        if session is not None:
            from hora.spark.frontend import refuse_spark_objects

            refuse_spark_objects(main, (), kwargs, _words())

        tagged = {"HORA_SPARK_WORD": ""} if processes > 1 else {}  # a single process's lines have no rank before them
        return hora.run(main, kwargs=kwargs, np=processes, env=tagged)[0]


# Programs compare the signatures with the reference's, which has no annotations.
HorovodRunner.__init__.__annotations__ = {}
HorovodRunner.run.__annotations__ = {}

# What help() and notebooks show, in spite of __new__.
HorovodRunner.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [p for n, p in inspect.signature(HorovodRunner.__init__).parameters.items() if n != "self"]
)


def _warn_of_gpus(log: logging.Logger, processes: int) -> None:
    """Say so when processes will share GPUs; a machine without any is meant to be one."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        gpus = len([d for d in visible.split(",") if d.strip() and d.strip() != "-1"])
    else:
        try:
            gpus = len(os.listdir("/proc/driver/nvidia/gpus"))
        except OSError:
            return
    if 0 < gpus < processes:
        log.warning("HorovodRunner: %d processes share %d GPUs; use np=-%d for one each", processes, gpus, gpus)


def _session() -> Any:
    """The active Spark session, if the program has made one."""
    if "pyspark" not in sys.modules:
        return None
    from hora.spark.frontend import active_session

    return active_session()


def _words() -> Any:
    from hora.spark.frontend import Wording

    return Wording(elastic=None, restarts=None, who="HorovodRunner", rows=None)


def _gang(session: Any, main: Callable[..., Any], kwargs: dict[str, Any], np: int | None, verbosity: str) -> Any:
    from hora.spark.frontend import launch

    word = f"<{secrets.token_hex(8)}>"

    def show(line: str) -> str | None:
        if word in line:
            return line.replace(word, "")
        return line if verbosity == "all" or line.startswith("hora: ") else None

    return launch(main, (), kwargs, np, env={"HORA_SPARK_WORD": word}, spark=session, show=show, words=_words())[0]
