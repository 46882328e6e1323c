"""``glaive sql`` runs statements of options, files and the keyboard."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import lance
import pytest
from click.testing import CliRunner, Result

import glaive
from glaive.cli.main import cli
from glaive.errors import OptionError
from glaive.spark.grammar import split_statements

COMMAND = [sys.executable, "-m", "glaive", "sql"]


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1;", ["SELECT 1;", ""]),
        ("SELECT ';'; -- a; b\nSELECT `;`", ["SELECT ';';", " -- a; b\nSELECT `;`"]),
        (
            "OPTIMIZE t WHERE x = 'a;b'; VACUUM t;",
            ["OPTIMIZE t WHERE x = 'a;b';", " VACUUM t;", ""],
        ),
        ("/* ; */ SELECT 1; ;", ["/* ; */ SELECT 1;", " ;", ""]),
    ],
)
def test_a_semicolon_outside_of_quotes_and_comments_ends_a_statement(
    text: str, statements: list[str]
) -> None:
    assert split_statements(text) == statements


def test_a_quote_without_an_end_is_an_error() -> None:
    with pytest.raises(OptionError, match="Check its quotes"):
        split_statements("SELECT 'a;")


def run(*arguments: str, typed: str = "") -> Result:
    """Run the command in this process, whose Spark runs already."""
    return CliRunner().invoke(cli, ["sql", *arguments], input=typed)


@pytest.mark.spark
@pytest.mark.usefixtures("unstopped")
def test_statements_of_options_and_files_run_in_order_until_one_fails(tmp_path: Path) -> None:
    uri, file = str(tmp_path / "t.lance"), tmp_path / "up.sql"
    file.write_text(
        f"CREATE TABLE lance.`{uri}` (id INT, name STRING); -- empty; so far\n"
        f"INSERT INTO lance.`{uri}` VALUES (1, 'a;b'), (2, NULL), (3, 'c');\n"
        "SELECT * FROM t ORDER BY id;;\nDELETE FROM t WHERE id = 1;"
    )
    last = "SELEC 1; DELETE FROM t"
    done = run("--file", str(file), "--table", f"t={uri}", "-e", last, "--json")
    assert done.exit_code == 1
    assert "Error: Spark: [PARSE_SYNTAX_ERROR]" in done.stderr
    assert not Path(uri).exists()  # options come first
    done = run("--file", str(file), "--table", f"t={uri}", "--json", "--rows", "2")
    assert done.exit_code == 0, done.output
    rows = list(map(json.loads, done.stdout.splitlines()))
    assert rows[1:3] == [{"id": 1, "name": "a;b"}, {"id": 2, "name": None}]
    assert rows[-1] == {"num_affected_rows": 1}
    assert "The first 2 rows" in done.stderr
    assert lance.dataset(uri).to_table().to_pydict() == {"id": [2, 3], "name": [None, "c"]}
    done = run("--catalog", f"shop={tmp_path}", "--json", typed="SELECT count(*) AS n FROM shop.t;")
    assert done.stdout == '{"n": 2}\n'


@pytest.mark.spark
def test_a_terminal_asks_for_statements_until_exit(tmp_path: Path) -> None:
    glaive.write_dataset({"id": [1, 2]}, tmp_path / "t.lance")
    keyboard, terminal = pty.openpty()
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "dumb"}
    talk = subprocess.Popen(
        [*COMMAND, "--table", f"t={tmp_path / 't.lance'}"],
        stdin=terminal,
        stdout=terminal,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    )
    os.write(keyboard, b"SELECT 'a;\nb' AS x,\n2 AS y;\nSELEC;\nSELECT id + 40 FROM t;\nexit\n")
    _, errors = talk.communicate(timeout=300)
    shown = os.read(keyboard, 1 << 16).decode()
    os.close(keyboard)
    os.close(terminal)
    assert talk.returncode == 0, errors
    assert r"a;\nb" in shown
    assert "42" in shown
    assert "PARSE_SYNTAX_ERROR" in errors
    history = tmp_path / "state" / "glaive" / "sql_history"
    assert "SELEC;" in history.read_text("utf-8")
    assert history.stat().st_mode & 0o777 == 0o600
