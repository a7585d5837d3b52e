"""What a rank does: Lightning's Trainer on this rank's rows, whose gradients are averaged over all ranks before each
step."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

from horovod.spark.lightning import older
from horovod.spark.lightning.legacy import Plain

__all__ = ["Answers", "Train"]


class Answers:
    """A trained module, which answers for a mapping of columns."""

    def __init__(self, module: Any, names: Sequence[str], shapes: Sequence[Any]) -> None:
        self.module, self.names, self.shapes = module, list(names), list(shapes)

    def __call__(self, columns: Any) -> Any:
        import torch

        from hora.spark.frontend import column_for_model

        with torch.no_grad():
            out = self.module(
                *[
                    torch.from_numpy(column_for_model(columns[n], s))
                    for n, s in zip(self.names, self.shapes, strict=True)
                ]
            )
        parts = list(out) if isinstance(out, (list, tuple)) else [out]
        return torch.cat([p.reshape(len(p), -1) for p in parts], dim=1).numpy()


class Train:
    """The function that hora.spark.Estimator calls on each rank."""

    def __init__(
        self,
        module: Any,
        names: Sequence[str],
        features: int,
        shapes: Sequence[Any],
        settings: dict[str, Any],
        callbacks: Sequence[Any],
        plain: Plain | None = None,
    ) -> None:
        self.plain = plain  # of a module that makes no steps itself
        self.module, self.names, self.features, self.shapes = module, list(names), features, list(shapes)
        self.settings, self.callbacks = settings, list(callbacks)

    def settled(self) -> str:
        """What hora.spark.Estimator says that a run is of."""
        from hora.spark.frontend import module_digest

        return module_digest(self.module)

    def __call__(self, t: Any) -> Answers:
        import torch

        try:
            import pytorch_lightning as lightning
            from pytorch_lightning.plugins.environments import LightningEnvironment
        except ImportError:
            import lightning.pytorch as lightning
            from lightning.pytorch.plugins.environments import LightningEnvironment

        import horovod.torch as hvd

        hvd.init()  # its names are what the module and its callbacks may ask too
        module, gpu = self.module, t.plan.gpu and torch.cuda.is_available()
        if self.plain is not None:
            module = self.plain.around(lightning, module, _mean_weight(t))
        settings = {
            "accelerator": "gpu" if gpu else "cpu", "devices": 1, "num_nodes": 1, "num_sanity_val_steps": 0,
            "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False,
            "plugins": [LightningEnvironment()],
        } | self.settings | {"max_epochs": t.epochs}  # fmt: skip
        keep = [c for c in self.callbacks if isinstance(c, lightning.callbacks.Checkpoint)]
        callbacks = [c for c in self.callbacks if c not in keep] + (
            [] if t.rank else keep
        )  # one writes files, the first
        if keep:
            settings["enable_checkpointing"] = not t.rank
        if t.rank:
            settings["logger"] = False
        torch.manual_seed(t.seed)
        rows = _Rows(t, self.names, self.shapes)
        if t.first < t.epochs:
            state = None if t.state is None else torch.load(io.BytesIO(t.state), map_location="cpu", weights_only=True)
            if state is not None:
                module.load_state_dict(state["model"])
            every = _every(lightning, t, state, rows)
            first, last = older.callbacks_for(lightning, module, callbacks)
            trainer = _trainer(lightning, every)(**settings, callbacks=[*first, every, *callbacks, *last])
            older.begun(lightning, trainer, callbacks)
            for name in (
                "ready",
                "started",
                "processed",
                "completed",
            ):  # so that the module's current_epoch is the run's
                setattr(trainer.fit_loop.epoch_progress.current, name, t.first)
            validates = (
                t.validation is not None
                and type(module).validation_step is not lightning.LightningModule.validation_step
            )
            every.all_validate(validates)
            own = module.on_train_epoch_end
            # The last place of an epoch that logs, before whatever watches a metric: schedulers, EarlyStopping.
            module.on_train_epoch_end = lambda *given: (own(*given), every.end_of_epoch(trainer, module))
            try:
                with older.hidden(lightning, module):
                    trainer.fit(module, _loader(rows), _loader(rows.held()) if validates else None)
            finally:
                del module.on_train_epoch_end
            every.whole()
        module.eval().cpu()
        if self.plain is None:
            module._trainer = None
        return Answers(self.module, self.names[: self.features], self.shapes[: self.features])


def _mean_weight(t: Any) -> float:
    """The mean of all ranks' rows' weights, 1 where they have none."""
    if not t.plan.weight:
        return 1.0
    rows = len(t.rows[t.plan.weight])
    return float(t.mean({"weight": float(t.rows[t.plan.weight].sum())}, rows)["weight"])


class _Rows:
    """This rank's steps as mappings from column to tensor; another order in each epoch, which is counted by whoever
    sees its end."""

    def __init__(self, t: Any, names: Sequence[str], shapes: Sequence[Any]) -> None:
        self.t, self.names, self.shapes, self.epoch = t, names, shapes, t.first

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for at in self.t.orders(self.epoch):
            yield self._made(self.t.rows, at)

    def __len__(self) -> int:
        return int(self.t.steps)

    def _made(self, columns: Any, at: Any) -> dict[str, Any]:
        import torch

        from hora.spark.frontend import column_for_model

        found = {
            n: torch.from_numpy(column_for_model(columns[n][at], s))
            for n, s in zip(self.names, self.shapes, strict=True)
        }
        if self.t.plan.weight:
            found[self.t.plan.weight] = torch.from_numpy(column_for_model(columns[self.t.plan.weight][at], None))
        return found

    def held(self) -> list[dict[str, Any]]:
        """The rows for validation, cut likewise."""
        t = self.t
        n, step = len(next(iter(t.validation.values()))), t.plan.validation_batch_size or t.batch_size
        cuts = [slice(a, a + step) for a in range(0, n, step)] if t.validation is not None else []
        return [self._made(t.validation, at) for at in cuts[: t.plan.validation_steps]]


def _loader(batches: Any) -> Any:
    """A DataLoader of whole batches."""
    import torch

    class Each(torch.utils.data.IterableDataset):
        def __iter__(self) -> Any:
            return iter(batches)

        def __len__(self) -> int:
            return len(batches)

    return torch.utils.data.DataLoader(Each(), batch_size=None)


def _trainer(lightning: Any, every: Any) -> Any:
    """A Trainer whose metrics are the ranks' averages wherever one is watched: ranks that went by their own would
    part."""

    class Trainer(lightning.Trainer):  # type: ignore[misc]
        @property
        def callback_metrics(self) -> Any:
            found = super().callback_metrics
            found.update(every.averages)
            return found

    return Trainer


def _every(lightning: Any, t: Any, state: Any, rows: _Rows) -> Any:
    """The callback that averages gradients, tells of epochs and keeps what a run goes on from."""
    import torch

    import hora
    import horovod.torch as hvd
    from hora.spark.frontend import average_buffers

    class Every(lightning.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.loss, self.rows, self.step, self.ended, self.together = 0.0, 0, 0, 0, False
            self.averages: dict[str, Any] = {}  # of what has been logged, until the next step
            self.own: dict[str, Any] = {}  # what they stand for
            self.logs: dict[str, float] | None = None  # of an epoch that has ended and is not kept yet

        def all_validate(self, validates: bool) -> None:
            """Whether every rank has rows to validate on, so that they can meet where they do."""
            self.together = all(hora.allgather_object(validates, name="horovod.spark.lightning.validates", named=True))

        def on_train_start(self, trainer: Any, module: Any) -> None:
            for optimizer, kept in zip(trainer.optimizers, state["optimizers"] if state else (), strict=False):
                optimizer.load_state_dict(kept)
            for each, kept in zip(trainer.lr_scheduler_configs, state["schedulers"] if state else (), strict=False):
                each.scheduler.load_state_dict(kept)

        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            self.keep(trainer, module)
            # What an epoch draws, such as a Dropout's masks, does not depend on where the run began.
            torch.manual_seed(t.draw_anew(t.first + self.ended))

        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, at: int) -> None:
            self.step = at
            self.clear(trainer)

        def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
            every = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
            for p in every:  # one that a rank's rows did not reach is reached on another
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
                if trainer.accumulate_grad_batches == 1:
                    p.grad.mul_(t.share(self.step))
            hvd.grouped_allreduce_([p.grad for p in every], op=hvd.Average, name="horovod.spark.lightning")

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, at: int) -> None:
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            if loss is not None:
                n = len(next(iter(batch.values())))
                self.loss, self.rows = self.loss + float(loss) * n, self.rows + n
            if any(c.reduce_on_plateau and c.interval == "step" for c in trainer.lr_scheduler_configs):
                self.average(trainer)

        def on_validation_start(self, trainer: Any, module: Any) -> None:
            if self.together:
                average_buffers(module)

        def on_validation_epoch_end(self, trainer: Any, module: Any) -> None:
            if self.together:
                self.average(trainer)

        def on_validation_end(self, trainer: Any, module: Any) -> None:
            if self.together:  # the module may have logged some more
                self.average(trainer)

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            self.average(trainer)

        def on_train_end(self, trainer: Any, module: Any) -> None:
            self.keep(trainer, module)

        def average(self, trainer: Any) -> dict[str, float]:
            """What the ranks have logged, averaged by rows; and their losses."""
            self.clear(trainer)
            held = 0 if t.validation is None else len(next(iter(t.validation.values())))
            found = {k: v for k, v in trainer.callback_metrics.items() if getattr(v, "numel", lambda: 1)() == 1}
            own = {k: float(v) for k, v in found.items()}
            if self.rows:
                own["loss"] = self.loss / self.rows
            told = hora.allgather_object(
                (own, self.rows, held, bool(trainer.should_stop)), name="horovod.spark.lightning.epoch", named=True
            )
            logs = {}
            for k in dict.fromkeys(k for each, *_ in told for k in each):
                shares = [(each[k], (h if "val" in k else n) or 1) for each, n, h, _ in told if k in each]
                logs[k] = sum(v * n for v, n in shares) / sum(n for _, n in shares)
            self.own, names = found, [k for k in logs if k != "loss" or k in found]
            self.averages = {k: torch.tensor(logs[k]) for k in names}
            self.stops = any(stops for *_, stops in told)
            return logs

        def clear(self, trainer: Any) -> None:
            """This rank's own again."""
            averages, self.averages = self.averages, {}
            found = trainer.callback_metrics
            for k, v in averages.items():
                if found.get(k) is v:
                    found.pop(k)
                    found.update({k: self.own[k]} if k in self.own else {})

        def end_of_epoch(self, trainer: Any, module: Any) -> None:
            """After all that logs, before what watches."""
            average_buffers(module)
            self.logs = self.average(trainer)
            trainer.should_stop = self.stops  # where one rank stops early, all do
            self.loss, self.rows, self.ended = 0.0, 0, self.ended + 1
            rows.epoch = t.first + self.ended  # Lightning need not take the last step's end from the loader

        def keep(self, trainer: Any, module: Any) -> None:
            """Tells of an epoch and keeps what goes on from it, after the schedulers that watch a metric have
            stepped."""
            if self.logs is None:
                return

            def kept() -> bytes:
                out = io.BytesIO()
                made = {
                    "model": module.state_dict(), "optimizers": [o.state_dict() for o in trainer.optimizers],
                    "schedulers": [c.scheduler.state_dict() for c in trainer.lr_scheduler_configs],
                }  # fmt: skip
                torch.save(made, out)
                return out.getvalue()

            logs, self.logs = self.logs, None
            t.end_epoch(t.first + self.ended - 1, logs, kept)

        def whole(self) -> None:
            """Lightning swallows some errors of its own and returns: a run without its epochs is none."""
            if not self.ended:
                raise RuntimeError(
                    "horovod.spark.lightning: Lightning's Trainer came back without an epoch; look above for what it said"
                )

    return Every()
