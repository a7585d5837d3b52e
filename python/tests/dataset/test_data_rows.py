"""Which rows there are and what becomes of them: filters, folders' names, damaged row groups, images, transforms, whole
tables."""

from __future__ import annotations

import datetime
import io
import os
import random
from pathlib import Path

import numpy as np
import pytest

import hora.dataset

ROWS = 900


@pytest.fixture(scope="session")
def table(arrow):
    """Columns of most kinds, with nulls, in an order that leaves some row groups without what is looked for."""
    import pyarrow as pa

    rng = np.random.default_rng(1)
    ids = np.arange(ROWS)

    def some(values, typ):
        return pa.array(values, typ, mask=rng.random(ROWS) < 0.1)

    return pa.table(
        {
            "id": ids, "step": pa.array(ids // 100, pa.int8()), "u32": pa.array(ids * 4_000_000, pa.uint32()),
            "u64": pa.array([2**63 + int(i) for i in ids], pa.uint64()), "maybe": some(ids % 17, pa.int32()),
            "f": some(np.where(ids % 50 == 7, np.nan, np.sin(ids)), pa.float32()), "d": np.cos(ids),
            "flag": some(ids % 3 == 0, pa.bool_()),
            "text": some([f"t{i % 23:02d}" for i in ids], pa.string()), "day": some(ids.astype("M8[D]"), pa.date32()),
            "at": pa.array(ids.astype("M8[s]").astype("M8[us]")), "empty": pa.nulls(ROWS, pa.int64()),
        }
    )  # fmt: skip


@pytest.fixture(scope="session")
def folder(table, tmp_path_factory):
    """The table in three files below folders that are called after two partitions."""
    import pyarrow.parquet as pq

    root = tmp_path_factory.mktemp("rows")
    for i, where in enumerate(
        ["year=2023/side=left", "year=2024/side=right%2Fup", "year=2025/side=__HIVE_DEFAULT_PARTITION__"]
    ):
        os.makedirs(root / where)
        pq.write_table(
            table[300 * i : 300 * i + 300], root / where / "part.parquet", row_group_size=70, write_page_checksum=True
        )
    return str(root)


def ids(source, filter, **how):
    return hora.dataset.read(source, columns=["id"], filter=filter, **how)["id"].tolist()


CONDITIONS = [
    ("id", "<", 250), ("id", ">=", 250.5), ("id", "==", 3.5), ("id", "!=", 3.5), ("id", "<", -(2**70)),
    ("id", ">", -1e30), ("id", "in", [1, 5, 2.5, 899]),
    ("step", "==", 4), ("step", "not in", [4, 300]), ("u32", ">", 3_000_000_000), ("u64", ">=", 2**63 + 800),
    ("u64", "<", 5), ("u64", "!=", 2**63),
    ("maybe", "==", 3), ("maybe", "!=", 3), ("maybe", "is null"), ("maybe", "not null"), ("f", ">", 0.5),
    ("f", "<=", 0.5), ("f", "!=", 0.0), ("d", ">", 2),
    ("flag", "==", True), ("flag", "!=", True), ("text", "==", "t03"), ("text", ">", "t2"),
    ("text", "in", ["t01", "zz"]), ("text", "not in", ["t01"]),
    ("day", "<", datetime.date(1971, 1, 1)), ("day", "==", datetime.date(1970, 3, 1)),
    ("at", ">=", datetime.datetime(1970, 1, 1, 0, 5, 0, 1)),
    ("empty", "==", 1), ("empty", "is null"), ("empty", "not null"),
]  # fmt: skip


def expected(table, groups):
    """The rows as Python sees them: a null fits nothing but "is null"."""
    import operator

    ops = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
           "in": lambda v, w: v in w, "not in": lambda v, w: v not in w}  # fmt: skip

    def holds(row, c):
        value = row[c[0]]
        if c[1] in ("is null", "not null"):
            return (value is None) == (c[1] == "is null")
        return value is not None and ops[c[1]](value, c[2])

    return [row["id"] for row in table.to_pylist() if any(all(holds(row, c) for c in group) for group in groups)]


def check(folder, table, groups):
    want = expected(table, groups)
    if want:
        assert ids(folder, groups) == want, groups
    else:
        with pytest.raises(hora.HoraError, match="no row fits filter="):
            ids(folder, groups)


def test_filter_is_exact(folder, table):
    """Every comparison alone, and random ones together, against Python's own."""
    for c in CONDITIONS:
        check(folder, table, [[c]])
    rng = random.Random(5)
    for _ in range(60):
        check(folder, table, [rng.sample(CONDITIONS, rng.randint(1, 3)) for _ in range(rng.randint(1, 3))])


def test_filtered_rows_are_equal_steps(folder, table):
    """Ranks share what is left: each row once, equal steps, another fingerprint; a state goes on."""
    how = {
        "columns": ["id", "text", "f"],
        "nulls": {"text": "", "f": "mask"},
        "global_batch": 50,
        "filter": [("step", "in", [1, 4, 8])],
        "seed": 3,
    }
    parts = [list(hora.dataset.open(folder, rank=r, size=3, **how)) for r in range(3)]
    assert [len(p) for p in parts] == [6, 6, 6]
    rows = {
        int(i): (t, f, n)
        for p in parts
        for b in p
        for i, t, f, n in zip(b["id"], b["text"], b["f"], b["f.null"], strict=True)
    }
    assert sorted(rows) == [i for i in range(ROWS) if i // 100 in (1, 4, 8)]
    for row in table.to_pylist():
        if row["id"] in rows:
            t, f, null = rows[row["id"]]
            assert t == (row["text"] or "") and null == (row["f"] is None)
            assert null or f == np.float32(row["f"]) or f != f and row["f"] != row["f"]
    loader, plain = (hora.dataset.open(folder, **how | {"filter": f}) for f in (how["filter"], None))
    first = [b["id"].tolist() for _, b in zip(range(3), loader, strict=False)]
    state = loader.state_dict()
    other = hora.dataset.open(folder, **how)
    other.load_state_dict(state)
    assert first + [b["id"].tolist() for b in other] == [b["id"].tolist() for b in hora.dataset.open(folder, **how)]
    with pytest.raises(hora.HoraError, match="other data"):
        plain.load_state_dict(state)


def test_folders_names_are_columns(folder, monkeypatch):
    frame = hora.dataset.read(folder, columns=["id", "year", "side"])
    assert frame["year"].tolist() == [2023] * 300 + [2024] * 300 + [2025] * 300
    assert frame["side"].tolist()[::300] == ["left", "right/up", ""] and frame.nulls["side"].sum() == 300
    assert ids(folder, [("year", "==", 2024), ("id", "<", 310)]) == list(range(300, 310))
    assert ids(folder, [("side", "is null"), ("id", ">", 895)]) == list(range(896, 900))
    assert ids(folder, [("side", "==", "left")]) == list(range(300))
    batch = next(iter(hora.dataset.open(folder, columns={"y": ["year", "id"]}, batch=10, shuffle=False)))
    assert batch["y"].tolist() == [[2023, i] for i in range(10)]
    with pytest.raises(hora.HoraError, match="folder's name stands for a null"):
        list(hora.dataset.open(folder, columns=["side"], batch=100))
    with pytest.raises(hora.HoraError, match=r"no column \"nothing\"; there are: id, .*, year, side"):
        hora.dataset.open(folder, columns=["nothing"], batch=100)
    monkeypatch.chdir(os.path.dirname(folder))
    name = os.path.basename(folder)
    for same in (f"./{name}", f"{name}//", f"{name}/year=*", f"./{name}/*/*/*.parquet", Path(folder).as_uri()):
        assert {*hora.dataset.read(same)} >= {"year", "side"} and hora.dataset.read(same).rows == ROWS, same
    # footers and names decide before anything is read: the files may be gone
    assert "year" not in hora.dataset.read(os.path.join(folder, "year=2023/side=left/part.parquet"))


def test_filters_that_cannot_be(folder):
    for filter, says in [
        ([("id", "~", 3)], 'no comparison "~"'), ([("id", "==", "x")], "is int64, and it is compared with x"),
        ([("text", "==", 3)], "compared with 3"),
        ([("nothing", "==", 3)], "no column"), ([("id", "in", 3)], "give a list"),
        ("id == 3", "give a list of comparisons"),
        ([("id", "==")], "compares? with|give a value|compared with"), ([("id", "==", None)], "is null"),
        ([3], "no comparison"), ([], "give a list"),
    ]:  # fmt: skip
        with pytest.raises(hora.HoraError, match=says):
            ids(folder, filter)


def test_filters_compare_bytes(arrow):
    """Bytes that are no text, too."""
    import pyarrow as pa

    table = pa.table({"id": [0, 1, 2], "key": pa.array([b"\xff\x00", b"\xfe", None], pa.binary())})
    for filter, want in [
        (("key", "==", b"\xff\x00"), [0]), (("key", "!=", b"\xff\x00"), [1]), (("key", "in", [b"\xfe", b"x"]), [1]),
        (("key", ">", b"\xfe"), [0]),
    ]:  # fmt: skip
        assert hora.dataset.read(table, filter=filter)["id"].tolist() == want, filter


@pytest.fixture
def damaged(table, tmp_path):
    """Two files; row group 3 of the first is damaged, and the second's end is gone."""
    import pyarrow.parquet as pq

    for name in ("a", "b", "c"):
        pq.write_table(
            table.select(["id", "text"]), tmp_path / f"{name}.parquet", row_group_size=100, write_page_checksum=True
        )
    chunk = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(3).column(0)
    with open(tmp_path / "a.parquet", "r+b") as f:
        f.seek(
            chunk.data_page_offset
            + chunk.total_compressed_size
            - (chunk.data_page_offset - chunk.dictionary_page_offset)
            - 8
        )
        f.write(b"damage")
    os.truncate(tmp_path / "b.parquet", 5000)
    return str(tmp_path)


def test_skip_leaves_the_same_out_everywhere(damaged):
    with pytest.raises(hora.HoraError, match=r"b.parquet: it does not end as a Parquet file does"):
        hora.dataset.open(damaged, batch=10)
    os.remove(os.path.join(damaged, "b.parquet"))
    with pytest.raises(
        hora.HoraError, match=r'a.parquet: row group 3, column "id", page at byte \d+: its checksum is wrong'
    ):
        list(hora.dataset.open(damaged, columns=["id"], batch=100))
    open(os.path.join(damaged, "b.parquet"), "wb").close()
    for filter in (None, [("id", ">=", 0)], [("id", "!=", 7777)]):
        seen, steps = [], []
        for rank in range(3):
            loader = hora.dataset.open(
                damaged, columns=["id"], global_batch=64, rank=rank, size=3, on_error="skip", seed=1, filter=filter
            )
            with pytest.warns(UserWarning, match="damaged parts of the data were left out"):
                batches = list(loader)
            steps.append(len(batches))
            seen += [i for b in batches for i in b["id"].tolist()]
        assert len(set(steps)) == 1 and steps[0] == len(loader) == -(-loader.rows // 64)
        left = [i for i in range(ROWS) if i // 100 != 3]
        assert sorted(seen) == sorted([*left, *range(ROWS)])
        assert {(os.path.basename(s["file"]), s["row_group"]) for s in loader.skipped} >= {("b.parquet", -1)}
    assert ("a.parquet", 3) in {(os.path.basename(s["file"]), s["row_group"]) for s in loader.skipped}


def picture(i, kind="JPEG", size=(8, 6)):
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", size, (i % 256, 40, 200)).save(out, kind)
    return out.getvalue()


@pytest.fixture(scope="session")
def pictures(arrow, tmp_path_factory):
    path = tmp_path_factory.mktemp("pictures") / "p.parquet"
    images = [picture(i, "PNG" if i % 2 else "JPEG") for i in range(100)]
    hora.dataset.write({"id": np.arange(100), "image": images}, path)
    return str(path)


def test_images(pictures):
    loader = hora.dataset.open(
        pictures, batch=16, decode={"image": "rgb"}, transform=lambda b: b | {"mean": b["image"].mean((1, 2))}, seed=2
    )
    plain = [b["id"].tolist() for b in hora.dataset.open(pictures, columns=["id"], batch=16, seed=2)]
    seen = []
    for n, batch in enumerate(loader):
        assert batch["image"].shape[1:] == (6, 8, 3) and batch["image"].dtype == np.uint8
        assert np.allclose(batch["mean"][:, 0], batch["id"], atol=3) and loader.position == min(
            100, 16 * n + 16
        )  # what was worked on ahead does not count
        seen.append(batch["id"].tolist())
    assert seen == plain
    shapes = next(iter(hora.dataset.open(pictures, batch=4, decode={"image": ("gray", (3, 5))})))["image"].shape
    assert shapes == (4, 3, 5, 1)
    assert next(iter(hora.dataset.open(pictures, batch=4, decode={"image": len})))["image"] is not None


def test_work_that_fails_says_where(pictures, tmp_path):
    def bad(batch):
        raise ValueError("no")

    with pytest.raises(
        hora.HoraError, match=r"transform= raised ValueError in the batch that ends at row 50 of epoch 0: no"
    ):
        list(hora.dataset.open(pictures, batch=50, transform=bad))
    with pytest.raises(hora.HoraError, match="answered None"):
        list(hora.dataset.open(pictures, batch=50, transform=lambda b: None))
    with pytest.raises(hora.ArgumentError, match="no column of binaries"):
        list(hora.dataset.open(pictures, batch=50, decode={"id": "rgb"}))
    with pytest.raises(hora.ArgumentError, match='use "rgb"'):
        hora.dataset.open(pictures, batch=50, decode={"image": "cmyk"})
    path = tmp_path / "x.parquet"
    hora.dataset.write({"id": np.arange(9), "image": [b"none" if i == 4 else picture(i) for i in range(9)]}, path)
    with pytest.raises(hora.HoraError, match="'image' of row 4 .* cannot be decoded"):
        list(hora.dataset.open(path, batch=9, shuffle=False, decode={"image": "rgb"}))
    loader = hora.dataset.open(path, batch=9, shuffle=False, decode={"image": "rgb"}, on_error="skip")
    with pytest.warns(UserWarning, match="left out"):
        (batch,) = loader
    assert batch["id"].tolist() == [0, 1, 2, 3, 5, 6, 7, 8] and len(batch["image"]) == batch.rows == 8


def test_whole_tables(folder, table, tmp_path):
    """What is read is what pyarrow and pandas read, nulls included; what is written is read back."""
    names = [n for n in table.column_names if n != "empty"]
    back = hora.dataset.read(folder, columns=names)
    assert back.rows == ROWS and list(back) == names
    for name in names:
        assert back.to_arrow()[name].to_pylist() == table[name].to_pylist() or name == "f", name
    frame, want = back.to_pandas(), table.select(names).to_pandas()
    for name in ("id", "step", "u64", "maybe", "d"):
        assert np.array_equal(frame[name], want[name], equal_nan=True), name
    assert (
        frame["text"].isna().tolist() == want["text"].isna().tolist()
        and frame["day"].isna().sum() == want["day"].isna().sum()
    )
    assert back.to_numpy()["maybe"].mask.sum() == table["maybe"].null_count
    hora.dataset.write(table, tmp_path / "out")
    assert (
        hora.dataset.read(tmp_path / "out", columns=names).to_arrow()["text"].to_pylist() == table["text"].to_pylist()
    )
    assert sorted(os.listdir(tmp_path / "out")) == ["_SUCCESS", "part-00000.parquet"] and os.listdir(tmp_path) == [
        "out"
    ]
    with pytest.raises(hora.ArgumentError, match="is there already"):
        hora.dataset.write(table, tmp_path / "out")
    hora.dataset.write(table[:5], tmp_path / "out", overwrite=True)
    assert hora.dataset.read(tmp_path / "out").rows == 5
    with pytest.raises(hora.ArgumentError, match="no rows"):
        hora.dataset.write(table[:0], tmp_path / "none")
    with pytest.raises(hora.ArgumentError, match="is no table"):
        hora.dataset.write(3, tmp_path / "none")


def test_tables_in_memory(arrow):
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    x = np.arange(12, dtype="f4").reshape(4, 3)
    for source in (
        {"x": x, "y": np.arange(4)},
        pd.DataFrame({"x": list(x), "y": np.arange(4)}),
        pl.DataFrame({"x": x, "y": np.arange(4)}),
        pl.DataFrame({"x": x, "y": np.arange(4)}).lazy(),
        pa.table({"x": pa.FixedSizeListArray.from_arrays(x.reshape(-1), 3), "y": np.arange(4)}),
    ):
        loader = hora.dataset.open(source, batch=4, shuffle=False)
        (batch,) = loader
        assert np.array_equal(batch["x"], x) and batch["y"].tolist() == [0, 1, 2, 3], type(source)
        frame = hora.dataset.read(source)
        assert np.array_equal(frame.to_pandas()["x"][2], x[2]) and frame.to_arrow()["x"].to_pylist() == x.tolist()


def test_row_groups_that_are_written_mix(tmp_path, arrow):
    import pyarrow.parquet as pq

    hora.dataset.write({"x": np.zeros((50_000, 20), "f4")}, tmp_path / "x.parquet")
    about = pq.ParquetFile(tmp_path / "x.parquet").metadata
    assert about.num_row_groups == 4 and about.row_group(0).column(0).has_offset_index
