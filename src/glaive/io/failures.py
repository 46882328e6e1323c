"""Translate errors of the operating system and of object stores to ``StoreError``."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from stat import S_ISDIR
from typing import Final

from glaive.errors import (
    CorruptFileError,
    GlaiveError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreError,
)
from glaive.types import ByteRange

_PERMISSION = "Check the permissions, or choose another location"
_REMEDIES = {
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.EROFS: "The file system is read-only; choose another location",
    errno.ENOSPC: "The disk is full; free some space and try again",
    errno.EDQUOT: "The disk quota is used up; free some space and try again",
    errno.EFBIG: "Files of this process or place have a limit of size; raise it (ulimit -f)",
    errno.EISDIR: "It is a directory where a file was expected; check the path",
    errno.ENOTDIR: "A part of the path is a file, not a directory; check the path",
    errno.EMFILE: "Too many files are open in this process; raise the limit (ulimit -n)",
    errno.ENFILE: "Too many files are open on this machine; close some and try again",
    errno.ENAMETOOLONG: "The path is too long; choose a shorter one",
    errno.ENOMEM: "No memory or address space left; read fewer files at once",
    errno.EIO: "The disk reports an error; check the device",
}
_UNSUPPORTED = ("NotSupportedError", "NotImplementedError")
_NOT_IMPLEMENTED = "status code: 501"
"""Signs, of a client and a server, that this kind of store lacks a kind of request."""
PANIC = "PanicException"
"""Subclass of ``BaseException`` that clients written in Rust raise in an unexpected state."""
_WITHOUT_CONDITIONS = (
    "The store does not have this request; if it cannot put an object only where there is none, "
    "commits need a commit_lock or a manifest store"
)
_MAX_TEXT = 2000
"""Maximum characters of a client's message, which may contain a server's whole response."""
_UNANSWERED = re.compile(r"HTTP error|after [1-9]\d* retries|status code: 50[24]")
"""Signs in messages of clients that a request had no answer. It may be an earlier attempt, or a
proxy may say so."""
_NAMED_SECRETS = re.compile(
    r"(?i)((?:authorization|cookie|api-?key|accesskeyid|token-\d|[-_](?:token|secret|password|key(?:_base64)?))"
    r"[\\\"'\s]{0,9}[:=>][\\\"'\s\[]{0,9}"
    r"(?:(?:basic|bearer|negotiate|sharedkey|token|aws4-hmac-sha256)\s+(?:credential=)?)?)"
    r"[^\s<>,;&\"'\\]+"
)
"""Headers of a request, and storage options, that servers and proxies repeat in their answers.
Servers written in Go repeat lists of values."""
_COOKIES = re.compile(
    r"(?i)(cookie[\\\"'\s]{0,9}[:=>][\\\"'\s\[]{0,9})"
    r"[^\s<>\"'\\;]+(?:;\s{0,9}[^\s<>\"'\\;=]+=[^\s<>\"'\\;]*)*"
)
_SENT = re.compile(
    r"(?i)\b((?:basic|bearer|negotiate)\s+)(?=[\w.~+/:-]*(?-i:[A-Z\d=]))[\w.~+/:-]{6,}=*"
)
"""The value of a header: a kind, and a password in base64. Plain lower-case words are skipped."""
_SIGNED_BYTES = re.compile(r"(?i)(bytes>)[0-9a-f]{2}(?: [0-9a-f]{2})+")
"""The signed bytes as S3 shows them, with the session token: in hexadecimal digits."""
_SECRET_OPTION = re.compile(
    r"(?i)(?!.*_file$)(?:.*(?:key|secret|token|passw|passphrase|pwd|sas|cookie|jwt|bearer|signature"
    r"|authorization|connection_?string)"
    r"|(?:.*[^a-z])?(?:auth|pass|pat|tok|(?<!application_)credentials?)$)"
)
"""Names of storage options and environment variables with credentials."""
_SECRET_PREFIXES = (
    "aws_", "azure_", "google_", "fsspec_", "hf_", "hugging_face_",
    "http_proxy", "https_proxy", "all_proxy",
)  # fmt: skip
_MIN_SECRET_CHARACTERS = 6
"""Least characters of credentials to search for: shorter strings are in every message."""
_ANSWERED = ("code", "status", "status_code", "response")
"""Attributes of clients' errors if a server answered; the last may have the others."""
_UNANSWERED_STATUS = (502, 504)
"""Status codes of a proxy whose server is silent."""
_OBJECT_REMEDIES = {
    "PermissionDeniedError": "Check that the credentials may do this",
    "UnauthenticatedError": "Check the credentials in storage_options or the environment",
    "NotSupportedError": "This kind of store cannot do that",
    "NotImplementedError": "This kind of store cannot do that",
    "InvalidPathError": "Check the path",
}


def from_system(
    error: OSError, path: str, doing: str, options: Mapping[str, str] | None = None
) -> StoreError:
    """Translate an error of the operating system, with its ``errno``. Return a StoreError as is.

    ``doing`` is a verb, such as ``"read"`` or ``"write"``. Clients of servers also raise such
    errors: ``options`` are the storage options in this case.
    """
    if isinstance(error, StoreError):
        return error
    if isinstance(error, FileNotFoundError):
        if doing == "write":
            return ObjectNotFoundError(
                f"cannot write {path}: its directory was removed, or a link in its path is broken. "
                "Check the path, and whether somebody deletes the dataset."
            )
        return ObjectNotFoundError(f"cannot {doing} {path}: there is no such file. Check the path.")
    if isinstance(error, FileExistsError):
        return ObjectExistsError(f"cannot {doing} {path}: it exists already.")
    remedy = _REMEDIES.get(error.errno or 0, "Check the location and try again")
    reason = first_line_of(OSError(error.strerror) if error.strerror else error, options)
    failed = StoreError(f"cannot {doing} {path}: {reason}. {remedy}.")
    failed.errno = error.errno
    return failed


@contextmanager
def as_store_errors(path: str, doing: str) -> Iterator[None]:
    """Translate errors of work with a file of this process.

    ``doing`` is a verb, such as ``"read"`` or ``"write"``.

    Raises
    ------
    StoreError
        The system failed; the disk may be full. The message contains the path.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, GlaiveError):
            raise
        # Arrow's errors have a message of their own.
        plain = OSError(error.errno, os.strerror(error.errno)) if error.errno else error
        raise from_system(plain, path, doing) from None


def not_a_file(path: str, mode: int, doing: str = "read") -> StoreError:
    """Describe a directory, a pipe or a device that was found instead of a file."""
    actual = "a directory" if S_ISDIR(mode) else "a pipe, a socket or a device"
    return StoreError(
        f"cannot {doing} {path}: it is {actual} where a file was expected. Check the path."
    )


def from_object_store(
    error: BaseException, path: str, doing: str, options: Mapping[str, str] | None = None
) -> StoreError:
    """Translate an error that obstore raised. Return a StoreError as is.

    ``options`` are the storage options: servers repeat credentials that they refuse.
    """
    if isinstance(error, StoreError):
        return error
    name = type(error).__name__
    # WebDAV: a read may request a name between the deletion and the move that replace an object.
    status = getattr(getattr(error, "response", None), "status_code", 0)
    if isinstance(error, FileNotFoundError) or status == 404:
        return ObjectNotFoundError(
            f"cannot {doing} {path}: there is no such object. Check the path."
        )
    if name == "AlreadyExistsError":
        return ObjectExistsError(f"cannot {doing} {path}: it exists already.")
    if name == "PreconditionError":
        return ObjectExistsError(f"cannot {doing} {path}: another writer was first.")
    first_line = first_line_of(error, options)
    remedy = _OBJECT_REMEDIES.get(name, "Check storage_options and the network, then try again")
    if _NOT_IMPLEMENTED in str(error):
        remedy = _WITHOUT_CONDITIONS
    failed = StoreError(f"cannot {doing} {path}: {first_line}. {remedy}.")
    failed.is_unanswered = name == PANIC or _UNANSWERED.search(str(error)) is not None
    failed.is_unsupported = name in _UNSUPPORTED or _NOT_IMPLEMENTED in str(error)
    return failed


def first_line_of(error: BaseException, options: Mapping[str, str] | None = None) -> str:
    """Return the first line of a client's message; remove credentials and a full stop.

    ``options`` are the storage options: servers repeat credentials that they refuse.
    """
    # Remove secrets first: only a whole secret is recognised, also in several lines.
    text = str(error) or type(error).__name__
    line = without_values(text, credentials_in(options or {})).split("\n", 1)[0]
    return GlaiveError.without_secrets(without_named_secrets(line))[:_MAX_TEXT].rstrip(".")


def without_named_secrets(answer: str) -> str:
    """Remove credentials from a server's answer, of the request and in storage options."""
    for secrets in (_SIGNED_BYTES, _COOKIES, _NAMED_SECRETS, _SENT):
        answer = secrets.sub(r"\1***", answer)
    return answer


def without_values(answer: str, values: Iterable[str]) -> str:
    """Remove values that the server was sent from its answer, in all their notations."""
    import json
    from html import escape
    from urllib.parse import quote

    given = [value for value in values if len(value) >= _MIN_SECRET_CHARACTERS]
    written = {
        notation
        for value in given
        for notation in (
            value, escape(value), escape(value, quote=False), quote(value), quote(value, safe=""),
            repr(value)[1:-1], json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1],
        )
    }  # fmt: skip
    for notation in sorted(written, key=len, reverse=True):  # a notation may begin with another
        answer = answer.replace(notation, "***")
    return answer


def credentials_in(options: Mapping[str, str]) -> Iterator[str]:
    """Yield the credentials in storage options and the environment, also in JSON."""
    from urllib.parse import unquote

    names = (name for name in os.environ if name.lower().startswith(_SECRET_PREFIXES))
    for given in (options, {name: os.environ[name] for name in names}):
        for name, value in given.items():
            text = value.strip()
            if _SECRET_OPTION.match(name) or text.startswith(("{", '"')):
                yield from (value, text, *_text_in(text), *_parts_of(text))
            if "://" in text:  # a proxy's URL; the proxy is sent the decoded password
                password = text.rpartition("@")[0].partition("://")[2].partition(":")[2]
                yield from (password, unquote(password))


def _parts_of(text: str) -> Iterator[str]:
    """Yield the credentials in a string such as ``AccountName=x;AccountKey=y``."""
    for part in text.split(";"):
        name, _, value = part.partition("=")
        if _SECRET_OPTION.match(name):
            yield value


def _text_in(text: str) -> Iterator[str]:
    """Yield the string in a JSON string, such as a key that was encoded once too often."""
    import json

    with suppress(ValueError, RecursionError):
        inner = json.loads(text) if text.startswith('"') else None
        if isinstance(inner, str):
            yield inner


def had_no_answer(error: BaseException) -> bool:
    """Return whether a request may still take effect after a client of another library failed.

    Errors of servers have a status code, and errors of file systems are built-in exceptions. Other
    errors are of connections. Some status codes of proxies also mean that the server is silent.
    """
    if isinstance(error, OSError) and type(error).__module__ == "builtins":
        return isinstance(error, ConnectionError | TimeoutError)
    codes = [getattr(error, name, None) for name in _ANSWERED]
    codes += [getattr(codes[-1], name, None) for name in _ANSWERED]
    return all(one is None for one in codes) or any(one in _UNANSWERED_STATUS for one in codes)


MAX_OBJECT_BYTES: Final = 1 << 62
"""Maximum bytes of a file, far more than any store has: a server may state any number."""


def too_large(path: str, size: int) -> StoreError:
    """Return the error for an object larger than any file, whose size exceeds Arrow's limit."""
    return StoreError(
        f"cannot read {path}: the store says that it has {size} bytes, more than a file can have. "
        "Check which server answers."
    )


def check_ranges(path: str, ranges: Sequence[ByteRange], size: int) -> None:
    """Raise ``CorruptFileError`` for a range that leaves an object of ``size`` bytes."""
    for requested in ranges:
        if requested[0] < 0 or requested[1] < 0 or requested[0] + requested[1] > size:
            raise beyond_end(path, ByteRange(*requested), size)


def beyond_end(path: str, requested: ByteRange, size: int) -> CorruptFileError:
    """Describe a range that ends after the object."""
    return CorruptFileError(
        "byte range",
        expected=f"bytes {requested.offset}..{requested.end} within the file",
        found=f"a file of {size} bytes",
        where=path,
    )


# --- Errors of temporary folders, which say how to choose another folder ------------------


def spilling(what: str) -> AbstractContextManager[None]:
    """Translate errors of writing or reading a temporary file; ``what`` is its content.

    Raises
    ------
    StoreError
        The system failed; the disk may be full.
    """
    return as_store_errors(f"{what} to a file in {_folder()} (TMPDIR chooses the folder)", "write")


def _folder() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:
        return "a temporary folder"
