"""Folders called name=value as columns of Petastorm's readers: of a single file, and asked for by predicates."""

from __future__ import annotations

import pytest


@pytest.fixture
def parted(arrow, tmp_path):
    """Rows 0 to 59 below folders of their remainder by 3, under a folder whose name is no column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "run=7"
    table = pa.table(
        {
            "id": range(60),
            "run": [i % 2 for i in range(60)],
            "key": [f"k{i % 3}" for i in range(60)],
            "n": [i % 3 for i in range(60)],
        }
    )
    pq.write_to_dataset(table, path, partition_cols=["key", "n"])
    return path


def only(field, wanted, asked):
    from petastorm.predicates import PredicateBase

    class Only(PredicateBase):
        def get_fields(self):
            return {field}

        def do_include(self, values):
            asked.append(values[field])
            return wanted(values[field])

    return Only()


def test_a_single_file_has_its_folders_columns(parted):
    from petastorm import make_batch_reader

    file = f"file://{next((parted / 'key=k1' / 'n=1').glob('*.parquet'))}"
    with make_batch_reader(file, shuffle_row_groups=False) as reader:
        batch = next(reader)
    assert batch.id.tolist() == list(range(1, 60, 3)) and set(batch.key) == {"k1"} and set(batch.n.tolist()) == {1}
    with make_batch_reader([file, file], schema_fields=["id", "key"]) as reader:
        assert sum(len(b.id) for b in reader) == 40


def test_what_a_predicate_on_folders_does_not_want_is_not_opened(parted):
    from petastorm import make_batch_reader

    for field, wanted in (("key", lambda k: k != "k1"), ("n", lambda n: n in (0, 2))):
        asked, steps = [], []
        for rank in range(2):
            with make_batch_reader(
                f"file://{parted}", predicate=only(field, wanted, asked), cur_shard=rank, shard_count=2
            ) as reader:
                assert len(reader) == 40
                steps.append([len(b.id) for b in reader])
        assert steps[0] == steps[1] and sum(steps[0]) == 20
        assert len(asked) == 6  # once for each value, and each rank


def test_a_predicate_that_no_folder_fits_warns(parted):
    from petastorm import make_batch_reader

    with (
        pytest.warns(UserWarning, match="No matching data is available for loading"),
        make_batch_reader(f"file://{parted}", predicate=only("key", lambda k: False, []), num_epochs=None) as reader,
    ):
        assert list(reader) == []


def test_a_folder_above_the_dataset_is_no_column(parted):
    from petastorm import make_batch_reader
    from petastorm.predicates import in_lambda

    with make_batch_reader(f"file://{parted}", predicate=in_lambda(["run"], lambda run: run == 1)) as reader:
        assert sorted(i for b in reader for i in b.id.tolist()) == list(range(1, 60, 2))


def test_what_a_predicate_asks_for_wrongly_is_told_at_the_first_row(parted, made):
    from petastorm import make_batch_reader, make_reader

    for make, url in ((make_reader, made), (make_batch_reader, f"file://{parted}")):
        with (
            make(url, predicate=only("nowhere", bool, [])) as reader,
            pytest.raises(ValueError, match=r"\['nowhere'\]\) are not valid names"),
        ):
            next(reader)
