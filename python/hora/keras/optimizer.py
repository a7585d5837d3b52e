"""A Keras optimizer whose gradients are averaged over all ranks before it does anything with them."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .. import _lib
from ..errors import ArgumentError
from ..gradients import apart
from ..group import Group, Op
from . import _backend, _compiled, which
from ._carried import again, carry

__all__ = ["DistributedOptimizer", "load_model"]


def _alone() -> bool:
    """Whether this process is no job's. A rank that has not joined must not train by itself: what is traced now would
    go on without the others when it has."""
    if _lib.world is not None:
        return False
    if int(os.environ.get("HORA_SIZE", "1")) > 1:
        raise _lib.no_world()
    return True


class Distributed:
    """What optimizers of either Keras have: which gradients are reduced, and how."""

    _hora: dict[str, Any]
    _hora_local: Mapping[int, Any] = MappingProxyType({})  # by id: a variable of Keras' is compared by value
    _hora_times = 1.0  # what every gradient is multiplied with
    _hora_scale_local = True
    _hora_alone = False  # this rank is in no group: its gradients are its own
    _hora_two = False  # it is Keras 2's

    def register_local_var(self, variable: Any) -> None:
        """The gradient of this variable stays each rank's own, divided by the number of ranks unless that is switched
        off."""
        # Past Keras' trackers, which would take what they see for their own variables.
        object.__setattr__(self, "_hora_local", {**self._hora_local, id(variable): variable})

    def _hora_reduce(self, grads: list[Any], variables: list[Any]) -> list[Any]:
        times, here = self._hora_times, [id(v) in self._hora_local for v in variables]
        backend = _backend.backend_of(self._hora_two)
        if _alone() or self._hora_alone:
            return grads if times == 1 else [g if g is None else _backend.scaled(g, times, backend) for g in grads]
        call = dict(self._hora) | {"backend": backend}
        call["postscale"] *= times
        by = times / _backend.ranks(call["group"], backend) if any(here) and self._hora_scale_local else times
        return apart(
            grads, here, lambda shared: _backend.reduce(shared, **call), lambda g: _backend.scaled(g, by, backend)
        )


class _Three(Distributed):
    """Keras 3: reduces before clipping, moving averages and the check for overflows, so that they see what all ranks
    agree on.

    That is in `apply`; where Keras adds several passes up, in the pass that applies them.
    """

    _hora_at: Any = ()  # the variables of the gradients that are being applied

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        grads = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        if grads and not self._hora_late():
            at = trainable_variables
            if at is None:
                at = self._trainable_variables  # type: ignore[attr-defined]
            grads = self._hora_reduce(grads, at)
        return super().apply(grads, trainable_variables)  # type: ignore[misc]

    def stateless_apply(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        """What JAX calls. One that scales the loss goes from here to the one inside it, past its own `apply`."""
        scaled = getattr(which.family(self).optimizers, "LossScaleOptimizer", None)
        if scaled is not None and isinstance(self, scaled) and "stateless_apply" in vars(scaled):
            grads = self._hora_reduce(list(grads), self._trainable_variables)
        return super().stateless_apply(optimizer_variables, grads, trainable_variables)  # type: ignore[misc]

    def _backend_apply_gradients(self, grads: Any, trainable_variables: Any) -> Any:
        object.__setattr__(self, "_hora_at", list(trainable_variables))
        return super()._backend_apply_gradients(grads, trainable_variables)  # type: ignore[misc]

    def _clip_gradients(self, grads: Any) -> Any:
        if self._hora_late():
            reduced = functools.partial(self._hora_reduce, variables=self._hora_at)
            if _backend.backend_of(False) == "jax":  # there Keras clips in each pass, and drops what comes of it
                steps = self.gradient_accumulation_steps  # type: ignore[attr-defined]
                applies = (self._iterations + 1) % steps == 0  # type: ignore[attr-defined]
                grads = _backend.branch(applies, reduced, list(grads))
            else:
                grads = reduced(list(grads))
        return super()._clip_gradients(grads)  # type: ignore[misc]

    def _hora_everywhere(self, finite: Any) -> Any:
        if _alone() or self._hora_alone:
            return finite
        return _backend.everywhere(finite, **(self._hora | {"backend": _backend.backend_of(False)}))

    def _hora_late(self) -> bool:
        return bool(self.gradient_accumulation_steps)  # type: ignore[attr-defined]


class _Around:
    """Keras 3's that scales the loss, around one that adds several passes up.

    That one is distributed, so that it reduces in the pass that applies them.
    Of each pass the ranks tell each other whether gradients are finite (`_agree_on_overflows`), since none may count a
    pass that another skips.
    """

    _hora_how: tuple[dict[str, Any], bool]

    def hora_distribute(self, call: dict[str, Any], scale_local: bool) -> None:
        """Put a distributed one in the place of the optimizer inside, which has no variables yet."""
        inside = self.inner_optimizer  # type: ignore[has-type]
        made = again(_mixed(_Three, type(inside)), inside)
        _settings(made, call, scale_local)
        self.inner_optimizer = made
        type(self)._hora_how = call, scale_local

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        made = super().from_config(config, custom_objects=custom_objects)  # type: ignore[misc]
        if "_hora_how" in vars(cls):
            made.hora_distribute(*cls._hora_how)
        return made

    def register_local_var(self, variable: Any) -> None:
        """See Distributed."""
        self.inner_optimizer.register_local_var(variable)


class _Two(Distributed):
    """Keras 2: reduces where gradients of several replicas become one, which is before clipping, and before overflows
    are looked for.

    The first name is that of optimizers since 2.11, the other that of the older ones, `keras.optimizers.legacy`.
    """

    _hora_two = True

    def aggregate_gradients(self, grads_and_vars: Any) -> Any:
        pairs = list(grads_and_vars)
        grads, held = [g for g, _ in pairs], [v for _, v in pairs]
        if not pairs:
            return pairs
        return list(zip(self._hora_reduce(grads, held), held, strict=True))

    _aggregate_gradients = aggregate_gradients


def DistributedOptimizer(
    optimizer: Any, op: Op | str = Op.AVERAGE, *, group: Group | None = None, compression: Any = None,
    sparse_as_dense: bool = False,
    prescale: float = 1.0, postscale: float = 1.0, scale_local: bool = True, named: bool = False,
) -> Any:  # fmt: skip
    """`optimizer` with its gradients averaged over all ranks, in one call a step.

    With `gradient_accumulation_steps` that is one step of the optimizer, not each pass. Variables given to
    `register_local_var` keep each rank's own gradients, divided by the number of ranks so that they weigh as much as
    the others' (not with `scale_local=False`).

    The result has the wrapped one's class name, module and configuration: a saved model loads where hora is not. What
    it has learned so far (a resumed optimizer's variables) is copied; in Keras 2 the two share it. Attributes that the
    configuration lacks are copied too. `compression` is None, "fp16" or "bf16".

    >>> model.compile(hora.keras.DistributedOptimizer(keras.optimizers.Adam(1e-3)), loss="mse")
    """
    call = {
        "op": op, "group": group, "prescale": prescale, "postscale": postscale, "compression": compression,
        "sparse_as_dense": sparse_as_dense,
        "named": named,
    }  # fmt: skip
    found = which.family(optimizer)
    if not hasattr(optimizer, "apply_gradients") or found is None:
        raise ArgumentError(
            f"DistributedOptimizer: {type(optimizer).__name__} is no Keras optimizer; pass keras.optimizers.Adam(…) or the like"
        )
    if isinstance(which.inner(optimizer), Distributed) or isinstance(optimizer, Distributed):
        raise ArgumentError("DistributedOptimizer: this optimizer is one already")
    call["compression"] = _backend.compressed(compression, _backend.backend_of(which.two(optimizer)))
    if which.two(optimizer):
        _compiled.mind(found, _is_ours)
        return _of_two(optimizer, call, scale_local)
    scaled = getattr(found.optimizers, "LossScaleOptimizer", None)
    if scaled is not None:
        _agree_on_overflows(scaled)
    if scaled is not None and found.config.dtype_policy().name == "mixed_float16" and not isinstance(optimizer, scaled):
        # compile() would put it around ours: each rank would look for overflows in its own gradients, and ranks would
        # part.
        optimizer = scaled(optimizer)
    if scaled is not None and isinstance(optimizer, scaled) and optimizer.gradient_accumulation_steps:  # of Keras 3.3
        raise ArgumentError(
            "DistributedOptimizer: a LossScaleOptimizer adds no passes up itself; give gradient_accumulation_steps to the optimizer inside it"
        )
    if scaled is not None and isinstance(optimizer, scaled) and optimizer.inner_optimizer.gradient_accumulation_steps:
        made = again(_mixed(_Around, type(optimizer)), optimizer)
        made.hora_distribute(call, scale_local)
    else:
        made = again(_mixed(_Three, type(optimizer)), optimizer)
        _settings(made, call, scale_local)
    if _backend.backend_of(False) == "tensorflow":
        _compiled.mind(found, _is_ours)
    if optimizer.built:
        made.build(optimizer._trainable_variables)
        for new, old in zip(made.variables, optimizer.variables, strict=True):
            new.assign(old)
        carry(optimizer, made)  # what the class makes in build() goes before what it has become since
    return made


def _is_ours(optimizer: Any) -> bool:
    return isinstance(optimizer, Distributed)


def _agree_on_overflows(scaled: Any) -> None:
    """Has one that scales the loss, put around one of ours later, ask all ranks whether gradients are finite.

    compile() does so where the policy was set late. Each rank would skip its own steps, and meet the others' next ones.
    """
    alone = getattr(scaled, "check_finite", None)
    if alone is None or hasattr(alone, "_hora"):
        return

    @functools.wraps(alone)
    def check_finite(self: Any, grads: Any) -> Any:
        finite, inside = alone(self, grads), self.inner_optimizer
        return inside._hora_everywhere(finite) if isinstance(inside, _Three) else finite

    check_finite._hora = True  # type: ignore[attr-defined]
    scaled.check_finite = check_finite


def _mixed(own: type, cls: type) -> Any:
    """A class of the same name and module that has our methods first."""
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, (own, cls), names)


def _settings(made: Any, call: dict[str, Any], scale_local: bool) -> None:
    """For all of its class, which is this optimizer's alone: what its from_config() makes is distributed likewise."""
    cls = type(made)
    cls._hora, cls._hora_scale_local = call, scale_local


def _of_two(optimizer: Any, call: dict[str, Any], scale_local: bool) -> Any:
    """Of an optimizer of Keras 2. One that scales the loss asks the one inside it for the average, and looks for
    overflows in that."""
    inside = which.inner(optimizer)
    cls = _mixed(_Two, type(inside))
    if which.built(inside):  # it keeps no list of what it was built for: the new one goes on with the same variables
        made = copy.copy(inside)
        object.__setattr__(made, "__class__", cls)
    else:
        made = again(cls, inside)
    _settings(made, call, scale_local)
    if inside is optimizer:
        return made
    object.__setattr__(made, "_is_wrapped_by_loss_scale_optimizer", False)
    config = optimizer.get_config() | {"inner_optimizer": made}
    around = type(optimizer)(
        **{k: config[k] for k in ("inner_optimizer", "dynamic", "initial_scale", "dynamic_growth_steps")}
    )
    object.__setattr__(around, "register_local_var", made.register_local_var)
    return around


def load_model(filepath: Any, custom_objects: dict[str, Any] | None = None, **options: Any) -> Any:
    """keras.models.load_model, with the saved optimizer made distributed; `options` are DistributedOptimizer's.

    >>> model = hora.keras.load_model("last.keras")
    """
    model = which.keras.models.load_model(filepath, custom_objects=custom_objects)
    optimizer = getattr(model, "optimizer", None)
    if (
        optimizer is not None
        and not isinstance(which.inner(optimizer), Distributed)
        and not isinstance(optimizer, Distributed)
    ):
        model.optimizer = DistributedOptimizer(optimizer, **options)
    return model
