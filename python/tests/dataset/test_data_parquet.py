"""Every value that pyarrow writes comes back, bit by bit: type by encoding by codec by nulls by page version."""

from __future__ import annotations

import datetime
import decimal
import itertools

import numpy as np
import pytest

import hora.dataset

ROWS = 700


def table(pa, nulls: bool):
    """A column of each type. With nulls a third of the values are missing, the first ones of all among them."""
    rng = np.random.default_rng(7)
    missing = (rng.random(ROWS) < 0.33) | (np.arange(ROWS) < 40) if nulls else None

    def column(values, kind):
        return pa.array(values, type=kind, mask=missing) if missing is not None else pa.array(values, type=kind)

    raw = rng.integers(0, 256, (ROWS, 8), dtype=np.uint8)
    columns = {"bool": column(rng.random(ROWS) < 0.2, pa.bool_())}
    for bits in (8, 16, 32, 64):
        for sign, letter in (("int", "i"), ("uint", "u")):
            columns[f"{sign}{bits}"] = column(
                raw.view(f"{letter}8")[:, 0].astype(f"{letter}{bits // 8}"), getattr(pa, f"{sign}{bits}")()
            )
    for bits in (16, 32, 64):  # any bits: NaN with payloads, infinities, subnormals
        columns[f"float{bits}"] = column(
            np.ascontiguousarray(raw[:, : bits // 8]).view(f"f{bits // 8}")[:, 0], getattr(pa, f"float{bits}")()
        )
    few = rng.integers(-4, 5, ROWS)
    columns["few"] = column(few * 1000003, pa.int64())
    columns["date"] = column((few * 3000).astype("datetime64[D]"), pa.date32())
    for unit in ("ms", "us", "ns"):
        columns[f"at_{unit}"] = column(raw.view("i8")[:, 0].astype(f"datetime64[{unit}]"), pa.timestamp(unit))
    columns["time_ms"] = column([datetime.time(0, 0, int(x) % 60, 1000 * int(x)) for x in raw[:, 0]], pa.time32("ms"))
    columns["time_us"] = column([datetime.time(1, 2, int(x) % 60, int(x)) for x in raw[:, 0]], pa.time64("us"))
    for digits, scale in ((7, 2), (16, 5), (38, 10)):
        least = 10 ** min(digits, 18)
        columns[f"decimal{digits}"] = column(
            [decimal.Decimal(int(x) % least - least // 2).scaleb(-scale) for x in raw.view("u8")[:, 0]],
            pa.decimal128(digits, scale),
        )
    texts = ["", "a", "zwei", "δύο", "x" * 300]
    columns["text"] = column([texts[int(x) % 5] + str(int(x) % 7) for x in raw[:, 1]], pa.string())
    columns["binary"] = column([bytes(r[: r[0] % 9]) for r in raw], pa.binary())
    columns["fixed"] = column([bytes(r[:5]) for r in raw], pa.binary(5))
    if not nulls:
        columns["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(ROWS * 3, dtype=np.float32)), 3)
        columns["lists"] = pa.array(rng.integers(0, 9, (ROWS, 4)).tolist(), pa.list_(pa.int32()))
        columns["struct"] = pa.StructArray.from_arrays([pa.array(few)], ["inner"])
    return pa.table(columns)


def expected(column, got):
    """What NumPy has for a column of pyarrow's, nulls as zero."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_decimal(kind):
        return np.array([float(x) if x is not None else 0 for x in column.to_pylist()])
    if pa.types.is_fixed_size_binary(kind):
        return np.array([x or bytes(kind.byte_width) for x in column.to_pylist()], dtype=got.dtype)
    if pa.types.is_nested(kind):
        return np.array(column.to_pylist(), dtype=got.dtype)
    if pa.types.is_boolean(kind):
        return column.fill_null(False).to_numpy()
    if kind.bit_width == 32 and pa.types.is_temporal(kind):
        column = column.cast(pa.int32()).cast(pa.int64())
    elif pa.types.is_temporal(kind):
        column = column.cast(pa.int64())
    parts = [
        np.frombuffer(c.buffers()[1], np.uint8)[c.offset * c.type.bit_width // 8 :][: len(c) * c.type.bit_width // 8]
        for c in column.chunks
    ]
    values = np.concatenate(parts).view(f"V{column.type.bit_width // 8}").copy()
    values[np.asarray(column.is_null())] = bytes(values.itemsize)
    return values


def compare(path, wanted, skip=(), part=0):
    """All columns of a file against the table that was written; part reads its row groups so many rows at a time."""
    columns = {n: f"{n}.inner" if n == "struct" else n for n in wanted.column_names if n not in skip}
    plain = [n for n in columns if wanted[n].null_count]
    loader = hora.dataset.open(path, columns=columns, shuffle=False, batch=256, nulls=dict.fromkeys(plain, "mask"))
    if part:
        loader.load_state_dict({**loader.state_dict(), "part": part})
    parts = list(loader)
    assert [len(p["bool"]) for p in parts] == [256, 256, ROWS - 512]
    for name in columns:
        want = wanted[name].combine_chunks() if name == "struct" else wanted[name]
        if name == "struct":
            want = want.field("inner") if not hasattr(want, "chunks") else want.chunk(0).field("inner")
            assert np.array_equal(np.concatenate([p[name] for p in parts]), want.to_numpy())
            continue
        if name in plain:
            assert np.array_equal(np.concatenate([p[name + ".null"] for p in parts]), np.asarray(want.is_null())), name
        if isinstance(parts[0][name], hora.dataset.Texts):
            empty = b"" if parts[0][name].binary else ""
            assert [x for p in parts for x in p[name].tolist()] == [
                empty if x is None else x for x in want.to_pylist()
            ], name
            continue
        got = np.concatenate([p[name] for p in parts])
        numbers = expected(want, got)
        assert got.tobytes() == numbers.tobytes(), f"{name} ({got.dtype})"


@pytest.mark.parametrize("nulls", [False, True])
def test_types_and_codecs(arrow, tmp_path, nulls):
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = table(pa, nulls)
    for codec, version, dictionary in itertools.product(
        ["none", "snappy", "zstd", "gzip", "lz4", "brotli"], ["1.0", "2.0"], [False, True]
    ):
        path = tmp_path / f"{codec}-{version}-{dictionary}.parquet"
        pq.write_table(
            wanted, path, compression=codec, data_page_version=version, use_dictionary=dictionary, data_page_size=700,
            write_batch_size=50, row_group_size=300, write_page_checksum=version == "2.0", store_schema=False,
        )  # fmt: skip
        compare(path, wanted)


@pytest.mark.parametrize("nulls", [False, True])
def test_parts_of_row_groups(arrow, tmp_path, nulls):
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = table(pa, nulls)
    for version, dictionary, size in itertools.product(["1.0", "2.0"], [False, True], [100, 700]):
        path = tmp_path / f"{version}-{dictionary}-{size}.parquet"
        pq.write_table(
            wanted, path, data_page_version=version, use_dictionary=dictionary, data_page_size=size,
            write_batch_size=13,
            row_group_size=400, write_page_index=True, store_schema=False,
        )  # fmt: skip
        for part in (1, 13, 99, 399):
            compare(path, wanted, part=part)


def test_a_large_row_group_is_read_in_parts(arrow, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids = np.arange(200_000)
    pq.write_table(
        pa.table({"id": ids, "text": [str(i) for i in ids]}),
        tmp_path / "large.parquet",
        data_page_size=8 << 10,
        write_page_index=True,
    )
    loader = hora.dataset.open(tmp_path, batch=1000, memory=1 << 20)
    assert "row groups are read in parts of" in loader.mixing
    first, state = next(iter(loader)), loader.state_dict()
    assert 0 < state["part"] < 20_000 and len(str(state)) < 220
    assert first["id"].max() - first["id"].min() > 100_000
    other = hora.dataset.open(tmp_path, batch=777, memory=1 << 30)
    assert "parts" not in other.mixing
    other.load_state_dict(state)
    rest = list(other)
    got = np.concatenate([first["id"], *(b["id"] for b in rest)])
    assert np.array_equal(np.sort(got), ids)
    assert all(b["text"].tolist() == [str(i) for i in b["id"]] for b in rest)


ENCODINGS = {
    "DELTA_BINARY_PACKED": ["int8", "uint16", "int32", "uint32", "int64", "uint64", "few", "date", "at_us"],
    "BYTE_STREAM_SPLIT": ["float16", "float32", "float64", "int32", "int64", "fixed", "at_ns"],
    "DELTA_LENGTH_BYTE_ARRAY": ["text", "binary"],
    "DELTA_BYTE_ARRAY": [
        "text",
        "binary",
        "fixed",
        "decimal7",
        "decimal38",
    ],  # Spark's second version writes decimals so
    "RLE": ["bool"],
}


@pytest.mark.parametrize("nulls", [False, True])
def test_encodings(arrow, tmp_path, nulls):
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = table(pa, nulls)
    for encoding, version in itertools.product(ENCODINGS, ["1.0", "2.0"]):
        path = tmp_path / f"{encoding}-{version}.parquet"
        pq.write_table(
            wanted, path, compression="zstd", data_page_version=version, use_dictionary=False, data_page_size=700,
            write_batch_size=50,
            row_group_size=300, column_encoding=dict.fromkeys(ENCODINGS[encoding], encoding),
        )  # fmt: skip
        compare(path, wanted)


def test_int96(arrow, tmp_path):
    """The timestamps that Spark writes by default."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    at = np.array(["1965-02-03T04:05:06.123456789", "2026-11-22T20:00:00", "1970-01-01"], "datetime64[ns]")
    pq.write_table(pa.table({"at": at}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    (batch,) = hora.dataset.open(tmp_path, batch=9, shuffle=False)
    assert batch["at"].dtype == at.dtype and np.array_equal(batch["at"], at)


def test_nulls_become_what_was_said(arrow, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "f": [1.5, None, 2.5],
        "i": [1, None, 3],
        "s": ["a", None, "c"],
        "b": [True, None, False],
        "h": pa.array([1, None, 2], pa.float16()),
    }
    pq.write_table(pa.table(columns | {"d": pa.array([1, None, 3], pa.date32())}), tmp_path / "a.parquet")

    def one(nulls, names="fisbhd"):
        return next(iter(hora.dataset.open(tmp_path, columns=list(names), batch=3, shuffle=False, nulls=nulls)))

    b = one({"i": -(2**62) - 1, "s": "none", "b": True, "h": 2.5})
    assert np.isnan(b["f"][1]) and b["i"][1] == -(2**62) - 1 and b["s"][1] == "none" and b["b"][1] and b["h"][1] == 2.5
    assert np.isnat(b["d"][1])
    assert one({"f": 0.1}, "f")["f"][1] == 0.1
    for nulls, names, says in [
        (None, "i", 'row 1 of the row group is null; say what a null becomes: nulls={"i": "mask"}'),
        ({"f": "error"}, "f", "row 1 of the row group is null"),
        ({"i": 1.5}, "i", "which is no int64"), ({"s": "nan"}, "s", "has no such value"),
        ({"x": 1}, "f", "not among the arrays"),
    ]:  # fmt: skip
        with pytest.raises(hora.HoraError, match="null") as e:
            one(nulls, names)
        assert says in str(e.value) and e.value.__cause__ is None


def test_what_cannot_be_read_is_one_sentence(arrow, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table({"a": [1, 2], "ragged": [[1], [2, 3, 4]], "lists": [[["a"]], [["b"]]]}), tmp_path / "a.parquet"
    )
    (tmp_path / "c.parquet").write_bytes(b"PAR1 no table at all")
    pq.write_table(pa.table({"a": ["text"]}), tmp_path / "d.parquet")
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "e.parquet")
    for source, columns, says in [
        ("a", ["ragged"], "row 0 has another number of values than 2; lists of different lengths are read where ragged= names them"), ("a", ["lists"], "it is a list of lists"), ("a", ["b"], 'no column "b"; there are: a, ragged, lists'),
        ("c", None, "does not end as a Parquet file does"), ("e", None, "have no rows"),
        ("[ad]", ["a"], 'column "a" is string, and int64 in'), ("x", None, "there is no such file"),
    ]:  # fmt: skip
        with pytest.raises(hora.HoraError) as e:
            list(hora.dataset.open(tmp_path / f"{source}.parquet", columns=columns, batch=2))
        assert says in str(e.value) and ".parquet" in str(e.value)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_ragged_lists(arrow, tmp_path, version):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(3)
    lists = [None if n == 0 else rng.integers(0, 1000, n - 1).tolist() for n in rng.integers(0, 9, ROWS)]
    holes = [None if x is None else [None if v % 7 == 0 else v for v in x] for x in lists]
    table = pa.table(
        {"id": range(ROWS), "few": pa.array(lists, pa.list_(pa.int16())), "f": pa.array(holes, pa.list_(pa.float32()))}
    )
    for dictionary in (False, True):
        path = tmp_path / f"{dictionary}.parquet"
        pq.write_table(
            table,
            path,
            data_page_version=version,
            use_dictionary=dictionary,
            data_page_size=300,
            write_batch_size=20,
            row_group_size=150,
        )
        seen = 0
        for batch in hora.dataset.open(path, columns=["id", "few", "f"], batch=64):
            assert batch["few"].data.dtype == np.int16 and len(batch["few"]) == len(batch["id"])
            for i, row in enumerate(batch["id"].tolist()):
                assert batch["few"][i].tolist() == (lists[row] or [])
                want = np.array([np.nan if v is None else v for v in holes[row] or []], "f4")
                assert np.array_equal(batch["f"][i], want, equal_nan=True)
                seen += 1
        assert seen == ROWS
    short = pa.table({"x": [[1], [2, 3, 4], [None, 5]]})
    pq.write_table(short, tmp_path / "short.parquet")
    (batch,) = hora.dataset.open(
        tmp_path / "short.parquet", columns=["x"], ragged=["x"], nulls={"x": -1}, shuffle=False, batch=9
    )
    assert batch["x"].tolist() == [[1], [2, 3, 4], [-1, 5]] and repr(batch["x"]) == "<3 lists of 6 int64 in all>"
    batch = next(
        iter(
            hora.dataset.open(
                tmp_path / "short.parquet", columns=["x"], ragged=["x"], nulls={"x": -1}, shuffle=False, batch=9
            ).torch()
        )
    )
    assert batch["x"].data.tolist() == [1, 2, 3, 4, -1, 5] and batch["x"][1].tolist() == [2, 3, 4]
    with pytest.raises(hora.HoraError, match="a list of row 2 of the row group has a null"):
        list(hora.dataset.open(tmp_path / "short.parquet", columns=["x"], ragged=["x"], batch=9))
