"""DistributedOptimizer: a torch optimizer whose step sees the gradients of all ranks.

The optimizer stays the object that it was, so that learning rate schedules and whatever else holds it go on working; its
class becomes one of the same name that is derived from its own. Where this rank has a core to spare, buckets are reduced
while backward still runs; otherwise all of them in `step`, which then costs one call.
"""

from __future__ import annotations

import contextlib
import copy
import copyreg
import threading
import warnings
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .. import _lib, _world, comm
from ..errors import ArgumentError, HoraError, MismatchError
from ..group import Group, Kind, Op
from . import _replicas
from ._channel import Channel
from ._cores import free_core
from ._delta import DeltaMixin
from ._scaler import teach
from ._tensor import code
from .buckets import Bucket, assign, finish
from .compression import Compression, Int8, PowerSGD, _Cast, choose

__all__ = ["DistributedOptimizer"]

_OVERLAP_BYTES = 8 << 20
_WHOLE_BYTES = 256 << 20
_MOST_BYTES = 1 << 60  # above any size of a bucket

if TYPE_CHECKING:
    from torch.optim import Optimizer as _Inner
else:
    _Inner = object

# How many optimizers have reduced over a group, by its ranks and its tag.
_numbers: dict[tuple, int] = {}

# Which wrapper watches a parameter, by the parameter's id; a living wrapper keeps its parameters alive.
_owners: dict[int, weakref.ref] = {}


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
        inner.__name__, (*mixins, inner), {"__module__": inner.__module__, "__doc__": inner.__doc__, "_hora_inner": inner}
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
        raise ValueError("named_parameters should be a sequence of tuples (name, parameter), usually produced by model.named_parameters().")
    seen: set[str] = set()
    double = {n for n, _ in named if n in seen or seen.add(n)}  # type: ignore[func-returns-value]
    if double:
        raise ValueError(f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(sorted(double))}")
    names = {p: n for n, p in named}
    missing = [p for p in params if p not in names]
    if missing:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. Python object ids: "
            + ", ".join(str(id(p)) for p in missing)
        )
    return names


class _Mixin(_Inner):
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
        self._scales = (1.0, 1.0)
        self._wire_op = op
        if predivide != 1.0:
            self._scales = (1.0 / predivide, predivide / group.size)
            self._wire_op = Op.SUM
        self._groups, self._num_groups = groups, num_groups
        self._sparse_as_dense = sparse_as_dense
        self._passes_per_step = passes
        self._overlap = group.size > 1 and (free_core() if overlap is None else overlap)
        self._bucket_bytes = bucket_bytes or (_OVERLAP_BYTES if self._overlap else _WHOLE_BYTES)
        self._passes = 0  # backward passes since the last reduction
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
        self._every = _replicas.asked()  # compare the ranks' parameters every so many steps; the most that a rank asks for
        self._steps = 0  # in this life of the world
        self._age = _lib.age
        self._watch()

    def _renew(self) -> None:
        """In another life of the world, as elastic training has: other ranks, and neither memory nor plans of the old one."""
        self._age = _lib.age
        self._group = self._hora_regroup(self._group)
        self._channel = Channel(self._group, self._channel.named)
        self._release()
        self._buckets, self._home, self._next, self._passes = None, {}, 0, 0
        self._synchronized = False
        self._cut = ""
        self._steps = 0
        self._watch()

    def _stale(self) -> bool:
        """Whether parameters have another type or place than their buckets; the next reduction makes new ones, on every rank."""
        if not any(bucket.stale() for bucket in self._buckets or ()):
            return False
        sent, self._next = self._next, 0
        for bucket in self._buckets:
            try:
                bucket.finish(self._channel)
            finally:
                bucket.close()
        self._buckets, self._home = None, {}
        if sent:
            raise ArgumentError(
                "step: parameters or gradients were moved or converted while gradients were on their way to the other ranks; "
                "call model.to() and the like before backward() or after step()"
            )
        return True

    def _release(self) -> None:
        """Give back hooks and plans."""
        self._unwatch()
        for bucket in self._buckets or ():
            bucket.close()

    # -- hooks

    def _trainable(self) -> list[torch.nn.Parameter]:
        return [p for g in self.param_groups for p in g["params"] if p.requires_grad]

    def _claim(self) -> list[torch.nn.Parameter]:
        """The parameters to watch; a wrapper that watched them before counts no more: elastic training wraps again in each life."""
        params = self._trainable()
        self._unwatch()
        for p in params:
            before = _owners.get(id(p))
            owner = before() if before is not None else None
            if owner is not None and owner is not self:
                owner._unwatch()
            _owners[id(p)] = weakref.ref(self)
        return params if self._channel.size > 1 else []

    def _watch(self) -> None:
        params = self._claim()
        # The first parameter's gradient comes last: it counts the passes. Only overlap needs to know of each one.
        if params:
            self._hooks = [params[0].register_post_accumulate_grad_hook(self._passed)]
        wanted = [p for p in params if self._overlap or (p in self._home and self._home[p].wants(p))]
        self._hooks += [p.register_post_accumulate_grad_hook(self._arrived) for p in wanted]
        self._arrivals: dict[torch.nn.Parameter, int] = {}

    def _unwatch(self) -> None:
        for h in self._hooks:
            h.remove()
        self._hooks = []

    def _passed(self, p: torch.nn.Parameter) -> None:
        self._passes += 1
        if self._passes > self._passes_per_step:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to step(). Increase "
                "backward_passes_per_step to accumulate gradients locally."
            )
        self._synchronized = False

    def _arrived(self, p: torch.nn.Parameter) -> None:
        """One gradient is complete; the bucket goes when all of its gradients are."""
        bucket = self._home.get(p)
        if bucket is None:
            return
        if self._sparse_as_dense and p.grad is not None and p.grad.is_sparse:
            self._thin.add(p)
        if bucket.takes:
            bucket.take(p)
        if not self._overlap:
            return
        with self._arriving:
            n = self._arrivals.get(p, 0) + 1
            self._arrivals[p] = n
            if n > self._passes_per_step and bucket.ticket:
                raise AssertionError(
                    f"The gradient of {self._names.get(p)} was computed more than backward_passes_per_step times before call to step(), "
                    "and may be on its way to the other ranks already. Increase backward_passes_per_step to accumulate gradients locally."
                )
            if n == self._passes_per_step:
                bucket.left -= 1
                if bucket.left == 0 and (self._next or not self._stale()):
                    self._submit_ready(wait_for_all=False)

    def _submit_ready(self, wait_for_all: bool) -> None:
        """Start the buckets that are complete, in their order, which is the same on every rank."""
        while self._next < len(self._buckets):
            bucket = self._buckets[self._next]
            if bucket.left and not wait_for_all:
                return
            bucket.collect()
            bucket.submit()
            self._next += 1

    # -- buckets

    def _open(self) -> None:
        """At the first reduction: agree on what is sparse, take memory, make the plans. Every rank does so."""
        self._sparse, self._custom = [], []
        self._place(self._trainable(), [])

    def _place(self, params: list[torch.nn.Parameter], buckets: list[Bucket], why: str = "parameters") -> None:
        """Say for each of these how its gradient is reduced, beside those that are in buckets. What fails changes nothing."""
        sparse, bucket_bytes = self._agree(params, why)
        rest = [p for p in params if id(p) not in sparse]
        custom: list[torch.nn.Parameter] = []
        compression = self._compression
        stateless = compression is Compression.none or (isinstance(compression, type) and issubclass(compression, _Cast))
        if not stateless and not isinstance(compression, (Int8, PowerSGD)):
            custom, rest = rest, []
        dtype = compression.dtype if isinstance(compression, type) and issubclass(compression, _Cast) else None
        groups = self._groups
        if groups is None and self._num_groups > 0:
            groups = _split(rest, self._num_groups)
        layout = assign(rest, groups, bucket_bytes)
        self._check_layout(layout, params)
        made = []
        self._prefix = f"gradient.{self._number}/" if self._number else "gradient."
        for i, members in enumerate(layout, len(buckets)):
            more = f"+{len(members) - 1}" if len(members) > 1 else ""
            bucket = Bucket(i, members, f"{self._prefix}{self._names.get(members[0], i)}{more}")
            bucket.open(self._channel, self._wire_op, *self._scales, dtype)
            if more:
                _world.parts(bucket.name, [self._names[p] for p in members if p in self._names])
            made.append(bucket)
        self._buckets = [*buckets, *made]
        self._sparse += [p for p in params if id(p) in sparse]
        self._custom += custom
        if not isinstance(compression, (Int8, PowerSGD)):
            self._home.update((p, bucket) for bucket in made for p in bucket.params)
        self._frozen = [p for g in self.param_groups for p in g["params"] if not p.requires_grad]
        self._watch()

    def _agree(self, params: list[torch.nn.Parameter], why: str) -> tuple[set[int], int]:
        """The parameters (ids) whose gradient is sparse on some rank, and the size of buckets that is the smallest on any."""
        sparse = [p.grad is not None and p.grad.is_sparse for p in params]
        key = (self._group.ranks, self._group.tag)
        number = _numbers.get(key, 0) if self._number < 0 else self._number
        first = _replicas.numbers(self) if why == "parameters" else []
        *top, smallest, self._number = self._greatest([*first, *map(int, sparse), _MOST_BYTES - self._bucket_bytes, number], why)
        _numbers[key] = max(_numbers.get(key, 0), self._number + 1)
        if first:
            _replicas.judge(self, top[: len(first)])
            top = top[len(first) :]
        found = {p for p, s in zip(params, top, strict=True) if s}
        if self._sparse_as_dense:
            self._thin |= found
            found = set()
        return set(map(id, found)), _MOST_BYTES - smallest

    def _check_layout(self, layout: list[list[torch.nn.Parameter]], params: list[torch.nn.Parameter]) -> None:
        """Ranks that put gradients together differently would wait for each other's memory: all of them raise this first."""
        place = {p: i for i, members in enumerate(layout, 1) for p in members}
        parts = [place.get(p, 0) + 1 for p in params]  # a joined rank's zeros are below everything
        ranks, most = self._group.size, len(params) + 3
        top = self._greatest([v * ranks + self._group.rank for at in parts for v in (at, most - at)], "buckets")
        for i, p in enumerate(params):
            (high, one), (low, other) = divmod(top[2 * i], ranks), divmod(top[2 * i + 1], ranks)
            if high != most - low:
                world = self._group.ranks
                raise MismatchError(
                    f"Mismatched buckets: the gradient of {self._names.get(p, i)} is in part {high - 1} on rank {world[one]} and in part "
                    f"{most - low - 1} on rank {world[other]}; give groups, num_groups and compression alike on every rank."
                )

    def _greatest(self, numbers: list[int], of: str) -> list[int]:
        """Each number's maximum over the ranks."""
        t = torch.tensor(numbers, dtype=torch.int64)
        at = t.data_ptr()
        self._channel.run(Kind.ALLREDUCE, Op.MAX, code(t), 0, at, at, len(numbers), name=f"DistributedOptimizer.{of}", keep=t)
        return t.tolist()

    # -- what users call

    @staticmethod
    def _hora_translate(error: BaseException) -> BaseException:
        """The horovod package raises its own classes instead."""
        return error

    def synchronize(self) -> None:
        """Reduce the gradients and wait; afterwards `.grad` holds the result (clip it, look at it)."""
        if self._age != _lib.age:
            self._renew()
        self._passes = 0
        if self._channel.size == 1:
            return
        if self._cut:
            raise RuntimeError(
                f"step: {self._cut} cut an earlier reduction of gradients short on rank {_world.world_info()['rank']}, whose parameters may "
                "differ from the others' now; call broadcast_parameters and DistributedOptimizer again on every rank, or end the job."
            )
        try:
            self._reduce()
        except MismatchError as error:
            said = str(error)
            if "tensor shapes" in said:
                said = f"{said.rstrip('.')}; a parameter that is frozen has no gradient: set requires_grad alike on every rank."
            raise self._hora_translate(MismatchError(said)) from None
        except HoraError as error:
            raise self._hora_translate(error) from None
        except BaseException as error:  # a signal handler's, most likely
            self._give_up(error)
            raise
        self._synchronized = True

    def _give_up(self, error: BaseException) -> None:
        """Gradients may be on their way for a while: leave them that memory, and this rank does not know what the others do now."""
        self._cut = f"{type(error).__name__}{f' ({error})' if str(error) else ''}"
        buckets, self._buckets, self._home, self._next = self._buckets or [], None, {}, 0
        for bucket in buckets:
            for p in bucket.params:
                p.grad = None
            bucket.close()
        self._watch()

    @staticmethod
    def _hora_regroup(group: Group) -> Group:
        """In another life of the world; the horovod package asks its process set."""
        return group

    def _hora_dress(self, made: Any) -> None:
        """What a copy of this optimizer has besides; the horovod package adds to it."""

    def _reduce(self) -> None:
        if self._sparse_as_dense:
            self._thin.update(p for p in self._home if p.grad is not None and p.grad.is_sparse)
        if self._buckets is None or self._stale():
            self._open()
        elif thawed := [p for p in self._frozen if p.requires_grad]:
            self._place(
                thawed, self._buckets, f"now trained: {self._names.get(thawed[0])}"
            )  # the others stay where they are: a backward pass may have started them
        elif self._every and self._steps % self._every == 0:
            _replicas.compare(self)
        self._steps += 1
        compression = self._compression
        if isinstance(compression, (Int8, PowerSGD)):
            self._reduce_lossy(compression)
        elif self._overlap:
            self._finish_buckets()
        else:
            for bucket in self._buckets:
                bucket.collect()
                bucket.reduce()
        if self._sparse or self._custom:
            from . import _rare

            _rare.reduce_sparse(self._channel, self._sparse, self._wire_op, *self._scales)
            _rare.reduce_custom(self._channel, self._custom, compression, self._wire_op, *self._scales, self._prefix, self._names)
        for p in self._thin:  # as SparseAdam wants it
            if (g := p.grad) is not None and not g.is_sparse:
                p.grad = None
                p.grad = g.to_sparse(1) if g.dim() else g

    def _finish_buckets(self) -> None:
        self._submit_ready(wait_for_all=True)
        self._next = 0
        for bucket in self._buckets:
            bucket.left = len(bucket.params)
        self._arrivals.clear()
        finish(self._buckets, self._channel)

    def _reduce_lossy(self, compression: Int8 | PowerSGD) -> None:
        average = self._op is Op.AVERAGE
        for bucket in self._buckets:
            bucket.collect()
            if isinstance(compression, Int8):
                compression.reduce(bucket.key, bucket.flat, average, self._channel)
                for gap in bucket.gaps:  # an infinite gradient reaches its whole block
                    gap.zero_()
            else:
                compression.reduce(bucket.key, bucket.flat, average, self._channel, bucket.views)

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
        self._passes_per_step = passes
        self._passes = 0
        self._arrivals = {}
        for bucket in self._buckets or ():
            bucket.left = len(bucket.params)

    @property
    def backward_passes_per_step(self) -> int:
        return self._passes_per_step

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
        """The ranks' loss, reduced as their gradients are: who evaluates until it is small enough stops on all of them at once."""
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
        """Pickled it is the optimizer that was wrapped: where it is loaded there need not be other ranks. Wrap it again there."""
        return copyreg._reconstructor, (self._hora_inner, object, None), self.__getstate__()  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: dict) -> Any:
        """A copy for copies of the parameters, reduced as this one is."""
        memo[id(self)] = made = object.__new__(self._hora_inner)
        made.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        made.__class__ = type(self)
        made._hora_setup(
            copy.deepcopy(self._names, memo), copy.deepcopy(self._compression, memo), self._passes_per_step, self._op, self._predivide, self._num_groups,
            copy.deepcopy(self._groups, memo), self._sparse_as_dense, self._group, self._overlap, self._bucket_bytes, self._channel.named,
        )  # fmt: skip
        self._hora_dress(made)
        return made

    # As torch's schedules mark the step that they watch: they look for it, and for `_opt_called`, whether they were made
    # before the wrapping or after. `hooked` keeps torch from running step hooks here and in the wrapped class again.
    step._wrapped_by_lr_sched = step.hooked = True  # type: ignore[attr-defined]

    def zero_grad(self, set_to_none: bool = True) -> None:
        if self._age != _lib.age:
            self._renew()
        if (self._passes >= self._passes_per_step or self._next) and self._channel.size > 1 and not self._synchronized:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition. Where another loss runs through these "
                "parameters, as a GAN's does, call requires_grad_(False) on their model for it."
            )
        if not self._home or self._stale():
            super().zero_grad(set_to_none)
            return
        for bucket in self._buckets:
            if set_to_none and bucket.large:
                for p in bucket.params:
                    p.grad = None
                continue
            if bucket.params[0].grad is not bucket.views[0]:
                bucket.collect()
            bucket.flat.zero_()
            if set_to_none:
                for p in bucket.params:
                    if not p.requires_grad:  # frozen since: no backward pass makes it a gradient
                        p.grad = None
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


def _split(params: list, n: int) -> list[list]:
    each, more = divmod(len(params), n)
    out, at = [], 0
    for i in range(n):
        k = each + (1 if i < more else 0)
        if k:
            out.append(params[at : at + k])
        at += k
    return out
