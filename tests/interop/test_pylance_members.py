"""Members that programs written for pylance read: glaive has them, and they say the same."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import OptionError

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

ROWS = 300
PRIMARY = "lance-schema:unenforced-primary-key"
CLUSTERING = "lance-schema:unenforced-clustering-key"


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("members") / "d")
    vectors = np.random.default_rng(1).random(ROWS * 8, dtype=np.float32)
    data = {
        "id": range(ROWS),
        "text": [f"word{at} of a text" for at in range(ROWS)],
        "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors), 8),
        "j": pa.array(['{"a": 1}'] * ROWS, pa.json_()),
    }
    dataset = glaive.write_dataset(pa.table(data), path)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("text", "INVERTED", with_position=True, stem=False)
    config = {"path": "a", "target_index_type": "btree"}
    dataset.create_scalar_index("j", glaive.indices.IndexConfig("json", config))
    dataset.create_index(
        "v", "IVF_HNSW_SQ", metric="cosine", num_partitions=2, m=10, ef_construction=50
    )
    dataset.create_index("v", "IVF_RQ", name="signs", num_partitions=2, target_partition_size=99)
    dataset.create_index("v", "IVF_PQ", name="codes", num_partitions=2, num_sub_vectors=2)
    dataset.create_index("v", "IVF_FLAT", name="plain", num_partitions=2, metric="dot")
    return path


def test_details_of_indices_are_those_of_pylance(indexed: str) -> None:
    mine, theirs = (
        {one.name: one.details for one in library.dataset(indexed).describe_indices()}
        for library in (glaive, lance)
    )
    assert mine == theirs
    assert theirs["codes"]["compression"] == {"type": "pq", "num_bits": 8, "num_sub_vectors": 2}


def test_the_inner_dataset_tells_of_the_session(indexed: str) -> None:
    for library in (glaive, lance):
        dataset = library.dataset(indexed)
        assert dataset.to_table(["id"], "id = 7").num_rows == 1
        entries = dataset._ds.index_cache_entry_count()  # noqa: SLF001  # as clients do
        rate = dataset._ds.index_cache_hit_rate()  # noqa: SLF001  # as clients do
        assert (type(entries), type(rate)) == (int, float)
        assert entries > 0
        assert 0 <= rate <= 1


def test_the_inner_fragment_has_an_id_and_metadata(indexed: str) -> None:
    for library in (glaive, lance):
        fragment = library.dataset(indexed).get_fragment(0)
        inner = fragment._fragment  # noqa: SLF001  # as clients do
        assert inner.id() == 0
        assert inner.schema() == fragment.schema
        assert inner.metadata() == fragment.metadata
        assert inner.count_rows() == inner.physical_rows == ROWS


def keys(schema: Any) -> list[Any]:
    fields = schema.fields() + schema.field("at").children()
    return [
        [field.name() for field in schema.unenforced_primary_key()],
        [field.name() for field in schema.unenforced_clustering_key()],
        [
            (
                field.is_unenforced_primary_key(),
                field.unenforced_primary_key_position(),
                field.is_unenforced_clustering_key(),
                field.unenforced_clustering_key_position(),
            )
            for field in fields
        ],
    ]


@pytest.mark.parametrize(
    "declared",
    [
        {"a": {PRIMARY: "true"}, "b": {PRIMARY: "1"}, "n": {PRIMARY: "yes"}},
        {"a": {PRIMARY: "TRUE"}, "b": {f"{PRIMARY}:position": "1"}, "n": {PRIMARY: "no"}},
        {"a": {PRIMARY: "false", f"{PRIMARY}:position": "3"}, "b": {PRIMARY: "true"}},
        {"a": {f"{PRIMARY}:position": "0"}, "b": {f"{PRIMARY}:position": "-1"}},
        {"a": {f"{PRIMARY}:position": "x", PRIMARY: "true"}, "n": {f"{PRIMARY}:position": "2"}},
        {"a": {CLUSTERING: "true"}, "b": {f"{CLUSTERING}:position": "2"}},
        {"b": {f"{CLUSTERING}:position": "2"}, "n": {f"{CLUSTERING}:position": "1"}},
    ],
)
def test_declared_keys_are_read_as_pylance_reads_them(
    tmp_path: Path, declared: dict[str, dict[str, str]]
) -> None:
    def field(name: str, kind: pa.DataType) -> Any:
        return pa.field(name, kind, False, declared.get(name))

    members = pa.struct([field("n", pa.int32())])
    schema = pa.schema([field("a", pa.int64()), field("b", pa.int64()), field("at", members)])
    mine, theirs = (library.schema.LanceSchema.from_pyarrow(schema) for library in (glaive, lance))
    assert keys(mine) == keys(theirs)
    glaive.write_dataset(schema.empty_table(), tmp_path / "d")
    read = [library.dataset(str(tmp_path / "d")).lance_schema for library in (glaive, lance)]
    assert keys(read[0]) == keys(read[1]) == keys(theirs)


def test_batches_of_a_checkpoint_come_back(tmp_path: Path) -> None:
    batch = pa.record_batch({"a": [1, 2, 3]})
    for library in (glaive, lance):
        file = tmp_path / library.__name__
        made = library.batch_udf(checkpoint_file=file)(lambda batch: batch).cache
        kept = library.udf.BatchUDFCheckpoint(file)
        first, second = kept.BatchInfo(0, 0), kept.BatchInfo(0, 1)
        made.insert_batch(first, batch)
        assert kept.get_batch(first) == batch
        assert kept.get_batch(second) is None
        kept.insert_fragment(0, "done")
        assert (made.get_fragment(0), made.get_fragment(1)) == ("done", None)
        assert made.get_batch(first) is None
        kept.cleanup()
        assert not file.exists()
        assert library.batch_udf()(lambda batch: batch).cache is None


def test_a_damaged_checkpoint_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    kept = glaive.udf.BatchUDFCheckpoint(file)
    with sqlite3.connect(file) as connection:
        connection.execute("INSERT INTO batches VALUES ('0', 0, x'00')")
    connection.close()
    with pytest.raises(OptionError, match="Delete the file to start over"):
        kept.get_batch(kept.BatchInfo(0, 0))
    file.write_bytes(b"no database" * 100)
    with pytest.raises(OptionError, match="Choose another file"):
        glaive.udf.BatchUDFCheckpoint(file)


def test_a_writer_tells_whether_it_is_closed(tmp_path: Path) -> None:
    for library in (glaive, lance):
        writer = library.file.LanceFileWriter(str(tmp_path / library.__name__))
        writer.write_batch(pa.table({"a": [1]}))
        assert not writer.closed
        writer.close()
        assert writer.closed


def test_an_index_finds_its_column_in_any_case(tmp_path: Path) -> None:
    for library in (glaive, lance):
        dataset = library.write_dataset(pa.table({"Id": [1, 2]}), str(tmp_path / library.__name__))
        dataset.create_scalar_index("iD", "BTREE")
        (index,) = dataset.describe_indices()
        assert index.field_names == ["Id"]
        assert dataset.to_table(filter="id = 2", use_scalar_index=True).num_rows == 1
