"""Where a hub lives: one base address, from which REST and sockets are derived."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit

_SCHEMES = {"http": ("http", "ws"), "https": ("https", "wss"), "ws": ("http", "ws"), "wss": ("https", "wss")}
API = "/api/a2a"


@dataclass(frozen=True)
class Address:
    """A hub's address. `http` has no slash at its end; a path prefix (a hub behind a proxy) is kept."""

    http: str
    ws: str
    loopback: bool

    @classmethod
    def parse(cls, base_url: str) -> Address:
        """From `https://hub.example.org`, `http://127.0.0.1:8000`, or with a prefix; anything else is a `ValueError`."""
        parts = urlsplit(base_url.strip())
        if parts.scheme not in _SCHEMES or not parts.hostname:
            raise ValueError(f"a hub's address looks like https://hub.example.org, not {base_url!r}")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("a hub's address holds no credentials, query or fragment")
        _ = parts.port  # raises ValueError when it is none
        http, ws = _SCHEMES[parts.scheme]
        rest = parts.netloc + parts.path.rstrip("/")
        return cls(f"{http}://{rest}", f"{ws}://{rest}", _is_loopback(parts.hostname))

    def rest(self, path: str) -> str:
        """The full address of a REST call: `sessions/…` under the API, `/healthz` at the root."""
        return self.http + (path if path.startswith("/") else f"{API}/{path}")

    def socket(self, session_id: str | None = None, **query: str | int | None) -> str:
        """The agent socket, or that of one session."""
        path = f"/sessions/{quote(session_id, safe='')}/stream" if session_id else "/stream"
        given = {name: value for name, value in query.items() if value is not None}
        return f"{self.ws}{API}{path}" + (f"?{urlencode(given)}" if given else "")


def bearer(api_key: str) -> str:
    """The `Authorization` of a key. What surrounds it (a line's end, of whatever system) is not part of it.

    A `ValueError` that does not repeat it, for what can't be a key: libraries would, on its way into a header.
    """
    key = api_key.strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError("the API key holds characters that no key has; copy it again, it looks like ak_…")
    return f"Bearer {key}"


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
