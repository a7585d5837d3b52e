"""horovod.spark.lightning: what watches a metric sees the ranks' average, so that ranks stay alike."""

from __future__ import annotations

import sys

import beside
import numpy as np
import pytest
from sample import longer

from hora.spark import _cluster

torch = pytest.importorskip("torch")


@longer
@pytest.mark.parametrize("interval", ["epoch", "step"])
def test_a_scheduler_that_watches_a_metric_steps_alike_on_all_ranks(spark, tmp_path, monkeypatch, interval):
    """And goes on as if the run had not ended."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(beside.folder("trainers"))])
    import horovod.spark.lightning as hvd
    import pytorch_lightning
    from horovod.spark.common.store import Store

    class Module(pytorch_lightning.LightningModule):
        def __init__(self, told):
            super().__init__()
            self.inner, self.told, self.sums = torch.nn.Linear(2, 1), told, []

        def forward(self, x):
            return self.inner(x)

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.5)
            scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
            watched = {"scheduler": scheduler, "monitor": "watched", "interval": interval}
            return {"optimizer": optimizer, "lr_scheduler": watched}

        def training_step(self, batch, batch_idx):
            loss = torch.nn.functional.mse_loss(self(batch["x"])[:, 0], batch["y"])
            self.sums.append(float(loss))
            if interval == "step":
                self.log("watched", loss, on_step=True, on_epoch=False, batch_size=len(batch["y"]))
            return loss

        def on_train_epoch_end(self):
            if interval == "epoch":
                self.log("watched", sum(self.sums) / len(self.sums))
            self.sums = []

        def on_train_end(self):
            import horovod.torch as hvd

            rates = [group["lr"] for o in self.trainer.optimizers for group in o.param_groups]
            torch.save((rates, self.inner.state_dict()), f"{self.told}/{hvd.rank()}")

    _cluster.wait_for_slots(spark, 4, 90, print)
    x = np.random.default_rng(0).normal(size=(120, 2))
    noise = np.random.default_rng(1).normal(size=120)
    rows = [([float(a), float(b)], float(a - b + c)) for (a, b), c in zip(x, noise, strict=True)]
    table = spark.createDataFrame(rows, "x array<double>, y double")
    torch.manual_seed(1)
    weights = Module("").inner.state_dict()

    def fitted(run, epochs):
        told = tmp_path / f"told-{run}-{epochs}"
        told.mkdir()
        module = Module(str(told))
        module.inner.load_state_dict(weights)
        made = hvd.TorchEstimator(
            num_proc=2, store=Store.create(str(tmp_path)), model=module, input_shapes=[[-1, 2]], feature_cols=["x"],
            label_cols=["y"], batch_size=20, epochs=epochs, verbose=0, run_id=run, random_seed=5,
        ).fit(table)  # fmt: skip
        (rate, mine), (other_rate, others) = (torch.load(told / str(rank)) for rank in (0, 1))
        print(run, rate, other_rate, [mine[k].sum().item() for k in mine], [others[k].sum().item() for k in others])
        assert rate == other_rate and rate[0] < 0.5
        assert all(torch.equal(mine[k], others[k]) for k in mine)
        return made, rate

    whole, rate = fitted("whole", 8)
    assert all("watched" in h for h in whole.getHistory())
    fitted("parts", 5)
    parts, rate_of_parts = fitted("parts", 8)
    assert rate_of_parts == rate and parts.getHistory() == whole.getHistory()
