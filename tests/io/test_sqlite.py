"""SQLite files of strangers: registers of versions, and checkpoints of functions."""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import glaive
from glaive.dataset.columns.udf import Checkpoint
from glaive.errors import OptionError, StoreError

ROWS = pa.table({"id": range(10)})
ENDLESS = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x)"


def register(place: Path) -> Path:
    """The register of a dataset that has one."""
    glaive.write_dataset(ROWS, place, manifest_store="sqlite")
    return place / "_manifests.sqlite"


def read(place: Path) -> int:
    return glaive.dataset(place, manifest_store="sqlite").count_rows()


def change(file: Path, *statements: str) -> None:
    connection = sqlite3.connect(file)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def journal_naming(other: Path, database: Path) -> None:
    """Leave a journal that is to be rolled back, and is one of several that ``other`` lists."""
    (page,) = struct.unpack(">H", database.read_bytes()[16:18])
    pages, magic, name = database.stat().st_size // page, "d9d505f920a163d7", bytes(other)
    head = bytes.fromhex(magic) + struct.pack(">5I", 0, 0, pages, 512, page)
    last = struct.pack(">I", 0x40000000 // page + 1) + name
    last += struct.pack(">2I", len(name), sum(name)) + bytes.fromhex(magic)
    database.with_name(f"{database.name}-journal").write_bytes(head.ljust(512, b"\0") + last)


@pytest.mark.spec("rel-16", "rel-26")
def test_no_file_is_deleted_that_a_journal_names(tmp_path: Path) -> None:
    (other := tmp_path / "thesis.txt").write_text("years of work")
    journal_naming(other, register(tmp_path / "t"))
    with pytest.raises(StoreError, match="journal names another file, which would be deleted"):
        read(tmp_path / "t")
    checkpoint = Checkpoint.open(tmp_path / "done", "job")
    journal_naming(other, tmp_path / "done")
    with pytest.raises(OptionError, match="done-journal names another file"):
        Checkpoint.open(checkpoint.results.path, "job")
    assert other.read_text() == "years of work"


def test_a_journal_that_names_no_file_is_rolled_back(tmp_path: Path) -> None:
    database = register(tmp_path / "t")
    before = database.read_bytes()
    (page,) = struct.unpack(">H", before[16:18])
    head = bytes.fromhex("d9d505f920a163d7")
    head += struct.pack(">5I", 0, 0, len(before) // page, 512, page)
    database.with_name(f"{database.name}-journal").write_bytes(head.ljust(512, b"\0"))
    assert read(tmp_path / "t") == 10
    glaive.write_dataset(ROWS, tmp_path / "t", mode="append", manifest_store="sqlite")
    assert read(tmp_path / "t") == 20


@pytest.mark.parametrize("end", ["-wal", "-shm"])
def test_reading_changes_no_file_of_others_in_the_place_of_a_log(tmp_path: Path, end: str) -> None:
    (other := tmp_path / "thesis.txt").write_text("years of work")
    database = register(tmp_path / "t")
    change(database, "PRAGMA journal_mode = WAL")
    os.link(other, f"{database}{end}")
    with pytest.raises(StoreError, match=f"{end} has another name as well"):
        read(tmp_path / "t")
    assert other.read_text() == "years of work"
    Path(f"{database}{end}").unlink()
    assert read(tmp_path / "t") == 10


@pytest.mark.spec("rel-23", "rel-25")
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_a_journal_that_is_no_file_is_an_error(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    """SQLite would wait for the other end of a pipe."""
    register(tmp_path / "t")
    Checkpoint.open(tmp_path / "done", "job")
    journals = tmp_path / "t/_manifests.sqlite-journal", tmp_path / "done-journal"
    for journal in journals:
        journal.unlink(missing_ok=True)
        make(journal)
    with pytest.raises(StoreError, match="sqlite-journal is no file"):
        read(tmp_path / "t")
    with pytest.raises(OptionError, match="done-journal is no file"):
        Checkpoint.open(tmp_path / "done", "job")


@pytest.mark.spec("rel-26")
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs devices")
def test_a_device_in_the_place_of_a_file_is_not_written_to(tmp_path: Path) -> None:
    """SQLite would take it for a new file, of which it is the first to write."""
    (tmp_path / "done").symlink_to(os.devnull)
    with pytest.raises(OptionError, match=f"{os.devnull} is no file"):
        Checkpoint.open(tmp_path / "done", "job")


@pytest.mark.spec("rel-42")
@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs what cannot be read")
def test_a_journal_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    Checkpoint.open(tmp_path / "done", "job")
    (journal := tmp_path / "done-journal").unlink(missing_ok=True)
    journal.symlink_to("/proc/self/mem")  # its beginning is no memory of this process
    with pytest.raises(OptionError, match=r"done-journal cannot be read: Input/output error"):
        Checkpoint.open(tmp_path / "done", "job")


PROGRAMS: dict[str, tuple[str, ...]] = {
    "a view": (
        "DROP TABLE manifests",
        (
            f"CREATE VIEW manifests AS {ENDLESS} "
            "SELECT '.' AS base_uri, -n AS version, '' AS path, 1 AS size, NULL AS e_tag FROM x"
        ),
    ),
    "a trigger": (
        (
            "CREATE TRIGGER each BEFORE INSERT ON manifests BEGIN "
            "SELECT hex(zeroblob(500000000)) FROM manifests; END"
        ),
    ),
    "a computed column": (
        "DROP TABLE manifests",
        (
            "CREATE TABLE Manifests (base_uri TEXT, version INTEGER, path TEXT, size INTEGER, "
            "e_tag TEXT AS (hex(zeroblob(400000000))))"
        ),
    ),
    "another table": ("DROP TABLE manifests", "CREATE TABLE manifests (a)"),
}


@pytest.mark.spec("rel-25")
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_a_register_would_compute_is_refused(tmp_path: Path, program: str) -> None:
    change(register(tmp_path / "t"), *PROGRAMS[program])
    uses: list[Callable[[], Any]] = [
        lambda: read(tmp_path / "t"),
        lambda: glaive.write_dataset(ROWS, tmp_path / "t", mode="append", manifest_store="sqlite"),
    ]
    for use in uses:
        with pytest.raises(StoreError, match="its table manifests is not one that glaive made"):
            use()


@pytest.mark.spec("rel-25")
def test_what_a_checkpoint_would_compute_is_refused(tmp_path: Path) -> None:
    fragment = glaive.write_dataset(ROWS, tmp_path / "t").manifest.fragment(0)
    checkpoint = Checkpoint.open(tmp_path / "done", "job")
    change(
        tmp_path / "done",
        "DROP TABLE files",
        f"CREATE VIEW files AS {ENDLESS} SELECT 'x' AS work, '' AS file FROM x",
    )
    with pytest.raises(OptionError, match="its table files is not one that glaive made"):
        checkpoint.file(fragment)


def test_a_list_of_tables_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    fragment = glaive.write_dataset(ROWS, tmp_path / "t").manifest.fragment(0)
    checkpoint = Checkpoint.open(tmp_path / "done", "job")
    file = register(tmp_path / "registered")
    for path in (file, tmp_path / "done"):
        path.write_bytes(path.read_bytes().replace(b"CREATE", b"CRE\x97TE"))
    with pytest.raises(OptionError, match=r"checkpoint_file .* codec"):
        checkpoint.file(fragment)
    with pytest.raises(StoreError, match=r"manifest store .* failed"):
        read(tmp_path / "registered")


@pytest.mark.parametrize("wrong", ["path = x'ff'", "version = 'newest'"])
def test_an_entry_of_other_types_is_an_error_that_shows_it(tmp_path: Path, wrong: str) -> None:
    change(register(tmp_path / "t"), f"UPDATE manifests SET {wrong}")
    with pytest.raises(StoreError, match=r"its entry \(.*\) is no version and path"):
        read(tmp_path / "t")


def test_a_register_may_be_in_a_file_with_other_tables(tmp_path: Path) -> None:
    change(tmp_path / "m.sqlite", "CREATE TABLE mine (a)", "CREATE VIEW all_mine AS SELECT 1")
    place = f"sqlite://{tmp_path}/m.sqlite"
    for mode in ("create", "append"):
        glaive.write_dataset(ROWS, tmp_path / "t", mode=mode, manifest_store=place)
    assert glaive.dataset(tmp_path / "t", manifest_store=place).count_rows() == 20
