"""Errors of the system become errors of glaive; errors of glaive stay as they are."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from glaive.errors import ObjectNotFoundError, StoreError
from glaive.io.failures import (
    as_store_errors,
    from_object_store,
    from_system,
    without_named_secrets,
    without_values,
)
from glaive.io.local import LocalStore


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


def test_errors_of_glaive_are_not_translated_once_more(tmp_path: Path) -> None:
    failed = StoreError("cannot read a: it is a pipe")
    assert from_system(failed, "a", "read") is failed
    (tmp_path / "zero").symlink_to("/dev/zero")
    store = LocalStore(tmp_path)
    for read in (store.get, store.open):
        with pytest.raises(StoreError) as found:
            read("zero")
        assert str(found.value).count("cannot read") == 1


def test_a_store_that_refuses_conditions_has_a_remedy() -> None:
    said = "Server returned non-2xx status code: 501 Not Implemented"
    failed = from_object_store(Exception(said), "s3://bucket/x", "write")
    assert failed.is_unsupported
    assert "commits need a commit_lock or a manifest store" in str(failed)
    assert "Check storage_options" not in str(failed)


def test_an_error_of_glaive_within_names_what_it_named() -> None:
    known = StoreError("cannot read there: no answer")
    with pytest.raises(StoreError) as caught, as_store_errors("here", "write"):
        raise known
    assert caught.value is known


@pytest.mark.spec("rel-27")
@pytest.mark.parametrize(
    "said",
    [
        "no token12345&more/+'\\ here",
        "no token12345&amp;more/+&#x27;\\ here",
        "no token12345&amp;more/+'\\ here",
        "no token12345%26more/%2B%27%5C here",
        "no token12345%26more%2F%2B%27%5C here",
        "no token12345&more/+'\\\\ here",
    ],
    ids=["text", "XML", "XML, quotes", "path", "URI", "JSON"],
)
def test_credentials_are_in_no_answer_in_whatever_way_they_are_written(said: str) -> None:
    assert without_values(said, ["token1", "token12345&more/+'\\"]) == "no *** here"


@pytest.mark.spec("rel-27")
@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("no Basic bWU6YWJj here", "no Basic *** here"),
        ("no Bearer ya29.a-b_c== here", "no Bearer *** here"),
        ("basic authentication is off", "basic authentication is off"),
        ("Cookie: a=1; b=2&c=3; d", "Cookie: ***; d"),
    ],
)
def test_the_value_of_a_header_alone_is_in_no_answer(said: str, shown: str) -> None:
    assert without_named_secrets(said) == shown


def test_an_answer_that_there_is_no_object_is_an_error_of_its_own_kind() -> None:
    """webdav4 raises the error of its HTTP client where a name is gone for a moment."""
    error = RuntimeError("Client error '404 Not Found'")
    vars(error)["response"] = SimpleNamespace(status_code=404)
    assert type(from_object_store(error, "t/hint.json", "read")) is ObjectNotFoundError
