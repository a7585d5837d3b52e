"""Samples of 11 kB, by chance, handed out one by one as views or bytes; and pictures to batches of tensors."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import random
import sys
import types
from pathlib import Path


def hora_views(folder: Path, turn: int, check: bool) -> tuple[int, float]:
    import hora.dataset

    rows, total = 0, 0
    for b in hora.dataset.open(
        folder / "samples.parquet",
        columns=["data", "label"],
        batch=64,
        seed=turn,
        memory="32MiB",
        threads=1,
    ):
        for one, label in zip(b["data"], b["label"].tolist(), strict=True):
            rows += 1
            total += len(one) + label
    return rows, float(total)


def web(folder: Path, turn: int, check: bool) -> tuple[int, float]:
    import webdataset

    rows, total = 0, 0
    for one in webdataset.WebDataset(str(folder / "samples.tar"), shardshuffle=False, empty_check=False).shuffle(3000):
        rows += 1
        total += len(one["bin"]) + int(one["cls"])
    return rows, float(total)


class Nothing(types.ModuleType):
    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return dict


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """What MosaicML imports for type annotations alone, and does not say that it needs in that version."""

    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "transformers" else None

    def create_module(self, spec):
        return Nothing(spec.name)

    def exec_module(self, module): ...


def mosaic(folder: Path, turn: int, check: bool) -> tuple[int, float]:
    sys.meta_path.append(Absent())
    import streaming
    from streaming import MDSWriter, StreamingDataset

    streaming.base.util.clean_stale_shared_memory()
    made = folder / "mds"
    if not made.exists():
        import tarfile

        with (
            tarfile.open(folder / "samples.tar") as tar,
            MDSWriter(out=str(made), columns={"data": "bytes", "label": "int"}) as out,
        ):
            held = {}
            for m in tar:
                held[m.name[-3:]] = tar.extractfile(m).read()
                if len(held) == 2:
                    out.write({"data": held["bin"], "label": int(held["cls"])})
                    held = {}
    rows, total = 0, 0
    for one in StreamingDataset(local=str(made), shuffle=True, batch_size=64, shuffle_seed=turn):
        rows += 1
        total += len(one["data"]) + int(one["label"])
    return rows, float(total)


def petastorm(folder: Path, turn: int, check: bool) -> tuple[int, float]:
    from petastorm import make_batch_reader

    rows, total = 0, 0
    with make_batch_reader(
        f"file://{folder}/samples.parquet",
        num_epochs=1,
        shuffle_row_groups=True,
        workers_count=1,
    ) as reader:
        for group in reader:
            for one, label in zip(group.data, group.label.tolist(), strict=True):
                rows += 1
                total += len(one) + label
    return rows, float(total)


SIZE, BATCH = 224, 64


def pictures(batches) -> tuple[int, float]:
    rows, total = 0, 0
    for images, labels in batches:
        assert images.shape[1:] == (SIZE, SIZE, 3) or images.shape[1:] == (
            3,
            SIZE,
            SIZE,
        )
        rows += len(images)
        total += int(labels.sum())
    return rows, float(total)


def hora_pictures(folder: Path, turn: int, check: bool) -> tuple[int, float]:
    import hora.dataset
    import torch

    torch.set_num_threads(1)
    loader = hora.dataset.open(
        folder / "images.parquet",
        batch=BATCH,
        decode={"image": "rgb"},
        seed=turn,
        threads=2,
    )
    return pictures((b["image"], b["label"]) for b in loader.torch())


class Folder:
    """What torchvision's ImageFolder is with its fast decoder."""

    def __init__(self, folder: Path, turn: int) -> None:
        self.files = sorted((folder / "images").glob("*/*.jpg"))
        random.Random(turn).shuffle(self.files)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int):
        from torchvision.io import ImageReadMode, decode_image, read_file

        path = self.files[i]
        return decode_image(read_file(str(path)), ImageReadMode.RGB), int(path.parent.name[5:])


def torch_pictures(folder: Path, turn: int, check: bool) -> tuple[int, float]:
    import torch
    import torchvision  # noqa: F401

    torch.set_num_threads(1)
    return pictures(torch.utils.data.DataLoader(Folder(folder, turn), batch_size=BATCH, num_workers=2))


CONTESTANTS = {
    "hora, 11 kB samples": hora_views,
    "WebDataset, 11 kB samples": web,
    "MosaicML, 11 kB samples": mosaic,
    "Petastorm, 11 kB samples": petastorm,
    "hora, JPEG to batches": hora_pictures,
    "DataLoader, 2 workers, torchvision, JPEG to batches": torch_pictures,
}
