"""What the site makes of docstrings and pages."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import glaive.errors
from glaive import dataset

griffe = pytest.importorskip("griffe", reason="install the 'docs' group")
site_docstrings = pytest.importorskip("tools.site_docstrings")
plain = site_docstrings.plain
on_page_content = pytest.importorskip("tools.site_pages").on_page_content
on_page_markdown = pytest.importorskip("tools.site_pages").on_page_markdown


def test_references_are_shown_as_names() -> None:
    assert plain("Use :func:`glaive.sql` or :meth:`~Scanner.take`.") == (
        "Use `glaive.sql` or `Scanner.take`."
    )


def test_the_tree_of_errors_keeps_its_lines() -> None:
    shown = plain(glaive.errors.__doc__ or "")
    before, tree, after = shown.split("```")
    assert tree.startswith("text\nGlaiveError\n├── FormatError")
    assert tree.splitlines()[-1].startswith("└── MissingDependencyError")
    assert "├" not in before + after


def test_a_search_finds_the_guide_before_decisions() -> None:
    pages = {}
    for uri in ("guide/scans.md", "index.md", "adr/0001-plans-not-async.md"):
        page = SimpleNamespace(file=SimpleNamespace(src_uri=uri), meta={})
        assert on_page_markdown("```python spark\nx = 1\n```", page) == "```python\nx = 1\n```"
        pages[uri] = page.meta["search"]["boost"]
    assert pages["guide/scans.md"] > pages["index.md"] > pages["adr/0001-plans-not-async.md"]


def test_names_of_rules_are_links_and_code_in_tables_may_break() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="format/container.md"), meta={})
    assert on_page_markdown("It ends. {#footer-1} Next", page) == (
        'It ends. <a class="rule" id="footer-1" href="#footer-1">footer-1</a> Next'
    )
    assert on_page_content("<td><code>a_b.cD</code></td>") == (
        "<td><code>a_<wbr>b.<wbr>c<wbr>D</code></td>"
    )
    assert on_page_content("<p><code>a_b</code></p>") == "<p><code>a_b</code></p>"


def test_options_and_dates_stay_on_one_line() -> None:
    assert on_page_content("<p><code>--dry-run</code></p><td>2026-11-21</td>") == (
        '<p><code class="whole">--dry-run</code></p><td class="whole">2026-11-21</td>'
    )
    assert on_page_content("<p><code>--job x</code></p>") == "<p><code>--job x</code></p>"


def test_pages_describe_the_options_that_decorators_add() -> None:
    write, scanner, to_table = (
        described_on_the_site(Path(dataset.__file__).parent / file, name)
        for file, name in (
            ("write.py", "write_dataset"),
            ("dataset.py", "LanceDataset.scanner"),
            ("dataset.py", "LanceDataset.to_table"),
        )
    )
    assert "max_rows_per_file" in write
    assert "batch_readahead" in scanner
    assert "[`LanceDataset.scanner`]" in to_table


def described_on_the_site(file: Path, name: str) -> str:
    function = griffe.visit(f"glaive.dataset.{file.stem}", file, file.read_text())[name]
    shown: str = site_docstrings.with_options(function, function.docstring.value)
    return shown
