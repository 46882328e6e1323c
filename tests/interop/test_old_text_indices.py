"""Full-text indices of old releases: both search them alike, and go on with what glaive leaves."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.historical import copied

import glaive
from glaive.errors import CorruptFileError, DataFileMissingError
from glaive.file import LanceFileReader, LanceFileWriter

lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

OLDEST, LAST = "v0.16.1/full_text", "v0.27.2/full_text"
"""The first names no kind in its entry, and has tokens in no order; the last has positions."""

QUERIES: dict[str, Callable[[Any], Any]] = {
    "match": lambda of: of.MatchQuery("puppy", "text"),
    "any": lambda of: of.MatchQuery("Quick DOG", "text"),
    "all": lambda of: of.MatchQuery("quick fox", "text", operator=of.FullTextOperator.AND),
    "fuzzy": lambda of: of.MatchQuery("quik", "text", fuzziness=1),
    "boolean": lambda of: of.BooleanQuery(
        [
            (of.Occur.MUST, of.MatchQuery("quick", "text")),
            (of.Occur.MUST_NOT, of.MatchQuery("puppy", "text")),
            (of.Occur.SHOULD, of.MatchQuery("brown", "text")),
        ]
    ),
    "boost": lambda of: of.BoostQuery(of.MatchQuery("fox", "text"), of.MatchQuery("dog", "text")),
}
PHRASES: dict[str, Callable[[Any], Any]] = {
    "phrase": lambda of: of.PhraseQuery("quick brown fox", "text"),
    "slop": lambda of: of.PhraseQuery("quick fox", "text", slop=1),
}
OF_LISTS: dict[str, Callable[[Any], Any]] = {
    "list": lambda of: of.MatchQuery("fox", "texts"),
    "phrase of a list": lambda of: of.PhraseQuery("quick brown", "texts"),
}
ADDED = {"id": [500, 501], "text": ["a quick puppy", "brown fox"]}


def rows_like(made: Any) -> pa.Table:
    lists = {"texts": [[text] for text in ADDED["text"]]} if "texts" in made.schema.names else {}
    return pa.table(ADDED | lists)


CHANGES: dict[str, Callable[[Any], object]] = {
    "append": lambda made: glaive.write_dataset(rows_like(made), made, mode="append"),
    "delete": lambda made: made.delete("id % 3 = 0"),
    "update": lambda made: made.update({"text": "'quick quick fox'"}, where="id % 5 = 1"),
    "merge": lambda made: (
        made.merge_insert("id")
        .when_matched_update_all()
        .execute(made.to_table(filter="id % 4 = 2"))
    ),
    "compact": lambda made: made.optimize.compact_files(),
    "deferred": lambda made: made.optimize.compact_files(defer_index_remap=True),
    "optimize": lambda made: made.optimize.optimize_indices(),
    "segment": lambda made: made.optimize.optimize_indices(num_indices_to_merge=0),
}


def scores(library: Any, at: Path, query: Callable[[Any], Any], **options: Any) -> dict[int, float]:
    asked = query(import_module(f"{library.__name__}.query"))
    opened = library.dataset(at)
    rows = opened.to_table(full_text_query=asked, columns=["id", "_score"], **options)
    return dict(zip(rows["id"].to_pylist(), rows["_score"].to_pylist(), strict=True))


@pytest.mark.spec("text-old-1", "text-old-2", "text-old-3")
@pytest.mark.parametrize("query", QUERIES)
def test_pylance_scores_documents_of_an_old_index_alike(query: str, tmp_path: Path) -> None:
    at = copied(LAST, tmp_path / "t")
    for options in ({}, {"filter": "id % 2 = 0", "prefilter": True}):
        expected = scores(lance, at, QUERIES[query], **options)
        assert expected
        assert scores(glaive, at, QUERIES[query], **options) == pytest.approx(expected, rel=1e-5)


@pytest.mark.spec("text-old-3", "text-old-4", "text-old-5")
@pytest.mark.parametrize(
    "changes",
    [
        ["append"],
        ["append", "optimize"],
        ["append", "segment"],
        ["delete", "update", "optimize"],
        ["merge", "compact"],
        ["delete", "compact", "append", "optimize"],
        ["delete", "deferred", "append", "optimize"],
    ],
    ids="-".join,
)
@pytest.mark.parametrize("name", [OLDEST, LAST])
def test_changes_leave_what_an_index_built_anew_finds(
    name: str, changes: list[str], tmp_path: Path
) -> None:
    at = copied(name, tmp_path / "t")
    for change in changes:
        CHANGES[change](glaive.dataset(at))
    asked = QUERIES | ({} if name == OLDEST else PHRASES | OF_LISTS)
    if changes[-1] in ("append", "compact"):
        asked.pop("fuzzy")  # Both look for other spellings in the index only.
    found = {query: set(scores(glaive, at, make)) for query, make in asked.items()}
    glaive.dataset(at).validate()
    if changes[-1] != "append":  # Of old segments pylance reads no positions, and some not at all.
        for query, make in asked.items():
            assert set(scores(lance, at, make)) == found[query], query
        lance.dataset(at).optimize.compact_files()
        for query, make in asked.items():
            assert set(scores(lance, at, make)) == found[query], query
    glaive.dataset(at).optimize.optimize_indices(retrain=True)
    for query, make in asked.items():
        assert found[query], query
        assert set(scores(glaive, at, make)) == found[query], query


def test_old_indices_are_described(tmp_path: Path) -> None:
    for name in (OLDEST, LAST):
        at = copied(name, tmp_path / name.replace("/", "-"))
        made = glaive.dataset(at)
        made.prewarm_index("text_idx")
        told = made.stats.index_stats("text_idx")
        assert told["index_type"] == "Inverted"
        assert (told["num_indexed_rows"], told["num_unindexed_rows"]) == (24, 0)
        assert told["indices"][0]["num_docs"] == (20 if name == OLDEST else 22)
        assert told["indices"][0]["params"]["with_position"] == (name == LAST)
    expected = {one.name: one for one in lance.dataset(at).describe_indices()}
    for one in made.describe_indices():
        assert (one.index_type, one.details) == (
            expected[one.name].index_type,
            expected[one.name].details,
        )
    assert (
        told["indices"][0]["num_tokens"]
        == (lance.dataset(at).stats.index_stats("text_idx")["indices"][0]["num_tokens"])
    )


def rewritten(at: Path, name: str, change: Callable[[pa.Table, dict[str, str]], pa.Table]) -> None:
    """Change the rows, or the metadata, of a file of an index."""
    for path in at.glob(f"_indices/*/{name}"):
        stored = LanceFileReader(str(path)).read_all().to_table()
        metadata = {key.decode(): value.decode() for key, value in stored.schema.metadata.items()}
        rows = change(stored, metadata)
        with LanceFileWriter(str(path), rows.schema.with_metadata(metadata)) as writer:
            writer.write_batch(rows.replace_schema_metadata(metadata))


def replaced(column: str, values: Callable[[np.ndarray[Any, Any]], Any]) -> Any:
    def change(rows: pa.Table, _: dict[str, str]) -> pa.Table:
        at = rows.schema.get_field_index(column)
        made = pa.array(values(rows[column].to_numpy()), rows.schema.field(at).type)
        return rows.set_column(at, rows.schema.field(at), made)

    return change


def said(offsets: str) -> Any:
    def change(rows: pa.Table, metadata: dict[str, str]) -> pa.Table:
        metadata["offsets"] = offsets
        return rows

    return change


@pytest.mark.spec("text-old-2")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (said("[0, 9, 3]"), "'offsets'.*ascending integers"),
        (said("[0, 1.5]"), "'offsets'.*ascending integers"),
        (said("{}"), "'offsets'.*ascending integers"),
        (replaced("_rowid", lambda rows: rows + 4), "'_rowid'.*rows of documents"),
        (replaced("_frequency", lambda found: found * 0), "'_frequency'.*numbers from 1 on"),
        (replaced("_frequency", lambda found: found + 1), "'_position'.*lengths of the lists"),
    ],
    ids=["descending", "fractions", "no list", "other rows", "never", "positions"],
)
def test_damage_of_an_old_index_is_named(change: Any, message: str, tmp_path: Path) -> None:
    at = copied(LAST, tmp_path / "t")
    rewritten(at, "invert.lance", change)
    with pytest.raises(CorruptFileError, match=f"{message}.*invert.lance"):
        scores(glaive, at, PHRASES["phrase"])


def test_a_segment_without_its_tokens_is_said_to_miss_files(tmp_path: Path) -> None:
    at = copied(LAST, tmp_path / "t")
    for path in at.glob("_indices/*/tokens.lance"):
        path.unlink()
    with pytest.raises(DataFileMissingError, match=r"metadata\.lance"):
        scores(glaive, at, QUERIES["match"])
