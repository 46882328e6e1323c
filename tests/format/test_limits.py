"""Names that files give of other files lead below their folder, or are refused."""

from __future__ import annotations

import pytest

from glaive.errors import CorruptFileError
from glaive.format.wire import check_file_name


@pytest.mark.parametrize(
    "name",
    [
        "a.lance",
        "a/b.lance",
        ".a",
        "..a",
        "a..b",
        "x/.y",
        "a;b/..c;d",
        "a%2fb",
        "a%2e%2e/b",
        "%2e%2ea",
        "%252e%252e/a",
        "with space",
        "ä\N{SNOWMAN}\xa0",
    ],
)
def test_names_of_files_are_taken(name: str) -> None:
    check_file_name(name, "name", "m")


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", "../a", "a/..", "a/../b", "/a", "/", "a/", "a//b", "./a", "a/./b",
        "a\0b", "a\nb", "\x7f", "a/\rb", "..;/a", "a/..;x=1/b", "a/.;", "..;",
        "%2e%2e/a", "a/%2E./b", "a/.%2e", "a%2f..%2Fb", "a/..%2f", "%2e", "a%5c..%5Cb", "..%3bx/a",
    ],
)  # fmt: skip
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(CorruptFileError, match=r"^name: expected a path below its folder.*in m/x"):
        check_file_name(name, "name", "m/x")
