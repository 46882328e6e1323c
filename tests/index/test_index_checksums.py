"""Index files have the checksums of data files, whatever the kind of the index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import glaive
from glaive.cli.maintenance import verify as command
from glaive.errors import CorruptFileError
from glaive.file.files import compare_file
from glaive.io.local import LocalStore

ROWS = 300
ON = {"checksums": "true"}
SCALAR = ["BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER", "NGRAM", "LABEL_LIST", "INVERTED"]
VECTOR = ["IVF_PQ", "IVF_HNSW_SQ"]
COLUMN = {"NGRAM": "text", "INVERTED": "text", "LABEL_LIST": "labels"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("indices") / "t"
    vectors = np.random.default_rng(1).random(ROWS * 8, np.float32)
    rows = pa.table(
        {
            "id": np.arange(ROWS),
            "text": [f"word{at % 7} and {at}" for at in range(ROWS)],
            "labels": [[at % 3, at % 5] for at in range(ROWS)],
            "vector": pa.FixedSizeListArray.from_arrays(vectors, 8),
        }
    )
    glaive.write_dataset(rows, place, storage_options=ON)
    return place


def built(place: Path, kind: str) -> list[Path]:
    """The files of a new index."""
    dataset = glaive.dataset(place, storage_options=ON)
    before = set((place / "_indices").rglob("*.*")) if (place / "_indices").exists() else set()
    if kind in VECTOR:
        given: dict[str, Any] = {"num_sub_vectors": 2} if kind == "IVF_PQ" else {}
        dataset.create_index("vector", kind, name=kind, num_partitions=2, **given)
    else:
        dataset.create_scalar_index(COLUMN.get(kind, "id"), kind, name=kind)
    return sorted(set((place / "_indices").rglob("*.*")) - before)


@pytest.mark.spec("rel-34")
@pytest.mark.parametrize("kind", [*SCALAR, *VECTOR])
def test_all_files_of_an_index_have_checksums(place: Path, kind: str) -> None:
    files = built(place, kind)
    assert files
    store = LocalStore(place)
    for path in files:
        assert compare_file(store, path.relative_to(place).as_posix()), path.name
    changed = bytearray(files[0].read_bytes())
    changed[0] ^= 4
    files[0].write_bytes(changed)
    with pytest.raises(CorruptFileError, match="checksum"):
        compare_file(store, files[0].relative_to(place).as_posix())


@pytest.mark.spec("rel-30", "rel-34")
@pytest.mark.parametrize("kind", ["BTREE", "INVERTED", "IVF_PQ"])
def test_the_configuration_of_a_table_gives_index_files_checksums(
    place: Path, tmp_path: Path, kind: str
) -> None:
    rows = glaive.dataset(place).to_table()
    dataset = glaive.write_dataset(rows, tmp_path / "t", storage_options={"checksums": "false"})
    dataset = glaive.dataset(tmp_path / "t")
    dataset.update_config({"glaive.checksums": "true"})
    if kind in VECTOR:
        dataset.create_index("vector", kind, num_partitions=2, num_sub_vectors=2)
    else:
        dataset.create_scalar_index(COLUMN.get(kind, "id"), kind)
    dataset.insert(rows)
    dataset.optimize.optimize_indices()
    files = list((tmp_path / "t" / "_indices").rglob("*.*"))
    assert len(files) > 1
    for path in files:
        assert compare_file(LocalStore(tmp_path), path.relative_to(tmp_path).as_posix()), path.name


@pytest.mark.spec("rel-34", "rel-50")
def test_a_file_of_an_index_in_the_place_of_another_is_noticed(tmp_path: Path) -> None:
    dataset = glaive.write_dataset({"id": range(ROWS)}, tmp_path / "t", storage_options=ON)
    dataset.create_scalar_index("id", "BTREE")
    assert CliRunner().invoke(command, [str(tmp_path / "t")]).exit_code == 0
    (pages,) = (tmp_path / "t").rglob("page_data.lance")
    (pages.parent / "page_lookup.lance").write_bytes(pages.read_bytes())
    reported = CliRunner().invoke(command, [str(tmp_path / "t")])
    assert reported.exit_code == 1
    assert "size of a file" in reported.output


@pytest.mark.spec("rel-34", "rel-50")
def test_a_search_notices_files_of_two_segments_that_changed_places(tmp_path: Path) -> None:
    place = tmp_path / "t"
    dataset = glaive.write_dataset({"id": range(ROWS)}, place, storage_options=ON)
    dataset.create_scalar_index("id", "BTREE")
    dataset.insert({"id": np.arange(ROWS, 10 * ROWS)})
    dataset.create_scalar_index("id", "BTREE", name="later", fragment_ids=[1])
    one, other = place.rglob("page_data.lance")
    one_bytes, other_bytes = one.read_bytes(), other.read_bytes()
    assert len(one_bytes) != len(other_bytes)
    one.write_bytes(other_bytes)
    other.write_bytes(one_bytes)
    damaged = glaive.dataset(place, verify=True)
    with pytest.raises(CorruptFileError, match="size of a file"):
        damaged.to_table(filter="id = 5", use_scalar_index=True)
    assert damaged.to_table(filter="id = 5", use_scalar_index=False).num_rows == 1


@pytest.mark.spec("rel-28", "rel-34")
def test_an_index_that_was_opened_without_comparing_is_opened_again_to_compare(
    tmp_path: Path,
) -> None:
    """Both datasets share a session, and so what was opened, but for files that differ in this."""
    place, session = tmp_path / "t", glaive.Session()
    glaive.write_dataset({"id": range(0, 7 * ROWS, 7)}, place, storage_options=ON)
    (path,) = (one for one in built(place, "BTREE") if one.name == "page_data.lance")
    changed = bytearray(path.read_bytes())
    changed[ROWS] ^= 1
    path.write_bytes(changed)
    wanted = {"filter": "id in (70, 140)", "use_scalar_index": True}
    found = glaive.dataset(place, verify=False, session=session).to_table(**wanted)
    assert found["id"].to_pylist() == [70, 140]
    with pytest.raises(CorruptFileError, match="checksum"):
        glaive.dataset(place, verify=True, session=session).to_table(**wanted)
