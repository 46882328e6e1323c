"""``glaive inspect``: the layout of a file or dataset, from metadata only."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from glaive.cli.options import command, storage_option, storage_pairs
from glaive.cli.output import echo, human_bytes, human_count, replacing, visible, width_of_output
from glaive.errors import ColumnNotFoundError

if TYPE_CHECKING:
    from glaive.dataset.layout import DatasetLayout, FragmentLayout
    from glaive.file.layout import BufferLocation, ColumnLayout, EncodingNode, FileLayout, PageInfo


# --- Restrict a layout to some columns --------------------------------------------------


def with_columns(
    layout: FileLayout | DatasetLayout, names: Sequence[str] | None
) -> FileLayout | DatasetLayout:
    """Return the layout with only the columns ``names`` and those below them.

    Raises
    ------
    ColumnNotFoundError
        The column is missing in all files; the message suggests close names.
    """
    from glaive.file.layout import FileLayout

    if names is None:
        return layout
    files = [layout] if isinstance(layout, FileLayout) else list(layout.files())
    paths = {column.path for file in files for column in file.columns}
    for name in names:
        if not any(_is_below(path, name) for path in paths):
            where = files[0].path if files else "no file was read"
            raise ColumnNotFoundError.among(name, sorted(paths), where=where)
    if isinstance(layout, FileLayout):
        return _of_file(layout, names)
    fragments = []
    for fragment in layout.fragments:
        entries = tuple(
            entry if entry.layout is None else replace(entry, layout=_of_file(entry.layout, names))
            for entry in fragment.files
        )
        fragments.append(replace(fragment, files=entries))
    return replace(layout, fragments=tuple(fragments))


def _of_file(layout: FileLayout, names: Sequence[str]) -> FileLayout:
    chosen = [
        column for column in layout.columns if any(_is_below(column.path, name) for name in names)
    ]
    omitted = [column for column in layout.columns if column not in chosen]
    buffers = (buffer for column in omitted for buffer in column.all_buffers())
    return replace(layout, columns=tuple(chosen), others=(*layout.others, *_extents(buffers)))


def _extents(buffers: Iterable[BufferLocation]) -> Iterator[BufferLocation]:
    """Merge adjacent buffers."""
    from glaive.file.layout import MAX_PADDING, BufferLocation

    start = end = -1
    for buffer in sorted(buffers, key=lambda buffer: buffer.position):
        if start >= 0 and buffer.position <= end + MAX_PADDING:
            end = max(end, buffer.end)
            continue
        if start >= 0:
            yield BufferLocation("other columns", start, end - start)
        start, end = buffer.position, buffer.end
    if start >= 0:
        yield BufferLocation("other columns", start, end - start)


def _is_below(path: str, name: str) -> bool:
    return path == name or path.startswith((f"{name}.", f"{name} "))


# --- Print the layout of a file or dataset as a tree ------------------------------------

MAX_DEFAULT_PAGES = 24
"""Pages are printed by default if all files have at most this many."""

MAX_LINES = 100
"""Buffers of a page or a column, parts of an encoding and sections of a file that are printed."""

SETTING_CHARACTERS = 24
"""Longer settings, such as the inline value of a constant page, are truncated."""


def print_tree(
    layout: FileLayout | DatasetLayout, *, largest: int | None, pages: bool | None
) -> None:
    """Print a layout with at most ``largest`` columns of each file.

    Parameters
    ----------
    pages
        Whether to print pages; ``None`` prints them if there are few.
    """
    from glaive.file.layout import FileLayout

    files = [layout] if isinstance(layout, FileLayout) else list(layout.files())
    if pages is None:
        pages = sum(file.num_pages for file in files) <= MAX_DEFAULT_PAGES
    if isinstance(layout, FileLayout):
        tree = _file_tree(layout, largest, pages=pages)
    else:
        tree = _dataset_tree(layout, largest, pages=pages)
    # Keep lines whole in a pipe or file.
    Console(width=width_of_output(), highlight=False).print(tree)


def _line(name: str, *details: str, style: str = "bold") -> Text:
    """Return a line of a name and details, as plain text: names may contain brackets."""
    suffix = ("  " if details else "") + "  ".join(filter(None, details))
    return Text.assemble((visible(name), style), visible(suffix))


def _count(number: int, singular: str) -> str:
    return f"{human_count(number)} {singular}{'' if number == 1 else 's'}"


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
    displayed = names if largest is None else names[:largest]
    schema = tree.add(_line("schema", _count(len(names), "column")))
    for name in displayed:
        schema.add(Text(visible(name)))
    omitted = len(names) - len(displayed)
    if omitted:
        schema.add(Text(f"… {_count(omitted, 'column')} more (--largest 0 prints them)", "dim"))
    # Fragments with only unread files are summarised in one line at the end.
    read = [
        fragment for fragment in layout.fragments if any(file.layout for file in fragment.files)
    ]
    for fragment in read:
        _add_fragment(tree, fragment, largest, pages=pages)
    unread = len(layout.fragments) - len(read)
    if unread:
        tree.add(Text(f"… {_count(unread, 'fragment')} not read (--files)", "dim"))
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
            branch.add(_line(file.path, f"format {file.version}", size, "not read"))


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
    columns: Sequence[ColumnLayout] = layout.columns
    if largest is not None:
        columns = sorted(columns, key=lambda column: -column.size)
    displayed = columns if largest is None or len(columns) <= largest else columns[:largest]
    for column in displayed:
        _add_column(tree, column, layout.size, pages=pages)
    if omitted := columns[len(displayed) :]:
        size = human_bytes(sum(column.size for column in omitted))
        count = _count(len(omitted), "smaller column")
        tree.add(Text(f"… {count}, {size} (--largest 0 prints them)", "dim"))
    _add_buffers(tree, layout.sections, "section")
    gaps = layout.gaps()
    for kind in dict.fromkeys(gap.kind for gap in gaps):
        sizes = [gap.size for gap in gaps if gap.kind == kind]
        tree.add(
            _line(kind, human_bytes(sum(sizes)), f"in {_count(len(sizes), 'gap')}", style="dim")
        )
    return tree


def _add_column(tree: Tree, column: ColumnLayout, file_size: int, *, pages: bool) -> None:
    branch = tree.add(
        _line(
            column.path,
            column.type,
            human_bytes(column.size),
            f"{column.size / file_size:.1%}",
            _count(column.num_pages, "page"),
            *_rates(column),
            "" if pages else "; ".join(column.encodings),
        )
    )
    if pages:
        for number, page in enumerate(column.pages):
            _add_page(branch, number, page)
        _add_buffers(branch, column.buffers, "buffer")


def _add_page(tree: Tree, number: int, page: PageInfo) -> None:
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
    number_of_parts = _number_of_parts(page.encoding)
    _add_encoding(branch, "", page.encoding, iter(range(MAX_LINES)))
    _add_omitted(branch, number_of_parts, "part")
    _add_buffers(branch, page.buffers, "buffer")


def _add_buffers(tree: Tree, buffers: Sequence[BufferLocation], singular: str) -> None:
    """Add a line for each of the first buffers, and one for the others."""
    for buffer in buffers[:MAX_LINES]:
        tree.add(_line(buffer.kind, *_extent(buffer), style="cyan"))
    _add_omitted(tree, len(buffers), singular)


def _add_omitted(tree: Tree, number: int, singular: str) -> None:
    if number > MAX_LINES:
        omitted = _count(number - MAX_LINES, f"more {singular}")
        tree.add(Text(f"… {omitted} (--json prints all)", "dim"))


def _number_of_parts(node: EncodingNode) -> int:
    return 1 + sum(_number_of_parts(child) for _, child in node.children)


def _add_encoding(tree: Tree, role: str, node: EncodingNode, lines: Iterator[int]) -> None:
    """Add an encoding and its parts, as long as there are lines left."""
    if next(lines, None) is None:
        return
    settings = [f"{key}={_short(value)}" for key, value in node.settings.items()]
    name = f"{role}: {node.name}" if role else node.name
    branch = tree.add(_line(name, *settings, style="green"))
    for inner, child in node.children:
        _add_encoding(branch, inner, child, lines)


def _rates(part: ColumnLayout | PageInfo) -> list[str]:
    rates = []
    if part.bytes_per_value is not None:
        rates.append(f"{part.bytes_per_value:.3g} B/value")
    if part.ratio is not None:
        rates.append(f"ratio {part.ratio:.3g}")
    return rates


def _extent(buffer: BufferLocation) -> tuple[str, str]:
    return human_bytes(buffer.size), f"at {human_count(buffer.position)}"


def _short(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= SETTING_CHARACTERS else f"{text[:SETTING_CHARACTERS]}…"


# --- The dataset view of ``glaive inspect --html``: fragments by columns, and versions over time

MAX_COLUMNS: Final = 10
"""Columns with a place of their own, the largest; the others share one."""

DROPPED: Final = "dropped or replaced"
"""Bytes of columns that this version lacks; compaction leaves them out."""

MAX_VERSIONS: Final = 30
"""Versions that are drawn, the newest."""


def dataset_view(layout: DatasetLayout, versions: Sequence[Mapping[str, Any]]) -> str:
    """Return HTML of two tables.

    Parameters
    ----------
    layout
        The version that is shown; fragments whose files were read are listed.
    versions
        What ``dataset.versions()`` returns.
    """
    return _fragments(layout) + _versions(versions)


def _fragments(layout: DatasetLayout) -> str:
    listed = [(one, _bytes_by_column(one)) for one in layout.fragments if _is_read(one)]
    total: Counter[str | None] = Counter()
    for _, sizes in listed:
        total.update(sizes)
    unused = total.pop(None, 0)
    columns = [name for name, _ in total.most_common(MAX_COLUMNS)]
    rest = len(total) - len(columns)
    largest = max((size for _, sizes in listed for size in sizes.values()), default=0)
    head = [*columns, *([f"{rest} others"] if rest else []), *([DROPPED] if unused else [])]
    rows = []
    for fragment, sizes in listed:
        values = [sizes[name] for name in columns]
        values += [sizes.total() - sum(values) - sizes[None]] if rest else []
        values += [sizes[None]] if unused else []
        cells = "".join(_shaded(size, largest) for size in values)
        rows.append(f"<tr><th>fragment {fragment.id}</th>{cells}</tr>")
    left_out = len(layout.fragments) - len(listed)
    note = (
        f"; {human_count(left_out)} fragments are not read; --files N reads more"
        if left_out
        else ""
    )
    names = "".join(f"<th>{escape(str(name))}</th>" for name in head)
    return _card(
        "fragments", "Fragments × columns", f"bytes{note}", f"<th></th>{names}", "".join(rows)
    )


def _versions(versions: Sequence[Mapping[str, Any]]) -> str:
    shown = versions[-MAX_VERSIONS:]
    sizes = [int(one["metadata"].get("total_files_size", 0)) for one in shown]
    rows = []
    for one, size in zip(reversed(shown), reversed(sizes), strict=True):
        facts = one["metadata"]
        values = "".join(
            f"<td>{human_count(int(facts.get(key, 0)))}</td>"
            for key in ("total_rows", "total_fragments")
        )
        when = f"{one['timestamp']:%Y-%m-%d %H:%M:%S}"
        rows.append(
            f"<tr><th>{one['version']}</th><td>{when}</td>{values}{_shaded(size, max(sizes))}</tr>"
        )
    older = len(versions) - len(shown)
    note = f"the newest; {human_count(older)} are older" if older else f"{len(shown)} in all"
    head = "".join(f"<th>{name}</th>" for name in ("", "time", "rows", "fragments", "data files"))
    return _card("versions", "Versions over time", note, head, "".join(rows))


def _card(name: str, title: str, note: str, head: str, rows: str) -> str:
    return (
        f'<section class="card" aria-labelledby="{name}-title"><div class="bar">'
        f'<h2 id="{name}-title">{title}</h2><span class="muted">{note}</span></div>'
        f'<div class="grid"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
        "</div></section>"
    )


def _shaded(size: int, largest: int) -> str:
    share = round(100 * size / largest) if largest else 0
    return f'<td class="shaded" style="--share: {share}%">{human_bytes(size)}</td>'


def _is_read(fragment: FragmentLayout) -> bool:
    return any(file.layout is not None for file in fragment.files)


def _bytes_by_column(fragment: FragmentLayout) -> Counter[str | None]:
    """Return bytes by column of the dataset; ``None`` is for dropped columns."""
    sizes: Counter[str | None] = Counter()
    for file in fragment.files:
        for column in file.layout.columns if file.layout is not None else ():
            sizes[file.columns.get(column.index)] += column.size
    return sizes


# --- Write the layout of files as one HTML page, drawn to scale -------------------------
# The page is the template in this folder with the layout embedded as JSON. It is self-
# contained: its content security policy forbids external scripts, styles, fonts and images. Names
# of encodings and buffers are stored once and referred to by number, so that the page of a file
# with 10,000 columns has only a few megabytes.


class _Numbering:
    """Numbers distinct strings in order of appearance."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __getitem__(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


def page_data(layout: FileLayout | DatasetLayout) -> dict[str, Any]:
    """Return the JSON data of the page.

    Lists of buffers are flat: number of the kind, position and size of each. A page is its
    rows, values, bytes in memory (or null), number of its encoding, and its buffers.
    """
    from glaive.file.layout import FileLayout

    kinds, encodings = _Numbering(), _Numbering()
    dataset: dict[str, Any] | None = None
    if isinstance(layout, FileLayout):
        entries = [_file(layout, None, kinds, encodings)]
        title = layout.path
    else:
        title = layout.uri
        entries = [
            _file(file.layout, fragment.id, kinds, encodings)
            for fragment in layout.fragments
            for file in fragment.files
            if file.layout is not None
        ]
        dataset = {
            "version": layout.version,
            "timestamp": layout.timestamp,
            "format": layout.data_storage_version,
            "rows": layout.rows,
            "size": layout.size,
            "columns": len(layout.schema),
            "files": layout.num_files,
            "fragments": [
                [fragment.id, fragment.rows, fragment.deletions.rows if fragment.deletions else 0]
                for fragment in layout.fragments
            ],
        }
    return {
        "title": title,
        "dataset": dataset,
        "kinds": list(kinds.numbers),
        "encodings": [json.loads(encoding) for encoding in encodings.numbers],
        "files": entries,
    }


def _file(
    layout: FileLayout, fragment: int | None, kinds: _Numbering, encodings: _Numbering
) -> dict[str, Any]:
    def buffers(locations: Iterable[BufferLocation]) -> list[int]:
        flat = []
        for buffer in locations:
            flat += [kinds[buffer.kind], buffer.position, buffer.size]
        return flat

    def page_values(page: PageInfo) -> list[Any]:
        described = json.dumps([page.encoding.brief, page.encoding.to_dict()], ensure_ascii=False)
        number = encodings[described]
        return [page.rows, page.values, page.raw_bytes, number, buffers(page.buffers)]

    return {
        "path": layout.path,
        "fragment": fragment,
        "size": layout.size,
        "rows": layout.num_rows,
        "version": str(layout.version),
        "sections": buffers(layout.sections),
        "gaps": buffers(layout.gaps()),
        "columns": [
            [
                column.path,
                column.type,
                [page_values(page) for page in column.pages],
                buffers(column.buffers),
            ]
            for column in layout.columns
        ],
    }


def render_page(
    layout: FileLayout | DatasetLayout, versions: Sequence[Mapping[str, Any]] = ()
) -> str:
    """Return the HTML of the page; a dataset also gets a view of its ``versions``."""
    data = page_data(layout)
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    # Escaped, as names might end the script element.
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    template = files("glaive.cli").joinpath("inspect_page.html").read_text("utf-8")
    before, _, after = template.partition("{{data}}")
    name = html.escape(data["title"].rstrip("/").rpartition("/")[2])
    view = ""
    if data["dataset"] is not None:
        whole: Any = layout
        view = dataset_view(whole, versions)
    head, _, body = before.partition("{{dataset}}")
    return head.replace("{{title}}", name) + view + body + text + after  # names may be any text


def write_page(
    layout: FileLayout | DatasetLayout, path: Path, versions: Sequence[Mapping[str, Any]] = ()
) -> int:
    """Write the page and return its size in bytes."""
    data = render_page(layout, versions).encode("utf-8", "backslashreplace")
    path.write_bytes(data)
    return len(data)


@command(
    "glaive inspect flights.lance --columns carrier",
    "glaive inspect flights.lance/data/0.lance --pages",
    "glaive inspect flights.lance --json | jq '.fragments[].files[].layout.size'",
    "glaive inspect flights.lance --html flights.html",
    opens=None,
)
@click.argument("path", metavar="FILE_OR_DATASET")
@storage_option
@click.option("--columns", help="Columns to show, such as 'carrier,meta'. Default: all.")
@click.option(
    "--largest",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Number of columns to print, the largest first; 0 prints all.",
)
@click.option(
    "--pages/--no-pages",
    default=None,
    help="Print pages with encodings and buffers. Default: if there are at most 24 pages.",
)
@click.option(
    "--files",
    type=click.IntRange(min=0),
    default=8,
    show_default=True,
    help="Read the metadata of so many data files of a dataset. 0 reads none.",
)
@click.option("--version", type=int, help="The version of a dataset. Default: the newest.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="OUT",
    help="Write an HTML page that draws files to scale, instead of printing.",
)
def inspect(
    path: str,
    *,
    storage_options: tuple[str, ...],
    columns: str | None,
    largest: int,
    pages: bool | None,
    files: int,
    version: int | None,
    as_json: bool,
    html: Path | None,
) -> None:
    """Show the layout of FILE_OR_DATASET: columns, pages, encodings, buffers and their bytes.

    Reads only metadata. Positions and sizes are in bytes; a ratio is bytes in memory per byte
    in the file.
    """
    if as_json and html is not None:
        raise click.UsageError("give one of --json and --html")
    storage = storage_pairs(storage_options)
    found, versions = _layout(path, version, files, storage, history=html is not None)
    layout = with_columns(found, columns.split(",") if columns else None)
    if html is not None:
        with replacing(html, or_itself=True) as page:
            size = write_page(layout, page, versions)
        echo(f"{html} written, {size:,} bytes; open it in a browser")
    elif as_json:
        echo(json.dumps(layout.to_dict(), ensure_ascii=False))
    else:
        print_tree(layout, largest=largest or None, pages=pages)


def _layout(
    path: str, version: int | None, files: int, storage: dict[str, str] | None, *, history: bool
) -> tuple[FileLayout | DatasetLayout, list[dict[str, Any]]]:
    """Describe a file, or else the dataset at this path; with ``history`` also its versions."""
    from glaive.dataset.layout import dataset_layout
    from glaive.dataset.open import dataset as open_dataset
    from glaive.errors import DataFileMissingError, DatasetNotFoundError, OptionError, StoreError
    from glaive.file.files import LanceFileReader

    if "://" not in path and Path(path).is_file():
        if version is not None:
            raise OptionError(f"--version: {path} is a file; only datasets have versions")
        return LanceFileReader(path).layout(), []
    try:
        opened = open_dataset(path, version=version, storage_options=storage)
    except DatasetNotFoundError as no_dataset:
        if "://" not in path or version is not None:
            raise
        try:
            return LanceFileReader(path, storage_options=storage).layout(), []
        except (DataFileMissingError, StoreError):
            raise no_dataset from None
    return dataset_layout(opened, max_files=files), list(opened.versions()) if history else []
