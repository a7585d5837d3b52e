"""hora.report: numbers of a training that the server keeps (`hora metrics ID`), or that a Spark job's driver shows."""

from __future__ import annotations

import json
import math
import operator
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from .errors import ArgumentError

instead: Callable[[int, int, dict[str, Any]], bool] | None = None  # where the numbers of a job go that no server has
_lock = threading.Lock()  # guards what follows
_socket: socket.socket | None = None
_pid = 0
_step = -1


def _rank() -> int:
    from .comm import is_initialized, rank

    return rank() if is_initialized() else int(os.environ.get("HORA_RANK", "0"))


def _single(x: Any) -> bool:
    """Whether what has a shape and a type, as tensors of every framework do, is one real number with a value."""
    try:
        return math.prod(getattr(x, "shape", ())) == 1 and "complex" not in str(getattr(x, "dtype", ""))
    except (TypeError, ValueError):  # a shape that is not known yet
        return False


def _number(x: Any) -> float:
    """What one number says as float() reads it; texts, which it would read too, are none.

    A RuntimeError is passed on where a number was to be had: then what makes it has failed, as a step whose rank is
    lost does.
    """
    if isinstance(x, (str, bytes, bytearray)):
        raise TypeError
    try:
        return float(x)
    except RuntimeError:
        if _single(x) and not getattr(x, "is_meta", False):
            raise
        raise TypeError from None
    except TypeError:  # NumPy's of today for an array of one element that has dimensions
        if not (_single(x) and hasattr(x, "item")):
            raise
        return float(x.item())


def value(name: str, value: Any) -> float | str:
    try:
        number = _number(value)
    except OverflowError:
        raise TypeError(f"hora.report({name}=...): the number is larger than a float can say") from None
    except (TypeError, ValueError):
        raise TypeError(
            f"hora.report({name}=...): {type(value).__name__} is not one number: give a float, or a tensor with one element"
        ) from None
    if number != number or number in (float("inf"), float("-inf")):
        return repr(number)  # JSON has no word for those
    return number


def number(step: Any) -> int:
    """The number of a step; a tensor with one element will do, and 2.0, but not 2.7."""
    try:
        try:
            return operator.index(step)
        except (TypeError, RuntimeError):  # it may be a whole number all the same
            number = _number(step)
        if number.is_integer():
            return int(number)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ArgumentError(f"the step {step!r} is no whole number: give one, as in hora.report(10, loss=loss)")


def report(step: int | None = None, **metrics: Any) -> bool:
    """Tells the server numbers of this rank: `hora.report(step, loss=loss, accuracy=acc)`.

    Without a step, calls are counted from 0. Any rank may report. The numbers are shown by `hora metrics ID` and on the
    job's page; under hora.spark.run the driver's line shows the newest. Elsewhere nothing happens and the answer is
    False.

    >>> hora.report(10, loss=0.5)
    False
    """
    global _step
    values = {name: value(name, v) for name, v in metrics.items()}
    given = None if step is None else number(step)
    with _lock:
        _step = _step + 1 if given is None else given
        now = _step
        if not values:
            return False
        if not os.environ.get("HORA_REPORT"):
            return instead is not None and instead(_rank(), now, values)
    return send({"step": now, "metrics": values})


def send(said: dict[str, Any]) -> bool:
    """Sends one line to what keeps this job; False where nobody does."""
    global _socket, _pid
    address = os.environ.get("HORA_REPORT")
    if not address:
        return False
    line = json.dumps({"rank": _rank(), **said}).encode() + b"\n"
    with _lock:
        try:
            if _socket is None or _pid != os.getpid():
                _socket, _pid = socket.socket(socket.AF_UNIX), os.getpid()
                _socket.connect(address)
            _socket.sendall(line)
        except OSError:
            _socket = None  # training does not end because nobody listens
            return False
    return True
