"""Expressions of pyarrow to trees.

pyarrow pickles an expression as a record batch: its metadata lists calls, columns and constants
in order, its columns hold the constants and the options of calls. (Substrait is no alternative:
pyarrow's time to write it doubles with each level, and casts and options are left out.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from glaive.arrow.dictionaries import check_indices, decode_dictionary
from glaive.arrow.exported import exported_metadata
from glaive.errors import FilterError
from glaive.expr import tree
from glaive.expr.substrait_functions import called
from glaive.expr.tree import MAX_DEPTH, MAX_NODES, Literal, Node

__all__ = ["choice", "from_arrow"]

Options = dict[str, Any]
Built = tuple[Node, int]
"""A tree and its depth."""


def from_arrow(expression: pc.Expression) -> Node:
    """The tree of a pyarrow expression.

    Raises
    ------
    FilterError
        It has a function or an option that the filter language does not have.
    """
    steps, batch = _pickled(expression)
    if len(steps) > MAX_NODES:
        raise FilterError(f"the expression has more than {MAX_NODES} parts")
    open_calls: list[tuple[str, list[Built], Options]] = [("", [], {})]
    rest = iter(steps)
    for key, value in rest:
        name, arguments, options = open_calls[-1]
        match key:
            case "call":
                open_calls.append((value, [], {}))
            case "options":
                options.update(_options(batch.column(int(value))))
            case "end":
                open_calls.pop()
                above, siblings, _ = open_calls[-1]
                if above == name and name in _CHAINS:  # a single AND, in linear time
                    open_calls[-1] = (above, _joined(siblings, arguments), {})
                else:
                    siblings.append(_call(name, arguments, options))
            case "literal":
                arguments.append((Literal.of(batch.column(int(value))[0]), 1))
            case "field_ref":
                arguments.append((tree.Name((value,), exact=True), 1))
            case "nested_field_ref":
                arguments.append((_nested(rest, int(value)), 1))
            case _:
                raise FilterError(f"the expression has an unknown part {key!r}")
    return open_calls[0][1][0][0]


def choice(test: Node, yes: Node, no: Node) -> Node:
    """``if_else`` with boolean results; an unknown test counts as false."""
    return tree.either(
        tree.both(tree.IsTruth(test, True), yes),
        tree.both(tree.IsTruth(test, True, negated=True), no),
    )


def _joined(before: list[Built], more: list[Built]) -> list[Built]:
    if not before:
        return more
    before.extend(more)
    return before


def _nested(rest: Iterator[tuple[str, str]], count: int) -> Node:
    parts = [next(rest) for _ in range(count)]
    if any(key != "field_ref" for key, _ in parts):
        raise FilterError("refer to members of structs by name: pc.field('a', 'b')")
    return tree.Name(tuple(name for _, name in parts), exact=True)


def _options(column: Any) -> Options:
    """Options of a call; the target of a cast is the type of its column."""
    values: Options = {}
    for i, member in enumerate(column.type):
        values[member.name] = member.type if member.name == "to_type" else column.field(i)[0]
    return values


def _call(name: str, arguments: list[Built], options: Options) -> Built:
    nodes = [node for node, _ in arguments]
    special = _WITH_OPTIONS.get(name)
    if special is not None:
        try:
            call = special(nodes, options)
        except KeyError as missing:
            raise FilterError(f"the function {name!r} lacks option {missing}") from None
    else:
        option_type = options["_type_name"].as_py().decode() if options else ""
        if option_type not in _HARMLESS:
            raise FilterError(f"filters do not have the function {name!r} with {option_type}")
        call = choice(*nodes) if name == "if_else" and len(nodes) == 3 else called(name, nodes)
    flat = isinstance(call, tree.And | tree.Or)
    # An AND in an AND does not add a level.
    depth = max((deep - (flat and type(node) is type(call)) for node, deep in arguments), default=0)
    if depth >= MAX_DEPTH:
        raise FilterError(f"the expression is nested deeper than {MAX_DEPTH} levels")
    return call, depth + 1


_CHAINS = {"and_kleene", "or_kleene"}
_HARMLESS = {"", "ArithmeticOptions", "ScalarAggregateOptions"}
"""Options that do not change the result."""


def _in(nodes: list[Node], options: Options) -> Node:
    values = options["value_set"].values
    if pa.types.is_dictionary(values.type):
        check_indices(values, "the values of is_in")
        values = decode_dictionary(values)
    nulls = options["null_matching_behavior"].as_py() if values.null_count else _SQL
    if nulls in (_MATCHED, _SKIPPED):  # not by Arrow, which cannot filter views
        values = [value for value in values if value.is_valid]
    among = tree.InList(nodes[0], tuple(Literal.of(value) for value in values))
    return tree.either(tree.IsNull(nodes[0]), among) if nulls == _MATCHED else among


_MATCHED, _SKIPPED, _SQL = 0, 1, 3
"""What a null among the values of ``is_in`` does: it is equal to nulls, or left out, or unknown."""


def _cast(nodes: list[Node], options: Options) -> Node:
    return tree.Cast(nodes[0], options["to_type"])


def _null(nodes: list[Node], options: Options) -> Node:
    null = tree.IsNull(nodes[0])
    nan_is_null = options.get("nan_is_null")  # options may be absent
    if nan_is_null is not None and nan_is_null.as_py():
        return tree.either(null, tree.Call("isnan", (nodes[0],)))
    return null


def _pattern(options: Options) -> str:
    try:
        pattern = options["pattern"].as_py()
        return pattern.decode() if isinstance(pattern, bytes) else str(pattern)
    except UnicodeDecodeError as error:
        raise FilterError(f"the pattern {error.object!r:.80} is no text: {error}") from None


def _like(before: str, after: str, *, plain: bool = True) -> Callable[[list[Node], Options], Node]:
    def made(nodes: list[Node], options: Options) -> Node:
        pattern = _pattern(options)
        if plain:
            for special in "\\%_":
                pattern = pattern.replace(special, f"\\{special}")
        text = Literal(f"{before}{pattern}{after}", pa.string())
        return tree.Like(nodes[0], text, ignore_case=options["ignore_case"].as_py())

    return made


def _regex(nodes: list[Node], options: Options) -> Node:
    text = _pattern(options)
    flags = [Literal("i", pa.string())] if options["ignore_case"].as_py() else []
    return tree.Call("regexp_like", (nodes[0], Literal(text, pa.string()), *flags))


_WITH_OPTIONS: dict[str, Callable[[list[Node], Options], Node]] = {
    "is_in": _in,
    "cast": _cast,
    "is_null": _null,
    "match_like": _like("", "", plain=False),
    "match_substring": _like("%", "%"),
    "starts_with": _like("", "%"),
    "ends_with": _like("%", ""),
    "match_substring_regex": _regex,
}


def _pickled(expression: pc.Expression) -> tuple[list[tuple[str, str]], Any]:
    """The pickled steps in order, and their batch of one row."""
    pickled: Any = expression.__reduce__()  # a function and its arguments
    batch: Any = pa.ipc.open_file(pickled[1][0]).get_batch(0)
    # Keys repeat; a schema in Python drops repeated keys, an exported one has them all.
    steps = [(key.decode(), value.decode()) for key, value in exported_metadata(batch.schema)]
    return steps, batch
