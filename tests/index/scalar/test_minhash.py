"""Signatures of texts and keys of their bands are those of the published vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from glaive.query import MinHashQuery

import glaive
from glaive.errors import CorruptFileError, OptionError, UnsupportedFeatureError
from glaive.file import LanceFileReader
from glaive.format.pb import minhash_details_pb2
from glaive.index.scalar.minhash import MinHashParams, TextSigner, band_keys

from .built import build, opened
from .test_btree import write
from .test_damage import column, replaced

PARAMS = MinHashParams(num_hashes=4, num_bands=2, shingle_size=2)


@pytest.mark.spec("minhash-4", "minhash-5")
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_signatures_are_the_published_ones(kind: pa.DataType) -> None:
    texts = [None, "The quick brown fox", "", "  \n", "Fox"]
    found = TextSigner(PARAMS).sign(pa.array(texts, kind))
    assert found.texts.tolist() == [1, 4]
    assert found.signatures.tolist() == [
        [0xB00F, 0x59D6, 0x511A, 0xCD2C],
        [0x2970, 0xD6DB, 0x65F8, 0xADFC],
    ]
    assert band_keys(found.signatures, 2).tolist() == [
        [0x00F30F3501D458EA, 0x01AEC5DF28D04915],
        [0x003CF6E803312ECA, 0x017C5504FBC83F36],
    ]


def test_texts_of_a_key_ascend_over_batches(tmp_path: Path) -> None:
    # Two texts in turns: rows of one key are more than the 1,024 that are merged at a time.
    path = write(tmp_path / "d", [pa.array([f"{row % 2}" for row in range(6_000)])])
    build(path, "x", "minhashlsh", {"num_hashes": 2, "num_bands": 2}, memory_limit=1)
    (bands,) = path.glob("_indices/*/bands.lance")
    rows = LanceFileReader(str(bands)).read_all().to_table()
    keys, texts = (rows[name].to_numpy() for name in ("band_key", "doc_id"))
    assert np.lexsort((texts, keys)).tolist() == list(range(12_000))
    assert len(set(keys.tolist())) == 4


def test_the_signature_of_a_text_does_not_depend_on_those_beside_it() -> None:
    texts = [f"text {row % 7} of {row % 5} words and some more" for row in range(20_000)]
    signer = TextSigner(PARAMS)
    together = signer.sign(pa.array(texts)).signatures
    for row in (0, 8_191, 8_192, 19_999):
        assert signer.sign(pa.array([texts[row]])).signatures[0].tolist() == together[row].tolist()


def test_parameters_come_back_from_details() -> None:
    for options in (
        {},
        {"num_hashes": 64, "num_bands": 8, "shingle_size": 1},
        {"tokenizer": {"base_tokenizer": "ngram", "min_ngram_length": 2, "stem": True}},
        {"tokenizer": {"language": "French", "max_token_length": None}},
        {"metric": "L2", "sample_rate": 256},  # of vector indices
    ):
        params = MinHashParams.of(options)
        assert MinHashParams.read(params.encoded(), "here") == params
        assert MinHashParams.of(params.options()) == params


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_hashes": 100}, "multiple of num_bands"),
        ({"num_hashes": 8192}, "num_hashes: expected 1 to 4096"),
        ({"num_hashes": 257, "num_bands": 257}, "num_bands: expected 1 to 256"),
        ({"shingle_size": 0}, "shingle_size"),
        ({"stem": True}, "'stem' is unknown"),
        ({"bands": 3}, "'bands' is unknown; did you mean 'num_bands'"),
        ({"tokenizer": "ngram"}, "expected a mapping"),
        ({"tokenizer": {"custom_stop_words": ["a"]}}, "custom_stop_words"),
        ({"tokenizer": {"base_tokenizer": "jieba"}}, "needs a dictionary"),
    ],
)
def test_wrong_parameters_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        MinHashParams.of(options)


def test_details_that_cannot_be_are_refused() -> None:
    message = minhash_details_pb2.MinHashLshIndexDetails(num_hashes=10**9, num_bands=1)
    with pytest.raises(CorruptFileError, match="num_hashes"):
        MinHashParams.read(message.SerializeToString(), "here")
    with pytest.raises(CorruptFileError, match="protobuf"):
        MinHashParams.read(b"\xff\xff", "here")
    newer = PARAMS.encoded() + b"\x28\x01"  # signature_version
    with pytest.raises(UnsupportedFeatureError, match="version 1"):
        MinHashParams.read(newer, "here")


def test_segments_may_have_parameters_of_their_own(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [pa.array(["one two three"]), pa.array(["one two three"])])
    for fragment, hashes in enumerate((16, 8)):
        build(path, "x", "minhashlsh", {"num_hashes": hashes, "num_bands": 8}, fragments=[fragment])
    found = glaive.dataset(path).to_table(nearest=MinHashQuery("one two three", "x"))
    assert found["_distance"].to_pylist() == [0, 0]


def built(path: Path) -> Path:
    """Three texts with an index."""
    write(path, [pa.array(["one two three", "four five six", "seven eight"])])
    build(path, "x", "minhashlsh", {"num_hashes": 16, "num_bands": 8})
    return path


def test_a_band_of_a_text_that_is_not_there_is_damage(tmp_path: Path) -> None:
    path = built(tmp_path / "d")
    replaced(path, "bands.lance", column("doc_id", lambda old: [3] * len(old)))
    with pytest.raises(CorruptFileError, match="text of a band: expected a number below 3, found"):
        glaive.dataset(path).to_table(nearest=MinHashQuery("one two three", "x"))
    dataset = glaive.dataset(path)
    dataset.delete("x = 'four five six'")
    dataset.optimize.compact_files(materialize_deletions_threshold=0.0)  # makes the bands again
    assert dataset.to_table(nearest=MinHashQuery("one two three", "x")).num_rows


def test_a_number_of_texts_other_than_that_of_signatures_is_damage(tmp_path: Path) -> None:
    path = built(tmp_path / "d")
    replaced(path, "bands.lance", lambda rows: rows, minhash_lsh_num_docs="4")
    with pytest.raises(CorruptFileError, match="expected 3, as there are signatures, found 4"):
        opened(path)
