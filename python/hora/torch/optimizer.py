"""DistributedOptimizer: a torch optimizer whose step sees the gradients of all ranks.

The optimizer stays the object that it was, so that learning rate schedules and whatever else holds it go on working;
its class becomes one of the same name that is derived from its own. Where this rank has a core to spare, buckets are
reduced while backward still runs; otherwise all of them in `step`, which then costs one call.
"""

from __future__ import annotations

import contextlib
import copy
import copyreg
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from .. import _lib, _world, comm
from ..call import Kind, Op
from ..errors import HoraError, MismatchError
from ..gradients import Passes, cut_short, differs_in_shape, predivided
from ..group import Group
from . import _replicas
from ._channel import Channel
from ._cores import free_core
from ._delta import DeltaMixin
from ._placing import Placing
from ._scaler import teach
from ._tensor import code
from .buckets import Bucket
from .compression import Compression, choose

__all__ = ["DistributedOptimizer"]

_OVERLAP_BYTES = 8 << 20
_WHOLE_BYTES = 256 << 20


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: Op | str = Op.AVERAGE,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.nn.Parameter]] | None = None,
    sparse_as_dense: bool = False,
    group: Group | None = None,
    *,
    overlap: bool | None = None,
    bucket_bytes: int | None = None,
    named: bool = True,
) -> torch.optim.Optimizer:
    """Make `optimizer.step()` use the gradients reduced over all ranks of `group`; returns the optimizer.

    named_parameters: `model.named_parameters()`, so that errors and the timeline name gradients.
    compression: one of `hora.torch.Compression`, or its name: "none", "fp16", "bf16", "int8", "powersgd".
    backward_passes_per_step: so many backward passes are added up before one step.
    op: AVERAGE, SUM, or ADASUM, which steps locally first and combines the changes.
    gradient_predivide_factor: divide by it before the sum and by the rest of the average afterwards.
    num_groups, groups: a number of groups, or lists of parameters, that are reduced as units.
    sparse_as_dense: reduce sparse gradients as dense ones.
    group: reduce over these ranks only.
    overlap: reduce while backward still runs; None decides by the cores that this rank has.
    bucket_bytes: the most that one bucket of gradients holds.
    named: match by name whatever the order on the ranks, so that `hora.join()` works.

    >>> opt = hora.torch.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    """
    op = Op[op.upper()] if isinstance(op, str) else Op(op)
    if gradient_predivide_factor != 1.0 and op is not Op.AVERAGE:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if isinstance(groups, int) and not isinstance(groups, bool):
        num_groups, groups = groups, None
    if num_groups < 0:
        raise ValueError("groups should be a non-negative integer or a list of lists of parameters")
    group = comm.world() if group is None else group
    mixins = (DeltaMixin, _Mixin) if op is Op.ADASUM and group.size > 1 else (_Mixin,)
    chosen = choose(compression)
    teach()
    names = _names(optimizer, named_parameters)
    distributed: Any = optimizer
    if isinstance(optimizer, _Mixin):  # wrapped again: as if it had not been before
        distributed._release()
        distributed.__class__ = distributed._hora_inner
    inner = type(optimizer)
    distributed.__dict__.pop("step", None)  # a schedule's mark; the new class bears it itself
    distributed.__class__ = type(
        inner.__name__,
        (*mixins, inner),
        {"__module__": inner.__module__, "__doc__": inner.__doc__, "_hora_inner": inner},
    )
    distributed._hora_setup(
        names, chosen, backward_passes_per_step, op, gradient_predivide_factor,
        num_groups, groups, sparse_as_dense, group, overlap, bucket_bytes, named,
    )  # fmt: skip
    return distributed


def _names(optimizer: torch.optim.Optimizer, named_parameters: Any) -> dict[torch.nn.Parameter, str]:
    """The name of every parameter, checked."""
    params = [p for g in optimizer.param_groups for p in g["params"]]
    if named_parameters is None:
        return {p: f"parameter.{i}" for i, p in enumerate(params)}
    named = list(named_parameters)
    if any(not isinstance(n, tuple) for n in named):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced by model.named_parameters()."
        )
    seen: set[str] = set()
    double = {n for n, _ in named if n in seen or seen.add(n)}  # type: ignore[func-returns-value]
    if double:
        raise ValueError(
            f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(sorted(double))}"
        )
    names = {p: n for n, p in named}
    missing = [p for p in params if p not in names]
    if missing:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. Python object ids: "
            + ", ".join(str(id(p)) for p in missing)
        )
    return names


class _Mixin(Placing):
    """What is put before the wrapped optimizer's class."""

    _hora_inner: Any  # the wrapped optimizer's class

    def _hora_setup(
        self, names: dict, compression: Any, passes: int, op: Op, predivide: float, num_groups: int, groups: Any,
        sparse_as_dense: bool, group: Group, overlap: bool | None, bucket_bytes: int | None, named: bool,
    ) -> None:  # fmt: skip
        self._names = names
        self._number = -1  # tells this optimizer's gradients from those of others; agreed on at the first reduction
        self._compression = compression
        self._op = op
        self._group = group
        self._channel = Channel(group, named)
        self._predivide = predivide
        self._wire_op, *scales = predivided(op, predivide, group.size)
        self._scales = scales[0], scales[1]
        self._groups, self._num_groups = groups, num_groups
        self._sparse_as_dense = sparse_as_dense
        self._count = Passes(passes)
        self._overlap = group.size > 1 and (free_core() if overlap is None else overlap)
        self._bucket_bytes = bucket_bytes or (_OVERLAP_BYTES if self._overlap else _WHOLE_BYTES)
        self._should_synchronize = True
        self._synchronized = False
        self._scaled = False  # a GradScaler has had the gradients reduced
        self._buckets: Any = None  # a list of Bucket, from the first reduction on
        self._frozen: list[torch.nn.Parameter] = []  # had no gradient when the buckets were opened
        self._sparse: list[torch.nn.Parameter] = []
        self._thin: set[torch.nn.Parameter] = set()  # reduced as dense, but sparse again afterwards: sparse_as_dense
        self._custom: list[torch.nn.Parameter] = []
        self._home: dict[torch.nn.Parameter, Bucket] = {}
        self._next = 0  # the bucket to start next, while backward runs
        self._hooks: list[Any] = []
        self._arriving = threading.Lock()  # guards what hooks count: torch calls them on a thread for each device
        self._cut = ""  # what cut a reduction short
        self._every = (
            _replicas.asked()
        )  # compare the ranks' parameters every so many steps; the most that a rank asks for
        self._steps = 0  # in this life of the world
        self._age = _lib.age
        self._watch()

    def _renew(self) -> None:
        """In another life of the world, as elastic training has: other ranks, and neither memory nor plans of the old
        one."""
        self._age = _lib.age
        self._group = self._hora_regroup(self._group)
        self._channel = Channel(self._group, self._channel.named)
        self._release()
        self._buckets, self._home, self._next = None, {}, 0
        self._count.restart()
        self._synchronized = False
        self._cut = ""
        self._steps = 0
        self._watch()

    # -- what users call

    @staticmethod
    def _hora_translate(error: BaseException) -> BaseException:
        """The horovod package raises its own classes instead."""
        return error

    def synchronize(self) -> None:
        """Reduce the gradients and wait; afterwards `.grad` holds the result (clip it, look at it)."""
        if self._age != _lib.age:
            self._renew()
        self._count.reduced()
        if self._channel.size == 1:
            return
        if self._cut:
            rank = _world.world_info()["rank"]
            raise cut_short(
                "step", self._cut, "an earlier reduction of gradients", rank,
                "whose parameters may differ from the others' now; call broadcast_parameters and "
                "DistributedOptimizer again",
            )  # fmt: skip
        try:
            self._reduce()
        except MismatchError as error:
            raise self._hora_translate(differs_in_shape(error)) from None
        except HoraError as error:
            raise self._hora_translate(error) from None
        except BaseException as error:  # a signal handler's, most likely
            self._give_up(error)
            raise
        self._synchronized = True

    @staticmethod
    def _hora_regroup(group: Group) -> Group:
        """In another life of the world; the horovod package asks its process set."""
        return group

    def _hora_dress(self, made: Any) -> None:
        """What a copy of this optimizer has besides; the horovod package adds to it."""

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Inside, `step()` does not reduce: for a step after an explicit `synchronize()`."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Add up this many backward passes before each step from now on."""
        self._count.restart(passes)
        for bucket in self._buckets or ():
            bucket.left = len(bucket.params)

    @property
    def backward_passes_per_step(self) -> int:
        return self._count.per_step

    def step(self, closure: Any = None) -> Any:
        if closure is None:
            self._before_step()
            return super().step()

        def reduced() -> Any:
            """What the closure computes is reduced before the wrapped optimizer looks at it."""
            loss = closure()
            with torch.no_grad():
                self._before_step()
                return self._common(loss) if isinstance(self, torch.optim.LBFGS) else loss

        return super().step(reduced)

    def _common(self, loss: Any) -> Any:
        """The ranks' loss, reduced as their gradients are: who evaluates until it is small enough stops on all of them
        at once."""
        if self._channel.size == 1:
            return loss
        t = torch.tensor([float(loss)], dtype=torch.float64)
        op = Op.SUM if self._op is Op.SUM else Op.AVERAGE
        at = t.data_ptr()
        try:
            self._channel.run(Kind.ALLREDUCE, op, code(t), 0, at, at, 1, name="DistributedOptimizer.loss", keep=t)
        except HoraError as error:
            raise self._hora_translate(error) from None
        return loss.new_tensor(t.item()) if isinstance(loss, torch.Tensor) else t.item()

    def _before_step(self) -> None:
        if self._should_synchronize and not self._scaled:
            if self._synchronized:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(). "
                    "This can cause training slowdown. You may want to consider using optimizer.skip_synchronize() context if "
                    "you use optimizer.synchronize() in your code.",
                    stacklevel=3,
                )
            self.synchronize()
        self._synchronized = False
        self._opt_called = True

    # -- what a GradScaler calls

    def _hora_ready(self) -> None:
        """Before it looks at the gradients."""
        if self._should_synchronize and not self._synchronized:
            self.synchronize()
            self._scaled = True

    def _hora_found(self, found: Iterable[torch.Tensor]) -> None:
        """After it has: what it found in reduced gradients it found on every rank."""

    def _hora_stepped(self) -> None:
        """After a step, or none."""
        self._synchronized = self._scaled = False

    # -- copies

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickled it is the optimizer that was wrapped: where it is loaded there need not be other ranks. Wrap it again
        there."""
        return copyreg._reconstructor, (self._hora_inner, object, None), self.__getstate__()  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: dict) -> Any:
        """A copy for copies of the parameters, reduced as this one is."""
        memo[id(self)] = made = object.__new__(self._hora_inner)
        made.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        made.__class__ = type(self)
        made._hora_setup(
            copy.deepcopy(self._names, memo), copy.deepcopy(self._compression, memo), self._count.per_step, self._op,
            self._predivide, self._num_groups, copy.deepcopy(self._groups, memo), self._sparse_as_dense, self._group,
            self._overlap, self._bucket_bytes, self._channel.named,
        )  # fmt: skip
        self._hora_dress(made)
        return made

    # As torch's schedules mark the step that they watch: they look for it, and for `_opt_called`, whether they were
    # made before the wrapping or after. `hooked` keeps torch from running step hooks here and in the wrapped class
    # again.
    step._wrapped_by_lr_sched = step.hooked = True  # type: ignore[attr-defined]

    def zero_grad(self, set_to_none: bool = True) -> None:
        if self._age != _lib.age:
            self._renew()
        if (self._count.full or self._next) and self._channel.size > 1 and not self._synchronized:
            self._count.refuse_zeroing()
        if not self._home or self._stale():
            super().zero_grad(set_to_none)
            return
        for bucket in self._buckets:
            bucket.zero(set_to_none)
        for p in (*self._sparse, *self._thin):
            p.grad = None
        for p in self._frozen:  # by now they may have one
            if p.grad is not None:
                p.grad = None if set_to_none else torch.zeros_like(p.grad)

    def add_param_group(self, param_group: dict) -> None:
        super().add_param_group(param_group)
        if getattr(self, "_channel", None) is not None:
            added = self.param_groups[-1]["params"]
            for p in added:
                self._names.setdefault(p, f"parameter.{len(self._names)}")
            self._frozen += added  # the next reduction gives them buckets; those of the others may be under way
            self._watch()
