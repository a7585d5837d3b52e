"""The training of before.py on hora.dataset alone: no rank or size is said, and where it stands can be saved.

hora run -np 2 python examples/66-petastorm/after.py DIR
"""

import os
import sys

import numpy as np
import pandas as pd
import torch

import hora
import hora.dataset

folder = sys.argv[1]
hora.init()
data = os.path.join(folder, "table")
if hora.rank() == 0:
    x = np.random.default_rng(1).normal(size=(2000, 2)).astype("f4")
    frame = pd.DataFrame({"id": np.arange(2000), "x": list(x), "y": x @ np.array([2, -1], "f4")})
    hora.dataset.write(frame, data)
hora.barrier()

model = torch.nn.Linear(2, 1, bias=False)
torch.nn.init.zeros_(model.weight)
taken = []
loader = hora.dataset.open(data, batch=50, seed=1).torch()
for epoch in range(2):
    loader.set_epoch(epoch)
    for batch in loader:
        taken += batch["id"].tolist()
        loss = ((model(batch["x"])[:, 0] - batch["y"]) ** 2).mean()
        (gradient,) = torch.autograd.grad(loss, [model.weight])
        model.weight.data -= 0.1 * torch.from_numpy(hora.allreduce(gradient.numpy(), op="average"))

rows = [i for part in hora.allgather_object(taken) for i in part]
if hora.rank() == 0:
    print(
        f"done: {len(rows)} rows, each twice: {sorted(rows) == sorted([*range(2000)] * 2)}; weights {model.weight.data.round(decimals=2).tolist()[0]}"
    )
hora.shutdown()
