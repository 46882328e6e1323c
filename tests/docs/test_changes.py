"""The changelog is short, and fragments in ``changes`` have types that towncrier knows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TOWNCRIER = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["towncrier"]
TYPES = {kind["directory"] for kind in TOWNCRIER["type"]}


def test_fragments_have_a_known_type() -> None:
    names = [path.name for path in (ROOT / "changes").iterdir() if path.name != "README.md"]
    ending = re.compile(rf".+\.(?:{'|'.join(sorted(TYPES))})(?:\.\d+)?\.md")
    assert [name for name in names if not ending.fullmatch(name)] == []


def test_the_page_on_fragments_lists_their_types() -> None:
    page = (ROOT / "changes" / "README.md").read_text("utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == TYPES


def test_the_changelog_has_a_place_for_releases_and_is_short() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert TOWNCRIER["start_string"] in text
    sections = re.split(r"^## (?=\d)", text, flags=re.MULTILINE)[1:]
    long = {part.split()[0]: part.count("\n") for part in sections if part.count("\n") > 150}
    assert not long, "say what users notice, in one line for each topic"
