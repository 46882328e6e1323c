"""Datasets of old releases are changed as pylance changes them, and read by both afterwards."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.historical import EXPECTED, FURTHER, copied, needs_further, rows_of

import glaive
from glaive.cli.maintenance import repair
from glaive.cli.maintenance import verify as command
from glaive.errors import CorruptFileError, GlaiveError, UnsupportedFeatureError

os.environ.setdefault("LANCE_LOG", "error")
lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")


pytestmark = pytest.mark.interop

Change = Callable[[Any, str, str, pa.Table], object]
"""Library, place, name of a column with plain values, and rows of the dataset."""

REPAIRED = {"v0.10.5/corrupt_schema": ["append", "delete", "update", "merge", "compact", "config"]}
"""Where pylance repairs a defect when it writes, and reads other values than before."""

REFUSED = {"v0.16.0/wrong_data_version_no_fix.lance": ["delete all"]}
"""Changes of rows that glaive refuses, because two fragments have the same id."""


def text_of(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


def value_in(rows: pa.Table, column: str) -> str:
    values = rows[column].drop_null().to_pylist()
    return text_of(values[len(values) // 2]) if values else "NULL"


def merge(lib: Any, at: str, column: str, rows: pa.Table) -> object:
    builder = lib.dataset(at).merge_insert(column)
    once = rows.group_by(column).aggregate([]).slice(0, 1)
    source = rows.slice(0, 1) if once.num_rows else rows
    return builder.when_matched_update_all().when_not_matched_insert_all().execute(source)


def append(lib: Any, at: str, _: str, rows: pa.Table) -> object:
    return lib.write_dataset(rows.slice(0, 2), at, mode="append")


def delete(lib: Any, at: str, column: str, rows: pa.Table) -> object:
    return lib.dataset(at).delete(f"{column} = {value_in(rows, column)}")


def update(lib: Any, at: str, column: str, rows: pa.Table) -> object:
    where = f"{column} = {value_in(rows, column)}"
    return lib.dataset(at).update({column: column}, where)


def overwrite(lib: Any, at: str, *_: object) -> object:
    return lib.write_dataset(pa.table({"a": [1, 2]}), at, mode="overwrite")


def compact(lib: Any, at: str, *_: object) -> object:
    return lib.dataset(at).optimize.compact_files(materialize_deletions_threshold=0.0)


CHANGES: dict[str, Change] = {
    "nothing": lambda *_: None,
    "append": append,
    "overwrite": overwrite,
    "delete": delete,
    "delete all": lambda lib, at, *_: lib.dataset(at).delete("true"),
    "update": update,
    "merge": merge,
    "compact": compact,
    "restore": lambda lib, at, *_: lib.dataset(at, version=1).restore(),
    "config": lambda lib, at, *_: lib.dataset(at).update_config({"a": "b"}),
    "tag": lambda lib, at, *_: lib.dataset(at).tags.create("first", 1),
    "branch": lambda lib, at, *_: lib.dataset(at).create_branch("side"),
    "rename manifests": lambda lib, at, *_: lib.dataset(at).migrate_manifest_paths_v2(),
}


def seen(library: Any, place: str, column: str) -> dict[str, Any]:
    """What a library reads of the newest version; or that it cannot."""
    opened = library.dataset(place)
    table = opened.to_table(with_row_id=True)
    found = {
        "version": opened.version,
        "schema": opened.schema,
        "rows": table.to_pylist(),
        "count": opened.count_rows(),
        "fragments": [
            (one.fragment_id, one.physical_rows, one.num_deletions)
            for one in opened.get_fragments()
        ],
        "config": opened.config(),
        "tags": {name: one["version"] for name, one in opened.tags.list().items()},
        "branches": sorted(opened.branches.list()),
    }
    if column in table.schema.names:
        value = value_in(table, column)
        for filter in (f"{column} = {value}", f"{column} IS NOT NULL", f"{column} < {value}"):
            found[filter] = opened.to_table(filter=filter).to_pylist()
    return found


def plain_column(table: pa.Table) -> str:
    for field in table.schema:
        if pa.types.is_integer(field.type) or pa.types.is_string(field.type):
            return field.name
    return table.schema.names[0]


@pytest.mark.sampled(every=12)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", EXPECTED)
def test_both_change_it_alike(name: str, change: str, tmp_path: Path) -> None:
    newest = max(EXPECTED[name], key=int)
    rows = rows_of(name, newest)
    column = plain_column(rows)
    outcomes: list[Exception | None] = []
    for library, refused in ((lance, Exception), (glaive, GlaiveError)):
        place = str(copied(name, tmp_path / library.__name__))
        try:
            CHANGES[change](library, place, column, rows)
        except refused as error:
            outcomes.append(error)
        else:
            outcomes.append(None)
    theirs, ours = str(tmp_path / "lance"), str(tmp_path / "glaive")
    try:
        expected = seen(lance, theirs, column)
    except Exception as error:
        # Pylance cannot change it, or not read it afterwards.
        outcomes[0] = outcomes[0] or error
    if change in REPAIRED.get(name, ()):
        assert outcomes[1] is None
        assert seen(lance, ours, column) == seen(glaive, ours, column)
    elif change in REFUSED.get(name, ()):
        assert isinstance(outcomes[1], UnsupportedFeatureError)
    elif outcomes[0] is None:
        assert outcomes[1] is None
        assert seen(glaive, theirs, column) == expected
        assert seen(glaive, ours, column) == expected
        assert seen(lance, ours, column) == expected
    # No version that was there before has changed.
    for version in EXPECTED[name]:
        assert glaive.dataset(ours, version=int(version)).to_table() == rows_of(name, version)


@pytest.mark.spec("vector-6", "rel-12")
def test_codebooks_in_the_metadata_of_an_index_are_searched_and_moved_as_by_pylance(
    tmp_path: Path,
) -> None:
    at = copied("v0.27.1/pq_in_schema", tmp_path / "t")
    query = [at / 10 for at in range(32)]

    def found(library: Any) -> pa.Table:
        near = {"column": "vec", "q": query, "k": 5}
        table: pa.Table = library.dataset(at).to_table(columns=["id"], nearest=near)
        return table.select(["id"])

    first = found(glaive)
    assert first == found(lance)
    assert CliRunner().invoke(command, [str(at)]).exit_code == 0
    glaive.dataset(at).delete("id % 7 = 1")
    glaive.dataset(at).optimize.compact_files()
    assert glaive.dataset(at).describe_indices()[0].segments[0].fragment_ids == frozenset({1})
    assert found(glaive) == found(lance) == first


@pytest.mark.parametrize("stored", [[256], [-1], ["a"], [None], {}, "text"])
def test_codebooks_in_the_metadata_that_are_no_bytes_are_damage(
    tmp_path: Path, stored: object
) -> None:
    at = copied("v0.27.1/pq_in_schema", tmp_path / "t")
    (path,) = at.rglob("auxiliary.idx")
    file = lance.file.LanceFileReader(str(path))
    rows, said = file.read_all().to_table(), file.metadata().schema.metadata
    details = json.loads(json.loads(said[b"storage_metadata"])[0]) | {"codebook_tensor": stored}
    partitions = bytes(file.read_global_buffer(1))
    with lance.file.LanceFileWriter(str(path), rows.schema.remove_metadata()) as writer:
        writer.write_batch(rows)
        writer.add_global_buffer(partitions)
        for key, value in said.items():
            writer.add_schema_metadata(key.decode(), value.decode())
        writer.add_schema_metadata("storage_metadata", json.dumps([json.dumps(details)]))
    with pytest.raises(CorruptFileError, match=r"codebook.*auxiliary\.idx"):
        glaive.dataset(at).to_table(nearest={"column": "vec", "q": [0.0] * 32})


def test_a_manifest_of_lance_0_16_that_says_0_1_of_newer_files_gets_their_format(
    tmp_path: Path,
) -> None:
    at = copied("v0.16.0/wrong_data_version_can_fix.lance", tmp_path / "t")
    for _ in range(2):
        reported = CliRunner().invoke(command, [str(at)])
        assert reported.exit_code == 0, reported.output
        reported = CliRunner().invoke(repair, [str(at), "--apply"])
        assert reported.exit_code == 0, reported.output
        glaive.dataset(at).validate()
        lance.dataset(at).validate()
        assert sorted(glaive.dataset(at).to_table()["foo"].to_pylist())[:3] == [1, 2, 3]
        glaive.write_dataset({"foo": [4]}, at, mode="append")
        assert glaive.dataset(at).data_storage_version == "2.0"
        assert lance.dataset(at).data_storage_version == "2.0"
    lance.dataset(at).delete("foo = 4")
    assert glaive.dataset(at).count_rows() == 3


def test_no_version_is_made_of_files_of_0_1_and_2_0_but_by_overwriting(tmp_path: Path) -> None:
    at = copied("v0.16.0/wrong_data_version_no_fix.lance", tmp_path / "t")
    with pytest.raises(OSError, match=r"formats 0\.1, 2\.0.*overwrite the dataset"):
        glaive.dataset(at).update_config({"a": "b"})
    rows = glaive.dataset(at).to_table()
    glaive.write_dataset(rows, at, mode="overwrite")
    lance.dataset(at).delete("false")
    assert lance.dataset(at).to_table() == rows


def test_b_trees_of_old_releases_are_sound_and_not_searched(tmp_path: Path) -> None:
    at = copied("v0.18.2/index_no_details.lance", tmp_path / "t")
    reported = CliRunner().invoke(command, [str(at), "--newest"])
    assert reported.exit_code == 0, reported.output
    found = glaive.dataset(at).to_table(filter="id in (5, 7)")
    assert found == lance.dataset(at).to_table(filter="id in (5, 7)")


def test_vector_indices_of_one_file_are_sound(tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).random(512 * 8, np.float32)
    rows = pa.table({"v": pa.FixedSizeListArray.from_arrays(vectors, 8)})
    made = lance.write_dataset(rows, tmp_path / "t")
    made.create_index(
        "v", "IVF_PQ", num_partitions=1, num_sub_vectors=2, index_file_version="Legacy"
    )
    reported = CliRunner().invoke(command, [str(tmp_path / "t"), "--deep"])
    assert reported.exit_code == 0, reported.output


@needs_further
@pytest.mark.parametrize("place", FURTHER, ids=str)
def test_both_read_further_datasets_alike(place: Path, tmp_path: Path) -> None:
    at = tmp_path / "t"
    shutil.copytree(place, at)
    versions = [one["version"] for one in lance.dataset(at).versions()]
    assert [one["version"] for one in glaive.dataset(at).versions()] == versions
    for version in versions:
        try:
            expected = lance.dataset(at, version=version).to_table(with_row_id=True)
        except OSError:  # its files are not here
            with pytest.raises(OSError, match=str(at)):
                glaive.dataset(at, version=version).to_table(with_row_id=True)
        else:
            found = glaive.dataset(at, version=version)
            assert found.to_table(with_row_id=True) == expected
            assert found.count_rows() == expected.num_rows
