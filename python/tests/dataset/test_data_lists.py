"""Lists of texts, maps, and lists of structs: what pyarrow writes comes back, and can be written again."""

from __future__ import annotations

import itertools
import subprocess

import numpy as np
import pytest

import hora
import hora.dataset

ROWS = 300


def lists(seed=4, binary=False):
    """Lists of none to five texts; some of the lists, and some of the texts, are null."""
    rng = np.random.default_rng(seed)
    words = ["", "a", "zwei", "δύο", "x" * 200, None]
    made = [None if n == 6 else [words[k] for k in rng.integers(0, len(words), n)] for n in rng.integers(0, 7, ROWS)]
    return [x and [w.encode() if binary and w is not None else w for w in x] for x in made]


@pytest.mark.parametrize(("version", "dictionary"), list(itertools.product(["1.0", "2.0"], [True, False])))
def test_lists_of_texts(arrow, tmp_path, version, dictionary):
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts, raw = lists(), lists(5, True)
    table = pa.table(
        {
            "id": range(ROWS),
            "texts": pa.array(texts, pa.list_(pa.string())),
            "raw": pa.array(raw, pa.large_list(pa.binary())),
        }
    )
    encoding = (
        None
        if dictionary
        else {"texts.list.element": "DELTA_BYTE_ARRAY", "raw.list.element": "DELTA_LENGTH_BYTE_ARRAY"}
    )
    pq.write_table(
        table, tmp_path / "a.parquet", data_page_version=version, use_dictionary=dictionary, column_encoding=encoding,
        data_page_size=300,
        write_batch_size=20, row_group_size=70,
    )  # fmt: skip
    seen = 0
    for batch in hora.dataset.open(tmp_path, batch=64):
        for i, row in enumerate(batch["id"].tolist()):
            assert batch["texts"][i] == (texts[row] or []) and batch["raw"][i] == (raw[row] or [])
            seen += 1
        assert list(batch["texts"]) == batch["texts"].tolist() == np.asarray(batch["texts"]).tolist()
    assert seen == ROWS and repr(batch["raw"]) == f"<{batch.rows} lists of binaries>"
    whole = hora.dataset.read(tmp_path)
    assert (
        whole["texts"].tolist()
        == whole.to_pandas()["texts"].tolist()
        == whole.to_arrow()["texts"].to_pylist()
        == [x or [] for x in texts]
    )
    some = hora.dataset.read(tmp_path, filter=[("id", "in", [1, 71, 140])])
    assert some["texts"].tolist() == [texts[i] or [] for i in (1, 71, 140)]
    with pytest.raises(
        hora.HoraError, match='nulls={"texts": x}, which is a list of texts: its nulls are None; use "error"'
    ):
        hora.dataset.open(tmp_path, batch=1, nulls={"texts": "x"})
    with pytest.raises(hora.HoraError, match='column "texts".* has a null; say what'):
        list(hora.dataset.open(tmp_path, batch=ROWS, nulls={"texts": "error"}))


def test_they_are_converted_verified_and_written(arrow, hora_program, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = lists()
    hora.dataset.write(pa.table({"texts": texts, "words": [["a", "b"]] * ROWS}), tmp_path / "a.parquet")
    subprocess.run(
        [hora_program, "data", "convert", tmp_path / "a.parquet", tmp_path / "b"], check=True, capture_output=True
    )
    again = pq.read_table(tmp_path / "b")
    assert again["texts"].to_pylist() == [x or [] for x in texts] and again["words"].to_pylist() == [["a", "b"]] * ROWS
    verified = subprocess.run(
        [hora_program, "data", "verify", tmp_path / "b"], check=True, capture_output=True, text=True
    )
    assert "not read" not in verified.stdout
    looked = subprocess.run([hora_program, "data", "look", tmp_path / "b"], check=True, capture_output=True, text=True)
    assert "string[…]" in looked.stdout


def test_fields_of_structs_in_lists_have_names(arrow, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({
        "s": [{"a": i, "t": [str(i)]} for i in range(4)],
        "pairs": [[{"x": i, "y": f"y{i}"}] * (i + 1) for i in range(4)],
        "m": pa.array([[("k", 1.5 * i)] * i for i in range(4)], pa.map_(pa.string(), pa.float64())),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "a.parquet")
    (batch,) = hora.dataset.open(tmp_path, batch=4, shuffle=False)
    assert list(batch) == ["s.a", "s.t", "pairs.x", "pairs.y", "m.key", "m.value"]
    assert batch["s.a"].tolist() == [0, 1, 2, 3] and batch["s.t"].tolist() == [["0"], ["1"], ["2"], ["3"]]
    assert batch["pairs.x"].tolist() == [[i] * (i + 1) for i in range(4)] and batch["pairs.y"].tolist() == [
        [f"y{i}"] * (i + 1) for i in range(4)
    ]
    assert batch["m.key"].tolist() == [["k"] * i for i in range(4)] and batch["m.value"].tolist() == [
        [1.5 * i] * i for i in range(4)
    ]


def test_nulls_in_lists(arrow, tmp_path):
    """A null among a list's values is NaN or None, never a 0; what only looks equally long is read where ragged= names
    it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "x.parquet"
    pq.write_table(
        pa.table({"f": pa.array([[1.0, None], [2.0, 3.0]], pa.list_(pa.float32())), "i": [[None, 7], [8, 9]]}), path
    )
    frame = hora.dataset.read(path).to_pandas()
    assert np.array_equal(frame["f"][0], [1, np.nan], equal_nan=True) and frame["f"][0].dtype == np.float32
    assert np.array_equal(frame["i"][0], [np.nan, 7], equal_nan=True) and frame["i"][1].tolist() == [8, 9]
    pq.write_table(pa.table({"few": [[1], [], [None]], "id": [0, 1, 2]}), path)
    with pytest.raises(hora.HoraError, match="ragged= names them"):
        hora.dataset.read(path)
    assert hora.dataset.read(path, ragged=["few"], nulls={"few": -1})["few"].tolist() == [[1], [], [-1]]
    (batch,) = hora.dataset.open(path, ragged=["few"], nulls={"few": 0}, batch=3, shuffle=False)
    assert batch["few"].tolist() == [[1], [], [0]] and batch["id"].tolist() == [0, 1, 2]
    with pytest.raises(hora.HoraError, match='ragged= names "nothing", and there is no such column'):
        hora.dataset.read(path, ragged=["nothing"])


def test_a_list_of_one_column_is_a_matrix(arrow):
    table = {"a": np.arange(3), "v": np.zeros((3, 2)), "t": ["x", "y", "z"]}
    (batch,) = hora.dataset.open(table, columns={"x": ["a"], "y": "a", "v": ["v"], "t": ["t"]}, batch=3, shuffle=False)
    assert (
        batch["x"].shape == (3, 1)
        and batch["y"].shape == (3,)
        and batch["v"].shape == (3, 2)
        and batch["t"].tolist() == ["x", "y", "z"]
    )


def test_lists_that_only_look_equally_long(arrow, hora_program, tmp_path):
    """Lists of one value or none are as many values as rows: look and verify read them, convert where --ragged names
    them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    few = [[1], [], [2]] * 10
    pq.write_table(pa.table({"few": few, "hole": [[None], [3], []] * 10, "id": range(30)}), tmp_path / "x.parquet")

    def run(*args):
        return subprocess.run(
            [hora_program, "data", *map(str, args)], capture_output=True, text=True, timeout=60, check=False
        )

    for action in ("look", "verify"):
        done = run(action, tmp_path / "x.parquet")
        assert not done.returncode and "30 rows" in done.stdout, done
    to = tmp_path / "out.parquet"
    done = run("convert", tmp_path / "x.parquet", to, "--columns=few,id")
    assert done.returncode == 1 and "lists of different lengths are read where ragged= names them" in done.stderr
    assert not run("convert", tmp_path / "x.parquet", to, "--columns=few,id", "--ragged=few").returncode
    assert pq.read_table(to)["few"].to_pylist() == few
    done = run("convert", tmp_path / "x.parquet", tmp_path / "other", "--columns=id", "--ragged=few")
    assert done.returncode == 1 and 'ragged= names "few", which is not among the columns' in done.stderr
