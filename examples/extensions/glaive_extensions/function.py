"""Add the function ``twice`` to filters: ``twice(x) > 10``."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from glaive.expr.functions.coercion import NUMBER, like_first, signature
from glaive.expr.functions.registry import function


@function("twice", takes=signature(NUMBER, result=like_first))
def twice(numbers: Any) -> Any:
    """Return each number times two."""
    return pc.multiply(numbers, pa.scalar(2, numbers.type))
