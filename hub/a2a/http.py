"""HTTP towards addresses that somebody else named: guarded, bounded, and event streams that any client can read.

The transport resolves a host, has every address judged, and connects to those very addresses; TLS still proves the name.
It adds what HTTP clients of A2A are missing:

- a compressed body is refused (we ask for none, and a small one can be a big one), other bodies end at `BODY_BYTES`;
- an event stream is cut into whole events of at most `EVENT_BYTES`, an unfinished one at its end is dropped, and the
  characters that some readers take for line ends inside of JSON (U+2028, U+0085, …) are escaped.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator
from functools import cache

import httpx

from hub.a2a.addresses import checked_addresses

EVENT_BYTES = 1 << 20
BODY_BYTES = 8 << 20
EVENT_STREAM = "text/event-stream"
EXTRA_QUERY = "hub.extra_query"
"""An extension of a request: query parameters that go over the wire and into no log."""


class TooLarge(Exception):
    """What was answered is larger than we take."""


class Unreadable(httpx.DecodingError):
    """A body in an encoding that we did not ask for."""


def limits(read: float, connect: float = 10.0) -> httpx.Timeout:
    """Seconds: `read` is the longest silence that is borne."""
    return httpx.Timeout(connect=connect, read=read, write=30.0, pool=connect)


class GuardedTransport(httpx.AsyncBaseTransport):
    """`inner` does the talking."""

    def __init__(self, inner: httpx.AsyncBaseTransport | None = None) -> None:
        self._inner = inner or httpx.AsyncHTTPTransport(verify=_tls())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        addresses = await asyncio.to_thread(_addresses, request)
        for number, address in enumerate(addresses):
            try:
                response = await self._inner.handle_async_request(_to(request, address))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if number + 1 == len(addresses):
                    raise
                continue
            try:
                _check_encoding(response)
            except Unreadable:
                await response.aclose()
                raise
            is_stream = EVENT_STREAM in response.headers.get("content-type", "")
            response.stream = _Events(response) if is_stream else _Bounded(response)
            return response
        raise AssertionError("no address")

    async def aclose(self) -> None:
        await self._inner.aclose()


@cache
def _tls() -> ssl.SSLContext:
    """Read once: the list of authorities takes a tenth of a second, at each connection."""
    return httpx.create_ssl_context()


def _addresses(request: httpx.Request) -> list[str]:
    url = request.url
    return checked_addresses(url.host, url.port or (443 if url.scheme == "https" else 80), scheme=url.scheme)


def _to(request: httpx.Request, address: str) -> httpx.Request:
    """The same request to one address of its host: the name stays in `Host`, and in the certificate that is asked for."""
    extensions = {**request.extensions, "sni_hostname": request.url.host}
    url = request.url.copy_with(host=address)
    if extra := extensions.pop(EXTRA_QUERY, None):
        url = url.copy_merge_params(extra)
    return httpx.Request(request.method, url, headers=request.headers, stream=request.stream, extensions=extensions)


def _check_encoding(response: httpx.Response) -> None:
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise Unreadable("The answer is compressed, which was not asked for.")


class _Bounded(httpx.AsyncByteStream):
    def __init__(self, response: httpx.Response) -> None:
        assert isinstance(response.stream, httpx.AsyncByteStream)
        self._stream = response.stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._stream:
            size += len(piece)
            if size > BODY_BYTES:
                raise TooLarge(f"The answer is larger than {BODY_BYTES} bytes.")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Events(httpx.AsyncByteStream):
    def __init__(self, response: httpx.Response) -> None:
        assert isinstance(response.stream, httpx.AsyncByteStream)
        self._stream = response.stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        framer = EventFramer()
        async for piece in self._stream:
            whole = framer.feed(piece)
            if whole:
                yield whole

    async def aclose(self) -> None:
        await self._stream.aclose()


# What `str.splitlines` breaks lines at, and the standard for event streams does not.
_FALSE_ENDS = re.compile("[\u000b\u000c\u001c\u001d\u001e\u0085\u2028\u2029]")
_LINE_END = re.compile(rb"\r\n|\n|\r")


class EventFramer:
    """Bytes of an event stream in, whole events out: `feed` returns those that are complete now. Comments are left out."""

    def __init__(self, most_bytes: int = EVENT_BYTES) -> None:
        self._most = most_bytes
        self._rest = b""
        self._lines: list[bytes] = []
        self._size = 0
        self._begun = False

    def feed(self, piece: bytes) -> bytes:
        """Raises `TooLarge` for an event of more than `most_bytes`."""
        if not self._begun:
            self._begun = True
            piece = piece.removeprefix(b"\xef\xbb\xbf")
        data = self._rest + piece
        out: list[bytes] = []
        start = 0
        # The rest holds no end but, as its last byte, half of one: a long line in small pieces is not searched again and again.
        for end in _LINE_END.finditer(data, max(0, len(self._rest) - 1)):
            if end.group() == b"\r" and end.end() == len(data):
                break  # perhaps the first half of \r\n
            self._line(data[start : end.start()], out)
            start = end.end()
        self._rest = data[start:]
        if self._size + len(self._rest) > self._most:
            raise TooLarge(f"An event is larger than {self._most} bytes.")
        return b"".join(out)

    def _line(self, line: bytes, out: list[bytes]) -> None:
        if not line:
            if self._lines:
                out.append(b"\n".join(self._lines) + b"\n\n")
            self._lines, self._size = [], 0
            return
        if line.startswith(b":"):
            return
        self._size += len(line)
        if self._size > self._most:
            raise TooLarge(f"An event is larger than {self._most} bytes.")
        self._lines.append(_without_false_ends(line))


def _without_false_ends(line: bytes) -> bytes:
    if line.isascii() and not any(byte in line for byte in (b"\x0b", b"\x0c", b"\x1c", b"\x1d", b"\x1e")):
        return line
    text = line.decode("utf-8", "replace")
    return _FALSE_ENDS.sub(lambda found: json.dumps(found.group())[1:-1], text).encode()
