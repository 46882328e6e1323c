"""The dataset view of ``glaive inspect --html``: fragments by columns, and versions over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

from glaive.cli.output import human_bytes, human_count

if TYPE_CHECKING:
    from glaive.dataset.layout import DatasetLayout, FragmentLayout

__all__ = ["dataset_view"]

MOST_COLUMNS: Final = 10
"""Columns with a place of their own, the largest; the others share one."""

DROPPED: Final = "dropped or replaced"
"""Bytes of columns that this version does not have; compaction leaves them out."""

MOST_VERSIONS: Final = 30
"""Versions that are drawn, the newest."""


def dataset_view(layout: DatasetLayout, versions: Sequence[Mapping[str, Any]]) -> str:
    """HTML of two tables.

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
    columns = [name for name, _ in total.most_common(MOST_COLUMNS)]
    rest = len(total) - len(columns)
    most = max((size for _, sizes in listed for size in sizes.values()), default=0)
    head = [*columns, *([f"{rest} others"] if rest else []), *([DROPPED] if unused else [])]
    rows = []
    for fragment, sizes in listed:
        values = [sizes[name] for name in columns]
        values += [sizes.total() - sum(values) - sizes[None]] if rest else []
        values += [sizes[None]] if unused else []
        cells = "".join(_shaded(size, most) for size in values)
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
    shown = versions[-MOST_VERSIONS:]
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


def _shaded(size: int, most: int) -> str:
    share = round(100 * size / most) if most else 0
    return f'<td class="shaded" style="--share: {share}%">{human_bytes(size)}</td>'


def _is_read(fragment: FragmentLayout) -> bool:
    return any(file.layout is not None for file in fragment.files)


def _bytes_by_column(fragment: FragmentLayout) -> Counter[str | None]:
    """Bytes by column of the dataset; None: of none."""
    sizes: Counter[str | None] = Counter()
    for file in fragment.files:
        for column in file.layout.columns if file.layout is not None else ():
            sizes[file.columns.get(column.index)] += column.size
    return sizes
