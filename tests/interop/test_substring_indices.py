"""FM: any word is found in texts as pylance finds it, whoever built the index."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from glaive.indices import IndexConfig

import glaive
from glaive.errors import GlaiveError, IndexKindError, OptionError

lance = pytest.importorskip("lance", reason="install the 'interop' group")

pytestmark = pytest.mark.interop

WORDS = ["ab", "abc", "banana", "élan", "\U0001f600", "x", "cab", "na na", "", "ABC"]
PATTERNS = ("%ban%na%", "ban%ana", "b_nana%", "%ana_%na", r"%100\%%", "%a%", "%ü%n%", "ban%", "%")
EXPRESSIONS = (
    "ban.na", "(ban)?ana", "ban|abc", "bana?n", "(?i)BANANA", "ana{0}", "^ban.*a$", "[b]ana",
)  # fmt: skip

QUESTIONS = ["abc", "ana", "é", "\U0001f600", "a", "nothing of this", "c na", "BC"]


def texts(start: int, stop: int) -> pa.Table:
    random = np.random.default_rng(start)
    made = [" ".join(random.choice(WORDS, random.integers(0, 6))) for _ in range(start, stop)]
    values = [None if at % 9 == 4 else text for at, text in enumerate(made)]
    return pa.table({"id": range(start, stop), "t": pa.array(values, pa.string())})


def ids(dataset: Any, condition: str, **options: Any) -> list[int]:
    found: list[int] = dataset.to_table(["id"], filter=condition, **options)["id"].to_pylist()
    return sorted(found)


def same_answers(uri: str, *, covered: bool = True) -> None:
    """Both libraries find by the index what a scan finds."""
    ours, theirs = glaive.dataset(uri), lance.dataset(uri)
    for word in QUESTIONS:
        condition = f"contains(t, '{word}')"
        scanned = ids(ours, condition, use_scalar_index=False)
        assert ids(ours, condition, use_scalar_index=True) == scanned
        if word != "a":  # pylance takes long where a word is everywhere
            assert ids(theirs, condition) == scanned
        plan = ours.scanner(filter=condition, use_scalar_index=True).explain_plan()
        assert ("t_idx" in plan) == covered
        assert ("t_idx" in theirs.scanner(filter=condition).explain_plan()) == covered
    others = [f"t LIKE '{word}%'" for word in QUESTIONS[:3]]
    others += [f"t LIKE '%{word}'" for word in QUESTIONS[:3]]
    others += ["regexp_like(t, 'ban.*na na')", "starts_with(t, 'ab') OR ends_with(t, 'x')"]
    others += [f"t LIKE '{pattern}'" for pattern in PATTERNS]
    others += ["t NOT LIKE '%ban%na%'", "t ILIKE '%BAN%na%'", "t LIKE '%x!%%' ESCAPE '!'"]
    others += [f"regexp_match(t, '{pattern}')" for pattern in EXPRESSIONS]
    others += ["NOT contains(t, 'ana')", "contains(t, 'ab') AND NOT contains(t, 'cab')"]
    for condition in others:
        scanned = ids(ours, condition, use_scalar_index=False)
        assert ids(ours, condition, use_scalar_index=True) == scanned, condition


@pytest.mark.sampled(every=4)
@pytest.mark.spec("fm-1", "fm-2", "fm-3", "fm-4", "fm-5", "fm-6")
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("builder", [glaive, lance], ids=["glaive", "pylance"])
def test_histories(tmp_path: Path, builder: ModuleType, *, stable: bool) -> None:
    uri = str(tmp_path / "d")
    lance.write_dataset(texts(0, 300), uri, max_rows_per_file=120, enable_stable_row_ids=stable)
    builder.dataset(uri).create_scalar_index("t", builder.indices.IndexConfig("fm", {}))
    same_answers(uri)
    glaive.dataset(uri).delete("id % 4 = 1")
    glaive.write_dataset(texts(300, 360), uri, mode="append")
    same_answers(uri)
    glaive.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    assert glaive.dataset(uri).stats.index_stats("t_idx")["num_unindexed_rows"] == 0
    same_answers(uri)
    glaive.dataset(uri).optimize.optimize_indices(num_indices_to_merge=2)
    same_answers(uri)
    glaive.dataset(uri).optimize.compact_files()
    same_answers(uri)
    told = [library.dataset(uri).stats.index_stats("t_idx") for library in (glaive, lance)]
    assert told[0]["indices"][0]["num_partitions"] == 1
    for name in ("num_partitions", "total_bwt_len", "total_docs"):
        assert told[0]["indices"][0][name] == told[1]["indices"][0][name]
    lance.dataset(uri).optimize.optimize_indices()
    same_answers(uri)


@pytest.mark.parametrize("kind", [pa.large_string(), pa.binary(), pa.large_binary()])
def test_columns_of_other_types(tmp_path: Path, kind: pa.DataType) -> None:
    rows = texts(0, 40)
    rows = rows.set_column(1, "t", rows["t"].cast(pa.binary()).cast(kind))
    for library in (glaive, lance):
        uri = str(tmp_path / library.__name__)
        lance.write_dataset(rows, uri)
        library.dataset(uri).create_scalar_index("t", library.indices.IndexConfig("fm", {}))
        assert lance.dataset(uri).stats.index_stats("t_idx")["indices"][0]["total_docs"] == 36
        if pa.types.is_large_string(kind):
            same_answers(uri)


@pytest.mark.spec("fm-7")
@pytest.mark.parametrize("builder", [glaive, lance], ids=["glaive", "pylance"])
def test_texts_with_the_byte_of_the_end_are_candidates(tmp_path: Path, builder: Any) -> None:
    uri = str(tmp_path / "d")
    made = ["".join(one) for one in itertools.product("\0ab", repeat=4)]
    lance.write_dataset(pa.table({"id": range(len(made)), "t": made}), uri)
    builder.dataset(uri).create_scalar_index("t", builder.indices.IndexConfig("fm", {}))
    dataset = glaive.dataset(uri)
    for word in ("a", "ab", "b", "ba", "a\0", "\0"):
        condition = f"contains(t, '{word}')"
        expected = [at for at, text in enumerate(made) if word in text]
        assert ids(dataset, condition, use_scalar_index=True) == expected
        if builder is glaive and word != "\0":  # pylance does not find all in what it built
            assert ids(lance.dataset(uri), condition) == expected


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("values", [[], [None, None], [""], ["", None, ""]])
def test_columns_with_little_or_nothing(tmp_path: Path, values: list[str | None]) -> None:
    uri = str(tmp_path / "d")
    rows = pa.table(
        {"id": pa.array(range(len(values)), pa.int64()), "t": pa.array(values, pa.string())}
    )
    glaive.write_dataset(rows, uri).create_scalar_index("t", IndexConfig("fm", {}))
    same_answers(uri, covered=bool(values))
    glaive.write_dataset(texts(10, 20), uri, mode="append").optimize.optimize_indices()
    same_answers(uri)


def test_many_texts_are_several_partitions(tmp_path: Path) -> None:
    uri = str(tmp_path / "d")
    made = [f"{at:05d}" for at in range(20_500)]
    dataset = glaive.write_dataset(pa.table({"id": range(len(made)), "t": made}), uri)
    dataset.create_scalar_index("t", IndexConfig("fm", {}))
    (told,) = lance.dataset(uri).stats.index_stats("t_idx")["indices"]
    sizes = {"num_partitions": 3, "total_bwt_len": 123_003, "total_docs": 20_500}
    assert told == {"type": "Fm", **sizes}
    for word, count in (("2049", 12), ("0000", 12), ("20499", 1), ("20500", 0)):
        condition = f"contains(t, '{word}')"
        found = ids(dataset, condition, use_scalar_index=True)
        assert len(found) == count
    assert ids(lance.dataset(uri), "contains(t, '20499')") == [20_499]


def test_long_texts_are_searched_by_the_index_without_being_asked(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    letters = random.choice(list("abcdefghij"), (6000, 300))
    made = ["".join(one) for one in letters]
    made[4711] += " a needle"
    table = pa.table({"id": range(len(made)), "t": made})
    dataset = glaive.write_dataset(table, str(tmp_path / "d"))
    dataset.create_scalar_index("t", IndexConfig("fm", {}))
    for condition in ("contains(t, 'a needle')", "t LIKE '%needle'"):
        assert "by index t_idx" in dataset.scanner(filter=condition).explain_plan()
        assert ids(dataset, condition) == [4711]
    for condition in ("contains(t, 'a')", "contains(t, 'ab')", "NOT contains(t, 'needle')"):
        assert "by index t_idx" not in dataset.scanner(filter=condition).explain_plan()


@pytest.mark.spec("remap-7")
def test_rows_that_moved_without_a_rebuild_are_found(tmp_path: Path) -> None:
    uri = str(tmp_path / "d")
    glaive.write_dataset(texts(0, 200), uri, max_rows_per_file=50)
    dataset = glaive.dataset(uri)
    segments = [
        dataset.create_index_uncommitted(
            "t", IndexConfig("fm", {}), fragment_ids=[fragment.fragment_id], replace=True
        )
        for fragment in dataset.get_fragments()
    ]
    merged = dataset.merge_existing_index_segments(segments[:2])
    dataset.commit_existing_index_segments("t_idx", "t", [merged, *segments[2:]])
    same_answers(uri)
    glaive.dataset(uri).delete("id % 5 = 2")
    glaive.dataset(uri).optimize.compact_files(defer_index_remap=True)
    found = glaive.dataset(uri)
    for word in QUESTIONS:
        condition = f"contains(t, '{word}')"
        scanned = ids(found, condition, use_scalar_index=False)
        assert ids(found, condition, use_scalar_index=True) == scanned
    assert found.stats.index_stats("t_idx")["num_unindexed_rows"] == 0


def test_wrong_columns_and_parameters_are_refused(tmp_path: Path) -> None:
    dataset = glaive.write_dataset(texts(0, 9), str(tmp_path / "d"))
    with pytest.raises(IndexKindError, match="'id' of type int64 cannot have a FM index"):
        dataset.create_scalar_index("id", IndexConfig("fm", {}))
    with pytest.raises(OptionError, match=r"'sa_sample_rate' is unknown\. Parameters of FM"):
        dataset.create_scalar_index("t", IndexConfig("fm", {"sa_sample_rate": 8}))


def test_damage_ends_in_an_error_that_names_the_file(tmp_path: Path) -> None:
    uri = str(tmp_path / "d")
    lance.write_dataset(texts(0, 200), uri)
    glaive.dataset(uri).create_scalar_index("t", IndexConfig("fm", {}))
    (file,) = Path(uri).glob("_indices/*/part_0_fm.lance")
    raw = file.read_bytes()
    random = np.random.default_rng(2)
    failed = 0
    for _ in range(50):
        changed = bytearray(raw)
        at = int(random.integers(len(raw)))
        changed[at : at + 4] = random.bytes(4)
        file.write_bytes(changed)
        try:
            dataset = glaive.dataset(uri)
            for word in QUESTIONS[:2]:
                ids(dataset, f"contains(t, '{word}')", use_scalar_index=True)
        except GlaiveError as error:
            assert "part_0_fm.lance" in str(error)  # noqa: PT017  # not all damage is an error
            failed += 1
    assert failed > 30
    file.unlink()
    with pytest.raises(GlaiveError, match=r"t_idx|part_0_fm"):
        ids(glaive.dataset(uri), "contains(t, 'abc')", use_scalar_index=True)


def test_trigrams_answer_patterns_with_wildcards_within(tmp_path: Path) -> None:
    uri = str(tmp_path / "d")
    lance.write_dataset(texts(0, 300), uri, max_rows_per_file=120)
    glaive.dataset(uri).create_scalar_index("t", "NGRAM")
    lance.write_dataset(texts(300, 360), uri, mode="append")
    ours, theirs = glaive.dataset(uri), lance.dataset(uri)
    conditions = [f"t LIKE '{pattern}'" for pattern in PATTERNS]
    conditions += [f"regexp_match(t, '{pattern}')" for pattern in EXPRESSIONS]
    conditions += ["t NOT LIKE '%ban%na%'", "t ILIKE '%BAN%na%'"]
    answered = set()
    for condition in conditions:
        scanned = ids(ours, condition, use_scalar_index=False)
        assert ids(ours, condition, use_scalar_index=True) == scanned, condition
        assert ids(theirs, condition) == scanned, condition
        plan = ours.scanner(filter=condition, use_scalar_index=True).explain_plan()
        if "@t_idx" in plan:
            answered.add(condition)
    assert answered >= {"t LIKE '%ban%na%'", "t LIKE 'ban%ana'", "regexp_match(t, 'ban.na')"}
    unknown = ("ILIKE", "NOT", "ban|abc", "(?i)", "'%a%'", "'%'")
    assert not [one for one in answered for word in unknown if word in one]
