"""The torch kind of Estimator on a rank: forward, loss, backward, an optimizer that averages over all ranks."""

from __future__ import annotations

import copy
import inspect
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

import hora

from ..errors import ArgumentError
from ..torch import DistributedOptimizer, broadcast_parameters
from . import _net, _safetensors
from ._losses import METRICS, WHO, each_metrics, loss_of
from ._training import Training


def fit(t: Training) -> dict[str, Any] | None:
    """Trains; on rank 0 the weights and the files of the run."""
    given = t.given
    model = given["model"]
    device = _device(t.plan.gpu)
    model.to(device)
    first = _row(t, device)
    model.eval()
    with torch.no_grad():
        out = model(*first)
    outputs = _net.widths(out)
    if len(_several(out)) < max(1, len(t.plan.labels)):
        raise ArgumentError(f"{WHO}: the model gives {len(outputs)} outputs for {len(t.plan.labels)} labels; let it return one for each")
    optimizer = _optimizer(given["optimizer"], model, t.learning_rate)
    if t.state is not None:
        kept = torch.load(io.BytesIO(t.state), map_location=device, weights_only=True)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
    broadcast_parameters(model.state_dict(), 0)
    if t.validates:
        t.validate_with((list(t.validation_batches()), t.plan.labels, device.index), lambda: _saved({"model": model.state_dict()}))
    losses = [_Loss(f, device) for f in _each(given["loss"], len(t.plan.labels), "loss")]
    shares = given["loss_weights"] or [1.0] * len(losses)
    metrics = _metrics(given["metrics"], t.plan.labels)
    optimizer = DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=t.plan.compression or "none",
        backward_passes_per_step=t.plan.passes,
    )
    passes = t.plan.passes
    own = None if given["minibatch"] is None else _Own(given["minibatch"], model, optimizer, losses, shares, device)
    for epoch in range(t.first, t.epochs):
        torch.manual_seed(t.draw_anew(epoch))  # what an epoch draws does not depend on where the run began
        model.train()
        sums, rows = _Sums(), 0
        optimizer.zero_grad()
        last = t.steps - t.steps % passes if t.steps >= passes else t.steps
        for step, (x, y, w) in enumerate(t.batches(epoch)):
            if step >= last:
                break
            if own is not None:
                out, loss = own(x, y, w, t.share(step))
            else:
                out, loss = _loss(model, x, y, w, losses, shares, device)
                (loss * t.share(step)).backward()
                if (step + 1) % passes == 0 or step + 1 == last:
                    optimizer.step()
                    optimizer.zero_grad()
            rows += _count(x)
            sums.add("loss", loss, _count(x))
            sums.metrics(metrics, out, y, _count(x), device)
        _agree(model)
        t.end_epoch(epoch, t.mean(sums.totals, rows), lambda: _state(model, optimizer))
    t.settle()
    if hora.rank() != 0:
        return None
    weights = {k: v.detach().cpu() for k, v in model.state_dict().items()}
    return {
        "weights": _saved(weights), "outputs": outputs,
        "files": {"model.safetensors": _safetensors.dumps({k: v for k, v in weights.items() if isinstance(v, torch.Tensor)})},
    }  # fmt: skip


def _device(gpu: bool) -> torch.device:
    if gpu and torch.cuda.is_available():
        device = torch.device("cuda", hora.local_rank() % torch.cuda.device_count())
        torch.cuda.set_device(device)
        return device
    return torch.device("cpu")


def _row(t: Training, device: torch.device) -> list[torch.Tensor]:
    x, _, _ = t.cut(t.rows, slice(0, 2), None)
    return _tensors(x, device)


def _tensors(x: Any, device: torch.device) -> list[torch.Tensor]:
    return [torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in (x if isinstance(x, list) else [x])]


def _several(out: Any) -> list[torch.Tensor]:
    return list(out.values()) if isinstance(out, dict) else list(out) if isinstance(out, (list, tuple)) else [out]


def _each(given: Any, n: int, what: str) -> list[Any]:
    found = list(given) if isinstance(given, (list, tuple)) else [given] * max(1, n)
    if len(found) != max(1, n):
        raise ArgumentError(f"{WHO}: {what} has {len(found)} entries for {n} labels; give one for each")
    return found


def _count(x: Any) -> int:
    return len(x[0] if isinstance(x, list) else x)


def _optimizer(given: Any, model: torch.nn.Module, rate: float | None) -> torch.optim.Optimizer:
    """The user's optimizer over this model's parameters."""
    if isinstance(given, torch.optim.Optimizer):  # which travelled with the model, so that its parameters are the model's
        if rate is not None:
            for group in given.param_groups:
                group["lr"] = rate
        return given
    if given is None:
        return torch.optim.Adam(model.parameters(), lr=1e-3 if rate is None else rate)
    if isinstance(given, type):
        return given(model.parameters(), **({} if rate is None else {"lr": rate}))
    return given(model.parameters(), rate) if len(inspect.signature(given).parameters) > 1 else given(model.parameters())


class _Loss:
    """A loss that can be asked for the mean of a batch, and for each row's where rows have weights."""

    def __init__(self, given: Any, device: torch.device) -> None:
        self.function = loss_of(given)
        if isinstance(self.function, torch.nn.Module):
            self.function.to(device)
        self.whole = _whole(self.function)
        self._rows: Callable[..., Any] | None = None

    def mean(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        found = self.function(out, self._fitting(out, y))
        return found if found.ndim == 0 else found.mean()

    def weighed(self, out: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        if self._rows is None:
            self._rows = _by_row(self.function)
        found = self._rows(out, self._fitting(out, y))
        if found.ndim == 0 or len(found) != len(out):
            raise ArgumentError(f"{WHO}: the loss gives one number for a batch, and rows have weights; let it return one for each row")
        return (found.reshape(len(found), -1).mean(dim=1) * w).mean()

    def _fitting(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Labels in the form that the loss takes: numbers of classes whole, others in the outputs' shape."""
        if self.whole and out.ndim > y.ndim:
            return y.long()
        if self.whole and y.ndim == out.ndim and y.ndim == 2 and y.shape[1] == 1 and out.shape[1] > 1:
            return y.reshape(-1).long()
        if y.shape != out.shape and y.numel() == out.numel():  # (n) beside (n, 1) would be spread out to (n, n)
            y = y.reshape(out.shape)
        return y.to(out.dtype) if self.named_or_torch and y.dtype != out.dtype and y.shape == out.shape else y

    @property
    def named_or_torch(self) -> bool:
        return type(self.function).__module__.startswith("torch") or getattr(self.function, "__module__", "").startswith("torch")


def _whole(function: Any) -> bool:
    """Whether a loss takes numbers of classes."""
    name = type(function).__name__ if isinstance(function, torch.nn.Module) else getattr(function, "__name__", "")
    return name in ("CrossEntropyLoss", "NLLLoss", "cross_entropy", "nll_loss")


def _by_row(function: Any) -> Callable[..., Any]:
    if isinstance(function, torch.nn.Module) and hasattr(function, "reduction"):
        each = copy.copy(function)
        each.reduction = "none"
        return each
    try:
        known = "reduction" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        known = False
    return (lambda out, y: function(out, y, reduction="none")) if known else function


def _loss(
    model: torch.nn.Module, x: Any, y: Any, w: Any, losses: list[_Loss], shares: Iterable[float], device: torch.device
) -> tuple[Any, torch.Tensor]:
    out = model(*_tensors(x, device))
    return out, _total(out, _tensors(y, device), _weights(w, device), losses, shares)


def _weights(w: Any, device: torch.device) -> torch.Tensor | None:
    return None if w is None else torch.from_numpy(np.ascontiguousarray(w)).to(device)


def _total(out: Any, truths: Iterable[torch.Tensor], weights: torch.Tensor | None, losses: list[_Loss], shares: Iterable[float]) -> Any:
    total: Any = 0.0
    for loss, share, o, truth in zip(losses, shares, _several(out), truths, strict=False):
        total = total + share * (loss.mean(o, truth) if weights is None else loss.weighed(o, truth, weights))
    return total


class _Own:
    """The user's own step: what it is given is Horovod's train_minibatch_fn's."""

    def __init__(self, function: Any, model: Any, optimizer: Any, losses: list[_Loss], shares: Iterable[float], device: Any) -> None:
        self.function, self.model, self.optimizer = function, model, optimizer
        self.losses, self.shares, self.device = losses, list(shares), device

    def __call__(self, x: Any, y: Any, w: Any, share: float) -> tuple[Any, Any]:
        def loss_of(out: Any, truths: Any, weights: Any = None) -> Any:
            loss = _total(out, truths if isinstance(truths, (list, tuple)) else [truths], weights, self.losses, self.shares)
            # Its value is the rows' mean; its gradient weighs as this rank's rows do in the ranks' average.
            return loss.detach() + (loss - loss.detach()) * share

        said = self.function(
            self.model, self.optimizer, lambda out, truths: (_several(out), truths), loss_of,
            _tensors(x, self.device), _tensors(y, self.device), _weights(w, self.device),
        )  # fmt: skip
        if not isinstance(said, tuple) or len(said) != 2:
            raise ArgumentError(f"{WHO}: the function of a step returned a {type(said).__name__}; return (outputs, loss)")
        return said


class _Sums:
    """What has been added up over rows."""

    def __init__(self) -> None:
        self.totals: dict[str, float] = {}

    def add(self, name: str, value: Any, rows: int) -> None:
        self.totals[name] = self.totals.get(name, 0.0) + float(value.detach() if hasattr(value, "detach") else value) * rows

    def metrics(self, metrics: list[dict[str, Callable[..., Any]]], out: Any, y: Any, rows: int, device: torch.device) -> None:
        with torch.no_grad():
            for own, o, truth in zip(metrics, _several(out), _tensors(y, device) if any(metrics) else (), strict=False):
                for name, metric in own.items():
                    self.add(name, metric(o, truth), rows)


def _metrics(given: Any, labels: Sequence[str]) -> list[dict[str, Callable[..., Any]]]:
    """Of each output its metrics by name, to which the label's is added where there are several."""
    found = []
    for i, label in enumerate(labels or ("",)):
        own = each_metrics(given, max(1, len(labels)))[i]
        pairs = own.items() if isinstance(own, dict) else [(m if isinstance(m, str) else m.__name__, m) for m in own]
        found.append({name if len(labels) < 2 else f"{label}_{name}": METRICS[m] if isinstance(m, str) else m for name, m in pairs})
    return found


def validated(
    model: Any, batches: Iterable[Any], losses: list[_Loss], shares: Any, metrics: Any, device: torch.device
) -> tuple[dict[str, float], int]:
    """Sums over the rows of some batches, and how many rows they have."""
    model.eval()
    sums, rows = _Sums(), 0
    sums.totals = dict.fromkeys(["loss", *(name for own in metrics for name in own)], 0.0)  # a rank without such rows adds nothing
    with torch.no_grad():
        for x, y, w in batches:
            out, loss = _loss(model, x, y, w, losses, shares, device)
            sums.add("loss", loss, _count(x))
            sums.metrics(metrics, out, y, _count(x), device)
            rows += _count(x)
    return sums.totals, rows


def _agree(model: torch.nn.Module) -> None:
    """Averages what the ranks have each gathered of their own rows, such as a BatchNorm's means: a run that goes on deals rows anew."""
    for name, buffer in sorted(model.named_buffers()):
        if buffer.is_floating_point():
            mean = hora.allreduce(buffer.detach().cpu().numpy(), hora.AVERAGE, name=f"hora.spark.buffer {name}", named=True)
            buffer.copy_(torch.from_numpy(np.asarray(mean)))


def _state(model: torch.nn.Module, optimizer: Any) -> bytes:
    return _saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()})


def _saved(value: Any) -> bytes:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()
