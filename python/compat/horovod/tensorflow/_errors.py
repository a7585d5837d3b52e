"""What a failed operation raises: classes that programs written for Horovod catch, TensorFlow's and Horovod's in
one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import hora
from hora import frontend
from hora.tensorflow.graphs import precondition

from ..common.exceptions import HorovodInternalError
from ..common.translate import NotMember, internal, shut_down

__all__ = ["Lost", "Mismatch", "Outside", "translated"]


class Mismatch(tf.errors.FailedPreconditionError, HorovodInternalError):
    """The ranks asked for different things."""


class Outside(tf.errors.InvalidArgumentError, ValueError):
    """This rank is not in the call's process set."""


class Lost(tf.errors.UnknownError, HorovodInternalError):
    """A rank was lost, or the job is over."""


def _eager(error: tf.errors.OpError) -> BaseException:
    found = frontend.behind(error)
    if isinstance(found, hora.MismatchError):
        return Mismatch(None, None, str(found))
    if isinstance(found, (hora.PeerLostError, hora.ClosedError)):
        return Lost(None, None, str(shut_down(found)))
    return error


def translated(f: Callable[..., Any]) -> Callable[..., Any]:
    """f with hora's errors, and what an operation that ran at once has told TensorFlow, as Horovod's classes."""

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        before = precondition.set(True)
        try:
            return f(*args, **kwargs)
        except NotMember as error:
            raise Outside(None, None, str(error)) from error
        except hora.HoraError as error:
            raise internal(error) from error
        except tf.errors.OpError as error:
            other = _eager(error)
            if other is error:
                raise
            raise other from error
        finally:
            precondition.reset(before)

    return call
