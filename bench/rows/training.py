"""Steps of a small network of 7,000 parameters on one thread, its batches ready in memory or loaded meanwhile."""

from __future__ import annotations

from pathlib import Path

import tabular
import torch

torch.set_num_threads(1)
READY: list = []


def train(batches) -> tuple[int, float]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(19, 80),
        torch.nn.ReLU(),
        torch.nn.Linear(80, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 1),
    )
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    steps = 0
    for x in batches:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x[:, :19]), x[:, 19:]).backward()
        optimizer.step()
        steps += 1
    return steps, 0.0


def preloaded(folder: Path, turn: int, check: bool) -> tuple[int, float]:
    import hora.dataset

    if not READY:
        READY.extend(
            b["x"].clone()
            for b in hora.dataset.open(
                folder / "flat.parquet",
                columns={"x": tabular.NAMES},
                batch=tabular.BATCH,
            ).torch()
        )
    return train(READY)


def loaded(folder: Path, turn: int, check: bool) -> tuple[int, float]:
    import hora.dataset

    loader = hora.dataset.open(
        folder / "flat.parquet",
        columns={"x": tabular.NAMES},
        batch=tabular.BATCH,
        seed=turn,
    )
    return train(b["x"] for b in loader.torch())


CONTESTANTS = {
    "hora, loaded while it trains": loaded,
    "all batches ready in memory": preloaded,
}
