"""Trained models of vector indices as values that can be kept in files.

Specification: "Training" in ``docs/format/vector-indices.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import pyarrow as pa

from glaive.arrow.chunked import one_array
from glaive.errors import CorruptFileError
from glaive.file.files import LanceFileReader, LanceFileWriter

__all__ = ["IvfModel", "PqModel"]


class IvfModel:
    """Centroids of partitions.

    Parameters
    ----------
    centroids
        Fixed-size lists of numbers, one for each partition.
    distance_type
        The metric: ``l2``, ``cosine``, ``dot`` or ``hamming``.
    """

    def __init__(self, centroids: pa.FixedSizeListArray[Any, Any], distance_type: str) -> None:
        self.centroids, self.distance_type = centroids, distance_type

    @property
    def num_partitions(self) -> int:
        """Number of centroids."""
        return len(self.centroids)

    def save(self, uri: str, *, storage_options: Mapping[str, str] | None = None) -> None:
        """Write a file with the column ``centroids``.

        Raises
        ------
        StoreError
            The file cannot be written.
        """
        _save(
            uri, "centroids", self.centroids, {"distance_type": self.distance_type}, storage_options
        )

    @classmethod
    def load(cls, uri: str, *, storage_options: Mapping[str, str] | None = None) -> Self:
        """Read what :meth:`save` wrote, here or in pylance.

        Raises
        ------
        CorruptFileError, NotLanceError, StoreError
            The file is something else, or is not there.
        """
        centroids, said = _load(uri, "centroids", storage_options)
        return cls(centroids, _text(said, "distance_type", uri))


class PqModel:
    """The codebook of product quantisation.

    Parameters
    ----------
    num_subvectors
        Parts into which vectors are cut.
    codebook
        ``2 ** num_bits`` fixed-size lists of the dimension; their numbers are those of part
        0 for each code, then of part 1, and so on.
    num_bits
        Of a code.
    """

    def __init__(
        self, num_subvectors: int, codebook: pa.FixedSizeListArray[Any, Any], *, num_bits: int = 8
    ) -> None:
        self.num_subvectors, self.codebook, self.num_bits = num_subvectors, codebook, num_bits

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return int(self.codebook.type.list_size)

    def save(self, uri: str, *, storage_options: Mapping[str, str] | None = None) -> None:
        """Write a file with the column ``codebook``.

        Raises
        ------
        StoreError
            The file cannot be written.
        """
        said: dict[bytes | str, bytes | str] = {
            "num_subvectors": str(self.num_subvectors),
            "num_bits": str(self.num_bits),
        }
        _save(uri, "codebook", self.codebook, said, storage_options)

    @classmethod
    def load(cls, uri: str, *, storage_options: Mapping[str, str] | None = None) -> Self:
        """Read what :meth:`save` wrote, here or in pylance.

        Raises
        ------
        CorruptFileError, NotLanceError, StoreError
            The file is something else, or is not there.
        """
        codebook, said = _load(uri, "codebook", storage_options)
        parts, bits = (
            _text({b"num_bits": b"8", **said}, key, uri) for key in ("num_subvectors", "num_bits")
        )
        # Python makes no number of thousands of digits.
        if not all(one.isascii() and one.isdecimal() and len(one) < 10 for one in (parts, bits)):
            found = f"{parts}, {bits}"[:80]
            raise CorruptFileError(
                "metadata of a codebook", expected="numbers", found=found, where=uri
            )
        return cls(int(parts), codebook, num_bits=int(bits))


def _save(
    uri: str,
    name: str,
    numbers: pa.FixedSizeListArray[Any, Any],
    said: dict[bytes | str, bytes | str],
    storage_options: Mapping[str, str] | None,
) -> None:
    table = pa.table(
        [numbers], schema=pa.schema([pa.field(name, numbers.type)], metadata=dict(said))
    )
    with LanceFileWriter(uri, table.schema, storage_options=storage_options) as writer:
        writer.write_batch(table)


def _load(
    uri: str, name: str, storage_options: Mapping[str, str] | None
) -> tuple[Any, dict[bytes, bytes]]:
    """A column of fixed-size lists of numbers without nulls, and the metadata."""
    reader = LanceFileReader(uri, storage_options=storage_options)
    at = reader.schema.get_field_index(name)
    kind = reader.schema.field(at).type if at >= 0 else None
    if kind is None or not pa.types.is_fixed_size_list(kind):
        raise CorruptFileError(
            f"column {name!r}", expected="fixed-size lists", found=f"{kind}", where=uri
        )
    numbers: Any = one_array(reader.read_all().to_table()[name])
    if numbers.null_count or numbers.flatten().null_count or not len(numbers):
        raise CorruptFileError(
            f"column {name!r}", expected="numbers", found=f"{len(numbers)} rows, nulls", where=uri
        )
    return numbers, dict(reader.schema.metadata or {})


def _text(said: Mapping[bytes, bytes], key: str, uri: str) -> str:
    value = said.get(key.encode())
    if value is None:
        raise CorruptFileError(f"metadata {key!r}", expected="text", found="nothing", where=uri)
    return value.decode(errors="replace")
