"""``import glaive as lance``: names and parameters of pylance's table operations, one by one.

What is not there stands in a list below with the reason; the lists must be right both ways.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from tests.interop.pylance_names import NOWHERE, Name, modules, names, table, taken_from_elsewhere

from glaive.compat.absent import AbsentName
from glaive.errors import GlaiveError

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

SAME_NAMES = ("torch.data", "file", "blob", "arrow", "bitmap", "sampler", "pydantic")
"""Modules whose names are shown with the module."""


ABSENT = {
    "a part of pylance's inner works": """
        BooleanQuery.inner BoostQuery.inner CombinedFieldsQuery.inner FullTextQuery.inner
        MatchQuery.inner MultiMatchQuery.inner PhraseQuery.inner
        blob.LanceBlobFile.is_closed blob.LanceBlobFile.read_into
        blob.LanceBlobFile.set_buffer_size
    """
}
"""Members of classes that glaive does not have, by reason."""

_ALIEN = "an argument that only pylance itself can make"

OTHER = {
    "the default is that of the library, 40": "tokenize.max_token_length",
    "an enumeration of glaive's own, with the same members": """
        CombinedFieldsQuery.__init__.operator MatchQuery.__init__.operator
        MultiMatchQuery.__init__.operator
    """,
    _ALIEN: """
        blob.LanceBlobFile.seek.position file.LanceFileReader.__init__._inner_reader
        file.LanceFileWriter.__init__._inner_writer
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
        BlobFile.readinto.b
    """,
}
"""Parameters that glaive does not have so, by reason."""


def listed(table: dict[str, str]) -> set[str]:
    return {name for names in table.values() for name in names.split()}


def is_public(name: str) -> bool:
    return not name.startswith("_")


def pairs() -> Iterator[tuple[str, Any, Any]]:
    """Public names of the modules and of their classes, with what each library has there."""
    seen: set[int] = set()
    for module, name, theirs, mine in names():
        # The compiled module has inner classes; those of the other modules wrap them.
        if module == "lance" or theirs is None or id(theirs) in seen:
            continue
        if isinstance(mine, AbsentName):
            continue
        seen.add(id(theirs))
        label = f"{module}.{name}" if module in SAME_NAMES else name
        yield label, theirs, mine
        if inspect.isclass(theirs) and mine is not NOWHERE:
            yield from members(label, theirs, mine)


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
    if name.rpartition(".")[2][:1].isupper() or hasattr(mine, "__refused__"):
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


def test_all_modules_of_pylance_are_compared() -> None:
    assert len(modules()) >= 34


@pytest.mark.parametrize("module", modules())
def test_every_name_of_a_module_can_be_imported(module: str) -> None:
    assert [one.name for one in names() if one.module == module and one.mine is NOWHERE] == []


INNER = """
    namespace.PyDirectoryNamespace namespace.PyRestAdapter namespace.PyRestNamespace
    types.model_to_dict
"""
"""What only pylance's modules themselves use; the last one is in ``lance.dependencies``."""


def test_what_a_module_of_pylance_imports_from_others_can_be_imported_from_it() -> None:
    found = {
        f"{module}.{name}": hasattr(import_module(f"glaive.{module}"), name)
        for module, name in taken_from_elsewhere()
    }
    assert "namespace.CreateTableRequest" in found
    assert {name for name, is_there in found.items() if not is_there} == set(INNER.split())


REFUSED = [one for one in names() if isinstance(one.mine, AbsentName)]


@pytest.mark.parametrize("one", REFUSED, ids=lambda one: f"{one.module}.{one.name}")
def test_a_name_that_is_not_supported_says_so_when_it_is_used(one: Name) -> None:
    assert not isinstance(1, one.mine)
    with pytest.raises(GlaiveError, match=rf"{one.name} .*\. \w+"):
        one.mine("anything", option=1)
    with pytest.raises(GlaiveError, match=one.name):
        getattr(one.mine, one.name)


def test_the_table_of_names_says_what_works_and_why_others_are_refused() -> None:
    lines = table().splitlines()[2:]
    assert len(lines) == len(names())
    assert all(line.endswith("| works |") or "| refused: " in line for line in lines)
    assert "| `lance.BlobColumn` | works |" in lines


def test_members_that_are_not_supported_say_so_when_they_are_called() -> None:
    refused = [(name, mine) for name, _, mine in FOUND if hasattr(mine, "__refused__")]
    assert "LanceDataset.mem_wal_writer" in dict(refused)
    for name, mine in refused:
        with pytest.raises(
            GlaiveError, match=rf"{name.partition('.')[2]} is not supported: .*\. \w+"
        ):
            mine(None, 1, option=2)


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
