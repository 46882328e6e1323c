"""Brain floats as a column of a pandas frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pandas.api.extensions import ExtensionArray, ExtensionDtype, register_extension_dtype

from glaive.arrow.bfloat16 import BFloat16, BFloat16Array, bfloat16_array
from glaive.errors import OptionError
from glaive.types import Flags


@register_extension_dtype
class PandasBFloat16Type(ExtensionDtype):  # type: ignore[misc]  # pandas ships no types here
    """The type of such a column: ``lance.bfloat16``."""

    name = "lance.bfloat16"
    type = BFloat16
    kind = "f"
    na_value = None
    _is_numeric = True

    @classmethod
    def construct_array_type(cls) -> Any:
        """Return the class of columns."""
        return PandasBFloat16Array

    @classmethod
    def construct_from_string(cls, string: str) -> PandasBFloat16Type:
        """Return the type of this name."""
        if string != cls.name:
            raise TypeError(f"Cannot construct a '{cls.__name__}' from '{string}'")
        return cls()

    def __from_arrow__(self, array: pa.Array | pa.ChunkedArray) -> PandasBFloat16Array:
        """Return the column of an Arrow array."""
        return PandasBFloat16Array(array)


class PandasBFloat16Array(ExtensionArray):  # type: ignore[misc]  # pandas ships no types here
    """A column of brain floats over an Arrow array, which is shared.

    Parameters
    ----------
    data
        A :class:`BFloat16Array`, or a chunked one.
    """

    dtype = PandasBFloat16Type()

    def __init__(self, data: Any) -> None:
        self.data = data.combine_chunks() if isinstance(data, pa.ChunkedArray) else data

    @classmethod
    def from_numpy(cls, array: np.ndarray[Any, Any]) -> PandasBFloat16Array:
        """Return a column of NumPy values of the type ``bfloat16`` of ``ml_dtypes``."""
        return cls(BFloat16Array.from_numpy(array))

    @classmethod
    def _from_sequence(
        cls, scalars: Any, *, dtype: Any = None, copy: bool = False
    ) -> PandasBFloat16Array:
        return cls(bfloat16_array(scalars))

    @classmethod
    def _concat_same_type(cls, columns: Any) -> PandasBFloat16Array:
        return cls(pa.concat_arrays([column.data for column in columns]))

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, int | np.integer):
            return self.data[int(item)].as_py()
        if isinstance(item, slice) and item.step in (None, 1):
            return PandasBFloat16Array(self.data[item])
        rows: Any = pa.array(np.arange(len(self))[item], pa.int64())
        return PandasBFloat16Array(self.data.take(rows))

    def __setitem__(self, key: Any, value: Any) -> None:
        raise OptionError("columns of brain floats are not changed in place; make another column")

    def __len__(self) -> int:
        return len(self.data)

    def isna(self) -> Flags:
        """Return which values are null."""
        return self.data.is_null().to_numpy(zero_copy_only=False)

    def take(self, indices: Any, *, allow_fill: bool = False, fill_value: Any = None) -> Any:
        """Return the values by position; -1 is a null if ``allow_fill``."""
        rows = np.asarray(indices, np.int64)
        if not allow_fill:
            rows = np.where(rows < 0, rows + len(self), rows)
        wanted: Any = pa.array(rows, mask=rows < 0)
        return PandasBFloat16Array(self.data.take(wanted))

    def copy(self) -> PandasBFloat16Array:
        """Return the same column: Arrow arrays are immutable."""
        return PandasBFloat16Array(self.data)

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return int(self.data.nbytes)

    def to_numpy(self, *args: Any, **options: Any) -> np.ndarray[Any, Any]:
        """Return the values as NumPy's ``bfloat16`` of ``ml_dtypes``."""
        return self.data.to_numpy()

    def __arrow_array__(self, type: Any = None) -> Any:
        """Return the Arrow array."""
        return self.data
