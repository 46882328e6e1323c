"""Names of places and objects where names of files are no UTF-8, as in the locale C."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CALLS = """
import sys
import pyarrow as pa
import glaive
from glaive.errors import GlaiveError

place, letter = sys.argv[1], "\\u00e9"
rows = pa.table({letter: [letter]})
made = glaive.write_dataset(rows, place + "/t")
made.update_config({letter: letter})
made.tags.create("v")
assert glaive.dataset(place + "/t").to_table(filter=f"`{letter}` = '{letter}'").equals(rows)

bucket = glaive.write_dataset(rows, "memory://a/" + letter)
bucket.tags.create(letter)
assert bucket.create_branch(letter + "/x").tags.get_version(letter) == 1

for call in (
    lambda: made.tags.create(letter),
    lambda: made.create_branch(letter),
    lambda: glaive.dataset(place + "/" + letter),
    lambda: glaive.dataset(f"file://{place}/%C3%A9"),
    lambda: glaive.ingest([place + "/" + letter], place + "/u"),
):
    try:
        call()
    except GlaiveError as error:
        assert "whose encoding is ascii. Set PYTHONUTF8=1" in str(error), error
    else:
        raise AssertionError(call)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are Unicode")
def test_letters_that_names_of_files_lack_are_names_in_buckets_and_an_error_on_disks(
    tmp_path: Path,
) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", CALLS, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
