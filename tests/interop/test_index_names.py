"""Calls of pylance that build indices, or tell what they are made of, with both libraries."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from glaive.indices import IndexConfig

import glaive
from glaive.errors import IndexNotFoundError, OptionError
from glaive.index.segment import SegmentWriter

lance: Any = pytest.importorskip("lance", reason="install the 'interop' group")
lance_dataset: Any = import_module("lance.dataset")

pytestmark = pytest.mark.interop

ROWS = 300


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A dataset of three fragments."""
    vectors = np.random.default_rng(0).normal(size=(ROWS, 16)).astype(np.float32)
    words = ["red", "green", "blue"]
    table = pa.table({
        "id": range(ROWS),
        "t": [f"{words[at % 3]} {words[at % 2]} word{at}" for at in range(ROWS)],
        "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 16),
    })  # fmt: skip
    uri = str(tmp_path / "d")
    glaive.write_dataset(table, uri, max_rows_per_file=ROWS // 3)
    return uri


# ------------------------------------------------------------------ parts of a text index


def found(library: Any, path: str) -> dict[int, float]:
    rows = library.dataset(path).to_table(["id"], full_text_query="red word7", limit=ROWS)
    return dict(zip(rows["id"].to_pylist(), rows["_score"].to_pylist(), strict=True))


@pytest.mark.sampled(every=2)
@pytest.mark.spec("text-parts-1", "text-parts-2", "text-parts-3")
@pytest.mark.parametrize("merging", [glaive, lance])
@pytest.mark.parametrize("workers", [(glaive, glaive), (lance, glaive), (lance, lance)])
def test_parts_of_workers_become_one_text_index(path: str, workers: Any, merging: Any) -> None:
    uuid = str(uuid4())
    for library, fragments in zip(workers, ([0, 1], [2]), strict=True):
        library.dataset(path).create_scalar_index(
            "t", "INVERTED", fragment_ids=fragments, index_uuid=uuid, with_position=True
        )
    assert glaive.dataset(path).describe_indices() == []
    merging.dataset(path).merge_index_metadata(uuid, "INVERTED")
    assert not list(Path(path, "_indices", uuid, "staging").glob("*"))
    index = glaive.Index(uuid, "t_idx", [1], 1, {0, 1, 2}, 0)
    operation = glaive.LanceOperation.CreateIndex([index], [])
    glaive.LanceDataset.commit(path, operation, read_version=1)
    mine, theirs = found(glaive, path), found(lance, path)
    assert len(mine) == 201
    assert mine.keys() == theirs.keys()
    np.testing.assert_allclose([mine[at] for at in theirs], list(theirs.values()), rtol=1e-5)
    plan = glaive.dataset(path).scanner(["id"], full_text_query="red").explain_plan()
    assert "index t_idx of 3 fragments" in plan


def test_parts_of_a_late_worker_do_not_replace_the_index_that_was_made(path: str) -> None:
    uuid, dataset = str(uuid4()), glaive.dataset(path)
    build = {"fragment_ids": [0, 1, 2], "index_uuid": uuid}
    dataset.create_scalar_index("t", "INVERTED", **build)
    dataset.merge_index_metadata(uuid, "INVERTED")
    index = glaive.Index(uuid, "t_idx", [1], 1, {0, 1, 2}, 0)
    glaive.LanceDataset.commit(path, glaive.LanceOperation.CreateIndex([index], []), read_version=1)
    before = found(glaive, path)
    dataset.create_scalar_index("t", "INVERTED", **build | {"fragment_ids": [2]})
    with pytest.raises(OptionError, match="is the index 't_idx' already"):
        dataset.merge_index_metadata(uuid, "INVERTED")
    assert found(glaive, path) == before


@pytest.mark.parametrize("attempt", ["part", "merge"])
def test_an_attempt_that_fails_removes_nothing_of_one_that_ended_well(
    path: str, monkeypatch: pytest.MonkeyPatch, attempt: str
) -> None:
    """A cluster stops the slower one of two attempts, or its driver runs again."""
    uuid, dataset = str(uuid4()), glaive.dataset(path)
    build = {"fragment_ids": [0, 1, 2], "index_uuid": uuid}
    dataset.create_scalar_index("t", "INVERTED", **build)
    finish = SegmentWriter.finish

    def stopped(_: SegmentWriter) -> object:
        monkeypatch.setattr(SegmentWriter, "finish", finish)
        if attempt == "merge":  # the other driver is faster
            dataset.merge_index_metadata(uuid, "INVERTED")
        raise InterruptedError

    monkeypatch.setattr(SegmentWriter, "finish", stopped)
    if attempt == "merge":
        with pytest.raises(InterruptedError):
            dataset.merge_index_metadata(uuid, "INVERTED")
    else:
        with pytest.raises(InterruptedError):
            dataset.create_scalar_index("t", "INVERTED", **build)
        dataset.merge_index_metadata(uuid, "INVERTED")
    index = glaive.Index(uuid, "t_idx", [1], 1, {0, 1, 2}, 0)
    glaive.LanceDataset.commit(path, glaive.LanceOperation.CreateIndex([index], []), read_version=1)
    assert len(found(glaive, path)) == 201


def test_parts_that_differ_are_not_merged(path: str) -> None:
    uuid, dataset = str(uuid4()), glaive.dataset(path)
    for fragment, stem in ((0, True), (1, False)):
        dataset.create_scalar_index(
            "t", "INVERTED", fragment_ids=[fragment], index_uuid=uuid, stem=stem
        )
    with pytest.raises(glaive.errors.UnsupportedFeatureError, match="other parameters"):
        dataset.merge_index_metadata(uuid, "INVERTED")


def test_only_text_indices_have_parts(path: str) -> None:
    dataset = glaive.dataset(path)
    with pytest.raises(OptionError, match="merge_existing_index_segments"):
        dataset.merge_index_metadata(str(uuid4()), "BTREE")
    with pytest.raises(OptionError, match="has no parts"):
        dataset.merge_index_metadata(str(uuid4()), "INVERTED")
    with pytest.raises(OptionError, match="index_uuid: expected a UUID, found 'here'"):
        dataset.merge_index_metadata("here", "INVERTED")


# ------------------------------------------------------------------ calls by position


def test_arguments_are_taken_by_position(path: str) -> None:
    dataset = glaive.dataset(path)
    centroids = np.eye(2, 16, dtype=np.float32)
    dataset.create_index("v", "IVF_PQ", "near", "cosine", True, None, centroids, None, 4)
    (index,) = lance.dataset(path).describe_indices()
    assert (index.name, index.index_type) == ("near", "IVF_PQ")
    assert dataset.get_ivf_model("near").distance_type == "cosine"
    assert dataset.get_ivf_model("near").num_partitions == 2


def test_segments_have_the_id_that_is_asked_for(path: str) -> None:
    dataset = glaive.dataset(path)
    scalar, vectors = str(uuid4()), str(uuid4())
    dataset.create_scalar_index("id", "BTREE", index_uuid=scalar)
    dataset.create_index("v", "IVF_FLAT", num_partitions=2, index_uuid=vectors)
    indices = lance.dataset(path).describe_indices()
    found = {index.name: index.segments[0].uuid for index in indices}
    assert found == {"id_idx": scalar, "v_idx": vectors}
    with pytest.raises(OptionError, match="already"):
        dataset.create_scalar_index("id", "BTREE", index_uuid=scalar)
    with pytest.raises(OptionError, match="index_uuid: expected a UUID"):
        dataset.create_scalar_index("id", "BTREE", index_uuid="mine")


def test_a_segment_of_some_fragments_with_an_id_is_not_committed(path: str) -> None:
    uuid, dataset = str(uuid4()), glaive.dataset(path)
    dataset.create_index("v", "IVF_FLAT", num_partitions=2, fragment_ids=[0], index_uuid=uuid)
    assert glaive.dataset(path).describe_indices() == []
    assert Path(path, "_indices", uuid, "index.idx").exists()


def test_an_index_over_another_column_is_not_replaced(path: str) -> None:
    dataset = glaive.dataset(path)
    dataset.create_scalar_index("id", "BTREE", name="x")
    with pytest.raises(OptionError, match="over another column"):
        dataset.create_scalar_index("t", "BTREE", name="x", replace=True)


NAMED: tuple[list[tuple[str, str]], ...] = (
    [("id", "BTREE"), ("id", "BITMAP"), ("id", "ZONEMAP"), ("id", "BITMAP")],
    [("t", "INVERTED"), ("t", "NGRAM"), ("t", "INVERTED")],
    [("id", "BTREE"), ("t", "BTREE"), ("id", "BTREE")],
)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("made", NAMED, ids=str)
def test_an_index_of_another_kind_gets_a_name_of_its_own(
    path: str, tmp_path: Path, made: list[tuple[str, str]]
) -> None:
    names = []
    for library in (glaive, lance):
        copied = shutil.copytree(path, tmp_path / library.__name__)
        dataset = library.dataset(str(copied))
        for column, kind in made:
            dataset.create_scalar_index(column, kind)
        names.append(sorted((one.name, one.index_type) for one in dataset.describe_indices()))
    assert names[0] == names[1]
    assert len(names[0]) == len(set(made))


def test_a_name_that_another_column_took_is_not_taken_again(path: str) -> None:
    dataset = glaive.dataset(path)
    dataset.create_scalar_index("id", "BTREE", name="t_idx")
    dataset.create_scalar_index("t", "BTREE")
    assert sorted(one.name for one in dataset.describe_indices()) == ["t_idx", "t_idx_2"]


@pytest.mark.spec("btree-6")
def test_pages_of_a_b_tree_have_so_many_rows(path: str) -> None:
    for library, config in ((glaive, IndexConfig), (lance, lance.indices.IndexConfig)):
        library.dataset(path).create_scalar_index("id", config("btree", {"zone_size": 100}))
        (segment,) = lance.dataset(path).stats.index_stats("id_idx")["indices"]
        assert segment["num_pages"] == 3
        rows = glaive.dataset(path).to_table(filter="id between 98 and 203", use_scalar_index=True)
        assert rows["id"].to_pylist() == list(range(98, 204))


def test_only_some_segments_are_read_beforehand(path: str) -> None:
    dataset = glaive.dataset(path)
    dataset.create_scalar_index("id", "BTREE")
    dataset = glaive.dataset(path)
    (segment,) = dataset.describe_indices()[0].segments
    with pytest.raises(OptionError, match="has no segment"):
        dataset.prewarm_index("id_idx", index_segments=[str(uuid4())])
    assert dataset.session().index_cache_size_bytes() == 0
    dataset.prewarm_index("id_idx", index_segments=[segment.uuid])
    assert dataset.session().index_cache_size_bytes() > 0


def test_workers_share_a_rotation_that_pylance_made(path: str) -> None:
    model = lance.lance.indices.build_rq_model(dimension=16, num_bits=1)
    dataset = glaive.dataset(path)
    options: dict[str, Any] = {
        "num_partitions": 2, "ivf_centroids": np.eye(2, 16, dtype=np.float32), "num_bits": 1,
        "rabitq_model": model,
    }  # fmt: skip
    segments = [
        dataset.create_index_uncommitted("v", "IVF_RQ", fragment_ids=[at], **options)
        for at in range(3)
    ]
    merged = dataset.merge_existing_index_segments(segments)
    dataset.commit_existing_index_segments("v_idx", "v", [merged])
    (segment,) = lance.dataset(path).stats.index_stats("v_idx")["segments"]
    assert f"{segment['sub_index']['fast_rotation_signs']}".replace(" ", "") in model
    with pytest.raises(OptionError, match="rabitq_model: expected one for IVF_RQ with 3 bits"):
        dataset.create_index("v", "IVF_RQ", **{**options, "num_bits": 3}, replace=True)
    with pytest.raises(OptionError, match="rabitq_model: expected the JSON"):
        dataset.create_index("v", "IVF_RQ", **{**options, "rabitq_model": "{}"}, replace=True)


# ------------------------------------------------------------------ what indices are made of


def test_centroids_are_those_that_pylance_tells(path: str) -> None:
    lance.dataset(path).create_index("v", "IVF_FLAT", num_partitions=3, metric="dot")
    theirs, mine = lance.dataset(path), glaive.dataset(path)
    assert mine.centroids(column="v").equals(theirs.centroids(column="v"))
    assert mine.centroids(index_name="v_idx").equals(theirs.get_ivf_model("v_idx").centroids)
    for wrong, error in (
        ({"column": "id"}, IndexNotFoundError),
        ({"index_name": "other"}, IndexNotFoundError),
        ({}, OptionError),
    ):
        with pytest.raises(error):
            mine.centroids(**wrong)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_SQ", "IVF_PQ", "IVF_HNSW_SQ"])
def test_partitions_have_the_rows_that_pylance_tells(path: str, kind: str) -> None:
    more = {"num_sub_vectors": 4} if "PQ" in kind else {}
    lance.dataset(path).create_index("v", kind, num_partitions=3, **more)
    mine = glaive.dataset.VectorIndexReader(glaive.dataset(path), "v_idx")
    theirs = lance_dataset.VectorIndexReader(lance.dataset(path), "v_idx")
    assert mine.num_partitions() == theirs.num_partitions()
    for number in range(mine.num_partitions()):
        whole = theirs.read_partition(number, with_vector=True)
        rows = mine.read_partition(number, with_vector=True)
        assert rows["_rowid"].equals(whole["_rowid"])
        assert mine.read_partition(number).column_names == ["_rowid"]
        if "PQ" not in kind:  # pylance has these byte by byte, not row by row
            assert rows[1].combine_chunks().equals(whole[1].combine_chunks())
    with pytest.raises(OptionError, match="partition_id"):
        mine.read_partition(3)


FIGURES: list[tuple[str, str, dict[str, Any]]] = [
    ("id", "BTREE", {}),
    ("t", "BTREE", {}),
    ("id", "BITMAP", {}),
    ("id", "ZONEMAP", {}),
    ("t", "BLOOMFILTER", {}),
    ("t", "NGRAM", {}),
    ("t", "INVERTED", {}),
    ("v", "IVF_FLAT", {"num_partitions": 2}),
    ("v", "IVF_PQ", {"num_partitions": 2, "num_sub_vectors": 4}),
    ("v", "IVF_RQ", {"num_partitions": 2, "num_bits": 1}),
    ("v", "IVF_HNSW_SQ", {"num_partitions": 2}),
]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(("column", "kind", "options"), FIGURES)
def test_figures_of_segments_are_those_of_pylance(
    path: str, column: str, kind: str, options: dict[str, Any]
) -> None:
    dataset = glaive.dataset(path)
    if column == "v":
        dataset.create_index(column, kind, **options)
    else:
        dataset.create_scalar_index(column, kind)
    (theirs,) = lance.dataset(path).stats.index_stats(f"{column}_idx")["segments"]
    (mine,) = glaive.dataset(path).stats.index_stats(f"{column}_idx")["segments"]
    for name, value in theirs.items():
        if name in ("centroids", "loss"):
            np.testing.assert_allclose(mine[name], value, rtol=1e-6)
        else:
            assert mine[name] == value, name


TOKENIZED: list[dict[str, Any]] = [
    {},
    {"stem": False},
    {"remove_stop_words": False},
    {"lower_case": False, "ascii_folding": False},
    {"base_tokenizer": "whitespace"},
    {"base_tokenizer": "raw", "max_token_length": None},
    {"base_tokenizer": "ngram", "min_ngram_length": 2, "prefix_only": True},
    {"analyzer": "code"},
    {"custom_stop_words": ["cats"], "stem": False},
    {"language": "German"},
    {"max_token_length": 4},
]


@pytest.mark.parametrize("options", TOKENIZED, ids=str)
def test_queries_have_the_tokens_of_pylance(options: dict[str, Any]) -> None:
    for text in ("the Cats and fooBar_baz 12.5 läuft Häuser", "", "  the ", "a-b " + "x" * 50):
        mine, theirs = glaive.tokenize(text, **options), lance.tokenize(text, **options)
        assert [(one.text, one.position) for one in mine] == [
            (one.text, one.position) for one in theirs
        ]


def test_wrong_options_of_tokenizers_are_refused() -> None:
    wrong: Callable[..., Any] = glaive.tokenize
    for options in ({"base_tokenizer": "other"}, {"language": "Latin"}, {"stem": 1}):
        with pytest.raises(OptionError, match=next(iter(options))):
            wrong("text", **options)
