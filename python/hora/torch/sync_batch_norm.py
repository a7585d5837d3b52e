"""Batch normalization over the batches of all ranks, on CPU and on accelerators."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from .. import comm
from ..call import NAMED, Call, Kind, Op
from ..group import Group
from ._tensor import code

__all__ = ["SyncBatchNorm"]


def _add(t: torch.Tensor, group: Group, name: str) -> torch.Tensor:
    """The sum of a small tensor over the group, on t's device."""
    host = t.detach().to("cpu", torch.float64, copy=True).contiguous()
    p = host.data_ptr()
    group.run(Call(Kind.ALLREDUCE, Op.SUM, code(host), 0, p, p, host.numel(), flags=NAMED, name=name), host)
    return host.to(t.device)


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: Any, bias: Any, eps: float, group: Group, name: str, layer: Any
    ) -> torch.Tensor:
        channels = x.shape[1]
        dims = [d for d in range(x.dim()) if d != 1]
        wide = x.detach().to(torch.float64 if x.dtype == torch.float64 else torch.float32)
        local = torch.cat([wide.sum(dims), (wide * wide).sum(dims), wide.new_tensor([x.numel() / max(1, channels)])])
        total = _add(local, group, f"{name}.forward")
        count = float(total[-1])
        mean = total[:channels] / count
        var = (total[channels:-1] / count - mean * mean).clamp_(min=0)
        scale = (var + eps).rsqrt()
        layer._note(mean, var, count)
        form = [1, channels] + [1] * (x.dim() - 2)
        mean, scale = mean.to(wide.dtype).view(form), scale.to(wide.dtype).view(form)
        hat = (wide - mean) * scale
        ctx.save_for_backward(hat, scale, weight)
        ctx.group, ctx.name, ctx.count, ctx.dims, ctx.form, ctx.kind = group, name, count, dims, form, x.dtype
        ctx.has_bias = bias is not None
        out = hat
        if weight is not None:
            out = out * weight.view(form)
        if bias is not None:
            out = out + bias.view(form)
        return out.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        hat, scale, weight = ctx.saved_tensors
        grad = grad.to(hat.dtype)
        d_bias = grad.sum(ctx.dims)
        d_weight = (grad * hat).sum(ctx.dims)
        total = _add(torch.cat([d_bias, d_weight]), ctx.group, f"{ctx.name}.backward").to(hat.dtype) / ctx.count
        n = d_bias.numel()
        dx = grad - total[:n].view(ctx.form) - hat * total[n:].view(ctx.form)
        dx = dx * scale
        if weight is not None:
            dx = dx * weight.view(ctx.form)
            d_weight = d_weight.to(weight.dtype)
        out_bias = d_bias.to(weight.dtype if weight is not None else ctx.kind) if ctx.has_bias else None
        return dx.to(ctx.kind), d_weight if weight is not None else None, out_bias, None, None, None, None


class SyncBatchNorm(_BatchNorm):
    """torch.nn.BatchNorm whose mean and variance are those of all ranks' batches together.

    Batches may differ in size between ranks. `SyncBatchNorm.convert(model)` replaces every BatchNorm of a model.

    >>> model = hora.torch.SyncBatchNorm.convert(model)
    """

    _made = 0

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, group: Group | None = None,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.group = group
        self.label = f"SyncBatchNorm.{SyncBatchNorm._made}"  # the same on all ranks that build the same model
        SyncBatchNorm._made += 1

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(
                f"SyncBatchNorm: expected at least 2D input (got {input.dim()}D input); the second dimension is the channels"
            )

    def _note(self, mean: torch.Tensor, var: torch.Tensor, count: float) -> None:
        """Move the running statistics towards this batch's."""
        if not self.track_running_stats or self.running_mean is None:
            return
        self.num_batches_tracked.add_(1)
        factor = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        unbiased = var * (count / max(1.0, count - 1))
        self.running_mean.lerp_(mean.to(self.running_mean), factor)
        self.running_var.lerp_(unbiased.to(self.running_var), factor)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        batch = self.training or self.running_mean is None
        group = self.group if self.group is not None else (comm.world() if comm.is_initialized() else None)
        if not batch or group is None or group.size == 1:
            if self.training and self.track_running_stats and self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
            momentum = self.momentum
            if momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked) if self.num_batches_tracked is not None else 0.0
            return functional.batch_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, batch, momentum, self.eps
            )
        return _Normalize.apply(input, self.weight, self.bias, self.eps, group, self.label, self)

    @classmethod
    def convert(cls, module: torch.nn.Module, group: Group | None = None) -> torch.nn.Module:
        """module with every BatchNorm layer replaced; parameters and running statistics are kept."""
        out = module
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            out = cls(
                module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, group
            )
            for key, value in module._parameters.items():
                out._parameters[key] = value
            for key, value in module._buffers.items():
                out._buffers[key] = value
            out.training = module.training
        for name, child in module.named_children():
            out.add_module(name, cls.convert(child, group))
        return out
