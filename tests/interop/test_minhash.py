"""MINHASHLSH: the files of pylance, and its answers, whoever built the index."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from glaive.indices import IndexConfig
from glaive.query import MinHashQuery

import glaive
from glaive.errors import GlaiveError, IndexKindError, OptionError
from glaive.file import LanceFileReader

lance = pytest.importorskip("lance", reason="install the 'interop' group")

WORDS = [f"word{number}" for number in range(60)]
TEXT = " ".join(WORDS[:30])
PARAMETERS: dict[str, Any] = {"num_hashes": 64, "num_bands": 16, "shingle_size": 2}


def texts(start: int, stop: int) -> list[str | None]:
    """A text with more and more words exchanged, then again; some are empty or null."""
    random = np.random.default_rng(start)
    made: list[str | None] = []
    for row in range(start, stop):
        words = TEXT.split()
        for place in random.integers(0, len(words), row % 25):
            words[place] = WORDS[int(random.integers(30, 60))]
        made.append({7: None, 8: "", 9: " \n"}.get(row % 31, " ".join(words)))
    return made


def table(start: int = 0, stop: int = 120, kind: Any = None) -> pa.Table:
    return pa.table({"id": range(start, stop), "t": pa.array(texts(start, stop), kind)})


def built(builder: ModuleType, path: Path, *, kind: Any = None, **options: Any) -> str:
    uri = str(path)
    lance.write_dataset(table(kind=kind), uri, max_rows_per_file=50, **options)
    config = {glaive: glaive, lance: lance}[builder].indices.IndexConfig("minhashlsh", PARAMETERS)
    builder.dataset(uri).create_scalar_index("t", config)
    return uri


def found(library: ModuleType, uri: str, text: str = TEXT, **options: Any) -> dict[str, Any]:
    query = library.query.MinHashQuery(text, "t")
    rows = library.dataset(uri).to_table(["id", "_distance"], nearest=query, **options)
    answer: dict[str, Any] = rows.to_pydict()
    return answer


SCANS: tuple[dict[str, Any], ...] = (
    {}, {"limit": 200}, {"limit": 5, "offset": 3},
    {"limit": 8, "filter": "id % 3 = 1"}, {"limit": 8, "filter": "id % 3 = 1", "prefilter": True},
    {"limit": 50, "filter": "_distance < 0.25"}, {"limit": 200, "fast_search": True},
)  # fmt: skip


def same_answers(uri: str) -> int:
    """Rows and distances of both; returns how many rows all searches found."""
    rows = 0
    for text in (TEXT, texts(20, 21)[0] or "", "others", "", " \t"):
        for scan in SCANS if text is TEXT else SCANS[:2]:
            ours, theirs = (found(library, uri, text, **scan) for library in (glaive, lance))
            assert ours == theirs, (text, scan)
            rows += len(ours["id"])
    return rows


def files_of(uri: str) -> dict[str, Any]:
    files = {}
    for path in Path(uri).glob("_indices/*/*.lance"):
        reader = LanceFileReader(str(path))
        files[path.name] = (reader.read_all().to_table(), dict(reader.schema.metadata or {}))
    return files


@pytest.mark.spec("minhash-1", "minhash-2", "minhash-6")
@pytest.mark.parametrize("stable", [False, True])
def test_files_and_details_are_those_of_pylance(tmp_path: Path, *, stable: bool) -> None:
    uris = [
        built(library, tmp_path / library.__name__, enable_stable_row_ids=stable)
        for library in (glaive, lance)
    ]
    ours, theirs = map(files_of, uris)
    assert ours.keys() == theirs.keys() == {"signatures.lance", "bands.lance"}
    for name, (rows, said) in theirs.items():
        assert ours[name][0].schema.equals(rows.schema, check_metadata=True)
        assert ours[name][0].to_pydict() == rows.to_pydict()
        assert ours[name][1] == said
    said = [str(lance.dataset(uri).describe_indices()[0]).split(" total_size")[0] for uri in uris]
    assert said[0] == said[1]
    figures = [glaive.dataset(uri).stats.index_stats("t_idx")["indices"][0] for uri in uris]
    for name in ("num_docs", "num_pages", "num_hashes", "num_bands", "shingle_size"):
        assert figures[0][name] == figures[1][name]
    assert figures[0]["num_docs"] == len([text for text in texts(0, 120) if text and text.strip()])


@pytest.mark.sampled(every=2)
@pytest.mark.spec("minhash-7")
@pytest.mark.parametrize(
    ("builder", "kind"),
    [(glaive, pa.string()), (lance, pa.large_string())],
    ids=["glaive", "pylance"],
)
def test_histories(tmp_path: Path, builder: ModuleType, kind: Any) -> None:
    uri = built(builder, tmp_path / "d", kind=kind, enable_stable_row_ids=kind == pa.string())
    assert same_answers(uri) > 60
    glaive.dataset(uri).delete("id % 4 = 1")
    same_answers(uri)
    glaive.write_dataset(table(200, 260, kind), uri, mode="append")
    assert any(row >= 200 for row in found(glaive, uri)["id"])
    assert same_answers(uri) > 60
    query = MinHashQuery(TEXT, "t")
    plan = glaive.dataset(uri).scanner(nearest=query, filter="id > 3").explain_plan()
    assert "MinHashSearch: column=t, k=10, index t_idx: 1 segments of 3 fragments" in plan
    assert "texts read: 2 fragments" in plan or "texts read: 1 fragments" in plan
    glaive.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    assert glaive.dataset(uri).stats.index_stats("t_idx")["num_unindexed_rows"] == 0
    same_answers(uri)
    glaive.dataset(uri).optimize.optimize_indices(num_indices_to_merge=2)
    same_answers(uri)
    glaive.dataset(uri).optimize.compact_files()
    assert same_answers(uri) > 60


def test_segments_are_built_apart_and_committed_together(tmp_path: Path) -> None:
    uri = str(tmp_path / "d")
    dataset = glaive.write_dataset(table(), uri, max_rows_per_file=50)
    segments = [
        dataset.create_index_uncommitted(
            "t", IndexConfig("minhashlsh", PARAMETERS), fragment_ids=[fragment.fragment_id]
        )
        for fragment in dataset.get_fragments()
    ]
    merged = dataset.merge_existing_index_segments(segments[:2])
    dataset.commit_existing_index_segments("t_idx", "t", [merged, segments[2]])
    assert same_answers(uri) > 60


def test_a_small_limit_of_memory_gives_the_same_files(tmp_path: Path) -> None:
    files = []
    for limit in ("1 GiB", "1 MiB"):
        uri = str(tmp_path / limit.replace(" ", ""))
        rows = pa.table({"t": texts(0, 3000)})
        dataset = glaive.write_dataset(rows, uri)
        dataset.create_scalar_index("t", "MINHASHLSH", shingle_size=1, memory_limit=limit)
        files.append(files_of(uri))
    for name, (rows, said) in files[0].items():
        assert files[1][name][0].equals(rows)
        assert files[1][name][1] == said
    bands = files[0]["bands.lance"][0]
    order = list(zip(*bands.to_pydict().values(), strict=True))
    assert order == sorted(order)
    assert len(order) > 3 * 4096


def test_what_cannot_be_searched_or_built_is_refused(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(table(), str(tmp_path / "d"))
    with pytest.raises(OptionError, match="No MinHash LSH index found for column t"):
        dataset.to_table(nearest=MinHashQuery(TEXT, "t"))
    with pytest.raises(IndexKindError, match="column 'id' of type int64"):
        dataset.create_scalar_index("id", "MINHASHLSH")
    with pytest.raises(OptionError, match="two strings"):
        dataset.to_table(nearest=MinHashQuery(TEXT, 3))  # type: ignore[arg-type]  # on purpose
    builder = glaive.dataset.ScannerBuilder(dataset).minhash_search(MinHashQuery(TEXT, "t"))
    with pytest.raises(OptionError, match="No MinHash"):
        builder.to_scanner()


def test_damaged_files_give_an_answer_or_an_error_that_is_ours(tmp_path: Path) -> None:
    uri = built(glaive, tmp_path / "d")
    random = np.random.default_rng(3)
    refused = 0
    for path in sorted(Path(uri).glob("_indices/*/*.lance")):
        sound = path.read_bytes()
        for _ in range(15):
            damaged = bytearray(sound)
            for place in random.integers(0, len(sound), 3):
                damaged[place] ^= int(random.integers(1, 256))
            path.write_bytes(damaged)
            try:
                distances = found(glaive, uri)["_distance"]
                assert distances == sorted(distances)
            except GlaiveError:
                refused += 1
        path.write_bytes(sound)
    assert refused
    assert found(glaive, uri) == found(lance, uri)


def test_a_fast_search_leaves_out_what_no_index_of_the_filter_covers(tmp_path: Path) -> None:
    uri = str(tmp_path / "d")
    vectors = np.random.default_rng(0).random((90, 4), np.float32)

    def rows(start: int, stop: int) -> pa.Table:
        texts = [f"word{row % 5} text" for row in range(start, stop)]
        part = pa.array(vectors[start:stop].tolist(), pa.list_(pa.float32(), 4))
        return pa.table({"id": range(start, stop), "t": texts, "v": part})

    glaive.write_dataset(rows(0, 40), uri).create_scalar_index("id", "BTREE")
    dataset = glaive.write_dataset(rows(40, 70), uri, mode="append")
    dataset.create_scalar_index("t", "INVERTED")
    dataset.create_index("v", "IVF_FLAT", num_partitions=1)
    glaive.write_dataset(rows(70, 90), uri, mode="append")
    searches: list[tuple[dict[str, Any], list[int]]] = [
        ({"nearest": {"column": "v", "q": vectors[0], "k": 90}}, [40, 70]),
        ({"full_text_query": "word1"}, [8, 14]),
    ]
    for search, counts in searches:
        for prefilter, count in zip((True, False), counts, strict=True):
            options = search | {"filter": "id >= 0", "prefilter": prefilter, "fast_search": True}
            for library in (glaive, lance):
                found = library.dataset(uri).to_table(["id"], **options)
                assert found.num_rows == count, (library, options)
