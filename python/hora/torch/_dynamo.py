"""Keeps Dynamo from tracing the backend: traced, it hangs under torch.compile(DDP)."""

from __future__ import annotations

from types import FunctionType
from typing import Any

__all__ = ["skip"]


def skip(*classes: type) -> None:
    """Mark every method of the classes; never imports torch._dynamo, which takes more than a second."""
    try:
        from torch._C._dynamo import eval_frame
    except ImportError:
        return
    mark = _marker(eval_frame)
    if mark is None:
        return
    for cls in classes:
        for value in vars(cls).values():
            f = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if isinstance(f, FunctionType):
                mark(f.__code__)


def _marker(eval_frame: Any) -> Any:
    action = getattr(eval_frame, "_FrameAction", None)
    strategy = getattr(eval_frame, "_FrameExecStrategy", None)
    put = getattr(eval_frame, "set_code_exec_strategy", None)
    if action is not None and strategy is not None and put is not None:
        return lambda code: put(code, strategy(action.SKIP, action.SKIP))
    return getattr(eval_frame, "skip_code", None)
