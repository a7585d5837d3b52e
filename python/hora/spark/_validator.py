"""Validation of the torch kind beside the next steps: a process of each rank's own, which is given the model's state
after an epoch."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from .. import _abi
from ..errors import HoraError

__all__ = ["Validator"]


class Validator:
    """The process, forked before the rank has threads and devices of its own; it ends with the rank."""

    def __init__(self, blob: bytes) -> None:
        import torch  # noqa: F401  (once, for both)

        mine, its = multiprocessing.Pipe()
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            mine.close()
            _live(its, blob, parent)
        its.close()
        self._line: Connection = mine
        self.busy = False

    def begin(self, given: tuple[Any, ...], state: bytes) -> None:
        """Evaluates a state; what stays the same, such as the batches, goes with the first."""
        self._send((given, state))
        self.busy = True

    def end(self) -> tuple[dict[str, float], int]:
        """What has been summed up over the rows, and how many they are; waits for it."""
        try:
            said = pickle.loads(self._line.recv_bytes())
        except (EOFError, OSError):
            raise self._gone() from None
        self.busy = False
        if isinstance(said, str):
            raise HoraError(f"Estimator.fit: the validation failed:\n{said}")
        return said

    def close(self) -> None:
        """Ends the process."""
        self._line.close()
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass

    def _send(self, what: Any) -> None:
        try:
            self._line.send_bytes(pickle.dumps(what, protocol=5))
        except (BrokenPipeError, ConnectionResetError):
            raise self._gone() from None

    def _gone(self) -> HoraError:
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        how = f"killed by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
        return HoraError(
            f"Estimator.fit: the process that validates has ended: {how}; it needs the memory of a second model"
        )


def _live(line: Connection, blob: bytes, parent: int) -> None:
    """The forked process: it never leaves this function, and calls nothing of the rank's but torch."""
    try:
        _abi.end_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)
        evaluate = None
        while True:
            try:
                asked = pickle.loads(line.recv_bytes())
            except EOFError:
                os._exit(0)
            try:
                given, state = asked
                if evaluate is None:
                    evaluate = _Evaluation(blob, *given)
                said: Any = evaluate(state)
            except Exception:
                said = traceback.format_exc()
            line.send_bytes(pickle.dumps(said, protocol=5))
    finally:
        os._exit(1)


class _Evaluation:
    """The model over this rank's rows for validation."""

    def __init__(
        self, blob: bytes, batches: list[Any], labels: Sequence[str], gpu: int | None, thresholds: list[float]
    ) -> None:
        import torch

        from . import _fit_torch

        given = pickle.loads(blob)
        self.device = torch.device("cpu") if gpu is None else torch.device("cuda", gpu)
        self.batches, self.model = batches, given["model"].to(self.device)
        self.losses = [_fit_torch._Loss(f, self.device) for f in _fit_torch._each(given["loss"], len(labels), "loss")]
        self.shares = given["loss_weights"] or [1.0] * len(self.losses)
        self.metrics = _fit_torch._metrics(given["metrics"], labels, thresholds)

    def __call__(self, state: bytes) -> tuple[dict[str, float], int]:
        import torch

        from . import _fit_torch

        self.model.load_state_dict(torch.load(io.BytesIO(state), map_location=self.device, weights_only=True)["model"])
        return _fit_torch.validated(self.model, self.batches, self.losses, self.shares, self.metrics, self.device)
