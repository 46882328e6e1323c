"""Columns of edge cases, and calls of every function on them."""

from __future__ import annotations

import datetime as dt
import decimal

import pyarrow as pa

TEXTS = [
    "",
    "a",
    "abc",
    "Zé 1",
    "  pad  ",
    "ÀÉß ŉ",
    "日本語, テキスト",
    "😀x-y z",
    "a,b,,c",
    "İΣAΣ ΑΣ",
    None,
    "aXbXc abab",
]
ROWS = len(TEXTS)


def edges() -> pa.Table:
    """One row per edge, one column per type; columns are named by their types."""
    count = pa.array([0, 1, -1, 2, 3, -2, 100, 4, 5, -100, None, 2**62], pa.int64())
    return pa.table(
        {
            "n": pa.array(range(ROWS), pa.int32()),
            "s": TEXTS,
            "s2": ["a", "a", "b", " ", "", "ß", "本", "x", ",", "Σ", "a", None],
            "ls": pa.array(TEXTS, pa.large_string()),
            "ds": pa.array(TEXTS).dictionary_encode(),
            "i64": count,
            "small": pa.array([0, 1, -1, 2, 3, -2, 7, 4, 5, -9, None, 6], pa.int32()),
        }
    )


STRINGS = [
    *(
        f"{name}({column})"
        for name in (
            "upper lower initcap reverse ascii bit_length octet_length character_length "
            "char_length length btrim ltrim rtrim trim"
        ).split()
        for column in ("s", "ls", "ds", "NULL", "''", "'Àb c'")
    ),
    *(
        f"{name}(s, {other})"
        for name in ("btrim", "ltrim", "rtrim", "trim")
        for other in ("'a'", "' '", "'ac '", "''", "s2", "NULL", "'ß😀'")
    ),
    *(
        f"{name}({text}, {size})"
        for name in ("left", "right", "repeat", "lpad", "rpad", "substr")
        for text in ("s", "ls", "ds", "'añb'")
        for size in ("0", "1", "2", "-1", "-3", "7", "small", "NULL")
    ),
    *(
        f"{name}(s, {size}, {filling})"
        for name in ("lpad", "rpad")
        for size in ("0", "2", "-1", "6", "small")
        for filling in ("'xy'", "''", "'é'", "s2", "NULL")
    ),
    *(
        f"{name}(s, {start}, {count})"
        for name in ("substr", "substring")
        for start in ("0", "1", "2", "-1", "-5", "9", "small", "i64", "9223372036854775807", "NULL")
        for count in ("0", "1", "3", "n", "-1", "9223372036854775807", "NULL")
    ),
    "substr(s, i64)",
    "left(s, i64)",
    "right(s, i64)",
    "left(s, -9223372036854775807)",
    *(
        f"{name}({text}, {other})"
        for name in (
            "contains starts_with ends_with strpos instr position find_in_set levenshtein"
        ).split()
        for text in ("s", "ls", "ds", "'a,b'")
        for other in ("''", "'a'", "'ß'", "'本語'", "s2", "NULL", "'b'")
    ),
    *(
        f"contains_tokens({text}, {words})"
        for text in ("s", "ls", "ds")
        for words in ("''", "'a'", "'ß'", "NULL", "'x z'", "'ΑΣ'", "'日本語'")
    ),
    "contains_tokens(s, 'b c')",
    "contains_tokens(s, 'a abab')",
    "find_in_set(s2, s)",
    "find_in_set(s, 'abc,a,,a')",
    "levenshtein('kitten', 'sitting')",
    "levenshtein(s, 'abcabc')",
    *(
        f"replace({text}, {a}, {b})"
        for text in ("s", "ls", "ds")
        for a in ("'a'", "''", "s2", "NULL", "'X'")
        for b in ("'yy'", "''", "s2", "NULL")
    ),
    *(
        f"translate({text}, {a}, {b})"
        for text in ("s", "ls", "ds")
        for a in ("'abc'", "'aab'", "''", "s2")
        for b in ("'12'", "''", "'xyz1'", "NULL")
    ),
    *(
        f"split_part({text}, {a}, {b})"
        for text in ("s", "ls", "ds")
        for a in ("','", "''", "s2", "'X'", "NULL")
        for b in ("1", "2", "-1", "-2", "9", "0", "NULL")
    ),
    "split_part(s, ',', n)",
    "split_part(s, ',', small)",
    *(
        f"{name}({text}, {a}, {b})"
        for name in ("substr_index", "substring_index")
        for text in ("s", "ds")
        for a in ("','", "''", "'X'", "s2", "NULL")
        for b in ("1", "2", "-1", "-2", "0", "small", "NULL")
    ),
    *(
        f"overlay(s, {a}, {b})"
        for a in ("'XY'", "s2", "''", "NULL")
        for b in (
            "1",
            "2",
            "9",
            "0",
            "-1",
            "NULL",
            "1, 0",
            "2, 3",
            "2, -1",
            "3, -9",
            "2, NULL",
            "1, small",
        )
    ),
    "concat(s)",
    "concat(s, s2)",
    "concat(s, '-', s2)",
    "concat(ls, ls)",
    "concat(ls, s)",
    "concat(ds, s)",
    "concat(NULL)",
    "concat(s, NULL)",
    "concat(s, i64)",
    "concat('a', 1)",
    "concat()",
    "concat_ws(',', s)",
    "concat_ws(',', s, s2)",
    "concat_ws(s2, s, s)",
    "concat_ws(NULL, s)",
    "concat_ws('', s, s2)",
    "concat_ws(',', s, NULL, s2)",
    "concat_ws(',', ls, ls)",
    "concat_ws(',')",
    "chr(n)",
    "chr(65)",
    "chr(128512)",
    "chr(55296)",
    "chr(-1)",
    "chr(1114112)",
    "chr(NULL)",
    "chr(small)",
    "to_hex(i64)",
    "to_hex(small)",
    "to_hex(255)",
    "to_hex(NULL)",
    "to_hex(s)",
    *(
        f"string_to_array({text}, {a})"
        for text in ("s", "ls", "ds")
        for a in ("','", "''", "NULL", "s2", "' '")
    ),
    "string_to_array(s, ',', 'a')",
    "string_to_list(s, NULL, 'a')",
    "string_to_array(s, ',', s2)",
    "string_to_array(s, ',', NULL)",
    "string_to_array(s, s2, '')",
    "upper(i64)",
    "upper()",
    "upper(s, s)",
    "left(s)",
    "starts_with(s)",
    "repeat('ab', 3000000000)",
    "lpad('abc', 3000000000)",
    "repeat('', 99999999999)",
]

CASES = list(dict.fromkeys(STRINGS))
NAMES: list[str] = []
