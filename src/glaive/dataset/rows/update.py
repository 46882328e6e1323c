"""``dataset.update``: set new values in the rows that match a filter.

The rows are deleted and rewritten, with all columns, into new fragments at the end. Stable row ids
are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.capacity import batch_parts
from glaive.arrow.dictionaries import dictionary_encoded
from glaive.arrow.jsonb import encode_jsonb
from glaive.dataclass import dataclass
from glaive.dataset.commits.commit import commit_operation
from glaive.dataset.rows.relocated_rows import RelocatedIds, write_relocated
from glaive.dataset.rows.rows_by_fragment import RowsByFragment
from glaive.dataset.rows.selected_rows import DeletedRows, delete_rows
from glaive.dataset.scanner import Scanner
from glaive.dataset.tasks import LOCAL, FragmentRange, Job
from glaive.dataset.writing.options import WriteOptions
from glaive.errors import ColumnNotFoundError, FilterError, OptionError, SchemaError
from glaive.expr.blob_uses import refuse_blob_uses
from glaive.expr.casts import cast, check_members
from glaive.expr.filters import Value, bind_value
from glaive.expr.names import check_column_texts
from glaive.format.blobs import has_blobs_v2
from glaive.format.fields import LanceSchema
from glaive.format.flags import Feature
from glaive.format.fragment import Fragment
from glaive.format.fragment_list import FragmentList
from glaive.format.manifest import Manifest
from glaive.scan.options import TO_WRITE_AGAIN, ScanOptions
from glaive.scan.system_columns import ROW_ADDRESS, ROW_ID, SYSTEM_COLUMNS, refuse_taken
from glaive.scan.views import Views
from glaive.table.operations.update import Update

if TYPE_CHECKING:
    from glaive.dataset.version import OpenDataset, OpenedVersion

__all__ = ["UpdateTask", "UpdatedRows", "update_where"]


@dataclass(frozen=True, slots=True)
class UpdatedRows:
    """New fragments with the rows as updated, and the deletion of the old ones."""

    new: Sequence[Fragment]
    old: DeletedRows


@dataclass(frozen=True, slots=True)
class UpdateTask:
    """Update the rows of some fragments for which a filter holds; can be pickled.

    Parameters
    ----------
    updates
        Expressions over the old values, by top-level column.
    where
        The filter; default: all rows.
    data_storage_version
        Format of the new files; default: that of the dataset.
    """

    fragments: FragmentRange
    updates: Mapping[str, str]
    where: str | pc.Expression | None
    data_storage_version: str | None = None

    def execute(self, dataset: OpenDataset) -> UpdatedRows:
        """Write the rows and deletion files, uncommitted."""
        opened = self.fragments.opened(dataset)
        schema = opened.manifest.schema
        values = _bind(opened, self.updates)
        stable = opened.manifest.uses(Feature.STABLE_ROW_IDS)
        system = [ROW_ADDRESS, *([ROW_ID] if stable else [])]
        refuse_taken(schema, *system)
        columns = [*schema.names, *system]
        needed = {path for value in values.values() for path in value.columns}
        columns += sorted(needed - set(columns))
        reading = ScanOptions.of(
            columns=columns, filter=self.where, fragments=self.fragments.ids(opened)
        )
        reading = replace(reading, blob_handling=TO_WRITE_AGAIN)
        scanner = Scanner(Views(opened.snapshot), reading)
        updated, ids = RowsByFragment(), RelocatedIds(kept=stable)
        change = partial(_changed, values=values, schema=schema)

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in scanner.to_batches():
                updated.add(batch.column(ROW_ADDRESS).to_numpy())
                if stable:
                    ids.add(batch.column(ROW_ID).to_numpy())
                yield from batch_parts(change, batch)

        options = WriteOptions(mode="append", data_storage_version=self.data_storage_version)
        new = write_relocated(opened, rows(), ids, options)
        return UpdatedRows(FragmentList.of(new), delete_rows(opened, updated))


def update_where(
    dataset: OpenedVersion,
    updates: Mapping[str, str],
    where: str | pc.Expression | None,
    data_storage_version: str | None = None,
    job: Job = LOCAL,
) -> tuple[Manifest, int]:
    """Commit new values for the matching rows; returns the version and the number of rows.

    Parameters
    ----------
    updates
        Expressions over the old values, by top-level column.
    """
    check_column_texts(dataset.manifest.schema, where)
    _bind(dataset, updates)  # before any task
    if where is not None:
        Views(dataset.snapshot).filter(where)
    tasks = [
        UpdateTask(fragments, updates, where, data_storage_version)
        for fragments in job.runner.parts(dataset)
    ]
    parts = job.runner.run(dataset, tasks)
    deleted = DeletedRows.joined(part.old for part in parts)
    operation = Update(
        removed=deleted.removed,
        updated=deleted.updated,
        new=FragmentList.joined(part.new for part in parts),
        fields_touched=tuple(sorted(_field_ids(dataset, updates))),
        affected=deleted.affected,
    )
    properties = job.recording(num_rows_updated=deleted.count)
    manifest = commit_operation(dataset, operation, properties=properties, once=job.once)
    return manifest, deleted.count


def _bind(dataset: OpenedVersion, updates: Mapping[str, str]) -> dict[str, Value]:
    given: object = updates
    if not isinstance(given, Mapping) or not given:
        raise OptionError(
            "No updates provided: updates: expected expressions by column, such as "
            f"{{'a': 'a + 1'}}, found {updates!r}"
        )
    schema = dataset.manifest.schema
    bound = {}
    for name, text in given.items():
        if name not in schema.by_name:
            if isinstance(name, str) and "." in name and name.partition(".")[0] in schema.by_name:
                raise OptionError(
                    f"updates: {name!r} is a member of a struct; update the whole column instead"
                )
            raise ColumnNotFoundError.among(name, schema.names, where=dataset.uri)
        if not isinstance(text, str):
            example = repr(str(text)) if isinstance(text, int | float) else "'1' or \"'text'\""
            raise OptionError(
                f"updates: expected an expression, as a string, for {name!r}: {example}, found "
                f"{text!r:.60}"
            )
        try:
            check_column_texts(schema, text)
            bound[name] = bind_value(text, schema, system=SYSTEM_COLUMNS)
        except FilterError as error:
            if not _is_text(schema.by_name[name].to_arrow().type) or {"'", '"', "("} & {*text}:
                raise
            quoted = f"'{text}'"
            raise type(error)(
                f"updates: values are expressions: write {quoted!r} for a text. {error}"
            ) from None
        if not has_blobs_v2(schema.by_name[name]):
            refuse_blob_uses(bound[name].expression, schema.fields, f"updates: {name!r}")
    return bound


def _field_ids(dataset: OpenedVersion, names: Mapping[str, str]) -> Iterator[int]:
    for name in names:
        yield dataset.manifest.schema.find(name)[0].id


def _changed(
    batch: pa.RecordBatch, values: Mapping[str, Value], schema: LanceSchema
) -> pa.RecordBatch:
    """The rows with their new values, columns as in the dataset."""
    arrays = []
    for field in schema.fields:
        name = field.name
        value = values.get(name)
        if value is None:
            arrays.append(batch.column(name))
            continue
        array = value.evaluate(batch)
        data_type = field.to_arrow().type
        try:
            if field.logical_type == "json" and _is_text(array.type):
                array = encode_jsonb(array)
            arrays.append(_as(array, data_type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, FilterError) as error:
            raise SchemaError(
                f"Cast error: Cannot cast {value.text} to the type of column {name!r}, {data_type}"
                f": it is {array.type}: {error}"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


def _is_text(data_type: pa.DataType) -> bool:
    return pa.types.is_string(data_type) or pa.types.is_large_string(data_type)


def _as(values: Any, data_type: Any) -> Any:
    """Values of an expression, cast to the type of a column as by CAST."""
    if values.type == data_type:
        return values
    if isinstance(data_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(data_type, _as(values, data_type.storage_type))
    if pa.types.is_dictionary(data_type):
        return pc.cast(dictionary_encoded(_as(values, data_type.value_type)), data_type)
    if pa.types.is_nested(data_type):
        check_members(values.type, data_type)
        return pc.cast(values, data_type)
    return cast(values, data_type)
