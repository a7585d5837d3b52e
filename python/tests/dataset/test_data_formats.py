"""Files that are no Parquet, as others write them; and what `hora data convert` makes of everything, read by
pyarrow."""

from __future__ import annotations

import datetime
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

import hora.dataset
from hora.errors import HoraError

ROOT = Path(__file__).resolve().parents[3]


def png(i: int) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(np.full((4, 6, 3), i, np.uint8)).save(out, "png")
    return out.getvalue()


def test_images_in_folders_and_in_tar(arrow, tmp_path):
    """The same images as a folder with classes, with a table of labels, and as WebDataset."""
    for i in range(30):
        (tmp_path / f"f/c{i % 3}").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"f/c{i % 3}/{i:03}.png").write_bytes(png(i))
    loader = hora.dataset.open(tmp_path / "f", batch=8, seed=1, decode={"image": "rgb"})
    seen = {}
    for batch in loader:
        assert batch["image"].dtype == np.uint8 and batch["image"].shape[1:] == (4, 6, 3)
        for image, name, label, kind in zip(batch["image"], batch["path"], batch["label"], batch["class"], strict=True):
            assert (image == int(name[3:6])).all() and label == int(name[3:6]) % 3 and kind == f"c{label}"
            seen[name] = True
    assert len(seen) == 30
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i in range(30):
            for ending, data in (
                ("png", png(i)),
                ("cls", str(i % 3).encode()),
                ("json", json.dumps({"i": i}).encode()),
            ):
                info = tarfile.TarInfo(f"{'very' * 40}/{i:03}.{ending}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    table = hora.dataset.read(tmp_path / "a.tar")
    assert list(table["cls"]) == [i % 3 for i in range(30)] and json.loads(table["json"][7]) == {"i": 7}
    assert bytes(table["png"][29]) == png(29) and table["__key__"][3] == "very" * 40 + "/003"
    loader = hora.dataset.open(tmp_path / "a.tar", columns=["png", "cls"], batch=4, decode={"png": "gray"})
    assert sorted(int(v) for b in loader for v in b["png"][:, 0, 0, 0]) == list(range(30))
    (tmp_path / "f/metadata.csv").write_text("file_name,weight\nc1/001.png,0.5\nc2/002.png,1\n")
    assert hora.dataset.read(tmp_path / "f", columns=["weight"])["weight"].tolist() == [0.5, 1.0]
    (tmp_path / "f/metadata.csv").write_text("file_name\nnone.png\n")
    with pytest.raises(HoraError, match='its table metadata.csv: row 1: there is no image "none.png"'):
        hora.dataset.open(tmp_path / "f", batch=1)


def test_csv_as_pandas_writes_it(arrow, tmp_path):
    import pandas as pd

    frame = pd.DataFrame(
        {
            "i": range(1000),
            "x": np.sin(np.arange(1000)),
            "maybe": [None if i % 7 == 0 else i for i in range(1000)],
            "ok": [i % 2 == 0 for i in range(1000)],
            "text": [f'a "quoted", text\nof two lines {i}' if i % 3 else "ü" for i in range(1000)],
        }
    )
    frame[:600].to_csv(tmp_path / "0.csv", index=False)
    frame[600:].to_csv(tmp_path / "1.csv", index=False)
    back = hora.dataset.read(tmp_path).to_pandas()
    for name in ("i", "ok", "text", "x", "maybe"):
        pd.testing.assert_series_equal(back[name], frame[name], check_dtype=False)
    state = None
    loader = hora.dataset.open(tmp_path, columns=["i"], batch=50, seed=2)
    got = []
    for batch in loader:
        got += batch["i"].tolist()
        if len(got) == 300:
            state = loader.state_dict()
            break
    other = hora.dataset.open(tmp_path, columns=["i"], batch=70)
    other.load_state_dict(state)
    got += [i for b in other for i in b["i"].tolist()]
    assert sorted(got) == list(range(1000))


def test_convert_writes_what_pyarrow_reads(arrow, hora_program, tmp_path):
    """Every type, with nulls and without, in both codecs: equal to what was there, with checksums that hold."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    n = 4000
    rng = np.random.default_rng(1)
    holes = np.arange(n) % 5 == 0

    def both(name, values, kind):
        whole = pa.array(values, kind)
        return {
            name: whole,
            name + "?": pa.array([None if h else v for h, v in zip(holes, whole.to_pylist(), strict=True)], kind),
        }

    ints = {
        "int8": 100,
        "int16": 30000,
        "int32": 2**31 - 1,
        "int64": 2**62,
        "uint8": 200,
        "uint16": 60000,
        "uint32": 2**32 - 1,
        "uint64": 2**63,
    }
    columns = {}
    for kind, most in ints.items():
        low = -most if kind[0] == "i" else 0
        columns |= both(kind, rng.integers(low, most, n).tolist(), getattr(pa, kind)())
    columns |= both("f16", rng.standard_normal(n).astype("f2"), pa.float16())
    columns |= both("f32", rng.standard_normal(n).astype("f4"), pa.float32())
    columns |= both("f64", rng.standard_normal(n), pa.float64())
    columns |= both("bool", (rng.random(n) < 0.3).tolist(), pa.bool_())
    columns |= both("text", [f"text {i}" * (i % 4) for i in range(n)], pa.string())
    columns |= both("bytes", [bytes([i % 256]) * (i % 9) for i in range(n)], pa.binary())
    columns |= both("fixed", [i.to_bytes(5, "big") for i in range(n)], pa.binary(5))
    columns |= both("day", [datetime.date(1960, 1, 1) + datetime.timedelta(i) for i in range(n)], pa.date32())
    for unit in ("ms", "us", "ns"):
        columns |= both(f"at {unit}", [1000 * i - 50 for i in range(n)], pa.timestamp(unit))
    columns |= both("clock", [1000 * i for i in range(n)], pa.time64("us"))
    columns |= both("clock ms", list(range(n)), pa.time32("ms"))
    columns["pair"] = pa.array([[i, i + 1] for i in range(n)], pa.list_(pa.int32(), 2))
    columns["ragged"] = pa.array([list(range(i % 4)) for i in range(n)], pa.list_(pa.float64()))
    table = pa.table(columns)
    pq.write_table(table, tmp_path / "in.parquet")
    for codec in ("snappy", "zstd"):
        out = tmp_path / codec
        said = subprocess.run(
            [hora_program, "data", "convert", tmp_path / "in.parquet", out, "--compression", codec, "--group", "64"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert said.returncode == 0 and "4000 rows were written to 1 files" in said.stdout, said
        file = pq.ParquetFile(out / "part-00000.parquet", page_checksum_verification=True)
        assert file.num_row_groups > 5 and file.metadata.row_group(0).column(0).compression == codec.upper()
        assert all(file.metadata.row_group(0).column(c).has_offset_index for c in range(file.metadata.num_columns))
        back = file.read()
        for name in columns:
            want, got = table[name].to_pylist(), back[name].to_pylist()
            assert got == want, (name, [(g, w) for g, w in zip(got, want, strict=True) if g != w][:3])
        ours = hora.dataset.read(out, columns=["int8", "f32?", "text", "ragged"]).to_arrow()
        assert (
            ours["int8"].to_pylist() == table["int8"].to_pylist()
            and ours["f32?"].to_pylist() == table["f32?"].to_pylist()
        )
        assert (
            ours["text"].to_pylist() == table["text"].to_pylist()
            and ours["ragged"].to_pylist() == table["ragged"].to_pylist()
        )


def test_the_example_tells_images_apart(arrow, launcher, tmp_path):
    """Two ranks learn from a folder."""
    for i in range(96):
        folder = tmp_path / ("dark" if i % 2 else "light")
        folder.mkdir(exist_ok=True)
        (folder / f"{i}.png").write_bytes(png(20 + i if i % 2 else 150 + i))
    env = os.environ | {"PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], arrow]), "HORA_START_TIMEOUT": "120"}
    command = [launcher, "run", "-np", "2", "--no-tag", sys.executable, ROOT / "examples/61-images/train.py", tmp_path]
    out = subprocess.run(command, env=env, capture_output=True, text=True, timeout=150, check=False)
    assert out.returncode == 0 and re.search(r"epoch 12: (9\d|100) % of 96 images", out.stdout), out
