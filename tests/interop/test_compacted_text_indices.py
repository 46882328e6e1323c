"""After a compaction, full-text indices are what pylance would have left."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.interop.compacted import Copies, compacted, file_of, segment_of

from glaive.index.text.tokens import read_fst

lance = pytest.importorskip("lance", reason="install the 'interop' group")
files = pytest.importorskip("lance.file")
queries = pytest.importorskip("lance.query")
manifests = pytest.importorskip("lance.dataset")

pytestmark = pytest.mark.interop

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "positions": {"with_position": True},
    "version-1": {"format_version": 1},
    "version-1-positions": {"format_version": 1, "with_position": True},
    "blocks-of-256": {"format_version": 3, "block_size": 256},
    "blocks-of-256-positions": {"format_version": 3, "block_size": 256, "with_position": True},
    "stems-kept": {"stem": False, "remove_stop_words": False},
    "ngrams": {"base_tokenizer": "ngram"},
}
ROUNDED = {"_posting", "_max_score"}
"""Columns with scores, which the last bit may differ in."""


def text_index(kind: str) -> Any:
    return lambda dataset: dataset.create_scalar_index("t", "INVERTED", **KINDS[kind])


def tokens_of(rows: pa.Table) -> list[tuple[int, bytes]]:
    data, count = rows["_token_fst_bytes"][0].as_buffer(), rows["_token_next_id"][0].as_py()
    texts, numbers = read_fst(data, count, "a test")
    return sorted(zip(numbers.tolist(), texts.to_pylist(), strict=True))


def without_scores(postings: pa.Table, block: int) -> list[list[bytes]]:
    """Blocks of documents, but for the scores they begin with."""
    lists: list[Any] = postings["_posting"].to_pylist()
    return [[one[4:] if block == 128 else one for one in blocks] for blocks in lists]


def assert_alike(theirs: Path, ours: Path, block: int = 128) -> None:
    names = sorted(one.name for one in theirs.iterdir())
    assert names == sorted(one.name for one in ours.iterdir())
    for name in names:
        one, other = file_of(theirs / name), file_of(ours / name)
        if name.endswith("_tokens.lance"):
            assert tokens_of(one) == tokens_of(other)
            counted = ["_token_next_id", "_token_total_length"]
            assert one.select(counted) == other.select(counted)
            continue
        assert one.schema.equals(other.schema, check_metadata=name != "metadata.lance")
        if name.endswith("_invert.lance"):
            assert without_scores(one, block) == without_scores(other, block)
            scores, others = (rows["_max_score"].to_numpy() for rows in (one, other))
            assert np.allclose(scores, others, rtol=3e-7)
            one, other = one.drop_columns(list(ROUNDED)), other.drop_columns(list(ROUNDED))
        assert one == other


ALL = 10_000
QUESTIONS = ["word1", "word3 word7", "running cats", "word39", "word30 foxes word2"]


def found(path: Path, question: Any) -> list[tuple[int, float]]:
    # A limit below what there is would cut among equal scores, and so by chance.
    rows = lance.dataset(path).to_table(
        columns=["id", "_score"], full_text_query=question, limit=ALL
    )
    scores = zip(rows["id"].to_pylist(), rows["_score"].to_pylist(), strict=True)
    return sorted((number, round(score, 4)) for number, score in scores)


def assert_found_alike(copies: Copies, *more: Any) -> None:
    for question in (*QUESTIONS, *more):
        theirs, ours = found(copies.theirs, question), found(copies.ours, question)
        assert [one for one, _ in theirs] == [one for one, _ in ours]
        assert np.allclose([one for _, one in theirs], [one for _, one in ours], atol=2e-4)


@pytest.mark.sampled(every=5)
@pytest.mark.spec("text-2", "text-4", "text-6", "text-19")
@pytest.mark.parametrize(
    ("kind", "version"),
    [*((kind, "2.2") for kind in KINDS), ("positions", "2.0"), ("version-1-positions", "2.1")],
)
def test_files_are_those_pylance_leaves(tmp_path: Path, kind: str, version: str) -> None:
    copies = compacted(tmp_path, text_index(kind), sizes=(300, 300, 300), version=version)
    before, theirs, ours = copies.segments("t_idx")
    documents = "part_0_docs.lance"
    assert len(file_of(ours / documents)) < len(file_of(before / documents))
    assert_alike(theirs, ours, KINDS[kind].get("block_size", 128))
    more = [queries.MatchQuery("wodr3", "t", fuzziness=2)] if kind == "plain" else []
    if "with_position" in KINDS[kind]:
        more = [queries.PhraseQuery("word1 word2", "t"), queries.PhraseQuery("word3", "t")]
    assert_found_alike(copies, *more)


@pytest.mark.spec("text-5")
def test_tokens_without_documents_are_gone(tmp_path: Path) -> None:
    copies = compacted(tmp_path, text_index("ngrams"), deleted="t LIKE '%word2%'")
    before, theirs, ours = copies.segments("t_idx")
    assert_alike(theirs, ours)
    tokens = "part_0_tokens.lance"
    counts = [len(tokens_of(file_of(one / tokens))) for one in (before, ours)]
    assert counts[1] < counts[0]
    assert_found_alike(copies, "rd1", "wor")


def test_documents_that_only_moved_keep_their_postings(tmp_path: Path) -> None:
    copies = compacted(tmp_path, text_index("positions"), deleted="")
    before, theirs, ours = copies.segments("t_idx")
    assert_alike(theirs, ours)
    postings = "part_0_invert.lance"
    assert (before / postings).read_bytes() == (ours / postings).read_bytes()
    assert_found_alike(copies)


def test_indices_of_stable_row_ids_stay(tmp_path: Path) -> None:
    copies = compacted(tmp_path, text_index("plain"), stable=True)
    before, theirs, ours = copies.segments("t_idx")
    assert before.name == theirs.name == ours.name
    assert_found_alike(copies)


def in_partitions(dataset: Any) -> None:
    """One segment with a partition for each fragment."""
    made = [
        dataset.create_index_uncommitted("t", "INVERTED", name="t_idx", fragment_ids=[one])
        for one in range(3)
    ]
    root = Path(dataset.uri) / "_indices"
    folder = root / str(made[0].uuid)
    numbers = []
    for one in made:
        for path in sorted((root / str(one.uuid) / "staging").iterdir()):
            if path.name.endswith("metadata.lance"):
                described = files.LanceFileReader(str(path)).metadata().schema.metadata
                numbers += json.loads(described[b"partitions"])
            else:
                shutil.copy(path, folder / path.name)
    shutil.rmtree(folder / "staging")
    field = pa.field("deleted_fragments", pa.binary(), nullable=False)
    schema = pa.schema([field], {**described, b"partitions": json.dumps(numbers).encode()})
    with files.LanceFileWriter(str(folder / "metadata.lance"), schema) as writer:
        writer.write_batch(pa.table([[b":0\0\0\0\0\0\0"]], schema=schema))
    listed = [
        manifests.IndexFile(path=path.name, size_bytes=path.stat().st_size)
        for path in folder.iterdir()
    ]
    index = replace(made[0], fragment_ids={0, 1, 2}, files=listed)
    operation = lance.LanceOperation.CreateIndex(new_indices=[index], removed_indices=[])
    lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)


@pytest.mark.spec("text-3")
def test_all_partitions_stay(tmp_path: Path) -> None:
    # Of the second partition only rows without text are left.
    deleted = "(id >= 200 AND id < 400 AND t IS NOT NULL) OR id < 30"
    copies = compacted(tmp_path, in_partitions, deleted=deleted)
    _, theirs, ours = copies.segments("t_idx")
    assert_alike(theirs, ours)
    counts = [len(file_of(one)) for one in sorted(ours.glob("*_docs.lance"))]
    assert min(counts) == 0
    assert_found_alike(copies)


def frequent(dataset: Any) -> None:
    """An index of texts in which few documents have a word very often."""
    random = np.random.default_rng(5)
    often = np.where(random.random(900) < 0.05, random.integers(40, 400, 900), 1)
    texts = [" ".join(["often"] * int(one) + ["seldom"] * (at % 3)) for at, one in enumerate(often)]
    ids = np.arange(900) + 10_000
    dataset.insert(
        pa.table({"id": ids, "v": pa.nulls(900, dataset.schema.field("v").type), "t": texts})
    )
    dataset.create_scalar_index(
        "t", "INVERTED", format_version=3, block_size=256, with_position=True
    )


def _exceptions(block: bytes) -> int:
    """Frequencies of a block of 256 whose upper bits stand apart."""
    return block[4 + 1 + 32 * block[4] + 1]


def test_frequencies_far_above_the_others_are_exceptions(tmp_path: Path) -> None:
    deleted = "id % 7 = 0 OR id >= 10890"
    copies = compacted(tmp_path, frequent, deleted=deleted)
    _, theirs, ours = copies.segments("t_idx")
    assert_alike(theirs, ours, 256)
    lists: list[Any] = file_of(ours / "part_0_invert.lance")["_posting"].to_pylist()
    assert any(_exceptions(blocks[0]) for blocks in lists if len(blocks) > 1)
    assert_found_alike(copies, "often seldom", queries.PhraseQuery("often seldom", "t"))


def test_segments_side_by_side_are_made_anew_each(tmp_path: Path) -> None:
    def index(dataset: Any) -> None:
        made = [
            dataset.create_index_uncommitted("t", "INVERTED", name=name, fragment_ids=ids)
            for name, ids in (("one", [0, 1]), ("one", [2]))
        ]
        dataset.commit_existing_index_segments("one", "t", made)

    copies = compacted(tmp_path, index, sizes=(150, 150, 150))
    assert_found_alike(copies)
    with pytest.raises(AssertionError):
        segment_of(copies.ours, "one")
