"""Errors of catalogues: each is an error of glaive, and of the interface ``lance_namespace``.

So ``except GlaiveError`` catches them. ``except lance_namespace.TableNotFoundError``, in code
written for the interface, catches them as well. The names and codes are the same as in the
interface.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import lance_namespace as interface

from glaive.errors import (
    AccessError,
    ColumnNotFoundError,
    CommitConflictError,
    CommitContentionError,
    DatasetExistsError,
    DatasetNotFoundError,
    FilterError,
    GlaiveError,
    IndexNotFoundError,
    NotFoundError,
    OptionError,
    RefExistsError,
    RefNotFoundError,
    SchemaError,
    StoreError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)


class NamespaceError(GlaiveError, interface.LanceNamespaceError):
    """A catalogue refused or failed; base class of the errors of this module."""


class UnsupportedOperationError(
    NamespaceError, UnsupportedFeatureError, interface.UnsupportedOperationError
):
    """The catalogue lacks the operation."""


class NamespaceNotFoundError(NamespaceError, NotFoundError, interface.NamespaceNotFoundError):
    """The namespace is missing."""


class NamespaceAlreadyExistsError(NamespaceError, interface.NamespaceAlreadyExistsError):
    """A namespace of this name exists already."""


class NamespaceNotEmptyError(NamespaceError, interface.NamespaceNotEmptyError):
    """The namespace contains tables or namespaces."""


class TableNotFoundError(NamespaceError, DatasetNotFoundError, interface.TableNotFoundError):
    """The table is missing."""


class TableAlreadyExistsError(
    NamespaceError, DatasetExistsError, interface.TableAlreadyExistsError
):
    """A table of this name exists already."""


class TableIndexNotFoundError(
    NamespaceError, IndexNotFoundError, interface.TableIndexNotFoundError
):
    """The table lacks the index."""


class TableIndexAlreadyExistsError(NamespaceError, interface.TableIndexAlreadyExistsError):
    """The table has an index of this name already."""


class TableTagNotFoundError(NamespaceError, RefNotFoundError, interface.TableTagNotFoundError):
    """The table lacks the tag."""


class TableTagAlreadyExistsError(
    NamespaceError, RefExistsError, interface.TableTagAlreadyExistsError
):
    """The table has a tag of this name already."""


class TransactionNotFoundError(NamespaceError, NotFoundError, interface.TransactionNotFoundError):
    """The transaction is missing."""


class TableVersionNotFoundError(
    NamespaceError, VersionNotFoundError, interface.TableVersionNotFoundError
):
    """The table lacks the version."""


class TableColumnNotFoundError(
    NamespaceError, ColumnNotFoundError, interface.TableColumnNotFoundError
):
    """The table lacks the column."""


class InvalidInputError(NamespaceError, OptionError, interface.InvalidInputError):
    """A request has an invalid value."""


class ConcurrentModificationError(
    NamespaceError, CommitConflictError, interface.ConcurrentModificationError
):
    """Another writer was first."""


class PermissionDeniedError(NamespaceError, AccessError, interface.PermissionDeniedError):
    """The caller lacks a permission."""


class UnauthenticatedError(NamespaceError, AccessError, interface.UnauthenticatedError):
    """Credentials are missing or invalid."""


class ServiceUnavailableError(NamespaceError, StoreError, interface.ServiceUnavailableError):
    """The catalogue is unavailable at the moment."""

    is_unanswered = True


class InternalError(NamespaceError, interface.InternalError):
    """The catalogue failed, or its answer violates the interface."""


class InvalidTableStateError(NamespaceError, interface.InvalidTableStateError):
    """The state of the table forbids the operation."""


class TableSchemaValidationError(NamespaceError, SchemaError, interface.TableSchemaValidationError):
    """The rows do not fit the table."""


class ThrottlingError(NamespaceError, StoreError, interface.ThrottlingError):
    """The caller sent too many requests."""


class TableBranchNotFoundError(
    NamespaceError, RefNotFoundError, interface.TableBranchNotFoundError
):
    """The table lacks the branch."""


class TableBranchAlreadyExistsError(
    NamespaceError, RefExistsError, interface.TableBranchAlreadyExistsError
):
    """The table has a branch of this name already."""


_BY_CODE = {int(kind.code): kind for kind in NamespaceError.__subclasses__()}

_TRANSLATED: tuple[tuple[type[Exception], type[NamespaceError]], ...] = (
    (DatasetNotFoundError, TableNotFoundError),
    (VersionNotFoundError, TableVersionNotFoundError),
    (RefNotFoundError, TableTagNotFoundError),
    (RefExistsError, TableTagAlreadyExistsError),
    (IndexNotFoundError, TableIndexNotFoundError),
    (ColumnNotFoundError, TableColumnNotFoundError),
    (DatasetExistsError, TableAlreadyExistsError),
    (CommitConflictError, ConcurrentModificationError),
    (CommitContentionError, ConcurrentModificationError),
    (UnsupportedFeatureError, UnsupportedOperationError),
    (SchemaError, TableSchemaValidationError),
    (FilterError, InvalidInputError),
    (OptionError, InvalidInputError),
    (AccessError, PermissionDeniedError),
    (GlaiveError, InternalError),
)
"""Errors of table operations and the interface's errors for them; the first match counts."""


def error_of(code: object, message: str) -> NamespaceError:
    """Make the error of a code of the interface; an unknown code is an internal error."""
    kind = _BY_CODE.get(code, InternalError) if isinstance(code, int) else InternalError
    return kind(message)


@contextmanager
def as_namespace_errors(what: str) -> Iterator[None]:
    """Raise errors of datasets as errors of the interface; ``what`` begins the message."""
    try:
        yield
    except NamespaceError:
        raise
    except GlaiveError as error:
        kind = next(theirs for mine, theirs in _TRANSLATED if isinstance(error, mine))
        raise kind(f"{what}: {error}") from error
