"""Errors of the system become errors of glaive; errors of glaive stay as they are."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from glaive.errors import ObjectNotFoundError, StoreError
from glaive.io.failures import as_store_errors


def test_an_error_of_the_system_names_the_file_and_the_remedy() -> None:
    with (
        pytest.raises(StoreError, match=r"cannot write here: .* The disk is full") as caught,
        as_store_errors("here", "write"),
    ):
        raise OSError(errno.ENOSPC, "a text of Arrow about no space")
    assert caught.value.errno == errno.ENOSPC


def test_a_file_that_is_not_there_is_an_error_of_its_own_kind(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    with pytest.raises(ObjectNotFoundError, match="absent"), as_store_errors(str(absent), "read"):
        absent.read_bytes()


def test_an_error_of_glaive_within_names_what_it_named() -> None:
    known = StoreError("cannot read there: no answer")
    with pytest.raises(StoreError) as caught, as_store_errors("here", "write"):
        raise known
    assert caught.value is known
