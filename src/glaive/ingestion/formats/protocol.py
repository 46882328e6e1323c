"""What a format of source files does: tell the columns, cut files into pieces, read a piece."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar, TypeAlias

import pyarrow as pa

from glaive.dataclass import dataclass
from glaive.ingestion.rejects import Rejects
from glaive.ingestion.sources import SourceFile

__all__ = ["Piece", "Rows", "SourceFormat"]

Rows: TypeAlias = pa.RecordBatch | pa.Table


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file that is read alone; can be pickled.

    Parameters
    ----------
    file
        The file.
    start, stop
        The range, in the format's own units: bytes, row groups, stripes; ``stop`` None: to the
        end.
    size
        Bytes of the file that this is about.
    """

    file: SourceFile
    start: int
    stop: int | None
    size: int


class SourceFormat(ABC):
    """A format of source files with the options of its reader; can be pickled.

    Parameters
    ----------
    options
        Options of the reader, by name.

    Raises
    ------
    OptionError
        An option does not exist, or has an invalid value.
    """

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]] = ()
    typed: ClassVar[bool] = True
    """Whether files state the types of columns; else they are inferred from samples."""

    named: ClassVar[bool] = True
    """Whether files state their columns; else a column that a file lacks is null."""

    @abstractmethod
    def __init__(self, options: Mapping[str, object]) -> None: ...

    def described(self) -> tuple[str, dict[str, object]]:
        """Name and settings, equal for readers with the same result."""
        return self.name, vars(self)

    @abstractmethod
    def schema(self, file: SourceFile) -> pa.Schema:
        """Columns of a file; of a format without types, what a sample suggests."""

    def check(self, schema: pa.Schema) -> None:  # noqa: B027  # right for formats with types
        """Refuse types that the reader cannot make."""

    def pieces(self, file: SourceFile, target_bytes: int) -> list[Piece]:
        """Cut a file into pieces of about so many bytes; here: it cannot be cut."""
        return [Piece(file, 0, None, file.size)]

    @abstractmethod
    def read(self, piece: Piece, schema: pa.Schema, rejects: Rejects) -> Iterator[Rows]:
        """Rows of a piece, in bounded memory.

        Parameters
        ----------
        piece
            One of :meth:`pieces`.
        schema
            Names and types; columns that the file lacks are left out.
        rejects
            Takes the records that cannot be read.
        """
