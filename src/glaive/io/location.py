"""Locations of paths and URIs in a normal form: scheme, bucket or host, and path.

Different spellings of a location become equal: ``/a`` and ``file:///a``, ``s3a`` and ``s3``, host
names in upper and lower case, host names that give or omit the default port.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import field
from typing import Final, Self

from glaive.dataclass import dataclass
from glaive.errors import OptionError, StoreError

# --- Check that a path names an object below the root of a store of any kind ------------
# Paths come from manifests, transactions and users. A path that leads out of the root, or has an
# invalid character, is rejected before a store receives it.

CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f]")
_OTHER_SEPARATORS: Final = os.sep != "/"
"""On Windows, ``\\`` may separate parts of a path, and a drive may precede it."""

ALWAYS_CHECKED: Final = _OTHER_SEPARATORS or sys.getfilesystemencoding() != "utf-8"
"""Whether to check printable paths of this machine, too: its file names may lack characters."""


def path_text(uri: object) -> str:
    """Return a path or URI as a string; raise an ``OptionError`` for other values."""
    text: object = os.fspath(uri) if isinstance(uri, os.PathLike) else uri
    if not isinstance(text, str):
        raise OptionError(f"uri: expected a path or a URI as a string, found {type(uri)}.")
    return text


def absolute_path(path: str, prefix: str = "") -> str:
    """Return the absolute path.

    Raises
    ------
    OptionError
        The path is relative, and the working directory of this process was removed.
    """
    try:
        return os.path.abspath(path)
    except OSError as error:
        raise OptionError(
            f"{prefix}{path!r} is relative, and the working directory cannot be found: "
            f"{error.strerror}. Give an absolute path, or change to a directory that exists."
        ) from None


def check_object_path(
    path: str, root: str, *, is_local: bool = False, in_url: bool = False
) -> None:
    """Raise ``StoreError`` for a path that is invalid or may leave ``root``.

    Such a path is absolute, leads upwards, or has a control character or half of a surrogate pair.
    With ``is_local``, it may also have characters that this process fails to encode in names of
    files of this machine. With ``in_url``, it may also lead upwards as a part of a URL, because
    some clients insert it unchanged.
    """
    parts = path.split("/")
    if _OTHER_SEPARATORS:
        parts = re.split(r"[/\\]", path)
    climbs = ".." in parts or (in_url and _climbs_in_url(path))
    if path and (not parts[0] or climbs or (_OTHER_SEPARATORS and ":" in path)):
        raise StoreError(
            f"path {path!r} leads out of {root}. A manifest that names such a path is damaged or "
            "malicious."
        )
    wrong = _wrong_character(path, is_local=is_local)
    if wrong is not None:
        raise StoreError(f"path {path!r} below {root}: {wrong}")
    if CONTROLS.search(path):
        character = "null" if "\0" in path else "control"
        raise StoreError(
            f"path {path!r} below {root} has a {character} character, which no file's name has. "
            "A manifest that names such a path is damaged."
        )


def _climbs_in_url(path: str) -> bool:
    """Return whether a part is ``..`` after ``%2e`` and ``%2f`` are decoded.

    Some web servers cut a name at ``;``.
    """
    if ".." not in path and "%" not in path:
        return False
    from urllib.parse import unquote

    return any(part.partition(";")[0] == ".." for part in unquote(path).split("/"))


def check_root(root: str, *, is_local: bool) -> None:
    """Raise ``OptionError`` for a path or URI with an invalid character.

    A path of this machine (``is_local``) must also have only characters that this process can use
    in names.
    """
    wrong = _wrong_character(root, is_local=is_local)
    if wrong is not None:
        raise OptionError(f"{root!r}: {wrong}")
    if "\0" in root:
        raise OptionError(f"{root!r} has a null character, which no file's name has")


def _wrong_character(name: str, *, is_local: bool) -> str | None:
    """Return what is wrong with a character of a name, and the remedy; else ``None``.

    Names of files have the encoding of this process, which a locale such as C limits to ASCII.
    """
    encoding = sys.getfilesystemencoding() if is_local else "utf-8"
    try:
        # Some halves are bytes of names with another encoding.
        name.encode(encoding, sys.getfilesystemencodeerrors() if is_local else "surrogateescape")
    except UnicodeEncodeError as error:
        if "\ud800" <= name[error.start] <= "\udfff":
            return (
                f"the character at {error.start} is half of a surrogate pair, which no file's name "
                "has. Check how the name was decoded."
            )
        return (
            f"the character at {error.start}, {name[error.start]!r}, is none that this process can "
            f"write in names of files, whose encoding is {encoding}. Set PYTHONUTF8=1, or a locale "
            "of UTF-8 such as LC_ALL=C.UTF-8."
        )
    return None


SCHEMES: Final = (
    "file", "memory", "s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "http", "https"
)  # fmt: skip
"""Schemes of URIs, in addition to the schemes of fsspec."""

RENAMED: Final = {"azure": "az", "s3a": "s3"}

_LITERAL: Final = ("local", "fsspec+file", "fsspec+local")
"""fsspec's schemes of files of this machine, whose paths it takes literally."""
LOCAL_SCHEMES: Final = ("file", "file-object-store", *_LITERAL)
"""Schemes of directories and files of this machine, for one store and one policy."""

_SCHEME: Final = r"[A-Za-z][A-Za-z0-9+.:-]+"
"""Colons occur in chained URIs of fsspec: ``simplecache::s3://…``."""
_ONE_SLASH: Final = r"(?s)([A-Za-z][A-Za-z0-9+.-]+):(/(?!/).*)"
"""A scheme of at least two letters, because ``C:/`` is a drive, and one slash."""

FABRIC: Final = "@fabric"
"""End of the origin of locations in Microsoft Fabric; ``@`` is invalid in the name of a host."""

_FILE: Final = "file"
_FSSPEC: Final = "fsspec+"
_AZURE: Final = ("az", "abfs", "abfss")
_AZURE_HOSTS: Final = {
    ".dfs.core.windows.net": "",
    ".blob.core.windows.net": "",
    ".dfs.fabric.microsoft.com": FABRIC,
    ".blob.fabric.microsoft.com": FABRIC,
}
"""Ends of host names, and their replacements. An account of Fabric differs from the storage account
of the same name, which anybody may own."""
_PORTS: Final = {"http": ":80", "https": ":443"}
_AMBIGUOUS: Final = r"[\\?#%\s\x00-\x1f\x7f]"
"""Characters before the path that some parsers take for the end of a name."""
_UPWARDS: Final = frozenset({".", ".."})
_SHARE: Final = r"(?i)//(?:[?.]/UNC/)?[^/]*(?:/[^/]*)?"
"""Start of a Windows path that leads to another machine, or to a device."""


def with_slashes(text: str, prefix: str = "") -> str:
    """Write ``file:/x``, the form of Hadoop and Spark, as ``file:///x``.

    Raises
    ------
    OptionError
        Another scheme is followed by a single slash, such as ``dbfs:/x``, which would otherwise
        become a relative path.
    """
    one = re.fullmatch(_ONE_SLASH, text)
    if one is None:
        return text
    scheme, path = one[1].lower(), one[2]
    if scheme in LOCAL_SCHEMES:
        return f"{scheme}://{path}"
    mounted = f"; on Databricks such files are below /dbfs{path}" if scheme == "dbfs" else ""
    raise OptionError(
        f"{prefix}{text!r}: expected two slashes after the scheme, {scheme}:/{path}{mounted}. "
        f"For a directory of this name write ./{text}"
    )


def path_of_file_uri(text: str, prefix: str = "") -> str:
    """Return the path in a URI ``file:///…``, or in a URI of another scheme of this machine.

    In fsspec's schemes (``local://``, ``fsspec+file://``) all characters are literal, as in
    fsspec: ``%``, ``?`` and ``#`` are parts of names.

    Raises
    ------
    OptionError
        The URI has the name of another machine, or an invalid one. Or its path is relative or
        empty; in fsspec's schemes a relative path looks like the name of a machine.
    """
    from urllib.parse import unquote, urlsplit

    scheme, _, path = text.partition("://")
    if scheme.lower() in _LITERAL:
        if not path.startswith("/"):
            raise OptionError(
                f"{prefix}{text!r}: expected an absolute path after {scheme}://, as in "
                f"{scheme}:///data/x; a relative one is written without {scheme}://"
            )
        return path
    try:
        parts = urlsplit(text)
    except ValueError as error:  # half of an IPv6 address, or letters that equal a slash
        raise OptionError(f"{prefix}{text!r:.200} is not a file URI: {error}") from None
    if parts.netloc not in ("", "localhost"):
        raise OptionError(
            f"{prefix}{text!r}: a file URI cannot name another machine; write "
            f"file:///{parts.netloc.rpartition('@')[2]}/…"
        )
    return unquote(parts.path)


def split_secret(uri: str) -> tuple[str, str]:
    """Remove the password before the host from a URI; return the URI and the password or ``""``."""
    scheme, mark, rest = uri.partition("://")
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    name, _, secret = user.partition(":")
    return (f"{scheme}{mark}{name}{at}{host}{slash}{path}" if secret else uri), secret


def with_secret(uri: str, secret: str) -> str:
    """Return a URI with a password, if any, before its host; the name of the user may be empty."""
    if not secret:
        return uri
    scheme, mark, rest = uri.partition("://")
    authority, slash, path = rest.partition("/")
    user, _, host = authority.rpartition("@")
    return f"{scheme}{mark}{user}:{secret}@{host}{slash}{path}"


@dataclass(frozen=True, slots=True)
class Location:
    """A parsed path or URI; see :func:`Location.parse`.

    Parameters
    ----------
    scheme
        ``file`` for directories; ``fsspec+`` and the scheme for locations that fsspec opens.
    origin
        A bucket, a host with its port, or an account; for directories the share on Windows.
    path
        Absolute for directories; for all other locations the part after the first slash.
    authority
        Host and port, or bucket: the part before the path and after a user and password.
    user
        Whether a user or password is before the host.
    """

    scheme: str
    origin: str
    path: str
    authority: str = field(default="", compare=False)
    user: bool = field(default=False, compare=False)

    @classmethod
    def parse(cls, text: str, prefix: str = "") -> Self:
        """Parse the text of a path or URI; ``~`` is an ordinary character.

        Parameters
        ----------
        text
            A path or URI.
        prefix
            Start of error messages, such as ``"base path 3 of …: "``.

        Raises
        ------
        OptionError
            The location is invalid, or parsers would disagree about it. Or it is relative, and the
            working directory was removed.
        """
        text = with_slashes(text, prefix)
        scheme, mark, rest = text.partition("://")
        if not mark or not re.fullmatch(_SCHEME, scheme):
            return cls._local(text, prefix)
        scheme = scheme.lower()
        if scheme in LOCAL_SCHEMES:
            return cls._local(path_of_file_uri(text, prefix), prefix)
        authority, _, path = rest.partition("/")
        by_fsspec = scheme not in SCHEMES
        ambiguous = re.search(_AMBIGUOUS, authority) is not None
        if not by_fsspec:  # in URLs of objects the bucket is a part of the path
            named = bool(authority) and not authority.endswith("@")
            ambiguous |= not (named and _UPWARDS.isdisjoint(re.split("[@:]", authority)))
        if ambiguous:
            raise OptionError(
                f"{prefix}{text!r}: expected a bucket or host after {scheme}://, of letters, "
                "digits, dots and hyphens"
            )
        path = path.strip("/")
        if by_fsspec:
            return cls._fsspec(scheme.removeprefix(_FSSPEC), authority, path, chained="::" in text)
        scheme = RENAMED.get(scheme, scheme)
        if scheme in _AZURE:
            return cls._azure(authority, path)
        user, _, host = authority.rpartition("@")
        origin = host
        if scheme in _PORTS:
            origin = host.lower().removesuffix(_PORTS[scheme])
        return cls(scheme, origin, path, host, bool(user))

    @classmethod
    def _local(cls, path: str, prefix: str) -> Self:
        if "\0" in path:
            raise OptionError(f"{prefix}{path!r} has a null character, which no file's name has")
        full = absolute_path(path, prefix).replace(os.sep, "/")
        # Opening a share sends a hash of the user's password. Only Windows has shares.
        share = re.match(_SHARE, full) if os.sep == "\\" else None
        return cls(_FILE, "" if share is None else share[0].lower(), full)

    @classmethod
    def _azure(cls, authority: str, path: str) -> Self:
        """Parse ``container`` or ``container@account.host``; credentials depend on the account."""
        container, _, host = authority.rpartition("@")
        if not container:
            return cls("az", "", path, authority)
        host = host.lower()
        ending = next((azure_host for azure_host in _AZURE_HOSTS if host.endswith(azure_host)), "")
        origin = f"{host.removesuffix(ending)}{_AZURE_HOSTS.get(ending, '')}"
        return cls("az", origin, path, authority, ":" in container)

    @classmethod
    def _fsspec(cls, scheme: str, authority: str, path: str, *, chained: bool) -> Self:
        user, _, host = authority.rpartition("@")
        name, _, secret = user.partition(":")
        public = f"{name}@{host}" if name else host
        # A chained URI may lead anywhere: such a location equals only itself.
        origin = f"{public}::" if chained else public
        return cls(f"{_FSSPEC}{scheme}", origin, path, public, bool(secret))

    # ------------------------------------------------------------------ questions

    @property
    def is_local(self) -> bool:
        """Whether the location is a directory or file of this machine."""
        return self.scheme == _FILE

    @property
    def is_fsspec(self) -> bool:
        """Whether fsspec opens the location."""
        return self.scheme.startswith(_FSSPEC)

    @property
    def is_chained(self) -> bool:
        """Whether it is a chained URI, which fsspec opens through another file system."""
        return self.is_fsspec and self.origin.endswith("::")

    @property
    def is_http(self) -> bool:
        """Whether the location is on a web server."""
        return self.scheme in _PORTS

    @property
    def climbs(self) -> bool:
        """Whether the path contains ``.`` or ``..``, which only some stores resolve.

        Some web servers cut a name at ``;``.
        """
        if self.is_local:
            return False
        from urllib.parse import unquote

        parts = unquote(self.path).replace("\\", "/").split("/")
        return any(part.partition(";")[0] in _UPWARDS for part in parts)

    @property
    def is_whole_disk(self) -> bool:
        """Whether the location is the root of a local disk."""
        return self.is_local and os.path.dirname(self.path) == self.path

    @property
    def store_key(self) -> str:
        """Key of the directory tree, bucket, container or server of a location."""
        container = ""
        if self.scheme == "az":
            container = self.authority.rpartition("@")[0] or self.authority
        return f"{self.scheme}\0{self.origin}\0{container}"

    def contains(self, other: Location) -> bool:
        """Return whether ``other`` is this location or below it."""
        if self.store_key != other.store_key:
            return False
        if other.climbs or other.is_chained:
            return False
        root = self.path.rstrip("/")
        return not root or other.path == root or other.path.startswith(f"{root}/")

    def below(self, other: Location) -> str:
        """Return the relative path of ``other``, which is below this location."""
        return other.path[len(self.path.rstrip("/")) :].lstrip("/")

    @property
    def uri(self) -> str:
        """Path or URI of the location; user and password are removed."""
        if self.is_local:
            return self.path
        scheme = self.scheme
        if scheme == "az" and "@" in self.authority:
            scheme = "abfss"
        named = f"{self.authority}/{self.path}".rstrip("/")
        return f"{scheme}://{named or '/'}"
