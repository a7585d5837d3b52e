"""Batches [1024, 20] of float32 as torch tensors, out of 2 M rows of Parquet in row groups of 4 MB."""

from __future__ import annotations

import random
from pathlib import Path

import torch

torch.set_num_threads(1)
NAMES = [f"f{i}" for i in range(20)]
BATCH = 1024
HELD = 4  # row groups that a shuffle holds: 200,000 rows, 16 MB


def walk(batches, check: bool) -> tuple[int, float]:
    """Rows, and when it is asked for the sum of all values."""
    rows, total = 0, 0.0
    for x in batches:
        rows += len(x)
        if check:
            total += float(x.double().sum())
    return rows, total


def hora(folder: Path, turn: int, check: bool, shuffle: object = True, memory: str = "16MiB") -> tuple[int, float]:
    import hora.dataset

    loader = hora.dataset.open(
        folder / "flat.parquet",
        columns={"x": NAMES},
        batch=BATCH,
        shuffle=shuffle,
        seed=turn,
        memory=memory,
        threads=1,
    )
    return walk((b["x"] for b in loader.torch()), check)


def arrow(folder: Path, turn: int):
    """Row groups in any order, so many at a time as one matrix, its rows in any order: what one writes by hand."""
    import numpy as np
    import pyarrow.parquet as pq

    file = pq.ParquetFile(folder / "flat.parquet")
    groups = list(range(file.num_row_groups))
    random.Random(turn).shuffle(groups)
    chance, rest = np.random.default_rng(turn), None
    for i in range(0, len(groups), HELD):
        table = file.read_row_groups(groups[i : i + HELD], use_threads=False)
        matrix = np.empty((table.num_rows, len(NAMES)), "f4")
        for c, n in enumerate(NAMES):
            at = 0
            for chunk in table[n].chunks:
                matrix[at : at + len(chunk), c] = chunk.to_numpy()
                at += len(chunk)
        matrix = matrix[chance.permutation(len(matrix))]
        if rest is not None:
            matrix = np.concatenate([rest, matrix])
        whole = len(matrix) // BATCH * BATCH
        for k in range(0, whole, BATCH):
            yield torch.from_numpy(matrix[k : k + BATCH])
        rest = matrix[whole:]
    if len(rest):
        yield torch.from_numpy(rest)


class Groups(torch.utils.data.IterableDataset):
    """The same in DataLoader's workers, each with its part of the row groups."""

    def __init__(self, folder: Path, turn: int) -> None:
        self.folder, self.turn = folder, turn

    def __iter__(self):
        import numpy as np
        import pyarrow.parquet as pq

        info = torch.utils.data.get_worker_info()
        file = pq.ParquetFile(self.folder / "flat.parquet")
        groups = list(range(file.num_row_groups))
        random.Random(self.turn).shuffle(groups)
        mine, chance = (
            groups[info.id :: info.num_workers],
            np.random.default_rng(self.turn + info.id),
        )
        for i in range(0, len(mine), HELD // 2):
            table = file.read_row_groups(mine[i : i + HELD // 2], use_threads=False)
            matrix = np.stack([table[n].to_numpy() for n in NAMES], 1)[chance.permutation(table.num_rows)]
            for k in range(0, len(matrix), BATCH):
                yield torch.from_numpy(matrix[k : k + BATCH])


def data_loader(folder: Path, turn: int, check: bool) -> tuple[int, float]:
    return walk(
        torch.utils.data.DataLoader(Groups(folder, turn), batch_size=None, num_workers=2),
        check,
    )


def petastorm(folder: Path, turn: int, check: bool, queue: int) -> tuple[int, float]:
    from petastorm import make_batch_reader
    from petastorm.pytorch import BatchedDataLoader

    reader = make_batch_reader(
        f"file://{folder}/flat.parquet",
        num_epochs=1,
        shuffle_row_groups=True,
        workers_count=1,
    )
    with BatchedDataLoader(reader, batch_size=BATCH, shuffling_queue_capacity=queue) as loader:
        return walk((torch.stack([b[n] for n in NAMES], 1) for b in loader), check)


CONTESTANTS = {
    "hora, shuffled": hora,
    "hora, shuffled, all rows held": lambda *a: hora(*a, memory="512MiB"),
    "hora, file order": lambda *a: hora(*a, shuffle=False),
    "pyarrow in this process, shuffled": lambda folder, turn, check: walk(arrow(folder, turn), check),
    "DataLoader, 2 workers with pyarrow, shuffled": data_loader,
    "Petastorm, shuffled (queue of 200,000)": lambda *a: petastorm(*a, queue=200_000),
    "Petastorm, rows in file order": lambda *a: petastorm(*a, queue=0),
}
