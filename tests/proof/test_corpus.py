"""Every file of the corpus has the outcome that is written down."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path

import pytest
from tests.proof.coverage_indices import INDEX_TARGETS, index_seeds
from tests.proof.coverage_pages import PAGE_TARGETS, damaged_file, page_seeds
from tests.proof.coverage_targets import TARGETS, is_accepted, seeds
from tests.proof.wire_mutations import mutate_manifest

CORPUS = Path(__file__).parents[1] / "corpus"
OUTCOMES: dict[str, str] = json.loads((CORPUS / "outcomes.json").read_text("utf-8"))


SCALAR = [target for target in INDEX_TARGETS if "ivf" not in target]
VECTOR = [
    pytest.param(target, marks=pytest.mark.nightly(reason="builds an index of vectors"))
    for target in INDEX_TARGETS
    if "ivf" in target
]


@cache
def valid() -> list[tuple[str, bytes]]:
    return list(seeds())


@pytest.mark.spec("rel-23", "rel-25")
@pytest.mark.parametrize("name", OUTCOMES)
def test_it_is_read_or_refused_as_is_written_down(name: str) -> None:
    accepted = is_accepted(name.split("/", maxsplit=1)[0], (CORPUS / name).read_bytes())
    assert accepted is (OUTCOMES[name] == "accepted")


def test_every_file_has_an_outcome_and_every_folder_a_target() -> None:
    files = {path.relative_to(CORPUS).as_posix() for path in CORPUS.glob("*/*")}
    assert files == set(OUTCOMES)
    assert {name.split("/")[0] for name in files} <= TARGETS.keys()
    assert set(OUTCOMES.values()) == {"accepted", "refused"}


def test_what_fuzzing_begins_with_is_valid() -> None:
    begun = [(target, is_accepted(target, data)) for target, data in valid()]
    assert all(accepted for _, accepted in begun)
    assert len({target for target, _ in begun}) >= 7


@pytest.mark.parametrize("target", [*SCALAR, *VECTOR])
def test_what_fuzzing_of_an_index_begins_with_is_valid(target: str) -> None:
    begun = list(index_seeds(target))
    assert begun
    assert all(is_accepted(target, data) for data in begun)
    assert not all(is_accepted(target, data[:1] + data[5:]) for data in begun)


@pytest.mark.nightly(reason="makes some hundred files")
@pytest.mark.parametrize("target", PAGE_TARGETS)
def test_what_fuzzing_of_a_page_or_an_encoding_begins_with_is_valid(target: str) -> None:
    begun = page_seeds(target)
    assert begun
    assert all(is_accepted(target, data) for data in begun)


def test_a_damaged_file_is_often_one_that_is_still_read() -> None:
    rng = random.Random(3)
    files = [data for target, data in valid() if target == "data-file"]
    damaged = [damaged_file(data, rng) for data in files for _ in range(10)]
    assert sum(data[-4:] == b"LANC" for data in damaged) > len(damaged) / 2
    assert {is_accepted("data-file", data) for data in damaged} == {True, False}


@pytest.mark.parametrize("seed", range(10))
def test_a_changed_manifest_stays_a_message_or_is_refused(seed: int) -> None:
    rng = random.Random(seed)
    manifests = [data for target, data in valid() if target == "manifest"]
    changed = [mutate_manifest(data, rng) for data in manifests]
    assert changed != manifests
    assert any(is_accepted("manifest", data) for data in changed)
