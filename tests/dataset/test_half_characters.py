"""Half of a surrogate pair, which UTF-8 does not have, and other values that cannot be stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import glaive
from glaive.errors import OptionError
from glaive.file import LanceFileWriter

pd = pytest.importorskip("pandas")

HALF = "a\ud800"
TEXTS = pa.schema([("id", pa.int64()), ("t", pa.string())])


@pytest.fixture
def dataset(tmp_path: Path) -> glaive.LanceDataset:
    made = glaive.write_dataset(pa.table({"id": [1, 2], "t": ["a", "b"]}), tmp_path / "t")
    made.create_scalar_index("t", "INVERTED")
    made.tags.create("first", 1)
    made.create_branch("dev")
    return made


def merge(dataset: glaive.LanceDataset) -> glaive.MergeInsertBuilder:
    return dataset.merge_insert("id").when_not_matched_insert_all()


def file_with_metadata(path: str) -> None:
    with LanceFileWriter(path, TEXTS) as writer:
        writer.add_schema_metadata("a", HALF)


CALLS: dict[str, Callable[[glaive.LanceDataset], Any]] = {
    "columns of values": lambda at: at.insert({"id": [3], "t": [HALF]}),
    "a frame": lambda at: at.insert(pd.DataFrame({"id": [3], "t": [HALF]})),
    "rows": lambda at: at.insert([{"id": 3, "t": HALF}]),
    "rows with types": lambda at: glaive.write_dataset([{"t": HALF}], at.uri + "2", TEXTS),
    "rows to merge": lambda at: merge(at).execute([{"id": 3, "t": HALF}]),
    "the name of a column": lambda at: glaive.write_dataset({HALF: [1]}, at.uri + "2"),
    "the name of a result": lambda at: at.to_table(columns={HALF: "id"}),
    "the name of a new column": lambda at: at.add_columns({HALF: "id + 1"}),
    "the name of a blob column": lambda _: glaive.blob_field(HALF),
    "the address of a blob": lambda _: glaive.blob_array([HALF]),
    "the name of an index": lambda at: at.create_scalar_index("id", "BTREE", name=HALF),
    "a stop word": lambda at: at.create_scalar_index("t", "INVERTED", custom_stop_words=[HALF]),
    "a text that is searched for": lambda at: at.to_table(full_text_query=HALF),
    "a text to cut into tokens": lambda _: glaive.tokenize(HALF),
    "a value of the configuration": lambda at: at.update_config({"a": HALF}),
    "a key of the configuration": lambda at: at.update_config({HALF: "a"}),
    "a key to remove": lambda at: at.delete_config_keys([HALF]),
    "metadata of the table": lambda at: at.update_metadata({"a": HALF}),
    "metadata of the schema": lambda at: at.update_schema_metadata({"a": HALF}),
    "metadata of a field": lambda at: at.update_field_metadata({"id": {"a": HALF}}),
    "metadata of a tag": lambda at: at.tags.replace_metadata("first", {"a": HALF}),
    "metadata of a branch": lambda at: at.branches.replace_metadata("dev", {"a": HALF}),
    "a base path": lambda at: at.add_bases([glaive.DatasetBasePath(f"/{HALF}")]),
    "metadata of a file": lambda at: file_with_metadata(at.uri + "2"),
}


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("what", CALLS)
def test_what_no_text_in_utf8_has_is_refused(dataset: glaive.LanceDataset, what: str) -> None:
    version = dataset.version
    with pytest.raises(OptionError, match="half of a surrogate pair"):
        CALLS[what](dataset)
    assert glaive.dataset(dataset.uri).version == version


MAPS: dict[str, Callable[[glaive.LanceDataset, Any], Any]] = {
    "config": lambda at, given: at.update_config(given),
    "metadata of 'id'": lambda at, given: at.update_field_metadata({"id": given}),
    "metadata": lambda at, given: at.tags.replace_metadata("first", given),
    "transaction_properties": lambda at, given: merge(at).transaction_properties(given),
}


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("what", MAPS)
@pytest.mark.parametrize("given", ["text", 7, None, [1], {"a": 1}, {2: "b"}])
def test_what_is_no_mapping_of_texts_is_refused_by_name(
    dataset: glaive.LanceDataset, what: str, given: Any
) -> None:
    with pytest.raises(OptionError, match=f"^{what}: expected"):
        MAPS[what](dataset, given)


def test_a_text_is_one_key_to_remove_not_its_letters(dataset: glaive.LanceDataset) -> None:
    dataset.update_config({"a": "1", "b": "2", "ab": "3"})
    dataset.delete_config_keys("ab")
    assert dataset.config() == {"a": "1", "b": "2"}


@pytest.mark.parametrize("retries", [np.uint64(2**64 - 1), "1", None, 1.5, True])
def test_a_number_of_retries_is_one(dataset: glaive.LanceDataset, retries: Any) -> None:
    if isinstance(retries, np.uint64):  # any number of them
        dataset.delete("id = 1", conflict_retries=retries)
        assert dataset.count_rows() == 1
        return
    with pytest.raises(OptionError, match="conflict_retries: expected an integer"):
        dataset.delete("id = 1", conflict_retries=retries)


def test_what_the_callers_own_rows_raise_is_not_taken_for_half_a_pair(tmp_path: Path) -> None:
    def rows() -> Iterator[dict[str, str]]:
        yield {"t": "a"}
        "\u00e9".encode("ascii")

    with pytest.raises(UnicodeEncodeError, match="'ascii' codec"):
        glaive.write_dataset(rows(), tmp_path / "other")


@pytest.mark.parametrize(
    "offsets", [["a"], "ab", 7, [2**70], [None], "1", ["1"], [1.9], [True]], ids=str
)
def test_what_is_no_list_of_rows_is_not_deleted(dataset: glaive.LanceDataset, offsets: Any) -> None:
    with pytest.raises(OptionError, match="row positions: expected a list of integers"):
        dataset.get_fragments()[0].delete_rows(offsets)


@pytest.mark.parametrize(
    "kind",
    [list, tuple, set, iter, dict.fromkeys, np.array, pa.array, pd.Series],
    ids=["list", "tuple", "set", "iterator", "dict", "NumPy", "Arrow", "pandas"],
)
def test_rows_to_delete_may_be_any_integers(dataset: glaive.LanceDataset, kind: Any) -> None:
    made = dataset.get_fragments()[0].delete_rows(kind([1]))
    assert made is not None
    assert made.num_deletions == 1
