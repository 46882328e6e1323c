"""What is done with a table of few bytes: reads of all kinds, and changes of a copy."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.proof.few_bytes.draws import Draws
from tests.proof.few_bytes.reads import Way
from tests.proof.few_bytes.tables import FewRows, write_table

import glaive
from glaive.config import USUAL_RATIO

__all__ = ["table_ways"]

Work = Callable[[Any], Any]

SYSTEM = ["_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version"]

WRITERS = 1 << 28
"""Bytes of memory of pages that are being written, and of the windows they come from."""

AT_ONCE = 24
"""Bytes of memory for each deleted row of a fragment, as long as its file is read, and for each
row id in its files.
"""

MOST_SCANNED = 1 << 26
"""Rows of a table up to which all are compared with a constant."""

MOST_CHANGED = 1 << 21
"""The same up to which all are read, or may be written anew."""

MOST_FRAGMENTS = 300
"""Fragments of a table up to which all are written anew: each takes some milliseconds."""


def table_ways(folder: Path, draw: Draws) -> tuple[str, int, Iterator[Way]]:
    """What the table is, bytes that it may well take memory for, and the ways by name."""
    made = write_table(folder / "t", draw)

    def ways() -> Iterator[Way]:
        for name, work in _some_of(draw, _read(made)):
            yield name, partial(_done, work, folder / "t")
        for name, work in _some_of(draw, _changed(made)):
            shutil.rmtree(folder / "c", ignore_errors=True)
            shutil.copytree(folder / "t", folder / "c")
            yield name, partial(_done, work, folder / "c", told=False)

    at_once = made.deleted + made.rows // made.fragments * made.hidden
    size = made.size // 8 + (at_once * AT_ONCE + WRITERS) // USUAL_RATIO
    return f"{made.size} bytes: {made.story}", size, ways()


def _some_of(draw: Draws, ways: dict[str, Work]) -> list[tuple[str, Work]]:
    """A third of them: a trial of all would take seconds."""
    return [way for way in ways.items() if draw.chance(0.35)]


def _done(work: Work, place: Path, *, told: bool = True) -> Any:
    result = work(glaive.dataset(str(place), session=glaive.Session()))
    return result if told else None


def _some(batches: Any) -> list[Any]:
    return list(islice(iter(batches), 3))


def _read(made: FewRows) -> dict[str, Work]:
    last = made.versions
    ways: dict[str, Work] = {
        "open": lambda d: d.schema and None,
        "count": lambda d: d.count_rows() and None,
        "take": lambda d: d.take([0, made.rows // 2, d.count_rows() - 1]),
        "take with ids": lambda d: d.take([0, d.count_rows() // 2], columns=["k", *SYSTEM]),
        "take spread": lambda d: d.take(_spread(d), columns=["k", *SYSTEM]),
        "take by id": lambda d: d.to_table(filter=f"_rowid in (0, 5, {made.rows // 2})", limit=5),
        "head with ids": lambda d: d.to_table(limit=10, columns=["k", *SYSTEM]),
        "far range": lambda d: d.to_table(limit=10, offset=d.count_rows() // 2, with_row_id=True),
        "batches": lambda d: _some(d.to_batches(batch_size=10, columns=["k", *SYSTEM])),
        "reader": lambda d: _some(d.scanner(columns=SYSTEM).to_reader()),
        "filter of ids": lambda d: d.to_table(filter="_rowid = 7", limit=3),
        "filter of ids in a set": lambda d: d.to_table(filter="_rowid in (1, 99, 1000)", limit=3),
        "filter of addresses": lambda d: d.to_table(filter="_rowaddr < 5", limit=3),
        "filter of fragments": lambda d: d.get_fragments()[-1].to_table(limit=3, with_row_id=True),
        "fragments": lambda d: [one.metadata for one in d.get_fragments()] and None,
        "fragment counts": lambda d: [one.count_rows() for one in d.get_fragments()[-3:]] and None,
        "statistics": lambda d: d.stats.dataset_stats() and None,
        "plan": lambda d: d.scanner(filter="k = 1").explain_plan() and None,
        "versions": lambda d: d.versions() and None,
        "checkout": lambda d: d.checkout_version(1).to_table(limit=1),
        "transactions": lambda d: d.get_transactions(50) and None,
        "read of a transaction": lambda d: d.read_transaction(last) and None,
        "delta": lambda d: d.delta(begin_version=0, end_version=last).list_transactions() and None,
        "changes": lambda d: _some(d.changes(1).to_batches()),
        "net changes": lambda d: _some(d.changes(1, net=True).to_batches()),
        "last change": lambda d: _some(d.changes(last, columns=["k", *SYSTEM]).to_batches()),
        "files": lambda d: _some(d.tracked_files()),
        "explained clean-up": lambda d: d.explain_cleanup_old_versions(timedelta(0)) and None,
        "tags": lambda d: d.tags.list() and None,
    }
    if made.rows <= MOST_SCANNED or not made.hidden:
        ways["validation"] = lambda d: d.validate()
    if made.rows <= MOST_SCANNED:
        ways |= {
            "inserted": lambda d: _some(
                d.delta(begin_version=0, end_version=last).get_inserted_rows()
            ),
            "updated": lambda d: _some(
                d.delta(begin_version=1, end_version=last).get_updated_rows()
            ),
        }
    if made.rows <= MOST_CHANGED:
        ways |= {
            "filter": lambda d: d.to_table(filter="k = 2", columns=SYSTEM),
            "filter of versions": lambda d: d.to_table(filter="_row_created_at_version = 99"),
            "count of a filter": lambda d: d.count_rows("k = 1") and None,
            "count of ids": lambda d: d.count_rows("_rowid > 5") and None,
            "all system columns": lambda d: d.to_table(columns=SYSTEM),
            "all batches": lambda d: [len(one) for one in d.to_batches(columns=SYSTEM)] and None,
            "deleted ids": lambda d: _some(
                d.delta(begin_version=1, end_version=last).get_deleted_row_ids()
            ),
        }
    return ways


def _spread(dataset: Any) -> list[int]:
    count = dataset.count_rows()
    return [at * (count - 1) // 200 for at in range(200)] if count else []


def _changed(made: FewRows) -> dict[str, Work]:
    new = pa.table({"k": pa.array([5], pa.int64())})
    ways: dict[str, Work] = {
        "append": lambda d: glaive.write_dataset(new, d.uri, mode="append", schema=new.schema),
        "delete of one": lambda d: d.delete("_rowaddr = 3"),
        "delete of none": lambda d: d.delete("_rowid = 3 and k = 2"),
        "update of one": lambda d: d.update({"k": "2"}, where="_rowaddr = 3"),
        "dropped column": lambda d: d.drop_columns(["c0"]),
        "renamed column": lambda d: d.alter_columns({"path": "k", "name": "l"}),
        "configuration": lambda d: d.update_config({"a": "b"}),
        "restore": lambda d: d.checkout_version(1).restore(),
        "tag": lambda d: d.tags.create("t", made.versions),
        "branch": lambda d: d.create_branch("b"),
        "clone": lambda d: d.shallow_clone(d.uri + "-clone", made.versions),
        "clean-up": lambda d: d.cleanup_old_versions(timedelta(0), delete_unverified=True),
    }
    if made.rows <= MOST_SCANNED:
        ways["compaction of deletions"] = lambda d: d.optimize.compact_files(
            target_rows_per_fragment=10, materialize_deletions_threshold=0.99
        )
    if made.rows <= MOST_CHANGED and made.fragments <= MOST_FRAGMENTS:
        ways |= {
            "compaction": lambda d: d.optimize.compact_files(),
            "delete": lambda d: d.delete("k = 1"),
            "update": lambda d: d.update({"k": "k + 1"}),
            "merge": lambda d: (
                d.merge_insert("k").when_matched_delete().when_not_matched_insert_all().execute(new)
            ),
            "merge by id": lambda d: d.merge_insert("k").when_not_matched_insert_all().execute(new),
            "new column": lambda d: d.add_columns({"z": "k * 2"}),
            "cast": lambda d: d.alter_columns({"path": "k", "data_type": pa.int32()}),
            "index": lambda d: d.create_scalar_index("k", "BITMAP"),
            "sorted index": lambda d: d.create_scalar_index("k", "BTREE"),
            "truncation": lambda d: d.truncate_table(),
        }
    return ways
