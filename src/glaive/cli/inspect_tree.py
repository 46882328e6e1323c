"""Print the layout of a file or dataset as a tree."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from glaive.cli.output import PIPE_WIDTH, human_bytes, human_count

if TYPE_CHECKING:
    from glaive.dataset.layout import DatasetLayout, FragmentLayout
    from glaive.file.layout_values import BufferPlace, ColumnLayout, FileLayout, PagePlace
    from glaive.format.describe import EncodingNode

__all__ = ["print_tree"]

FEW_PAGES = 24
"""Pages of all files that are printed without being asked for."""

SETTING_CHARACTERS = 24
"""Of a long setting, such as the inline value of a constant page, this much is shown."""


def print_tree(
    layout: FileLayout | DatasetLayout, *, largest: int | None, pages: bool | None
) -> None:
    """Print a layout; at most the ``largest`` columns of a file, ``pages`` where few if None."""
    from glaive.file.layout_values import FileLayout

    files = [layout] if isinstance(layout, FileLayout) else list(layout.files())
    if pages is None:
        pages = sum(file.num_pages for file in files) <= FEW_PAGES
    if isinstance(layout, FileLayout):
        tree = _file_tree(layout, largest, pages=pages)
    else:
        tree = _dataset_tree(layout, largest, pages=pages)
    # In a pipe or file lines are as long as they need to be.
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False).print(tree)


def _line(name: str, *facts: str, style: str = "bold") -> Text:
    """A name and facts about it; names may hold what looks like markup."""
    return Text.assemble((name, style), ("  " if facts else "") + "  ".join(filter(None, facts)))


def _count(number: int, one: str) -> str:
    return f"{human_count(number)} {one}{'' if number == 1 else 's'}"


# ------------------------------------------------------------------ datasets


def _dataset_tree(layout: DatasetLayout, largest: int | None, *, pages: bool) -> Tree:
    tree = Tree(
        _line(
            layout.uri,
            f"version {layout.version} of {layout.timestamp}",
            f"format {layout.data_storage_version}",
            _count(layout.rows, "row"),
            _count(len(layout.fragments), "fragment"),
            _count(layout.num_files, "data file"),
            human_bytes(layout.size),
        )
    )
    names = [f"{field.name}: {field.type}" for field in layout.schema]
    shown = names if largest is None else names[:largest]
    schema = tree.add(_line("schema", _count(len(names), "column")))
    for name in shown:
        schema.add(Text(name))
    _more(schema, len(names) - len(shown), "column")
    # Fragments none of whose files was looked into are told of in one line at the end.
    known = [one for one in layout.fragments if any(file.layout for file in one.files)]
    for fragment in known:
        _add_fragment(tree, fragment, largest, pages=pages)
    unknown = len(layout.fragments) - len(known)
    if unknown:
        tree.add(Text(f"… {_count(unknown, 'fragment')} not looked into (--files)", "dim"))
    return tree


def _add_fragment(
    tree: Tree, fragment: FragmentLayout, largest: int | None, *, pages: bool
) -> None:
    deleted = fragment.deletions
    branch = tree.add(
        _line(
            f"fragment {fragment.id}",
            _count(fragment.rows, "row"),
            f"{human_count(deleted.rows)} deleted" if deleted else "",
        )
    )
    if deleted:
        branch.add(_line(deleted.path, deleted.form, _count(deleted.rows, "deleted row")))
    for file in fragment.files:
        if file.layout is not None:
            branch.add(_file_tree(file.layout, largest, pages=pages))
        else:
            size = "" if file.size is None else human_bytes(file.size)
            branch.add(_line(file.path, f"format {file.version}", size, "not looked into"))


# ------------------------------------------------------------------ files


def _file_tree(layout: FileLayout, largest: int | None, *, pages: bool) -> Tree:
    tree = Tree(
        _line(
            layout.path,
            f"format {layout.version}",
            human_bytes(layout.size),
            _count(layout.num_rows, "row"),
            _count(len(layout.columns), "column"),
            _count(layout.num_pages, "page"),
        )
    )
    shown: Sequence[ColumnLayout] = layout.columns
    if largest is not None and len(shown) > largest:
        shown = sorted(shown, key=lambda column: -column.size)[:largest]
    for column in shown:
        _add_column(tree, column, layout.size, pages=pages)
    left = len(layout.columns) - len(shown)
    if left:
        size = sum(one.size for one in layout.columns) - sum(one.size for one in shown)
        text = f"… {_count(left, 'smaller column')}, {human_bytes(size)} (--largest 0 prints them)"
        tree.add(Text(text, "dim"))
    for section in layout.sections:
        tree.add(_line(section.kind, *_place(section), style="cyan"))
    gaps = layout.gaps()
    for kind in dict.fromkeys(gap.kind for gap in gaps):
        sizes = [gap.size for gap in gaps if gap.kind == kind]
        facts = (human_bytes(sum(sizes)), f"in {_count(len(sizes), 'gap')}")
        tree.add(_line(kind, *facts, style="dim"))
    return tree


def _add_column(tree: Tree, column: ColumnLayout, whole: int, *, pages: bool) -> None:
    branch = tree.add(
        _line(
            column.path,
            column.type,
            human_bytes(column.size),
            f"{column.size / whole:.1%}",
            _count(column.num_pages, "page"),
            *_rates(column),
            "" if pages else "; ".join(column.encodings),
        )
    )
    if pages:
        for number, page in enumerate(column.pages):
            _add_page(branch, number, page)
        for buffer in column.buffers:
            branch.add(_line(buffer.kind, *_place(buffer), style="cyan"))


def _add_page(tree: Tree, number: int, page: PagePlace) -> None:
    values = "" if page.values == page.rows else _count(page.values, "value")
    branch = tree.add(
        _line(
            f"page {number}",
            _count(page.rows, "row"),
            values,
            human_bytes(page.size),
            *_rates(page),
            style="",
        )
    )
    _add_encoding(branch, "", page.encoding)
    for buffer in page.buffers:
        branch.add(_line(buffer.kind, *_place(buffer), style="cyan"))


def _add_encoding(tree: Tree, role: str, node: EncodingNode) -> None:
    facts = [f"{key}={_short(value)}" for key, value in node.settings.items()]
    name = f"{role}: {node.name}" if role else node.name
    branch = tree.add(_line(name, *facts, style="green"))
    for inner, child in node.children:
        _add_encoding(branch, inner, child)


def _rates(part: ColumnLayout | PagePlace) -> list[str]:
    found = []
    if part.bytes_per_value is not None:
        found.append(f"{part.bytes_per_value:.3g} B/value")
    if part.ratio is not None:
        found.append(f"ratio {part.ratio:.3g}")
    return found


def _place(buffer: BufferPlace) -> tuple[str, str]:
    return human_bytes(buffer.size), f"at {human_count(buffer.position)}"


def _short(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= SETTING_CHARACTERS else f"{text[:SETTING_CHARACTERS]}…"


def _more(tree: Tree, count: int, one: str) -> None:
    if count > 0:
        tree.add(Text(f"… {_count(count, one)} more (--largest 0 prints them)", "dim"))
