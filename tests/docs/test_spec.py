"""Rules of the specification have ids that are unique, and citations that lead somewhere."""

from __future__ import annotations

import re

from tests.docs.spec import PAGES, citations, rules


def test_no_two_rules_share_an_id() -> None:
    assert [rule for rule, count in rules().items() if count > 1] == []


def test_every_cited_rule_exists() -> None:
    assert set(citations()) <= set(rules()), "cited, but on none of the pages"


def test_every_id_has_the_form_that_is_looked_for() -> None:
    for page in PAGES:
        for found in re.findall(r"\{#[^}]*\}", page.read_text("utf-8")):
            assert found[2:-1] in rules(), f"{page.name}: {found}"
