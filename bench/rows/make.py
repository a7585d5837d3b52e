"""The files that data_bench.py measures on: made once in a folder, the same ones each time."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np

ROWS, COLUMNS, GROUP = 2_000_000, 20, 50_000
LISTS, WIDTH = 200_000, 256
SAMPLES = 20_000
IMAGES = 1_500
NAMES = [f"f{i}" for i in range(COLUMNS)]


def tabular(folder: Path) -> None:
    """2 M rows of 20 float32: plain and snappy, and as dictionaries with 5 % nulls."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = np.random.default_rng(1)
    flat = pa.table({n: chance.standard_normal(ROWS).astype("f4") for n in NAMES})
    pq.write_table(flat, folder / "flat.parquet", row_group_size=GROUP, use_dictionary=False)
    few = chance.standard_normal(1000).astype("f4")
    some = {n: pa.array(few[chance.integers(0, 1000, ROWS)], mask=chance.random(ROWS) < 0.05) for n in NAMES}
    pq.write_table(pa.table(some), folder / "nulls.parquet", row_group_size=GROUP)


def lists(folder: Path) -> None:
    """200,000 rows of 256 float32 in a list: zstd."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = np.random.default_rng(2).standard_normal(LISTS * WIDTH).astype("f4")
    column = pa.ListArray.from_arrays(np.arange(0, LISTS * WIDTH + 1, WIDTH, dtype="i4"), values)
    pq.write_table(
        pa.table({"x": column}),
        folder / "lists.parquet",
        row_group_size=4096,
        compression="zstd",
        use_dictionary=False,
    )


def jpeg(chance: np.random.Generator, size: int, quality: int) -> bytes:
    """A picture of a few soft shapes and some noise, about as large as a photograph of its size."""
    from PIL import Image

    small = chance.integers(0, 256, (size // 8, size // 8, 3), dtype=np.uint8)
    image = np.asarray(Image.fromarray(small).resize((size, size), Image.Resampling.BICUBIC)).astype(np.int16)
    image = np.clip(image + chance.integers(-6, 7, image.shape), 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(image).save(out, "JPEG", quality=quality)
    return out.getvalue()


def samples(folder: Path) -> None:
    """20,000 samples of 11 kB as Parquet; other forms of them are made where they are asked for."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = np.random.default_rng(3)
    data = [chance.bytes(int(n)) for n in chance.integers(9_000, 13_000, SAMPLES)]
    table = pa.table({"data": pa.array(data, pa.binary()), "label": np.arange(SAMPLES)})
    pq.write_table(
        table,
        folder / "samples.parquet",
        row_group_size=256,
        use_dictionary=False,
        compression="none",
    )


def images(folder: Path) -> None:
    """1,500 pictures of 224 × 224, as files in folders and as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    chance = np.random.default_rng(4)
    data = [jpeg(chance, 224, 75) for _ in range(IMAGES)]
    for i, one in enumerate(data):
        at = folder / "images" / f"class{i % 10}"
        at.mkdir(parents=True, exist_ok=True)
        (at / f"{i:05d}.jpg").write_bytes(one)
    pq.write_table(
        pa.table({"image": pa.array(data, pa.binary()), "label": np.arange(IMAGES) % 10}),
        folder / "images.parquet",
        row_group_size=64,
        use_dictionary=False,
    )


def tar(folder: Path) -> None:
    """The samples for WebDataset."""
    import tarfile

    import pyarrow.parquet as pq

    table = pq.read_table(folder / "samples.parquet")
    with tarfile.open(folder / "samples.tar", "w") as out:
        for i, (data, label) in enumerate(zip(table["data"].to_pylist(), table["label"].to_pylist(), strict=True)):
            for end, content in (("bin", data), ("cls", str(label).encode())):
                info = tarfile.TarInfo(f"{i:06d}.{end}")
                info.size = len(content)
                out.addfile(info, io.BytesIO(content))


def everything(folder: Path) -> None:
    """Make what is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for make, last in (
        (tabular, "nulls.parquet"),
        (lists, "lists.parquet"),
        (samples, "samples.parquet"),
        (images, "images.parquet"),
        (tar, "samples.tar"),
    ):
        if not os.path.exists(folder / last):
            make(folder)
