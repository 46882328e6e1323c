"""Modules under pylance's names: sets of integers, texts, events, counters, schemas as JSON."""

from __future__ import annotations

import importlib
import json
import logging
import os
import pickle
import subprocess
import sys
from collections.abc import MutableSet
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from glaive.bitmap import Bitmap
from glaive.fragment import FragmentMetadata, write_fragments
from tests.docs.stubs import path_of, stub_of

import glaive
from glaive import debug, dependencies, otel, progress, tracing
from glaive.compat.modules import MODULES
from glaive.errors import (
    AccessError,
    CorruptFileError,
    MissingDependencyError,
    OptionError,
    SchemaError,
    UnsupportedFeatureError,
)
from glaive.hf import HuggingFaceConverter


@pytest.fixture
def dataset(tmp_path: Path) -> glaive.LanceDataset:
    table = pa.table({"id": [1, 2, 3], "s": [{"a": 1}] * 3})
    return glaive.write_dataset(table, str(tmp_path / "a.lance"))


# --- modules that have no file ---------------------------------------------------------------


@pytest.mark.parametrize("name", MODULES)
def test_a_module_without_a_file_has_all_its_names_and_a_stub(name: str) -> None:
    module = importlib.import_module(f"glaive.{name}")
    assert importlib.reload(module) is module
    assert all(getattr(module, one) is not None for one in module.__all__)
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = module.no_such_name
    assert path_of(name).read_text("utf-8") == stub_of(name)


def test_a_module_without_a_file_is_imported_in_every_way() -> None:
    ways = [
        "import glaive.bitmap; print(glaive.bitmap.Bitmap([1]))",
        "from glaive.bitmap import Bitmap; print(Bitmap([1]))",
        "from glaive import bitmap; print(bitmap.Bitmap([1]))",
        "from glaive.bitmap import *; print(Bitmap([1]))",
        "import glaive; print(glaive.bitmap.Bitmap([1]))",
    ]
    for way in ways:
        done = subprocess.run(
            [sys.executable, "-c", way], capture_output=True, text=True, check=True
        )
        assert done.stdout == "Bitmap({1})\n"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("glaive.no_such_module")


# --- bitmap -------------------------------------------------------------------------------


def test_a_bitmap_is_a_set_of_integers() -> None:
    some: Any = Bitmap([3, 1, 3])
    assert isinstance(some, MutableSet)
    assert repr(some) == "Bitmap({1, 3})"
    assert some == {1, 3}
    assert some | {2} == Bitmap(pa.array([1, 2, 3]))
    assert (some & {1}, some - {1}, some ^ {3, 4}) == ({1}, {3}, {1, 4})
    assert some.union([5]) == {1, 3, 5}
    assert some.intersection([3, 9]) == {3}
    assert some.difference([3]) == some.symmetric_difference([3]) == {1}
    assert some.issubset([1, 2, 3])
    assert some.issuperset([1])
    assert some.isdisjoint([2])
    assert "x" not in some
    assert -1 not in some
    copy = pickle.loads(pickle.dumps(some)).copy()
    copy.update([7])
    copy.discard(99)
    copy.remove(1)
    assert (copy, len(some)) == ({3, 7}, 2)
    copy.clear()
    with pytest.raises(KeyError):
        copy.pop()


@pytest.mark.parametrize("wrong", [[-1], [2**32], ["a"], [1.5], pa.array([1, None])])
def test_a_bitmap_takes_small_integers_only(wrong: Any) -> None:
    with pytest.raises(OptionError, match="Bitmap"):
        Bitmap(wrong)


# --- schemas as JSON ----------------------------------------------------------------------

SCHEMA = pa.schema(
    [
        pa.field("a", pa.int32(), nullable=False, metadata={"k": "v"}),
        pa.field("b", pa.list_(pa.float32(), 4)),
        pa.field("c", pa.struct([("x", pa.string()), ("y", pa.timestamp("us", "UTC"))])),
        pa.field("d", pa.large_list(pa.list_(pa.decimal128(5, 1)))),
        pa.field("e", pa.binary(3)),
        pa.field("f", pa.map_(pa.string(), pa.dictionary(pa.int8(), pa.string()))),
    ],
    metadata={"m": "n"},
)


def test_a_schema_survives_json() -> None:
    text = json.dumps(glaive.schema_to_json(SCHEMA))
    assert glaive.json_to_schema(json.loads(text)).equals(SCHEMA, check_metadata=True)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "missing field `fields`"),
        ([], "missing field `fields`"),
        ({"fields": [1]}, "expected a field"),
        ({"fields": [{"name": "x", "nullable": True}]}, "missing field `type`"),
        ({"fields": [{"name": "x", "nullable": True, "type": "int8"}]}, "expected an object"),
        ({"fields": [{"name": "x", "nullable": True, "type": {}}]}, "missing field `type` in"),
        ({"fields": [{"name": "x", "type": {"type": "int8"}}]}, "missing field `nullable`"),
        (
            {"fields": [{"name": "x", "nullable": True, "type": {"type": "list"}}]},
            "requires 1 field",
        ),
        (
            {
                "fields": [
                    {
                        "name": "x",
                        "nullable": True,
                        "type": {"type": "fixed_size_binary", "length": 2**40},
                    }
                ]
            },
            "length of 'x'",
        ),
    ],
)
def test_json_that_is_no_schema_is_refused(wrong: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        glaive.json_to_schema(wrong)


def test_json_nested_too_deeply_is_refused() -> None:
    field: dict[str, Any] = {"name": "x", "nullable": True, "type": {"type": "int8"}}
    for _ in range(5000):
        field = {"name": "x", "nullable": True, "type": {"type": "list", "fields": [field]}}
    with pytest.raises(SchemaError, match="nested"):
        glaive.json_to_schema({"fields": [field]})


# --- texts, events, counters --------------------------------------------------------------


def test_versions_and_commits_become_texts(dataset: glaive.LanceDataset) -> None:
    dataset.delete("id = 2")
    assert "logical_type: 'int64'" in debug.format_schema(dataset)
    manifest = debug.format_manifest(dataset)
    assert "version: 2" in manifest
    assert "DELETION_FILES" in manifest
    (fragment,) = dataset.get_fragments()
    assert "columns: ['id', 's.a']" in debug.format_fragment(fragment.metadata, dataset)
    newest, first = debug.list_transactions(dataset)
    assert "Delete {" in newest
    assert "Overwrite {" in first
    assert debug.list_transactions(dataset, 0) == []
    with pytest.raises(OptionError, match="expected a FragmentMetadata"):
        debug.format_fragment(fragment, dataset)
    with pytest.raises(OptionError, match="max_transactions"):
        debug.list_transactions(dataset, -1)


EVENTS = """
import logging, sys
from glaive import tracing
events = []
tracing.capture_trace_events(events.append)
tracing.trace_to_chrome(file=sys.argv[1])
logging.getLogger("glaive.test").warning("one %s", "event")
tracing.shutdown_tracing()
logging.getLogger("glaive.test").warning("another")
print([(one.target, one.message, one.args["level"]) for one in events])
"""


def test_events_are_what_is_logged(tmp_path: Path) -> None:
    """In a process of its own: other tests set up logging, too."""
    arguments = [sys.executable, "-c", EVENTS, str(tmp_path / "trace.json")]
    environment = {name: value for name, value in os.environ.items() if name != "LANCE_LOG"}
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[('glaive.test', 'one event', 'WARNING')]"
    (written,) = json.loads((tmp_path / "trace.json").read_text())
    assert (written["name"], written["cat"]) == ("one event", "glaive.test")


def test_a_logger_writes_to_a_file(tmp_path: Path) -> None:
    logger = logging.getLogger("glaive")
    before, level = list(logger.handlers), logger.level
    try:
        glaive.set_logger(str(tmp_path / "a.log"), level=logging.DEBUG)
        logging.getLogger("glaive.part").debug("hello")
    finally:
        for handler in set(logger.handlers) - set(before):
            logger.removeHandler(handler)
            logging.getLogger("pylance").removeHandler(handler)
            handler.close()
        logger.setLevel(level)
    assert "hello" in (tmp_path / "a.log").read_text()


@pytest.mark.parametrize(
    ("given", "level"),
    [("", "INFO"), ("trace", "DEBUG"), ("lance=debug,warn", "WARN"), ("a=b", "INFO")],
)
def test_the_level_of_logging_is_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, given: str, level: str
) -> None:
    monkeypatch.setenv("LANCE_LOG", given)
    assert tracing.get_log_level() == level


def test_counters_count_what_this_process_reads(dataset: glaive.LanceDataset) -> None:
    requests, size = glaive.iops_counter(), glaive.bytes_read_counter()
    glaive.dataset(dataset.uri).to_table()
    dataset.to_table()
    assert glaive.iops_counter() > requests
    assert glaive.bytes_read_counter() > size
    counted = glaive.bytes_read_counter()
    dataset.io_stats_incremental()  # resets those of the dataset only
    assert glaive.bytes_read_counter() == counted
    points = {one.name: one.value for one in otel.snapshot_lance_metrics()}
    assert points["lance.object_store.read.bytes"] == counted
    assert {one.name for one in otel.lance_metrics_catalog()} == set(points)
    assert otel.register_lance_metrics_recorder()
    assert glaive.simd_info()["host_features"]


# --- progress, packages, Hugging Face -----------------------------------------------------


def test_notes_of_unfinished_files_are_kept_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    notes = progress.FileSystemFragmentWriteProgress(str(folder), {"worker": "3"})
    notes = pickle.loads(pickle.dumps(notes))
    seen = []

    class Watched(progress.FragmentWriteProgress):
        def begin(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
            notes.begin(fragment)
            seen.append(sorted(path.name for path in folder.iterdir()))

        def complete(self, fragment: FragmentMetadata, **kwargs: Any) -> None:
            notes.complete(fragment)

    write_fragments(pa.table({"a": [1]}), str(tmp_path / "a.lance"), progress=Watched())
    assert seen == [["fragment_0.in_progress", "fragment_0.json"]]
    assert [path.name for path in folder.iterdir()] == ["fragment_0.json"]
    with pytest.raises(OptionError, match="metadata: expected strings"):
        progress.FileSystemFragmentWriteProgress(str(folder), {"worker": 3})


def test_packages_are_loaded_when_they_are_used() -> None:
    lazy, there = dependencies._lazy_import("html.parser")  # noqa: SLF001  # clients call it
    assert there
    assert lazy.HTMLParser.__name__ == "HTMLParser"
    missing, there = dependencies._lazy_import("no_such_package")  # noqa: SLF001  # same
    assert not there
    assert not hasattr(missing, "__wrapped__")
    with pytest.raises(MissingDependencyError, match="pip install no_such_package"):
        _ = missing.anything
    table = dependencies.numpy.zeros(1)
    assert dependencies._check_for_numpy(table)  # noqa: SLF001  # same
    assert not dependencies._check_for_pandas(table)  # noqa: SLF001  # same


def test_features_that_are_no_images_are_refused() -> None:
    features = {"info": {"features": {"a": {"_type": "Audio"}, "b": {"_type": "Image"}}}}
    converter = HuggingFaceConverter(features)
    assert converter.to_pytorch("other", pa.array([1])) is None
    with pytest.raises(UnsupportedFeatureError, match="'Audio' are not converted"):
        converter.to_pytorch("a", pa.array([1]))
    with pytest.raises((AccessError, MissingDependencyError)):
        converter.to_pytorch("b", pa.array([{"bytes": None, "path": "a.png"}]))
    with pytest.raises(CorruptFileError, match="'huggingface'"):
        HuggingFaceConverter([]).to_pytorch("a", pa.array([1]))


def test_binary_columns_are_files() -> None:
    column = glaive.BlobColumn(pa.chunked_array([[b"ab", None]]))
    first, second = column
    assert (first.read(), second) == (b"ab", None)
    for wrong in ([b"a"], pa.array(["a"])):
        with pytest.raises(SchemaError, match="Expected a"):
            glaive.BlobColumn(wrong)


def test_a_scan_is_built_option_by_option(dataset: glaive.LanceDataset) -> None:
    builder = glaive.dataset.ScannerBuilder(dataset)
    scan = builder.columns(["id"]).filter("id > 1").limit(1).with_row_id().to_scanner()
    assert scan.to_table().to_pydict() == {"id": [2], "_rowid": [1]}
    assert repr(scan) == "Scanner(version=1, columns=[id, _rowid])"
    with pytest.raises(TypeError, match="pickle the dataset"):
        pickle.dumps(scan)


def test_what_pylance_deprecates_warns(dataset: glaive.LanceDataset) -> None:
    with pytest.warns(DeprecationWarning, match="replace_schema_metadata is deprecated") as caught:
        dataset.replace_schema_metadata({"a": "b"})
    with pytest.warns(DeprecationWarning, match="Use update_field_metadata"):
        dataset.replace_field_metadata("id", {"c": "d"})
    assert caught[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="use_legacy_format is deprecated") as caught:
        glaive.write_dataset(pa.table({"a": [1]}), f"{dataset.uri}.old", use_legacy_format=True)
    assert caught[0].filename == __file__
    fragment = dataset.get_fragments()[0].metadata
    with pytest.warns(DeprecationWarning, match="FragmentMetadata.data_files is deprecated"):
        assert fragment.data_files() == fragment.files
    with pytest.warns(DeprecationWarning, match="DataFile.field_ids is deprecated"):
        assert fragment.files[0].field_ids() == fragment.files[0].fields
    assert dataset.schema.metadata == {b"a": b"b"}
    assert dataset.schema.field("id").metadata == {b"c": b"d"}


def test_a_function_that_raises_says_for_which_rows(dataset: glaive.LanceDataset) -> None:
    @glaive.batch_udf(output_schema=pa.schema([("z", pa.int64())]))
    def fails(_batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        dataset.add_columns(fails)
    assert caught.value.__notes__ == [
        "in the function for new columns, for 3 rows from fragment 0, row 0"
    ]


def test_matrices_are_vectors(tmp_path: Path) -> None:
    matrix = np.arange(6, dtype=np.float32).reshape(3, 2)
    written = glaive.write_dataset({"v": matrix, "id": [1, 2, 3]}, str(tmp_path / "v.lance"))
    assert written.schema.field("v").type == pa.list_(pa.float32(), 2)
    assert written.to_table()["v"].to_pylist() == matrix.tolist()


def test_frames_may_come_one_by_one(tmp_path: Path) -> None:
    frames = (pa.table({"a": [at]}).to_pandas() for at in range(3))
    written = glaive.write_dataset(frames, str(tmp_path / "f.lance"))
    assert written.to_table()["a"].to_pylist() == [0, 1, 2]
    with pytest.raises(OptionError, match="expected a data frame as item 1, found int"):
        glaive.write_dataset(iter([pa.table({"a": [1]}).to_pandas(), 1]), str(tmp_path / "g.lance"))


def test_objects_show_what_they_are(dataset: glaive.LanceDataset) -> None:
    dataset.tags.create("gold", 1)
    assert repr(dataset.tags) == "Tags(gold)"
    assert repr(dataset.branches) == "Branches()"
    assert repr(dataset.stats) == "LanceStats(version=1, fragments=1)"
    assert repr(dataset.optimize).startswith("DatasetOptimizer(LanceDataset(")
    assert "select 1" in repr(dataset.sql("select 1"))
    glaive.write_dataset(pa.table({"id": [4], "s": [{"a": 1}]}), dataset.uri, mode="append")
    plan = glaive.optimize.Compaction.plan(glaive.dataset(dataset.uri))
    assert repr(plan) == "CompactionPlan(read_version=2, tasks=<1 compaction tasks>)"
    assert isinstance(plan.tasks, list)
    (task,) = plan.tasks
    assert repr(task) == f"CompactionTask(read_version=2, fragments={task.fragments})"
    made = task.execute(glaive.dataset(dataset.uri))
    assert repr(made) == (
        f"RewriteResult(read_version=2, new_fragments={made.new_fragments}, "
        f"old_fragments={made.original_fragments})"
    )
    assert "import_module" not in dir(glaive)
