"""Addresses of servers that are on this machine, or beside it: not those of a store elsewhere."""

from __future__ import annotations

import re
import socket
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

__all__ = ["is_near"]

_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
"""Hosts that all parsers of URLs read in the same way."""

_READ_DIFFERENTLY: Final = r"(?i)[\\\x00-\x20]|^https?:(?!//)"
"""What some parsers leave out, or take for a slash."""

_ZERO: Final = r"(^|\.)0x(?=\.|$)"
"""A part of an address without digits: zero to parsers of URLs, not to the system."""

_WITH_KEYS: Final = (
    ip_network("fd00:ec2::/32"),  # Amazon
    ip_network("fd20:ce::254/128"),  # Google
    ip_network("168.63.129.16/32"),  # Azure
    ip_network("100.100.100.200/32"),  # Alibaba
    ip_network("192.0.0.192/32"),  # Oracle
)
"""Where clouds give a machine its keys beside ``169.254.169.254``."""


def is_near(address: str) -> bool:
    """Whether an address is of this machine, or of its link, as services with its keys are.

    ``address`` is a URL, or a host with or without a port. Names are not looked up; what is no
    plain host counts as near, since parsers may find any host in it.
    """
    if re.search(_READ_DIFFERENTLY, address):
        return True
    authority = re.split(r"[/?#]", address.partition("://")[2] or address, maxsplit=1)[0]
    host = re.sub(r":\d*$", "", authority.rpartition("@")[2]).lower()
    if not _HOST.fullmatch(host):
        return True
    host = re.sub(_ZERO, r"\g<1>0", host.removesuffix("."))
    try:
        found = ip_address(host[1:-1] if host.startswith("[") else socket.inet_aton(host))
    except (OSError, ValueError):  # a name
        return host == "localhost" or host.endswith(".localhost")
    if isinstance(found, IPv6Address):
        found = found.ipv4_mapped or found
    with_keys = any(found in network for network in _WITH_KEYS)
    return found.is_loopback or found.is_link_local or found.is_unspecified or with_keys
