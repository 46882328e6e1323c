"""What newcomers run first, in the session of these tests: the examples of the first pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.test_examples import FIRST, pages, run

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "page", [page for page in pages("spark") if page.name in FIRST], ids=lambda page: page.name
)
@pytest.mark.usefixtures("in_start_folder")
def test_examples_of_first_pages_run(page: Path) -> None:
    run(page, "spark")
