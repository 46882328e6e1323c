"""Every file of the corpus has the outcome that is written down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.proof.coverage_targets import TARGETS, is_accepted, seeds

CORPUS = Path(__file__).parents[1] / "corpus"
OUTCOMES: dict[str, str] = json.loads((CORPUS / "outcomes.json").read_text("utf-8"))


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
    begun = [(target, is_accepted(target, data)) for target, data in seeds()]
    assert all(accepted for _, accepted in begun)
    assert len({target for target, _ in begun}) >= 7
