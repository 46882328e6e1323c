"""``import glaive as lance``: names and parameters of pylance's table operations, one by one.

What is not there stands in a list below with the reason; the lists must be right both ways.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

MODULES = ("", ".commit", ".dataset", ".fragment", ".optimize", ".progress", ".schema", ".udf")
"""Modules of the same name in both libraries."""

_WAL = "memory-WAL tables are another kind of table"
_ARROW = "inherited from pyarrow, where it fails; to_pyarrow_dataset() has it"
_DICTIONARY = "a name for dictionaries with these keys, in annotations only"
_INNER = "a part of pylance's inner works that its module happens to show"
_BLOBS = "writers of blob files by hand are no table operation"
_TOOLS = "a tool of the library itself, not of tables"
_SEARCH = "a query for an index"
_NATIVE = "hands memory or objects to pylance's own Rust library"
_MERGES = "inner method of a base class; execute and execute_uncommitted take batches, too"
_ALIEN = "an argument that only pylance itself can make"

ABSENT = {
    _WAL: """
        LanceDataset.initialize_mem_wal LanceDataset.mem_wal_index_details
        LanceDataset.mem_wal_writer
        CompactedSsTable ExecutionPlan LsmPointLookupPlanner LsmScanner LsmVectorSearchPlanner
        ShardSnapshot ShardWriter ShardingField ShardingSpec evaluate_sharding_spec
    """,
    _ARROW: """
        LanceDataset.filter LanceDataset.join LanceDataset.join_asof LanceDataset.sort_by
        LanceScanner.from_batches LanceScanner.from_dataset LanceScanner.from_fragment
        LanceScanner.take
    """,
    _DICTIONARY: """
        AlterColumn AutoCleanupConfig Branch BulkCommitResult DatasetStats DeleteResult
        ExecuteResult IndexInformation Tag UpdateResult Version VersionRef
    """,
    _INNER: """
        PySearchFilter ScannerBuilder model_to_dict normalize_transform serialize_row_addrs
        td_to_micros BatchUDFCheckpoint Bitmap FileSystemFragmentWriteProgress
        LanceDataset.storage_options_accessor
    """,
    _BLOBS: """
        BlobColumn BlobDescriptor BlobDescriptorArrayBuilder DedicatedBlobWriter
        PackedBlobWriter BlobFile.detach BlobFile.readinto1
    """,
    _TOOLS: """
        bytes_read_counter iops_counter json_to_schema schema_to_json set_logger simd_info
        LanceDataset.from_pydantic_model LanceDataset.new_file_session
    """,
    _SEARCH: "MinHashQuery VectorSearchQuery",
    _NATIVE: "FFILanceTableProvider FullTextQuery.inner",
    _MERGES: """
        MergeInsertBuilder.analyze_plan_batches MergeInsertBuilder.execute_batches
        MergeInsertBuilder.execute_uncommitted_batches
    """,
    "schemas say the same by LanceSchema.find() and fields, which is a tuple": """
        LanceSchema.field LanceSchema.field_case_insensitive
        LanceSchema.unenforced_clustering_key LanceSchema.unenforced_primary_key
    """,
}
"""Names that glaive does not have, by reason."""

OTHER = {
    "the default is that of the library, 40": "tokenize.max_token_length",
    _ALIEN: """
        LanceFragment.__init__.fragment DatasetDelta.__init__.delta LanceStats.__init__.dataset
        LanceScanner.__init__.dataset LanceScanner.__init__.scanner
        LanceScanner.__init__.snapshot FragmentSession.__init__.session
        BlobFile.__init__.inner SqlQuery.__init__.query SqlQueryBuilder.__init__.builder
    """,
    "files are opened by memory map or in windows; 0 leaves the size to the library": """
        BlobFile.__init__.buffer_size LanceDataset.take_blobs.buffer_size
    """,
    "the library decides by the cores when nothing is said": """
        LanceFragment.scanner.batch_readahead LanceFragment.to_batches.batch_readahead
    """,
    "named otherwise; given by position": """
        BlobFile.readinto.b SqlQueryBuilder.table_name.table_name
        SqlQueryBuilder.blob_handling.blob_handling SqlQueryBuilder.batch_size.batch_size
        SqlQueryBuilder.batch_size_bytes.batch_size_bytes
    """,
}
"""Parameters that glaive does not have so, by reason."""


NOWHERE: Any = object()
"""In place of what one of the libraries does not have."""


def listed(table: dict[str, str]) -> set[str]:
    return {name for names in table.values() for name in names.split()}


def is_public(name: str) -> bool:
    return not name.startswith("_")


def belongs(found: object, module: str) -> bool:
    """Whether something is of pylance, and not of what it imports or of another module here."""
    home = str(getattr(found, "__module__", ""))
    elsewhere = home in {f"lance{one}" for one in MODULES if one} - {f"lance{module}"}
    own = home.startswith("lance") or home == "builtins"
    return own and not elsewhere and not inspect.ismodule(found)


def pairs() -> Iterator[tuple[str, Any, Any]]:
    """Public names of the modules and of their classes, with what each library has there."""
    seen: set[str] = set()
    for module in MODULES:
        theirs = importlib.import_module(f"lance{module}")
        mine = importlib.import_module(f"glaive{module}")
        named = getattr(theirs, "__all__", ())
        for name in named or filter(is_public, dir(theirs)):
            found = getattr(theirs, name)
            own = belongs(found, module) or (name in named and not inspect.ismodule(found))
            if not own or not is_public(name) or name in seen:
                continue
            seen.add(name)
            other = getattr(mine, name, NOWHERE)
            yield name, found, other
            if inspect.isclass(found) and other is not NOWHERE:
                yield from members(name, found, other)


def members(name: str, theirs: Any, mine: Any) -> Iterator[tuple[str, Any, Any]]:
    if hasattr(theirs, "__total__"):  # a kind of dictionary: its keys count, not its methods
        yield f"{name}.keys", theirs.__annotations__.keys(), mine.__annotations__.keys()
        return
    fields = set(getattr(mine, "__dataclass_fields__", ()))
    for one in filter(is_public, dir(theirs)):
        found = getattr(theirs, one)
        other = getattr(mine, one, found if one in fields else NOWHERE)
        yield f"{name}.{one}", found, other
        if inspect.isclass(found) and other is not NOWHERE and name == "LanceOperation":
            yield from members(f"{name}.{one}", found, other)
    yield f"{name}.__init__", theirs, mine


FOUND = list(pairs())


def differences(name: str, theirs: Any, mine: Any) -> Iterator[str]:
    """Parameters that are not there, or in another place, or with another default."""
    if name.rpartition(".")[2][:1].isupper():
        return  # a class: its __init__ comes by itself
    try:
        wanted, given = inspect.signature(theirs).parameters, inspect.signature(mine).parameters
    except (TypeError, ValueError):
        return
    spread = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    by_name = inspect.Parameter.KEYWORD_ONLY
    order = [one for one, it in given.items() if it.kind not in (by_name, *spread)]
    place = 0
    for one, it in wanted.items():
        if it.kind in spread or one == "self":
            continue
        if one not in given:
            yield f"{name}.{one}"
            continue
        own = given[one]
        if it.kind != by_name:
            in_place = [other for other in order if other != "self"][place : place + 1] == [one]
            place += 1
            if not in_place:
                yield f"{name}.{one}"
                continue
        # None leaves it to the library, whose own default may be shown instead.
        told = it.default is not it.empty and it.default is not None
        made = type(it.default).__name__ == "_HAS_DEFAULT_FACTORY_CLASS"
        if (it.default is not it.empty and own.default is own.empty) or (
            told and not made and own.default != it.default
        ):
            yield f"{name}.{one}"


def test_names_are_there_or_in_the_list() -> None:
    missing = {name for name, _, mine in FOUND if mine is NOWHERE}
    assert missing - listed(ABSENT) == set()


def test_names_in_the_list_are_not_there() -> None:
    known = {name for name, _, mine in FOUND if mine is not NOWHERE}
    assert listed(ABSENT) & known == set()


def test_names_in_the_list_are_of_pylance() -> None:
    assert listed(ABSENT) - {name for name, _, _ in FOUND} == set()


def test_parameters_are_there_in_order_or_in_the_list() -> None:
    found = {
        one
        for name, theirs, mine in FOUND
        if callable(theirs) and mine is not NOWHERE
        for one in differences(name, theirs, mine)
    }
    assert found - listed(OTHER) == set()
    assert listed(OTHER) - found == set()


def test_options_of_compactions_are_all_taken() -> None:
    ((_, theirs, mine),) = [one for one in FOUND if one[0] == "CompactionOptions.keys"]
    assert theirs == mine


def test_what_is_no_method_is_none() -> None:
    kinds = (property, type(lance.fragment.DeletionFile.id))
    for name, theirs, mine in FOUND:
        if isinstance(theirs, kinds) and mine is not NOWHERE:
            assert not inspect.isfunction(mine), name
