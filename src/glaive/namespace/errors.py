"""Errors of catalogues: each is an error of glaive, and of the interface ``lance_namespace``.

So ``except GlaiveError`` catches them, as well as ``except lance_namespace.TableNotFoundError`` in
code written for the interface. The names and codes are those of the interface.
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
    """The catalogue does not have the operation."""


class NamespaceNotFoundError(NamespaceError, NotFoundError, interface.NamespaceNotFoundError):
    """There is no such namespace."""


class NamespaceAlreadyExistsError(NamespaceError, interface.NamespaceAlreadyExistsError):
    """There is a namespace of this name."""


class NamespaceNotEmptyError(NamespaceError, interface.NamespaceNotEmptyError):
    """The namespace has tables or namespaces."""


class TableNotFoundError(NamespaceError, DatasetNotFoundError, interface.TableNotFoundError):
    """There is no such table."""


class TableAlreadyExistsError(
    NamespaceError, DatasetExistsError, interface.TableAlreadyExistsError
):
    """There is a table of this name."""


class TableIndexNotFoundError(
    NamespaceError, IndexNotFoundError, interface.TableIndexNotFoundError
):
    """The table has no such index."""


class TableIndexAlreadyExistsError(NamespaceError, interface.TableIndexAlreadyExistsError):
    """The table has an index of this name."""


class TableTagNotFoundError(NamespaceError, RefNotFoundError, interface.TableTagNotFoundError):
    """The table has no such tag."""


class TableTagAlreadyExistsError(
    NamespaceError, RefExistsError, interface.TableTagAlreadyExistsError
):
    """The table has a tag of this name."""


class TransactionNotFoundError(NamespaceError, NotFoundError, interface.TransactionNotFoundError):
    """There is no such transaction."""


class TableVersionNotFoundError(
    NamespaceError, VersionNotFoundError, interface.TableVersionNotFoundError
):
    """The table has no such version."""


class TableColumnNotFoundError(
    NamespaceError, ColumnNotFoundError, interface.TableColumnNotFoundError
):
    """The table has no such column."""


class InvalidInputError(NamespaceError, OptionError, interface.InvalidInputError):
    """A request has a value that is not valid."""


class ConcurrentModificationError(
    NamespaceError, CommitConflictError, interface.ConcurrentModificationError
):
    """Another writer was first."""


class PermissionDeniedError(NamespaceError, AccessError, interface.PermissionDeniedError):
    """The caller may not do this."""


class UnauthenticatedError(NamespaceError, AccessError, interface.UnauthenticatedError):
    """Credentials are missing or not valid."""


class ServiceUnavailableError(NamespaceError, StoreError, interface.ServiceUnavailableError):
    """The catalogue does not answer at the moment."""

    is_unanswered = True


class InternalError(NamespaceError, interface.InternalError):
    """The catalogue failed, or gave an answer that is not of the interface."""


class InvalidTableStateError(NamespaceError, interface.InvalidTableStateError):
    """The table is in a state in which this cannot be done."""


class TableSchemaValidationError(NamespaceError, SchemaError, interface.TableSchemaValidationError):
    """The rows do not fit the table."""


class ThrottlingError(NamespaceError, StoreError, interface.ThrottlingError):
    """Too many requests."""


class TableBranchNotFoundError(
    NamespaceError, RefNotFoundError, interface.TableBranchNotFoundError
):
    """The table has no such branch."""


class TableBranchAlreadyExistsError(
    NamespaceError, RefExistsError, interface.TableBranchAlreadyExistsError
):
    """The table has a branch of this name."""


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
"""What an operation of a table raises, and what the interface has for it; the first one counts."""


def error_of(code: object, message: str) -> NamespaceError:
    """The error of a code of the interface; an unknown code is an internal error."""
    kind = _BY_CODE.get(code, InternalError) if isinstance(code, int) else InternalError
    return kind(message)


@contextmanager
def as_namespace_errors(what: str) -> Iterator[None]:
    """Raise errors of datasets as those of the interface; ``what`` begins the message."""
    try:
        yield
    except NamespaceError:
        raise
    except GlaiveError as error:
        kind = next(theirs for mine, theirs in _TRANSLATED if isinstance(error, mine))
        raise kind(f"{what}: {error}") from error
