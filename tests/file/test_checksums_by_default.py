"""Which files have checksums, and which values of them."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.dataset.writing.fragments import write_fragments
from glaive.dataset.writing.plan import WriteOptions, plan_write
from glaive.dataset.writing.rows import commit_plan
from glaive.errors import GlaiveError
from glaive.file.files import has_checksums
from glaive.file.open import open_reader
from glaive.io.local import LocalStore
from glaive.io.store import ObjectStore
from glaive.io.wrapped import WrappedStore

ON = {"checksums": "true"}
ROWS = pa.table({"id": range(9)})


class Remote(WrappedStore):
    """A store that says that its bytes go over a network."""

    is_remote = True


def have_checksums(store: ObjectStore) -> set[bool]:
    return {has_checksums(open_reader(store, info.path)) for info in store.list("data")}


@pytest.mark.sampled(every=3)
@pytest.mark.spec("rel-48")
@pytest.mark.parametrize("asked", ["option", "configuration", "variable", "network", None])
def test_files_have_checksums_where_that_is_asked_for_or_the_place_is_no_local_disk(
    tmp_path: Path, asked: str | None
) -> None:
    place = tmp_path / "t"
    store: ObjectStore = LocalStore(place)
    if asked == "variable":
        code = "import glaive, sys; glaive.write_dataset({'a': [1]}, sys.argv[1])"
        environment = {**os.environ, "GLAIVE_CHECKSUMS": "1"}
        subprocess.run([sys.executable, "-c", code, str(place)], env=environment, check=True)
    elif asked == "network":
        store = Remote(store)
        plan = plan_write(store, ROWS.schema, WriteOptions())
        commit_plan(plan, write_fragments(plan, ROWS.to_batches()))
    else:
        options = ON if asked == "option" else None
        dataset = glaive.write_dataset(ROWS, place, storage_options=options)
    if asked == "configuration":
        assert have_checksums(store) == {False}
        dataset.update_config({"glaive.checksums": "true"})
        glaive.write_dataset(ROWS, place, mode="overwrite")
        dataset.checkout_latest()
        dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert have_checksums(store) == {asked is not None}


@pytest.mark.spec("rel-54")
def test_a_file_of_0_1_has_no_checksums(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(
        {"a": range(9)}, tmp_path / "t", data_storage_version="legacy", storage_options=ON
    )
    assert have_checksums(LocalStore(tmp_path / "t")) == {False}
    opened = glaive.dataset(dataset.uri, verify=True)
    assert opened.to_table()["a"].to_pylist() == [*range(9)]


@pytest.mark.spec("rel-53")
@pytest.mark.parametrize("size", [500, 100_000], ids=["in the data file", "beside it"])
def test_values_of_blobs_have_no_checksums_but_their_descriptions_have(
    tmp_path: Path, size: int
) -> None:
    place = tmp_path / "t"
    values = [bytes([number]) * size for number in range(1, 60)]
    table = pa.table({"b": glaive.blob_array(values)})
    glaive.write_dataset(table, place, data_storage_version="2.2", storage_options=ON)
    files = [path for path in (place / "data").rglob("*") if path.is_file()]
    (holder,) = [path for path in files if values[5] in path.read_bytes()]
    data = bytearray(holder.read_bytes())
    data[data.index(values[5]) + 7] ^= 64
    holder.write_bytes(data)
    other = values[5][:7] + bytes([values[5][7] ^ 64]) + values[5][8:]
    (blob,) = glaive.dataset(place, verify=True).take_blobs("b", indices=[5])
    assert blob.read() == other
    (file,) = place.glob("data/*.lance")
    whole, refused = file.read_bytes(), 0
    end = max(whole.find(value) + size for value in values) if values[1] in whole else 0
    for at in np.linspace(end, len(whole) - 1, 40).astype(int).tolist():
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        file.write_bytes(data)
        try:
            blobs = glaive.dataset(place, verify=True).take_blobs("b", indices=[1, 58])
            found = [blob.read() for blob in blobs]
        except GlaiveError:
            refused += 1
            continue
        assert found == [values[1], values[58]]
    assert refused > 20
