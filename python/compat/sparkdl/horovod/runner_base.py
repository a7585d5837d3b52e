"""HorovodRunner: a training function on several processes of the driver's machine."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable
from typing import Any

__all__ = ["HorovodRunner"]

_VERBOSITIES = ("all", "log_callback_only")


class HorovodRunner:
    """Run a function that uses horovod on `np` processes.

    np = -1 calls it in this process, np < -1 on that many local processes; np > 0 asks for Spark task slots and, as there
    is no Spark launcher here, does the same as -np with a warning. `run` returns what rank 0 returned.

    >>> HorovodRunner(np=-2).run(train, epochs=3)
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> HorovodRunner:
        if args or "np" not in kwargs:
            raise TypeError("HorovodRunner takes its arguments by name: HorovodRunner(np=2)")
        return super().__new__(cls)

    def __init__(self, *, np: int, driver_log_verbosity: str = "log_callback_only") -> None:
        if isinstance(np, bool) or not isinstance(np, int):
            raise TypeError(f"HorovodRunner: np={np!r} must be a whole number, for example HorovodRunner(np=-2)")
        if np == 0:
            raise ValueError("HorovodRunner: np=0 starts nothing; use np=-1 for this process or np=-2 for two local processes")
        if driver_log_verbosity not in _VERBOSITIES:
            raise ValueError(f"HorovodRunner: driver_log_verbosity={driver_log_verbosity!r}: use one of {', '.join(_VERBOSITIES)}")
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
        processes = abs(self.np)
        if self.np > 0:
            log.warning(
                "HorovodRunner(np=%d): no Spark launcher here, so %d processes start on this machine, as with np=%d",
                self.np, self.np, -self.np,
            )  # fmt: skip
        _warn_of_gpus(log, processes)
        import hora

        return hora.run(main, kwargs=kwargs, np=processes)[0]


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
