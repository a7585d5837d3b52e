"""A rank's part in an Estimator's fit: its rows as arrays, equal steps on all ranks, epochs that are told, kept and
gone on from."""

from __future__ import annotations

import json
import pickle
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

import hora

from ..errors import ArgumentError, HoraError
from . import _events, _store, _work
from ._rows import batches
from ._tables import Columns, Layout, columns_of, rows_of, take

Batch = tuple[Any, Any, Any]  # inputs, targets, weights

if TYPE_CHECKING:
    from ._validator import Validator

__all__ = ["ORDER", "VALID", "Plan", "Training", "work"]

WHO = "Estimator.fit"
ORDER, VALID = (
    "hora_order",
    "hora_validation",
)  # columns that the driver adds: a number that a row's values make, and which rows validate

_PIECE = 1 << 16  # rows that are taken from Spark's task at a time


@dataclass
class Plan:
    """What is the same on all ranks."""

    kind: str  # torch, keras or function
    blob: bytes  # pickled: what the kind trains with
    features: tuple[str, ...]
    labels: tuple[str, ...]
    shapes: tuple[tuple[int, ...] | None, ...] | None  # of each feature, where each is an input of its own
    label_shapes: tuple[tuple[int, ...] | None, ...] | None
    weight: str | None
    class_weight: dict[float, float] | None
    validates: bool
    batch_size: int
    epochs: int
    learning_rate: float | None
    seed: int
    shuffle: bool
    passes: int = 1
    steps: int | None = None  # of an epoch, at most
    validation_steps: int | None = None
    validation_batch_size: int | None = None
    compression: str | None = None
    gpu: bool = True
    store: str | None = None
    storage: dict[str, Any] | None = None  # what fsspec is given besides the store's URL; it may hold secrets
    run: str = ""
    seal: str = ""  # what the driver wrote into the run's folder
    settled: dict[str, Any] = field(default_factory=dict)  # what may not change between the parts of a run
    keeps_optimizer: bool = False  # whether the torch kind gives the optimizer's state too
    word: str = ""  # what marks a line for the driver


def work(plan: Plan) -> dict[str, Any] | None:
    """What a rank does; rank 0 returns what was learned."""
    validator = None
    if plan.validates and plan.kind == "torch":
        from ._validator import Validator

        validator = Validator(plan.blob)  # before there are threads and connections
    hora.init()
    try:
        training = Training(plan, validator)
        if plan.kind == "torch":
            from . import _fit_torch

            made = _fit_torch.fit(training)
        elif plan.kind == "keras":
            from . import _fit_keras

            made = _fit_keras.fit(training)
        else:
            made = _call(training)
    except ModuleNotFoundError as e:
        raise HoraError(f"{WHO}: {_work.say(e)}") from e
    finally:
        if validator is not None:
            validator.close()
    if hora.rank() != 0:
        return None
    assert made is not None
    training.leave(made)
    return made | {"history": training.history, "ranks": hora.size(), "rows": int(training.counts.sum())}


def _call(training: Training) -> dict[str, Any] | None:
    """The user's own function; what it returns on rank 0 is the model."""
    from . import _net, _travel

    function = training.given["model"]
    model = function(training)
    if hora.rank() != 0:
        return None
    if model is None:
        raise ArgumentError(
            f"{WHO}: the function {getattr(function, '__name__', function)!r} returned nothing; let it return the model"
        )
    few = {n: training.rows[n][:2] for n in training.plan.features}
    outputs = _net.asked_other(model, few, training.plan.features, training.layout).shape[1]
    return {"model": _travel.pickled_with_code(model, "the fitted model"), "outputs": (outputs,), "files": {}}


class Training:
    """What a training function gets: this rank's rows, equal steps, and where it goes on from.

    rows, validation: mappings from column to NumPy array (lists as matrices); `validation` is None without one.
    batches(epoch): (x, y, w) for each step, as many on every rank; x is the matrix of features as float32, or a list
    with
        `shapes`, y the labels (None without a label), w the weights (None without).
    first, epochs: the epochs to go through, `range(training.first, training.epochs)`; first is 0 but for a run that
        goes on.
    state: what `end_epoch` was given as state at last, as bytes, or None.
    draw_anew(epoch): to be called as an epoch begins: what it draws with random and NumPy is the same in a run that
        goes on; the seed that it returns is for the framework's own draws.
    share(step): how much this rank's mean of a step weighs, so that the ranks' average is the mean of all their rows.
    end_epoch(epoch, logs, state): to be called on all ranks; `state` is a function that returns bytes to go on from.
    """

    def __init__(self, plan: Plan, validator: Validator | None = None) -> None:
        self._validator = validator
        self._given: tuple[Any, ...] = ()
        self._model: Callable[[], bytes] | None = None
        self.plan, self.rank, self.size = plan, hora.rank(), hora.size()
        self.epochs, self.batch_size, self.learning_rate, self.seed = (
            plan.epochs,
            plan.batch_size,
            plan.learning_rate,
            plan.seed,
        )
        self.given: dict[str, Any] = pickle.loads(plan.blob)
        self._keep = _store.Store(plan.store, plan.storage) if plan.store is not None and self.rank == 0 else None
        self._events = None if self._keep is None else _events.of(plan.kind, self._keep, plan.run)
        self.first, self.state, self.history = self._restored()
        self.rows, self.validation = self._taken()
        self.counts = self._counted(rows_of(self.rows))
        if not self.counts.all():
            raise ArgumentError(
                f"{WHO}: rank {int(np.argmin(self.counts))} has no rows to train on, of {int(self.counts.sum())} for {self.size} ranks; give a "
                "smaller np" + (", or validate on fewer" if plan.validates else "")
            )
        valid = self._counted(0 if self.validation is None else rows_of(self.validation))
        if plan.validates and not valid.any():
            raise ArgumentError(
                f"{WHO}: validation leaves no row to validate on; give a larger part, or a column with some that are true"
            )
        self.layout = self._layout()
        self.weights = self._weighed(self.rows)
        self._mean_weight = self._mean(self.weights, int(self.counts.sum()), "all rows")
        held = 0 if self.validation is None else min(rows_of(self.validation), self._most_validated())
        self._held_weight = 1.0
        if plan.validates:
            own = None if self.validation is None else self._weighed(self.validation)
            several = int(self._counted(held).sum())
            self._held_weight = self._mean(None if own is None else own[:held], several, "the rows that validate")
        most = int(-(-int(self.counts.max()) // plan.batch_size))
        self._cuts = min(most, int(self.counts.min()))  # every rank has a row for each step
        self.steps = self._cuts if plan.steps is None else min(self._cuts, plan.steps)

    def _restored(self) -> tuple[int, bytes | None, list[dict[str, float]]]:
        """Where the run goes on: the first epoch, the state and the history. Rank 0 reads, and tells the others."""
        if self.plan.store is None:
            return 0, None, []
        said: Any = None
        if self._keep is not None:
            try:
                said = _store.restore(self._keep, self.plan)
            except Exception as e:  # all ranks say it, instead of waiting for this one
                said = (
                    e
                    if isinstance(e, HoraError)
                    else HoraError(f"{WHO}: the store {self.plan.store}: {type(e).__name__}: {e}")
                )
        said = hora.broadcast_object(said, 0, name="hora.spark.restored", named=True)
        if isinstance(said, Exception):
            raise said
        return said

    def _taken(self) -> tuple[Columns, Columns | None]:
        import pyarrow as pa

        table = pa.Table.from_batches([b for b in batches(_PIECE, last="short") if b.num_rows])
        columns = columns_of(table, None, WHO)
        marks = columns.pop(ORDER)
        columns = take(columns, np.argsort(marks, kind="stable"))  # Spark hands rows over in any order
        # Which part of the table this is: the same in every part of a run, as the rank that gets it is not.
        self.part = int(np.argsort(np.argsort(self._counted(int(marks.min())), kind="stable"))[self.rank])
        valid = columns.pop(VALID, None)
        given = None if valid is None else take(columns, valid.astype(bool))
        rows = columns if valid is None else take(columns, ~valid.astype(bool))
        change = self.given.get("transform")
        if change is not None:
            rows = columns_of(change(rows), None, f"{WHO}: transform")
            given = (
                columns_of(change(given), None, f"{WHO}: transform") if given is not None and rows_of(given) else None
            )
        return rows, given if given is not None and rows_of(given) else None

    def _counted(self, mine: int) -> np.ndarray:
        """Everybody's number."""
        numbers = np.zeros(self.size, dtype=np.int64)
        numbers[self.rank] = mine
        return np.asarray(hora.allreduce(numbers, hora.SUM, name="hora.spark.counted", named=True))

    def _layout(self) -> Layout:
        for name in (*self.plan.features, *self.plan.labels):
            if name not in self.rows:
                raise ArgumentError(
                    f"{WHO}: transform gives no column {name!r}; return it, or name others in features= and label="
                )
        if self.plan.kind == "function":
            numbers = [n for n in self.plan.features if self.rows[n].dtype.kind in "fiub"]
            return Layout.of(self.rows, numbers, WHO)
        return Layout.of(self.rows, self.plan.features, WHO)

    def _weighed(self, columns: Columns) -> np.ndarray | None:
        plan = self.plan
        found = columns[plan.weight].astype(np.float32) if plan.weight else None
        if plan.class_weight:
            labels = columns[plan.labels[0]]
            known = {float(k): float(v) for k, v in plan.class_weight.items()}
            each = np.array([known.get(float(v), 1.0) for v in labels], dtype=np.float32)
            found = each if found is None else found * each
        return found

    def _mean(self, weights: np.ndarray | None, rows: int, what: str) -> float:
        """The mean weight of all ranks' rows: weights are divided by it, so that only their ratios matter."""
        if not (self.plan.weight or self.plan.class_weight):
            return 1.0
        total = 0.0 if weights is None else float(np.sum(weights, dtype=np.float64))
        total = float(hora.allreduce(total, hora.SUM, name=f"hora.spark.weights of {what}", named=True))
        if not total > 0:
            raise ArgumentError(f"{WHO}: the weights of {what} sum up to {total}; give some that are above 0")
        return total / rows

    def _most_validated(self) -> int:
        """How many of a rank's rows are validated on at most."""
        step, steps = self.plan.validation_batch_size or self.batch_size, self.plan.validation_steps
        return sys.maxsize if steps is None else steps * step

    def inputs(self, columns: Columns) -> Any:
        """The features as what the model is given: one matrix, or a list with one array for each column."""
        from . import _net

        return _net.inputs(columns, self.layout, self.plan.shapes)

    def targets(self, columns: Columns) -> Any:
        """The labels likewise: one array, a list where there are several, None where there are none."""
        if not self.plan.labels:
            return None
        from . import _net

        shapes = self.plan.label_shapes
        found = [
            _net.column_for_model(columns[n], None if shapes is None else shapes[i])
            for i, n in enumerate(self.plan.labels)
        ]
        return found[0] if len(found) == 1 else found

    def orders(self, epoch: int) -> list[np.ndarray]:
        """Which rows make each step of an epoch; the same for the same seed, epoch and rows."""
        n = rows_of(self.rows)
        order = (
            np.random.default_rng([self.seed, epoch, self.part]).permutation(n) if self.plan.shuffle else np.arange(n)
        )
        return np.array_split(order, self._cuts)[: self.steps]

    def draw_anew(self, epoch: int) -> int:
        """Begins what an epoch draws besides the order of rows: the same in a run that goes on. The seed, for the
        framework's own."""
        seed = int(np.random.SeedSequence([self.seed, epoch, self.part]).generate_state(1)[0]) & 0x7FFFFFFF
        random.seed(seed)
        np.random.seed(seed)
        return seed

    def share(self, step: int) -> float:
        """What this rank's mean of a step weighs, so that the ranks' average is the mean of all rows."""
        sizes = self.counts // self._cuts + (step < self.counts % self._cuts)
        return float(sizes[self.rank] * self.size / sizes.sum())

    def batches(self, epoch: int) -> Iterator[tuple[Any, Any, np.ndarray | None]]:
        """The steps of an epoch."""
        for at in self.orders(epoch):
            yield self.cut(self.rows, at, self.weights, self._mean_weight)

    def cut(
        self, columns: Columns, at: Any, weights: np.ndarray | None, mean: float = 1.0
    ) -> tuple[Any, Any, np.ndarray | None]:
        """Some rows as (x, y, w); mean: of the weights of all such rows."""
        some = take(columns, at)
        return self.inputs(some), self.targets(some), None if weights is None else weights[at] / np.float32(mean)

    def validation_parts(self) -> tuple[list[slice], Callable[[slice], Batch]]:
        """Which of this rank's rows make each batch of validation, and what makes it; there may be none."""
        held = self.validation
        if held is None:
            return [], lambda part: (None, None, None)
        n, weights = rows_of(held), self._weighed(held)
        step = self.plan.validation_batch_size or self.batch_size
        parts = [slice(at, min(at + step, n)) for at in range(0, n, step)]
        return parts[: self.plan.validation_steps], lambda part: self.cut(held, part, weights, self._held_weight)

    def validation_batches(self) -> Iterator[Batch]:
        """This rank's rows for validation, which may be none."""
        parts, batch = self.validation_parts()
        yield from map(batch, parts)

    def mean(self, sums: dict[str, float], rows: float) -> dict[str, float]:
        """Means over all ranks of what each has summed up over its rows; none where there are no rows at all."""
        names = sorted(sums)
        both = np.array([*[sums[n] for n in names], rows], dtype=np.float64)
        both = np.asarray(hora.allreduce(both, hora.SUM, name="hora.spark.mean " + " ".join(names), named=True))
        return {n: float(v / both[-1]) for n, v in zip(names, both[:-1], strict=True)} if both[-1] else {}

    @property
    def validates(self) -> bool:
        """Whether a process of its own evaluates rows for validation."""
        return self._validator is not None

    def validate_with(self, given: tuple[Any, ...], model: Callable[[], bytes]) -> None:
        """What that process needs: all that stays the same, and a function that gives the model's state after an
        epoch."""
        self._given, self._model, self.validation = given, model, None
        if self.history and "val_loss" not in self.history[-1]:  # the run ended beside this epoch's validation
            self._begin()

    def _begin(self) -> None:
        assert self._validator is not None and self._model is not None
        self._validator.begin(self._given, self._model())
        self._given = ()  # which it has

    def settle(self) -> None:
        """Waits for the validation that is under way, if one is, and tells of its epoch. To be called on all ranks."""
        if self._validator is not None and self._validator.busy:
            sums, rows = self._validator.end()
            self.history[-1] |= {f"val_{k}": v for k, v in self.mean(sums, rows).items()}
            self._tell()

    def end_epoch(self, epoch: int, logs: dict[str, float], state: Callable[[], bytes] | None = None) -> None:
        """To be called on all ranks after each epoch: its metrics go to the driver, its state into the store."""
        self.settle()
        self.history.append({"epoch": epoch + 1, **{k: float(v) for k, v in logs.items()}})
        if self._model is not None:
            self._begin()  # beside the next epoch's steps
        else:
            self._tell()
        if self._keep is not None and state is not None:
            _store.checkpoint(self._keep, self.plan, epoch + 1, self.history, state())

    def _tell(self) -> None:
        if self.rank == 0:
            said = {"epochs": self.epochs, "run_id": self.plan.run, **self.history[-1]}
            sys.stdout.write(f"{self.plan.word}{json.dumps(said)}\n")
            sys.stdout.flush()
            if self._events is not None:
                self._events.add(self.history[-1])

    def leave(self, made: dict[str, Any]) -> None:
        """The files of a fitted model, into the run's folder."""
        if self._keep is not None:
            if self._events is not None:
                self._events.close()
            for name, data in made.get("files", {}).items():
                self._keep.write(f"runs/{self.plan.run}/{name}", data)
            self._keep.write(f"runs/{self.plan.run}/history.json", json.dumps(self.history, indent=1).encode())
