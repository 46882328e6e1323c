"""Tables of a namespace: it says where a table lies; options that are not served are named."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import glaive.fragment
import pyarrow as pa
import pytest
from glaive.progress import FragmentWriteProgress

import glaive
import glaive.file
from glaive import config
from glaive.errors import CorruptFileError, DatasetNotFoundError, OptionError, StoreError
from glaive.io import access as io_catalogue
from glaive.io import checksums

ROWS = pa.table({"a": [1, 2, 3]})
TABLE = ["sales", "orders"]


class Catalogue:
    """Knows one table."""

    def __init__(self, place: Path | None, **told: Any) -> None:
        self.place, self.told = place, told
        self.asked: list[tuple[str, list[str]]] = []

    def _answer(self, kind: str, request: Any) -> Any:
        self.asked.append((kind, request.id))
        place = None if self.place is None else str(self.place)
        return SimpleNamespace(**({"location": place, "storage_options": None} | self.told))

    def describe_table(self, request: Any) -> Any:
        return self._answer("describe", request)

    def declare_table(self, request: Any) -> Any:
        return self._answer("declare", request)


def test_a_table_is_written_and_opened_where_the_namespace_says(tmp_path: Path) -> None:
    catalogue = Catalogue(tmp_path / "t")
    named: dict[str, Any] = {"namespace_client": catalogue, "table_id": TABLE}
    glaive.write_dataset(ROWS, **named)
    glaive.write_dataset(ROWS, mode="append", **named)
    assert glaive.dataset(**named).count_rows() == 6
    assert glaive.dataset(version=1, **named).uri == str(tmp_path / "t")
    kinds = ["declare", "describe", "describe", "describe"]
    assert catalogue.asked == [(kind, TABLE) for kind in kinds]


def test_options_of_the_namespace_win(tmp_path: Path) -> None:
    glaive.write_dataset(ROWS, tmp_path / "t")
    catalogue = Catalogue(tmp_path / "t", storage_options={"b": "theirs", "c": "3"})
    opened = glaive.dataset(
        namespace_client=catalogue, table_id=TABLE, storage_options={"a": "1", "b": "2"}
    )
    assert opened.initial_storage_options == {"a": "1", "b": "theirs", "c": "3"}


@pytest.mark.spec("rel-26")
@pytest.mark.parametrize(
    ("own", "theirs", "left"),
    [
        ({"aws_skip_signature": "false"}, {"skip_signature": "true"}, {}),
        ({"AZURE_STORAGE_TOKEN": "mine", "b": "2"}, {"bearer_token": "theirs"}, {"b": "2"}),
        ({"aws_session_token": "mine"}, {"access_key_id": "theirs"}, {}),
        ({"aws_session_token": "mine"}, {"region": "eu"}, {"aws_session_token": "mine"}),
        ({"google_storage_token": "mine"}, {"service_account_key": "{}"}, {}),
        ({"fabric_session_token": "mine", "account_key": "mine"}, {"bearer_token": "theirs"}, {}),
        ({"azure_storage_account_key": "mine"}, {"sas_token": "theirs"}, {}),
        ({"bearer_token": "mine"}, {"account_name": "x"}, {"bearer_token": "mine"}),
        ({"google_bearer_token": "m"}, {"sas_token": "theirs"}, {"google_bearer_token": "m"}),
    ],
)
def test_options_of_the_namespace_win_by_whatever_name(
    tmp_path: Path, own: dict[str, str], theirs: dict[str, str], left: dict[str, str]
) -> None:
    """Else the caller's credentials went to a server for which the namespace has others."""
    glaive.write_dataset(ROWS, tmp_path / "t")
    catalogue = Catalogue(tmp_path / "t", storage_options=theirs)
    opened = glaive.dataset(namespace_client=catalogue, table_id=TABLE, storage_options=own)
    assert opened.initial_storage_options == left | theirs


@pytest.mark.spec("rel-28")
def test_what_a_caller_asks_to_be_compared_is_compared_whatever_the_namespace_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    glaive.write_dataset(ROWS, tmp_path / "t", storage_options={"checksums": "true"})
    (file,) = (tmp_path / "t/data").iterdir()
    data = bytearray(file.read_bytes())
    data[data.index(b"\x02")] ^= 1
    file.write_bytes(data)
    catalogue = Catalogue(tmp_path / "t", storage_options={"verify_checksums": "false"})
    named: dict[str, Any] = {"namespace_client": catalogue, "table_id": TABLE}
    assert glaive.dataset(**named).to_table() != ROWS
    with pytest.raises(CorruptFileError):
        glaive.dataset(verify=True, **named).to_table()
    changed = replace(config.settings, verify=True)
    for module in (checksums, io_catalogue):
        monkeypatch.setattr(module, "settings", changed)
    with pytest.raises(CorruptFileError):
        glaive.dataset(**named).to_table()


@pytest.mark.spec("rel-26")
def test_options_of_the_namespace_may_be_numbers() -> None:
    """As those of JSON, in which times are numbers."""
    millis = time.time_ns() // 10**6 + 10**6
    place: Any = "memory://numbers/t"
    catalogue = Catalogue(place, storage_options={"expires_at_millis": millis, "fsync": False})
    glaive.write_dataset(ROWS, namespace_client=catalogue, table_id=TABLE)
    opened = glaive.dataset(namespace_client=catalogue, table_id=TABLE)
    assert opened.to_table() == ROWS
    told = Catalogue(place, storage_options={"expires_at_millis": [millis]})
    with pytest.raises(StoreError, match="expected a string for 'expires_at_millis', found list"):
        glaive.dataset(namespace_client=told, table_id=TABLE)


def test_options_of_the_namespace_are_not_used_for_another_kind_of_store(tmp_path: Path) -> None:
    catalogue = Catalogue(tmp_path / "t", storage_options={"azure_endpoint": "https://evil"})
    named: dict[str, Any] = {"namespace_client": catalogue, "table_id": TABLE}
    for use in (
        lambda: glaive.fragment.write_fragments(ROWS, "az://mine/t", **named),
        lambda: glaive.file.LanceFileReader("az://mine/t.lance", **named),
        lambda: glaive.file.LanceFileSession("az://mine", **named),
    ):
        with pytest.raises(OptionError, match="another kind of store"):
            use()
    assert len(glaive.fragment.write_fragments(ROWS, tmp_path / "t", mode="append", **named)) == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "pass a path or a URI"),
        ({"table_id": TABLE}, "give both"),
        ({"namespace_client": Catalogue(None)}, "give both"),
        ({"uri": "x", "namespace_client": Catalogue(None), "table_id": TABLE}, "give either"),
    ],
)
def test_place_or_table_are_given(given: dict[str, Any], message: str) -> None:
    for use in (glaive.dataset, lambda **kw: glaive.write_dataset(ROWS, **kw)):
        with pytest.raises(OptionError, match=message):
            use(**given)


def test_a_table_without_a_place_is_not_found() -> None:
    with pytest.raises(DatasetNotFoundError, match="reports no location for the table"):
        glaive.dataset(namespace_client=Catalogue(None), table_id=TABLE)


def test_a_manifest_read_elsewhere_says_which_version_is_opened(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    first = glaive.write_dataset(ROWS, place)
    glaive.write_dataset(ROWS, place, mode="append")
    message = first._ds.serialized_manifest()  # noqa: SLF001  # as Ray does
    assert glaive.LanceDataset(place, serialized_manifest=message).count_rows() == 3
    for wrong in (b"", b"\xff" * 20, "text"):
        with pytest.raises(OptionError, match="serialized_manifest"):
            glaive.LanceDataset(place, serialized_manifest=wrong)  # type: ignore[arg-type]  # a text


def test_progress_is_told_of_fragments(tmp_path: Path) -> None:
    told: list[tuple[str, int | None]] = []

    class Listener(FragmentWriteProgress):
        def begin(self, fragment: glaive.FragmentMetadata, **kwargs: Any) -> None:
            told.append(("begin", fragment.physical_rows))

        def complete(self, fragment: glaive.FragmentMetadata, **kwargs: Any) -> None:
            told.append((fragment.to_json()["files"][0]["path"][-6:], fragment.num_rows))

    glaive.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=2, progress=Listener())
    assert told == [("begin", None), (".lance", 2), ("begin", None), (".lance", 1)]


def test_pages_have_as_many_bytes_as_was_said(tmp_path: Path) -> None:
    from glaive.file import LanceFileReader

    rows = pa.table({"a": range(100_000), "b": range(100_000)})
    pages = {}
    for name, options in {
        "as usual": {},
        "small": {"max_page_bytes": 80_000},
        "shared": {"data_cache_bytes": 160_000},
        "large": {"max_page_bytes": 2**40},
    }.items():
        given: Any = options
        dataset = glaive.write_dataset(rows, tmp_path / name, **given)
        (file,) = dataset.get_fragments()[0].data_files()
        reader = LanceFileReader(str(tmp_path / name / "data" / file.path))
        pages[name] = [one.num_pages for one in reader.file_statistics().columns]
        assert dataset.to_table() == rows
    assert pages == {"as usual": [1, 1], "small": [10, 10], "shared": [10, 10], "large": [1, 1]}
