"""The torch kind of Estimator on a rank: forward, loss, backward, an optimizer that averages over all ranks."""

from __future__ import annotations

import copy
import functools
import inspect
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

import hora

from ..errors import ArgumentError
from ..torch import DistributedOptimizer, broadcast_parameters
from . import _net, _optimizers, _safetensors
from ._losses import METRICS, WHO, accuracy, each_metrics, loss_of, threshold
from ._tables import rows_of
from ._training import Training

_SEEN = 1024  # rows by which it is seen whether outputs are probabilities


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
        raise ArgumentError(
            f"{WHO}: the model gives {len(outputs)} outputs for {len(t.plan.labels)} labels; let it return one for each"
        )
    optimizer = _optimizers.made(given["optimizer"], model, t.learning_rate)
    bars: list[float] | None = None
    if t.state is not None:
        kept = torch.load(io.BytesIO(t.state), map_location=device, weights_only=True)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        bars = kept.get("thresholds")
    broadcast_parameters(model.state_dict(), 0)
    losses = [_Loss(f, device) for f in _each(given["loss"], len(t.plan.labels), "loss")]
    shares = given["loss_weights"] or [1.0] * len(losses)
    if bars is None:
        bars = _thresholds(t, losses, model, device)
    metrics = _metrics(given["metrics"], t.plan.labels, bars)
    if t.validates:
        t.validate_with(
            (list(t.validation_batches()), t.plan.labels, device.index, bars),
            lambda: _saved({"model": model.state_dict()}),
        )
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
        together = min(passes, last)  # steps of which one of the optimizer's is made, with the mean of their gradients
        for step, (x, y, w) in enumerate(t.batches(epoch)):
            if step >= last:
                break
            if own is not None:
                out, loss = own(x, y, w, t.share(step))
            else:
                out, loss = _loss(model, x, y, w, losses, shares, device)
                (loss * (t.share(step) / together)).backward()
                if (step + 1) % passes == 0 or step + 1 == last:
                    optimizer.step()
                    optimizer.zero_grad()
            rows += _count(x)
            sums.add("loss", loss, _count(x))
            sums.metrics(metrics, out, y, _count(x), device)
        average_buffers(model)
        t.end_epoch(epoch, t.mean(sums.totals, rows), lambda: _state(model, optimizer, bars))
    t.settle()
    if hora.rank() != 0:
        return None
    weights = {k: v.detach().cpu() for k, v in model.state_dict().items()}
    return {
        "weights": _saved(weights), "outputs": outputs,
        "optimizer": _saved(optimizer.state_dict()) if t.plan.keeps_optimizer else None,
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


class _Loss:
    """A loss that can be asked for what it makes of a batch, and for the same of rows that have weights: weights of
    ones change nothing, whether it is a mean, a sum, or a mean over classes that have weights of their own."""

    def __init__(self, given: Any, device: torch.device) -> None:
        self.function = loss_of(given)
        if isinstance(self.function, torch.nn.Module):
            self.function.to(device)
        self.whole = _whole(self.function)
        self.reduction = _setting(self.function, "reduction")
        self._rows: Callable[..., Any] | None = None

    def mean(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        found = self.function(out, self._fitting(out, y))
        return found if found.ndim == 0 else found.mean()

    def weighed(self, out: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        if self._rows is None:
            self._rows = _by_row(self.function)
        y = self._fitting(out, y)
        found = self._rows(out, y)
        if found.ndim == 0 or len(found) != len(out):
            raise ArgumentError(
                f"{WHO}: the loss gives one number for a batch, and rows have weights; let it return one for each row"
            )
        each = found.reshape(len(found), -1)
        if self.reduction == "sum":
            return (each.sum(dim=1) * w).sum()
        if self.reduction == "batchmean":
            return (each.sum(dim=1) * w).mean()
        shares = _shares_of_classes(self.function, out, y)
        if shares is not None:
            return (each.sum(dim=1) * w).sum() / shares.sum()
        return (each.mean(dim=1) * w).mean()

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
        bare = _bare(self.function)
        return type(bare).__module__.startswith("torch") or getattr(bare, "__module__", "").startswith("torch")


def _bare(function: Any) -> Any:
    """The function that stands in functools.partial."""
    return _bare(function.func) if isinstance(function, functools.partial) else function


def _whole(function: Any) -> bool:
    """Whether a loss takes numbers of classes."""
    bare = _bare(function)
    name = type(bare).__name__ if isinstance(bare, torch.nn.Module) else getattr(bare, "__name__", "")
    return name in ("CrossEntropyLoss", "NLLLoss", "cross_entropy", "nll_loss")


def _setting(function: Any, name: str) -> Any:
    """What a loss has as reduction, weight or the like: an attribute of a module, an argument's default of a
    function."""
    if isinstance(function, torch.nn.Module):
        return getattr(function, name, None)
    try:
        found = inspect.signature(function).parameters.get(name)
    except (TypeError, ValueError):
        return None
    return None if found is None or found.default is found.empty else found.default


def _by_row(function: Any) -> Callable[..., Any]:
    if isinstance(function, torch.nn.Module) and hasattr(function, "reduction"):
        each = copy.copy(function)
        each.reduction = "none"
        return each
    if _setting(function, "reduction") is None:
        return function
    return lambda out, y: function(out, y, reduction="none")


def _shares_of_classes(function: Any, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor | None:
    """What each row counts in the mean of a loss whose classes have weights, or that ignores one of them; None where
    all count the same."""
    if not _whole(function) or y.dtype.is_floating_point:
        return None
    weight, ignored = _setting(function, "weight"), _setting(function, "ignore_index")
    counted = torch.ones_like(y, dtype=torch.bool) if ignored is None else y != ignored
    if weight is None:
        return None if bool(counted.all()) else counted.to(out.dtype)
    return torch.where(counted, weight.to(out.device)[torch.where(counted, y, 0)], 0.0)


def _loss(
    model: torch.nn.Module, x: Any, y: Any, w: Any, losses: list[_Loss], shares: Iterable[float], device: torch.device
) -> tuple[Any, torch.Tensor]:
    out = model(*_tensors(x, device))
    return out, _total(out, _tensors(y, device), _weights(w, device), losses, shares)


def _weights(w: Any, device: torch.device) -> torch.Tensor | None:
    return None if w is None else torch.from_numpy(np.ascontiguousarray(w)).to(device)


def _total(
    out: Any, truths: Iterable[torch.Tensor], weights: torch.Tensor | None, losses: list[_Loss], shares: Iterable[float]
) -> Any:
    total: Any = 0.0
    for loss, share, o, truth in zip(losses, shares, _several(out), truths, strict=False):
        total = total + share * (loss.mean(o, truth) if weights is None else loss.weighed(o, truth, weights))
    return total


def loss_of_outputs(given: Any, shares: Sequence[float] | None, labels: int) -> Callable[..., Any]:
    """A function of a module's outputs, their labels and the rows' weights, that gives the loss of all outputs
    together: for whoever makes the steps himself. What the loss holds lies where the labels do."""
    each, made = _each(given, labels, "loss"), dict[torch.device, list[_Loss]]()  # one: a module is where it is
    own = list(shares or [1.0] * len(each))

    def total(outputs: Any, truths: Any, weights: Any = None) -> Any:
        where = truths[0].device
        if where not in made:
            made.clear()
            made[where] = [_Loss(f, where) for f in each]
        return _total(outputs, truths, weights, made[where], own)

    return total


class _Own:
    """The user's own step: what it is given is Horovod's train_minibatch_fn's."""

    def __init__(
        self, function: Any, model: Any, optimizer: Any, losses: list[_Loss], shares: Iterable[float], device: Any
    ) -> None:
        self.function, self.model, self.optimizer = function, model, optimizer
        self.losses, self.shares, self.device = losses, list(shares), device

    def __call__(self, x: Any, y: Any, w: Any, share: float) -> tuple[Any, Any]:
        def loss_of(out: Any, truths: Any, weights: Any = None) -> Any:
            loss = _total(
                out, truths if isinstance(truths, (list, tuple)) else [truths], weights, self.losses, self.shares
            )
            # Its value is the rows' mean; its gradient weighs as this rank's rows do in the ranks' average.
            return loss.detach() + (loss - loss.detach()) * share

        said = self.function(
            self.model, self.optimizer, lambda out, truths: (_several(out), truths), loss_of,
            _tensors(x, self.device), _tensors(y, self.device), _weights(w, self.device),
        )  # fmt: skip
        if not isinstance(said, tuple) or len(said) != 2:
            raise ArgumentError(
                f"{WHO}: the function of a step returned a {type(said).__name__}; return (outputs, loss)"
            )
        return said


class _Sums:
    """What has been added up over rows."""

    def __init__(self) -> None:
        self.totals: dict[str, float] = {}

    def add(self, name: str, value: Any, rows: int) -> None:
        self.totals[name] = (
            self.totals.get(name, 0.0) + float(value.detach() if hasattr(value, "detach") else value) * rows
        )

    def metrics(
        self, metrics: list[dict[str, Callable[..., Any]]], out: Any, y: Any, rows: int, device: torch.device
    ) -> None:
        with torch.no_grad():
            for own, o, truth in zip(metrics, _several(out), _tensors(y, device) if any(metrics) else (), strict=False):
                for name, metric in own.items():
                    self.add(name, metric(o, truth), rows)


def _thresholds(t: Training, losses: list[_Loss], model: torch.nn.Module, device: torch.device) -> list[float]:
    """Where each output says yes, for the accuracy of one that is a single number: as its loss has it; with a loss that
    is not known by what the model gives for some rows of all ranks as the run begins, and for the whole run."""
    known = [threshold(loss.function) for loss in losses]
    asked = any(
        m in ("accuracy", accuracy)
        for own in each_metrics(t.given["metrics"], len(losses))
        for m in (own.values() if isinstance(own, dict) else own)
    )
    if not asked or None not in known:
        return [0.5 if k is None else k for k in known]
    outside = np.zeros(len(losses))
    with torch.no_grad():
        for first in range(0, min(rows_of(t.rows), _SEEN), t.batch_size):  # no more at once than a step has
            x, _, _ = t.cut(t.rows, slice(first, first + t.batch_size), None)
            outs = _several(model(*_tensors(x, device)))[: len(losses)]
            single = [o.ndim < 2 or o.shape[1] == 1 for o in outs]  # of several the greatest counts
            if not any(one and k is None for one, k in zip(single, known, strict=True)):
                break
            outside += [float(one and bool(((o < 0) | (o > 1)).any())) for o, one in zip(outs, single, strict=True)]
    outside = np.asarray(hora.allreduce(outside, hora.SUM, name="hora.spark.thresholds", named=True))
    return [(0.0 if n else 0.5) if k is None else k for k, n in zip(known, outside, strict=True)]


def _metrics(given: Any, labels: Sequence[str], thresholds: Sequence[float]) -> list[dict[str, Callable[..., Any]]]:
    """Of each output its metrics by name, to which the label's is added where there are several."""
    found = []
    for i, label in enumerate(labels or ("",)):
        own = each_metrics(given, max(1, len(labels)))[i]
        pairs = own.items() if isinstance(own, dict) else [(m if isinstance(m, str) else m.__name__, m) for m in own]
        found.append(
            {name if len(labels) < 2 else f"{label}_{name}": _metric(metric, thresholds[i]) for name, metric in pairs}
        )
    return found


def _metric(given: Any, above: float) -> Callable[..., Any]:
    function = METRICS[given] if isinstance(given, str) else given
    return functools.partial(function, threshold=above) if function is accuracy else function


def validated(
    model: Any, batches: Iterable[Any], losses: list[_Loss], shares: Any, metrics: Any, device: torch.device
) -> tuple[dict[str, float], int]:
    """Sums over the rows of some batches, and how many rows they have."""
    model.eval()
    sums, rows = _Sums(), 0
    sums.totals = dict.fromkeys(
        ["loss", *(name for own in metrics for name in own)], 0.0
    )  # a rank without such rows adds nothing
    with torch.no_grad():
        for x, y, w in batches:
            out, loss = _loss(model, x, y, w, losses, shares, device)
            sums.add("loss", loss, _count(x))
            sums.metrics(metrics, out, y, _count(x), device)
            rows += _count(x)
    return sums.totals, rows


def average_buffers(model: torch.nn.Module) -> None:
    """Averages what the ranks have each gathered of their own rows, such as a BatchNorm's means: a run that goes on
    deals rows anew."""
    for name, buffer in sorted(model.named_buffers()):
        if buffer.is_floating_point():
            own = buffer.detach().cpu()
            own = own if own.dtype in (torch.float32, torch.float64) else own.float()  # NumPy has no bfloat16
            mean = hora.allreduce(own.numpy(), hora.AVERAGE, name=f"hora.spark.buffer {name}", named=True)
            buffer.copy_(torch.from_numpy(np.asarray(mean)))


def _state(model: torch.nn.Module, optimizer: Any, thresholds: list[float]) -> bytes:
    return _saved({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "thresholds": thresholds})


def _saved(value: Any) -> bytes:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()
