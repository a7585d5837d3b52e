"""A training that reads with Petastorm's names: a frame is written once, and each rank reads its part.

    pip install --no-index --find-links dist hora hora-petastorm
    hora run -np 2 python examples/66-petastorm/before.py DIR

after.py is the same without these names; docs/petastorm.md shows the difference.
"""

import sys

import numpy as np
import pandas as pd
import torch
from petastorm.spark import SparkDatasetConverter, make_spark_converter

import hora

folder = sys.argv[1]
hora.init()
if hora.rank() == 0:
    x = np.random.default_rng(1).normal(size=(2000, 2)).astype("f4")
    frame = pd.DataFrame({"id": np.arange(2000), "x": list(x), "y": x @ np.array([2, -1], "f4")})
    converter = make_spark_converter(frame)
    parts = [converter.cache_dir_url, converter.file_urls, len(converter)]
converter = SparkDatasetConverter(*hora.broadcast_object(parts if hora.rank() == 0 else None))

model = torch.nn.Linear(2, 1, bias=False)
torch.nn.init.zeros_(model.weight)
taken = []
with converter.make_torch_dataloader(
    batch_size=50, num_epochs=2, cur_shard=hora.rank(), shard_count=hora.size()
) as loader:
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
    converter.delete()
hora.shutdown()
