"""The location that a path or URI names, in a normal form: scheme, bucket or host, and path.

Different spellings of a location become equal: ``/a`` and ``file:///a``, ``s3a`` and ``s3``, host
names in upper and lower case, with or without the default port.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import field
from typing import Final, Self

from glaive.dataclass import dataclass
from glaive.errors import OptionError, StoreError

# --- Check that a path names an object below the root of a store, whatever the store ----
# Paths come from manifests, transactions and users. A path that leads out of the root, or has a
# character that no file's name should have, is rejected before any store sees it.

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_OTHER_SEPARATORS: Final = os.sep != "/"
"""On Windows, paths may have ``\\`` between parts, and a drive before them."""

ALWAYS_CHECKED: Final = _OTHER_SEPARATORS or sys.getfilesystemencoding() != "utf-8"
"""Whether printable paths of this machine are checked, too: names of its files are no UTF-8."""


def absolute_path(path: str, prefix: str = "") -> str:
    """A path from the root of the disk on.

    Raises
    ------
    OptionError
        It is relative, and the working directory of this process was removed.
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
    """Raise ``StoreError`` for a path that does not name an object below ``root``.

    Such a path is absolute, leads upwards, has a control character or half of a surrogate pair, or
    characters that names of files of this machine (``is_local``) cannot have in this process. It
    also leads upwards as a part of a URL (``in_url``), for which some clients put it as it is.
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
    if _CONTROL.search(path):
        character = "null" if "\0" in path else "control"
        raise StoreError(
            f"path {path!r} below {root} has a {character} character, which no file's name has. "
            "A manifest that names such a path is damaged."
        )


def _climbs_in_url(path: str) -> bool:
    """Whether a part is ``..`` once ``%2e`` and ``%2f`` are characters.

    To some web servers what follows ``;`` is no part of a name.
    """
    if ".." not in path and "%" not in path:
        return False
    from urllib.parse import unquote

    return any(part.partition(";")[0] == ".." for part in unquote(path).split("/"))


def check_root(root: str, *, is_local: bool) -> None:
    """Raise ``OptionError`` for a path or URI with a character that no name has.

    Nor may one of this machine (``is_local``) have what this process cannot write in names.
    """
    wrong = _wrong_character(root, is_local=is_local)
    if wrong is not None:
        raise OptionError(f"{root!r}: {wrong}")
    if "\0" in root:
        raise OptionError(f"{root!r} has a null character, which no file's name has")


def _wrong_character(name: str, *, is_local: bool) -> str | None:
    """What is wrong with a character of a name, and the remedy; ``None`` if nothing is.

    Names of files have the encoding of this process, which a locale such as C limits to ASCII.
    """
    encoding = sys.getfilesystemencoding() if is_local else "utf-8"
    try:
        # Some halves stand for bytes of names that are no text.
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
"""Schemes of URIs, in addition to those of fsspec."""

RENAMED: Final = {"azure": "az", "s3a": "s3"}

_LITERAL: Final = ("local", "fsspec+file", "fsspec+local")
"""What fsspec calls files of this machine, which it takes as they are written."""
LOCAL_SCHEMES: Final = ("file", "file-object-store", *_LITERAL)
"""Schemes of directories and files of this machine: one store has them all, and one policy."""

_SCHEME: Final = r"[A-Za-z][A-Za-z0-9+.:-]+"
"""Colons occur in chained URIs of fsspec: ``simplecache::s3://…``."""
_ONE_SLASH: Final = r"(?s)([A-Za-z][A-Za-z0-9+.-]+):(/(?!/).*)"
"""A scheme of at least two letters, as ``C:/`` is a drive, and one slash."""

FABRIC: Final = "@fabric"
"""End of the origin of what lies in Microsoft Fabric; no host ends so."""

_FILE: Final = "file"
_FSSPEC: Final = "fsspec+"
_AZURE: Final = ("az", "abfs", "abfss")
_AZURE_HOSTS: Final = {
    ".dfs.core.windows.net": "",
    ".blob.core.windows.net": "",
    ".dfs.fabric.microsoft.com": FABRIC,
    ".blob.fabric.microsoft.com": FABRIC,
}
"""Ends of host names, and what remains of them: an account of Fabric is not the storage account of
the same name, which may be anybody's."""
_PORTS: Final = {"http": ":80", "https": ":443"}
_AMBIGUOUS: Final = r"[\\?#%\s\x00-\x1f\x7f]"
"""Characters before the path that some parsers do not read as part of a name."""
_UPWARDS: Final = frozenset({".", ".."})
_SHARE: Final = r"(?i)//(?:[?.]/UNC/)?[^/]*(?:/[^/]*)?"
"""How a path of Windows begins that leads to another machine, or to a device."""


def with_slashes(text: str, prefix: str = "") -> str:
    """Write ``file:/x``, the form of Hadoop and Spark, as ``file:///x``.

    Raises
    ------
    OptionError
        Another scheme is followed by a single slash, such as ``dbfs:/x``: it would be taken for a
        relative path.
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
    """The path that a URI ``file:///…`` names, or another one of a scheme of this machine.

    In those of fsspec (``local://``, ``fsspec+file://``) no character stands for another one, as in
    fsspec: ``%``, ``?`` and ``#`` are parts of names.

    Raises
    ------
    OptionError
        It names another machine, or what is no name of one; or a relative path, which in those of
        fsspec has the form of a machine, or none at all.
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
    except ValueError as error:  # half of an IPv6 address, or letters that stand for a slash
        raise OptionError(f"{prefix}{text!r:.200} is no file URI: {error}") from None
    if parts.netloc not in ("", "localhost"):
        raise OptionError(
            f"{prefix}{text!r}: a file URI cannot name another machine; write "
            f"file:///{parts.netloc.rpartition('@')[2]}/…"
        )
    return unquote(parts.path)


def split_secret(uri: str) -> tuple[str, str]:
    """A URI without the password before its host, and that password; empty if there is none."""
    scheme, mark, rest = uri.partition("://")
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    name, _, secret = user.partition(":")
    return (f"{scheme}{mark}{name}{at}{host}{slash}{path}" if secret else uri), secret


def with_secret(uri: str, secret: str) -> str:
    """A URI with a password before its host, where there is one; the user may have no name."""
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
        ``file`` for directories, ``fsspec+`` and its scheme for what fsspec opens.
    origin
        A bucket, a host with its port, or an account; of directories that of a share on Windows.
    path
        Absolute for directories; without a leading slash for all others.
    authority
        The part between ``://`` and the path, without user and password.
    user
        Whether there is a user or password before the host.
    """

    scheme: str
    origin: str
    path: str
    authority: str = field(default="", compare=False)
    user: bool = field(default=False, compare=False)

    @classmethod
    def parse(cls, text: str, prefix: str = "") -> Self:
        """Parse a path or URI without any access; ``~`` is an ordinary character.

        Parameters
        ----------
        text
            A path or URI.
        prefix
            Start of error messages, such as ``"base path 3 of …: "``.

        Raises
        ------
        OptionError
            It names no location, or parsers would disagree about which; or it is relative, and
            the working directory was removed.
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
        if not by_fsspec:  # in addresses of objects a bucket is a part of the path
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
        # Opening one sends a hash of the user's password there. On other systems there are none.
        share = re.match(_SHARE, full) if os.sep == "\\" else None
        return cls(_FILE, "" if share is None else share[0].lower(), full)

    @classmethod
    def _azure(cls, authority: str, path: str) -> Self:
        """``container`` or ``container@account.host``; the account decides about credentials."""
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
        # A chained URI may lead anywhere: such a location equals no other.
        origin = f"{public}::" if chained else public
        return cls(f"{_FSSPEC}{scheme}", origin, path, public, bool(secret))

    # ------------------------------------------------------------------ questions

    @property
    def is_local(self) -> bool:
        """Whether it is a directory or file of this machine."""
        return self.scheme == _FILE

    @property
    def is_fsspec(self) -> bool:
        """Whether fsspec opens it."""
        return self.scheme.startswith(_FSSPEC)

    @property
    def is_chained(self) -> bool:
        """Whether it is a chained URI, which fsspec opens through another file system."""
        return self.is_fsspec and self.origin.endswith("::")

    @property
    def is_http(self) -> bool:
        """Whether it lies on a web server."""
        return self.scheme in _PORTS

    @property
    def climbs(self) -> bool:
        """Whether the path contains ``.`` or ``..``, which only some stores resolve.

        To some web servers what follows ``;`` is no part of a name.
        """
        if self.is_local:
            return False
        from urllib.parse import unquote

        parts = unquote(self.path).replace("\\", "/").split("/")
        return any(part.partition(";")[0] in _UPWARDS for part in parts)

    @property
    def is_whole_disk(self) -> bool:
        """Whether it is the root of a local disk."""
        return self.is_local and os.path.dirname(self.path) == self.path

    @property
    def store_key(self) -> str:
        """Equal for locations of one directory tree, bucket, container or server."""
        container = ""
        if self.scheme == "az":
            container = self.authority.rpartition("@")[0] or self.authority
        return f"{self.scheme}\0{self.origin}\0{container}"

    def contains(self, other: Location) -> bool:
        """Whether ``other`` is this location or lies below it."""
        if self.store_key != other.store_key:
            return False
        if other.climbs or other.is_chained:
            return False
        root = self.path.rstrip("/")
        return not root or other.path == root or other.path.startswith(f"{root}/")

    def below(self, other: Location) -> str:
        """Relative path of ``other``, which lies below this location."""
        return other.path[len(self.path.rstrip("/")) :].lstrip("/")

    @property
    def uri(self) -> str:
        """A path or URI that leads here, without user and password."""
        if self.is_local:
            return self.path
        scheme = self.scheme
        if scheme == "az" and "@" in self.authority:
            scheme = "abfss"
        named = f"{self.authority}/{self.path}".rstrip("/")
        return f"{scheme}://{named or '/'}"
