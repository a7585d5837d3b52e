"""What a rank does: Lightning's Trainer on this rank's rows, whose gradients are averaged over all ranks before each step."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["Answers", "Train"]


class Answers:
    """A trained module, which answers for a mapping of columns."""

    def __init__(self, module: Any, names: Sequence[str], shapes: Sequence[Any]) -> None:
        self.module, self.names, self.shapes = module, list(names), list(shapes)

    def __call__(self, columns: Any) -> Any:
        import torch

        from hora.spark import shaped

        with torch.no_grad():
            out = self.module(*[torch.from_numpy(shaped(columns[n], s)) for n, s in zip(self.names, self.shapes, strict=True)])
        parts = list(out) if isinstance(out, (list, tuple)) else [out]
        return torch.cat([p.reshape(len(p), -1) for p in parts], dim=1).numpy()


class Train:
    """The function that hora.spark.Estimator calls on each rank."""

    def __init__(
        self, module: Any, names: Sequence[str], features: int, shapes: Sequence[Any], settings: dict[str, Any], callbacks: Sequence[Any]
    ) -> None:
        self.module, self.names, self.features, self.shapes = module, list(names), features, list(shapes)
        self.settings, self.callbacks = settings, list(callbacks)

    def settled(self) -> str:
        """What hora.spark.Estimator says that a run is of."""
        from hora.spark import summary

        return summary(self.module)

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
        settings = {
            "accelerator": "gpu" if gpu else "cpu", "devices": 1, "num_nodes": 1, "num_sanity_val_steps": 0,
            "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False, "plugins": [LightningEnvironment()],
        } | self.settings | {"max_epochs": t.epochs}  # fmt: skip
        keep = [c for c in self.callbacks if isinstance(c, lightning.callbacks.Checkpoint)]
        callbacks = [c for c in self.callbacks if c not in keep] + ([] if t.rank else keep)  # one writes files, the first
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
            trainer = lightning.Trainer(**settings, callbacks=[every, *callbacks])
            for name in ("ready", "started", "processed", "completed"):  # so that the module's current_epoch is the run's
                setattr(trainer.fit_loop.epoch_progress.current, name, t.first)
            validates = t.validation is not None and type(module).validation_step is not lightning.LightningModule.validation_step
            trainer.fit(module, _loader(rows), _loader(rows.held()) if validates else None)
            every.whole()
        module.eval().cpu()
        module._trainer = None
        return Answers(module, self.names[: self.features], self.shapes[: self.features])


class _Rows:
    """This rank's steps as mappings from column to tensor; another order in each epoch, which is counted by whoever sees its end."""

    def __init__(self, t: Any, names: Sequence[str], shapes: Sequence[Any]) -> None:
        self.t, self.names, self.shapes, self.epoch = t, names, shapes, t.first

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for at in self.t.orders(self.epoch):
            yield self._made(self.t.rows, at)

    def __len__(self) -> int:
        return int(self.t.steps)

    def _made(self, columns: Any, at: Any) -> dict[str, Any]:
        import torch

        from hora.spark import shaped

        found = {n: torch.from_numpy(shaped(columns[n][at], s)) for n, s in zip(self.names, self.shapes, strict=True)}
        if self.t.plan.weight:
            found[self.t.plan.weight] = torch.from_numpy(shaped(columns[self.t.plan.weight][at], None))
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


def _every(lightning: Any, t: Any, state: Any, rows: _Rows) -> Any:
    """The callback that averages gradients, tells of epochs and keeps what a run goes on from."""
    import torch

    import hora
    import horovod.torch as hvd

    class Every(lightning.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.loss, self.rows, self.step, self.ended = 0.0, 0, 0, 0

        def on_train_start(self, trainer: Any, module: Any) -> None:
            for optimizer, kept in zip(trainer.optimizers, state["optimizers"] if state else (), strict=False):
                optimizer.load_state_dict(kept)
            for each, kept in zip(trainer.lr_scheduler_configs, state["schedulers"] if state else (), strict=False):
                each.scheduler.load_state_dict(kept)

        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            # What an epoch draws, such as a Dropout's masks, does not depend on where the run began.
            torch.manual_seed(t.draw_anew(t.first + self.ended))

        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, at: int) -> None:
            self.step = at

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

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            held = 0 if t.validation is None else len(next(iter(t.validation.values())))
            own = {k: float(v) for k, v in trainer.callback_metrics.items() if getattr(v, "numel", lambda: 1)() == 1}
            if self.rows:
                own["loss"] = self.loss / self.rows
            told = hora.allgather_object((own, self.rows, held), name="horovod.spark.lightning.epoch", named=True)
            logs = {}
            for k in dict.fromkeys(k for each, _, _ in told for k in each):
                shares = [(each[k], (h if "val" in k else n) or 1) for each, n, h in told if k in each]
                logs[k] = sum(v * n for v, n in shares) / sum(n for _, n in shares)
            self.loss, self.rows, self.ended = 0.0, 0, self.ended + 1
            rows.epoch = t.first + self.ended  # Lightning need not take the last step's end from the loader

            def kept() -> bytes:
                out = io.BytesIO()
                made = {
                    "model": module.state_dict(), "optimizers": [o.state_dict() for o in trainer.optimizers],
                    "schedulers": [c.scheduler.state_dict() for c in trainer.lr_scheduler_configs],
                }  # fmt: skip
                torch.save(made, out)
                return out.getvalue()

            stops = hora.allgather_object(bool(trainer.should_stop), name="horovod.spark.lightning.stop", named=True)
            trainer.should_stop = any(stops)  # where one rank stops early, all do
            t.end_epoch(t.first + self.ended - 1, logs, kept)

        def whole(self) -> None:
            """Lightning swallows some errors of its own and returns: a run without its epochs is none."""
            if not self.ended:
                raise RuntimeError("horovod.spark.lightning: Lightning's Trainer came back without an epoch; look above for what it said")

    return Every()
