"""Names that files give of other files lead below their folder, or are refused."""

from __future__ import annotations

import pickle

import pytest

from glaive.errors import CorruptFileError
from glaive.format.limits import check_file_name


@pytest.mark.parametrize(
    "name", ["a.lance", "a/b.lance", ".a", "..a", "a..b", "x/.y", "with space", "ä\N{SNOWMAN}\xa0"]
)
def test_names_of_files_are_taken(name: str) -> None:
    check_file_name(name, "name", "m")


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", "../a", "a/..", "a/../b", "/a", "/", "a/", "a//b", "./a", "a/./b",
        "a\0b", "a\nb", "\x7f", "a/\rb",
    ],
)  # fmt: skip
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(CorruptFileError, match=r"^name: expected a path below its folder.*in m/x"):
        check_file_name(name, "name", "m/x")


def test_messages_show_the_ends_of_long_texts_of_a_file_and_no_half_of_a_secret() -> None:
    long = "a" * 470 + "https://me:" + "secret" * 20 + "@host/" + "b" * 5000 + "c"
    error = CorruptFileError(long, expected="1", found=long, where="m")
    for shown in (error, pickle.loads(pickle.dumps(error))):
        assert len(str(shown)) < 3000
        assert str(shown).startswith("aaa")
        assert "bbbc: expected 1, found aaa" in str(shown)
        assert "secret" not in str(shown)
        assert len(shown.found) == 1001


def test_messages_show_short_texts_as_they_are() -> None:
    error = CorruptFileError("name", expected="x" * 1000, found="y", where="m")
    assert f"name: expected {'x' * 1000}, found y (in m)" in str(error)
