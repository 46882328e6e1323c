"""Rules and promises have ids that are unique, and citations that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.spec import PAGES, PROMISES, RULE, citations, rules

OTHERS = (
    "Not defended",
    "Reliability",
    "What a store may do",
    "What glaive assumes",
    "How it is checked",
    "What is not promised",
    "Security",
    "Trusted",
    "Supported versions",
    "Reporting",
)
"""Sections of the pages of promises that have no promises."""


def test_no_two_rules_share_an_id() -> None:
    assert [rule for rule, count in rules().items() if count > 1] == []


def test_every_cited_rule_exists() -> None:
    assert set(citations()) <= set(rules()), "cited, but on none of the pages"


def test_every_id_has_the_form_that_is_looked_for() -> None:
    for page in PAGES:
        for found in re.findall(r"\{#[^}]*\}", page.read_text("utf-8")):
            assert found[2:-1] in rules(), f"{page.name}: {found}"


def test_every_rule_and_promise_is_cited_by_a_test() -> None:
    assert set(rules()) - set(citations()) == set()


@pytest.mark.parametrize("page", PROMISES, ids=lambda page: page.stem)
def test_every_item_of_a_page_of_promises_has_an_id(page: Path) -> None:
    without, sections = [], 0
    for section in re.split(r"^#+ ", page.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        title, text = section.split("\n", 1)
        if title not in OTHERS:
            sections += 1
            items = re.findall(r"^(?:- |\| (?!id \|)).*(?:\n .*)*", text, re.MULTILINE)
            assert items, f"{title}: a list or a table of promises"
            without += [f"{title}: {item[:60]}" for item in items if not RULE.search(item)]
    assert sections > 0
    assert without == []
