"""Small files of compatible layout: which they are, and their bytes read in bulk.

A file of a few rows costs far more to open than to decode; see
:mod:`glaive.file.v2.small_files`. Whatever is out of the ordinary, damage included, is left to
the reader of single files, which says what is wrong and where; how often is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from glaive.errors import CapacityError, FilterError, FormatError, ObjectNotFoundError, SchemaError
from glaive.file.v2.bulk_reads import BULK_VERSIONS, MAX_BYTES, BulkReadError
from glaive.format.fragment import SingleFile
from glaive.format.wire import DecodeError
from glaive.scan.metrics import Meter
from glaive.scan.snapshot import Snapshot
from glaive.scan.views import BoundProjection

if TYPE_CHECKING:
    from glaive.file.v2.small_files import SmallBatch

__all__ = ["column_of", "has_columns", "in_bulk", "read_batch", "small_file"]

T = TypeVar("T")

_MAX_BYTES_READ_WHOLE: Final = 512 * 1024
"""Bytes of a file that counts as small when all of its columns are read."""


def small_file(source: BoundProjection, position: int) -> SingleFile | None:
    """The only file of a fragment, if it is small and of a format that is read in bulk."""
    file = source.snapshot.manifest.single_file(position, _MAX_BYTES_READ_WHOLE)
    if file is None or file.layout[0] not in BULK_VERSIONS:
        return None
    if file.size > MAX_BYTES:
        columns = sum(column >= 0 for column in file.layout[2])
        return file if len(source.projection.leaves) == columns else None
    return file


def has_columns(source: BoundProjection, file: SingleFile) -> bool:
    """Whether a file has all columns of a projection."""
    _, fields, columns = file.layout
    if not len(fields) == len(columns) == len(set(fields)):
        return False
    stored = {field for field, column in zip(fields, columns, strict=True) if column >= 0}
    return source.projection.leaves <= stored


def column_of(file: SingleFile) -> dict[int, int]:
    """Column of each field of a file."""
    _, fields, columns = file.layout
    return dict(zip(fields, columns, strict=True))


def read_batch(snapshot: Snapshot, files: Sequence[SingleFile]) -> SmallBatch:
    """Read files of a version, which have one layout, into one buffer.

    Raises
    ------
    BulkReadError
        They have to be read one by one.
    ObjectNotFoundError
        One of them is missing.
    """
    store = snapshot.store
    # Whole files are fetched here, so that all of those with checksums is compared.
    verify = snapshot.session.verification(store, "fetched")
    if verify == "always":
        raise BulkReadError("files are compared with their checksums")
    # Here and not above: takes ask for small files where there are none.
    from glaive.file.v2.small_files import SmallBatch
    from glaive.io.read_many import read_many

    objects = read_many(store, [file.path for file in files], [file.size for file in files])
    if objects is None:
        raise BulkReadError("a file has another size than the manifest says")
    batch = SmallBatch.of(objects, [file.rows for file in files])
    if verify == "fetched":
        batch.expect_checksums(objects.sizes)
    return batch


def in_bulk(meter: Meter, what: str, fragments: int, read: Callable[[], T]) -> T | None:
    """What ``read`` returns; None, and counted, where files have to be read one by one."""
    error: Exception
    try:
        result = read()
        meter.count("fragments_read_in_bulk", fragments)
        return result
    except BulkReadError as refused:
        reason, error = str(refused), refused
    except ObjectNotFoundError as missing:
        reason, error = "a file is missing", missing
    except CapacityError as full:
        reason, error = "values beyond one array", full
    except (FormatError, SchemaError, DecodeError) as damage:
        reason, error = "a file is damaged, or of an unknown kind", damage
    except FilterError as failed:  # perhaps at a deleted row
        reason, error = "the filter failed at some row", failed
    meter.fallback(what, reason, error)
    return None
