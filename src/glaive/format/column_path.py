"""Paths of columns: names with dots between them, in backticks where they need them.

Filters and expressions, those of Spark among them, quote names in the same way: a backtick within
backticks is doubled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["joined_path", "quoted_name", "split_path", "unquoted_name"]


def quoted_name(name: str) -> str:
    """A name in backticks, which no expression takes for more than a name."""
    return "`" + name.replace("`", "``") + "`"


def unquoted_name(name: str) -> str:
    """A name as it is between backticks, if it has them."""
    return name[1:-1].replace("``", "`") if re.fullmatch(r"`([^`]|``)+`", name) else name


def joined_path(names: Sequence[str]) -> str:
    """The path of the member to which names lead; that of a column is its name as it is."""
    if len(names) == 1:
        return names[0]
    return ".".join(quoted_name(name) if "." in name or "`" in name else name for name in names)


def split_path(path: str) -> list[str]:
    """Split ``a.`b.c`.d`` at the dots outside backticks: ``["a", "b.c", "d"]``."""
    if "`" not in path:
        return path.split(".")
    parts, quoted, doubled = [""], False, False
    for at, character in enumerate(path):
        if doubled:
            doubled = False
        elif character == "`":
            doubled = quoted and path[at + 1 : at + 2] == "`"
            if doubled:
                parts[-1] += character
            else:
                quoted = not quoted
        elif character == "." and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return parts
