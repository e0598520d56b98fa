"""Which addresses the hub may be sent to by a URL that somebody else wrote: cards, remote agents, push notifications.

Public unicast addresses over https, and what `HUB_A2A_ALLOW` names (hosts, addresses, networks, or `*`), also over http.
A name is judged by every address it resolves to, at the moment of use: `hub.a2a.http` connects to the very addresses that
were judged here, so a name that changes its mind between check and use gains nothing.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], list[str]]

MAX_URL = 2048
_PORTS = {"https": 443, "http": 80}
_UNICAST = ipaddress.IPv6Network("2000::/3")  # all that has ever been given out
_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.IPv6Network("::/96")


class AddressRefused(Exception):
    """The hub does not go there; `str()` is fit to be shown to whoever gave the URL."""


def check_url(url: str, *, resolve: Resolver | None = None) -> str:
    """Check a URL when it is registered, by what its host resolves to now; returns it. Raises `AddressRefused`."""
    parsed = split_url(url)
    if _Allowed(settings.HUB_A2A_ALLOW).names(parsed.hostname or ""):
        return url  # wherever it is, the hub may go there; it need not be up yet
    checked_addresses(parsed.hostname or "", port_of(parsed), scheme=parsed.scheme, resolve=resolve)
    return url


def split_url(url: str) -> SplitResult:
    """The parts of a URL that could be gone to, without looking at its address; raises `AddressRefused`."""
    if len(url) > MAX_URL or not url.isprintable() or any(character.isspace() for character in url):
        raise AddressRefused(f"A URL is one word of at most {MAX_URL} printable characters.")
    try:
        parsed = urlsplit(url)
        port = parsed.port
    except ValueError:
        raise AddressRefused("This is not a URL.") from None
    if parsed.scheme not in _PORTS:
        raise AddressRefused("Only https URLs are gone to.")
    if not parsed.hostname or port == 0 or "\\" in parsed.netloc or "%" in parsed.netloc:
        raise AddressRefused("The URL needs a host.")
    if parsed.username is not None or parsed.password is not None:
        raise AddressRefused("A URL must not carry a user name or password.")
    if parsed.fragment:
        raise AddressRefused("A URL with a fragment names no address.")
    return parsed


def port_of(parsed: SplitResult) -> int:
    return parsed.port or _PORTS[parsed.scheme]


def checked_addresses(host: str, port: int, *, scheme: str = "https", resolve: Resolver | None = None) -> list[str]:
    """The addresses of `host`, all of them fit to be gone to; raises `AddressRefused` when one is not."""
    allowed = _Allowed(settings.HUB_A2A_ALLOW)
    try:
        found = (resolve or resolve_host)(host, port)
    except (OSError, UnicodeError):
        raise AddressRefused(f"The host {host[:200]} can't be found.") from None
    if not found:
        raise AddressRefused(f"The host {host[:200]} has no address.")
    by_name = allowed.names(host)
    exempt = [by_name or allowed.holds(address) for address in found]
    for address, is_exempt in zip(found, exempt, strict=True):
        if not is_exempt and not is_public(address):
            raise AddressRefused(f"The host {host[:200]} is not at a public address.")
    if scheme != "https" and not all(exempt):
        raise AddressRefused("Only https URLs are gone to.")
    return found


def resolve_host(host: str, port: int) -> list[str]:
    """The addresses of a host in the system's order of preference; raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))


def is_public(text: str) -> bool:
    """Whether an address is one of the public internet's, whatever IPv4 address an IPv6 one may carry inside."""
    try:
        address: Address = ipaddress.ip_address(text)
    except ValueError:
        return False
    inner = _carried(address)
    if inner is not None:
        return is_public(str(inner))
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST:
        return False
    return address.is_global and not (
        address.is_multicast
        or address.is_reserved
        or address.is_loopback
        or address.is_link_local
        or address.is_unspecified
    )


def _carried(address: Address) -> ipaddress.IPv4Address | None:
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if any(address in network for network in _NAT64) or (address in _COMPATIBLE and int(address) > 1):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None


class _Allowed:
    """`HUB_A2A_ALLOW`: host names, addresses and networks that are gone to although they are not public."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._names: set[str] = set()
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for entry in entries:
            try:
                self._networks.append(ipaddress.ip_network(entry.strip("[]"), strict=False))
            except ValueError:
                self._names.add(entry.lower().rstrip("."))

    def names(self, host: str) -> bool:
        return "*" in self._names or host.lower().rstrip(".") in self._names

    def holds(self, text: str) -> bool:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        return any(address in network for network in self._networks)
