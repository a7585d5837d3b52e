"""Where the tests of Petastorm's names find pyarrow, pandas and Pillow, and the names themselves: in folders of their
own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from petastorm_sample import ROWS, row, schema

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session", autouse=True)
def arrow():
    """The folder with pyarrow, which is importable from now on."""
    folder = subprocess.run(
        ["sh", "tools/deps.sh", "path", "data"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()  # fmt: skip
    for path in (folder, str(ROOT / "python/migration")):
        if path not in sys.path:
            sys.path.append(path)
    return folder


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A dataset with a schema: two files, row groups of ten rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from petastorm.etl.dataset_metadata import materialize_dataset
    from petastorm.unischema import encode_row

    path = tmp_path_factory.mktemp("made")
    url = f"file://{path}"
    with materialize_dataset(None, url, schema()):
        rows = [encode_row(schema(), row(i)) for i in range(ROWS)]
        columns = {n: [bytes(r[n]) if isinstance(r[n], bytearray) else r[n] for r in rows] for n in rows[0]}
        table = pa.table(columns | {"price": pa.array(columns["price"], pa.decimal128(10, 2))})
        pq.write_table(table[:120], path / "a.parquet", row_group_size=10)
        pq.write_table(table[120:], path / "b.parquet", row_group_size=10)
    return url
