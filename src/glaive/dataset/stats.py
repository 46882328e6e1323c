"""Statistics of a dataset: ``dataset.stats``."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa

from glaive.arrow.conditions import python_values
from glaive.dataclass import dataclass
from glaive.errors import GlaiveError, OptionError
from glaive.expr.coerce import is_list
from glaive.format.fields import MAX_SHOWN_ROWS, HtmlBar, html_table
from glaive.format.fragment import LEGACY
from glaive.scan.snapshot import Snapshot

if TYPE_CHECKING:
    from glaive.format.fields import LanceSchema


# --- Rows of a sample or a slice --------------------------------------------------------


def sample_positions(
    total: int, count: int, *, randomize_order: bool, seed: int | None = None
) -> list[int]:
    """Choose ``count`` different positions below ``total``, with Python's ``random``.

    Call ``random.seed``, or pass ``seed``, to repeat the choice.

    Raises
    ------
    OptionError
        ``count`` is negative, exceeds ``total``, or is not an integer.
    """
    try:
        count = operator.index(count)
    except TypeError:
        raise OptionError(f"num_rows: expected an integer, found {count!r:.80}") from None
    if not 0 <= count <= total:
        raise OptionError(
            "Sample larger than population or is negative: num_rows: expected 0 to "
            f"{total} (all rows), found {count}"
        )
    import random  # not needed to open and read

    # A sample of rows is not secret.
    choose = random.sample if seed is None else random.Random(seed).sample  # noqa: S311  # see above
    rows = choose(range(total), count)
    return rows if randomize_order else sorted(rows)


def slice_length(start: int, end: int) -> int:
    """Return the number of rows from ``start`` to ``end``; raise ``OptionError`` if invalid."""
    if start < 0 or end < start:
        wrong = (
            f"start must be non-negative, got {start}"
            if start < 0
            else f"end ({end}) must be >= start ({start})"
        )
        raise OptionError(f"slice: {wrong}")
    return end - start


# --- Values as short strings, for tables that people read -------------------------------

_MAX_CHARACTERS: Final = 60
_MAX_LIST_ITEMS: Final = 3


def short_texts(values: Any) -> list[str]:
    """Return a one-line string for each value; convert only the shown items of lists to Python.

    Parameters
    ----------
    values
        An array or a chunked array of any type.
    """
    if is_list(values.type, fixed=True):
        return [_of_items(value.values) if value.is_valid else "null" for value in values]
    return list(map(_short, python_values(values)))


def _of_items(items: Any) -> str:
    return _in_brackets(short_texts(items[:_MAX_LIST_ITEMS]), len(items))


def _in_brackets(shown: Iterable[str], count: int) -> str:
    more = f", … {count:,} items" if count > _MAX_LIST_ITEMS else ""
    return f"[{', '.join(shown)}{more}]"


def _short(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):  # of an extension type
        return _in_brackets(map(_short, value[:_MAX_LIST_ITEMS]), len(value))
    text = f"{len(value):,} bytes" if isinstance(value, bytes) else str(value)
    text = text.replace("\r", "\\r").replace("\n", "\\n")
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"


@dataclass(slots=True)
class FieldStatistics:
    """Stored bytes of the pages of a field."""

    id: int
    bytes_on_disk: int


@dataclass(slots=True)
class DataStatistics:
    """Statistics of the values of all fields, by id."""

    fields: list[FieldStatistics]


class LanceStats:
    """Statistics of one version. Most come from the manifest alone."""

    __slots__ = ("_snapshot",)

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __repr__(self) -> str:
        manifest = self._snapshot.manifest
        return f"LanceStats(version={manifest.version}, fragments={manifest.num_fragments})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("statistics cannot be pickled: pickle the dataset, and take its stats")

    def dataset_stats(self, max_rows_per_group: int = 1024) -> dict[str, int]:
        """Count deleted rows, fragments, and fragments below ``max_rows_per_group`` rows."""
        physical = self._snapshot.manifest.physical_rows
        live = self._snapshot.live_counts
        return {
            "num_deleted_rows": int(physical.sum() - live.sum()),
            "num_fragments": len(physical),
            "num_small_files": int((physical < max_rows_per_group).sum()),
        }

    def index_stats(self, index_name: str, recall_queries: int | None = None) -> dict[str, Any]:
        """Describe the segments of an index; count covered and uncovered rows and fragments.

        Each segment has statistics of its kind: pages, zones, tokens or partitions, as in pylance.
        glaive opens the files of the index and reads few of their values. Vector indices also have
        ``share_unindexed`` of the rows, ``search_defaults`` and ``recall``. The recall is the share
        of the ten nearest rows that searches find by default, for random rows of the dataset.

        Parameters
        ----------
        recall_queries
            Rows to measure the recall with, at the cost of one pass over all vectors; 0
            leaves it out. By default 30, and 0 where vectors are more than 1 GiB.

        Raises
        ------
        IndexNotFoundError
            The index is missing.
        CorruptFileError, DataFileMissingError
            A file of the index is damaged or absent.
        """
        from glaive.dataset.indexing.describe import index_statistics

        return index_statistics(self._snapshot, index_name, recall_queries)

    def data_stats(self) -> DataStatistics:
        """Return the bytes of each field in the data files; files of format 0.1 count as 0.

        Opens every data file and reads its metadata.
        """
        from glaive.file.layout import file_layout

        manifest = self._snapshot.manifest
        sizes = dict.fromkeys(sorted(manifest.schema.field_ids()), 0)
        positions = range(manifest.num_fragments)
        named = Counter(file.path for at in positions for file in manifest.fragment(at).files)
        kept: dict[tuple[str, int | None], list[int]] = {}  # of files that several fragments name
        for at in positions:
            for file in manifest.fragment(at).files:
                if file.version == LEGACY:
                    continue
                place = file.path, file.base_id
                columns = kept.get(place)
                if columns is None:
                    layout = file_layout(self._snapshot.open_file(file))
                    columns = [column.size for column in layout.columns]
                if named[file.path] > 1:
                    kept[place] = columns
                for number, column in file.columns().items():
                    if number in sizes and 0 <= column < len(columns):
                        sizes[number] += columns[column]
        return DataStatistics([FieldStatistics(number, size) for number, size in sizes.items()])


# --- Tables that notebooks show for datasets, scans, fragments and versions -------------

_MAX_FILES = 64
"""Maximum number of data files for which a notebook shows bytes by column."""


def dataset_html(snapshot: Snapshot, uri: str) -> str:
    """Show version, rows and columns; also bytes by column if there are few data files."""
    manifest = snapshot.manifest
    title = (
        f"{GlaiveError.without_secrets(uri)}, version {manifest.version}: {snapshot.num_rows:,} "
        f"rows in {manifest.num_fragments:,} fragment{'s' * (manifest.num_fragments != 1)}, "
        f"format {manifest.data_format}"
    )
    sizes: dict[int, int] = {}
    if manifest.num_fragments <= _MAX_FILES:
        stats = LanceStats(snapshot).data_stats()
        sizes = {one.id: one.bytes_on_disk for one in stats.fields}
    return _columns(title, manifest.schema, sizes)


def _columns(title: str, schema: LanceSchema, sizes: Mapping[int, int]) -> str:
    fields = schema.fields[:MAX_SHOWN_ROWS]
    arrow = schema.logical_schema()
    header = ["column", "type", *(["bytes", ""] if sizes else [])]
    total = max(1, sum(sizes.values()))
    rows: list[list[object]] = []
    for at, field in enumerate(fields):
        row: list[object] = [field.name, arrow.field(at).type]
        if sizes:
            size = sum(sizes.get(part.id, 0) for part in field.walk())
            row += [size, HtmlBar(size / total)]
        rows.append(row)
    return html_table(title, header, rows, len(schema.fields))


def fragment_html(fragment: Any) -> str:
    """Show the data files of a fragment."""
    rows = [[one.path, len(one.fields), one.file_size_bytes or ""] for one in fragment.data_files()]
    title = (
        f"fragment {fragment.fragment_id}: {fragment.count_rows():,} rows, "
        f"{fragment.num_deletions:,} deleted"
    )
    return html_table(title, ["file", "fields", "bytes"], rows, len(rows))


def scanner_html(schema: pa.Schema, plan: str) -> str:
    """Show the columns of a scan and its plan."""
    rows = [[field.name, field.type] for field in list(schema)[:MAX_SHOWN_ROWS]]
    columns = html_table("scan", ["column", "type"], rows, len(schema))
    steps = plan.splitlines()
    return columns + html_table("plan", ["step"], [[one] for one in steps], len(steps))


class VersionList(list[dict[str, Any]]):
    """The versions of a dataset, oldest first; a notebook shows the newest as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        newest = self[: -MAX_SHOWN_ROWS - 1 : -1]
        rows = [
            [
                one["version"],
                one["timestamp"].isoformat(sep=" ", timespec="seconds"),
                ", ".join(f"{key}: {value}" for key, value in one["metadata"].items()),
            ]
            for one in newest
        ]
        return html_table("versions", ["version", "time", "totals"], rows, len(self))
