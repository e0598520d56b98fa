"""The hub's REST calls over one connection pool: errors of the tree, retries that cannot double anything."""

from __future__ import annotations

import asyncio
import functools
import secrets
import ssl
import time
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from hub.client.address import Address, bearer
from hub.client.core.backoff import Backoff
from hub.client.core.verdicts import sane_seconds
from hub.client.errors import ClientError, HubError, ProtocolFault, Unreachable, error_from
from hub.client.wire import encode

USER_AGENT = "session-hub-client/1"


@functools.cache
def ssl_context() -> ssl.SSLContext:
    """One for all clients of the process: building it reads every root certificate."""
    return httpx.create_ssl_context()


class Rest:
    """Calls to one hub with one key.

    Every call may be repeated safely (a POST carries an `Idempotency-Key`), so network errors, 408, 429 and 5xx are tried
    again for `retry_for` seconds; what remains is raised: a `HubError`, or `Unreachable`.
    """

    def __init__(
        self,
        address: Address,
        api_key: str | None,
        *,
        timeout: float = 30.0,
        connect_timeout: float = 10.0,
        retry_for: float = 60.0,
    ) -> None:
        self.address = address
        self.retry_for = retry_for
        self._headers = {"User-Agent": USER_AGENT}
        if api_key:
            self._headers["Authorization"] = bearer(api_key)
        self._timeout = httpx.Timeout(timeout, connect=connect_timeout)
        self._http: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def http(self) -> httpx.AsyncClient:
        """The pool of the running loop; one that belonged to a loop which has ended is left behind."""
        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop:
            self._loop = loop
            self._http = httpx.AsyncClient(
                headers=self._headers,
                timeout=self._timeout,
                verify=ssl_context(),
                trust_env=not self.address.loopback,
                limits=httpx.Limits(max_connections=50, max_keepalive_connections=10),
            )
        return self._http

    async def aclose(self) -> None:
        http, self._http = self._http, None
        if http is not None and self._loop is asyncio.get_running_loop():
            await http.aclose()

    async def get(self, path: str, *, wait: float = 0.0, retry_for: float | None = None, **params: Any) -> Any:
        return await self.call("GET", path, params=params, wait=wait, retry_for=retry_for)

    async def post(
        self, path: str, body: Any = None, *, key: str | None = None, wait: float = 0.0, retry_for: float | None = None
    ) -> Any:
        """POST; `key` makes separate calls one (the default makes only the retries of this call one)."""
        headers = {"Idempotency-Key": key or f"sdk-{secrets.token_hex(16)}"}
        return await self.call(
            "POST", path, body={} if body is None else body, headers=headers, wait=wait, retry_for=retry_for
        )

    async def patch(self, path: str, body: Any) -> Any:
        return await self.call("PATCH", path, body=body)

    async def delete(self, path: str) -> Any:
        return await self.call("DELETE", path)

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        wait: float = 0.0,
        retry_for: float | None = None,
    ) -> Any:
        """One call with its retries; the decoded JSON, or None for 204. `wait` is added to the time-out (long polls)."""
        content = None if body is None else encode(body).encode()
        deadline = time.monotonic() + (self.retry_for if retry_for is None else retry_for)
        backoff = Backoff(base=0.5, cap=10.0, min_gap=0.2)
        while True:
            backoff.trying(time.monotonic())
            hint = None
            try:
                return await self._once(method, path, content, params, headers, wait)
            except HubError as error:
                if not _again(error):
                    raise
                failure: HubError | ClientError = error
                hint = sane_seconds(error.details.get("retry_after"))
            except Unreachable as error:
                failure = error
            at = backoff.failed(time.monotonic(), retry_after=hint)
            if at > deadline:
                raise failure
            await asyncio.sleep(max(0.0, at - time.monotonic()))

    async def _once(
        self,
        method: str,
        path: str,
        content: bytes | None,
        params: dict[str, Any] | None,
        headers: dict[str, str] | None,
        wait: float,
    ) -> Any:
        given = {name: value for name, value in (params or {}).items() if value is not None}
        sent = dict(headers or {})
        if content is not None:
            sent["Content-Type"] = "application/json"
        timeout = self._timeout
        if wait:
            timeout = httpx.Timeout((timeout.read or 0.0) + wait, connect=timeout.connect)
        try:
            response = await self.http.request(
                method, self.address.rest(path), content=content, params=given, headers=sent, timeout=timeout
            )
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise ProtocolFault(str(error)) from error
        except httpx.HTTPError as error:
            raise Unreachable(f"{self.address.http}: {str(error) or type(error).__name__}") from error
        return answer_of(response.status_code, response.headers, response.content)

    async def pause(self, failures: int) -> None:
        """Between two connections of one stream."""
        backoff = Backoff(base=0.5, cap=10.0)
        backoff.failures = failures
        now = time.monotonic()
        await asyncio.sleep(0.1 + backoff.failed(now) - now)

    async def events(self, path: str, *, last_event_id: str | None = None, **params: Any) -> AsyncIterator[ServerEvent]:
        """One connection to an event stream; it ends when the stream does. A cut is `Unreachable`."""
        given = {name: value for name, value in params.items() if value is not None}
        headers = {"Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        # The hub sends a comment every 15 s: silence for three of them is a dead connection.
        timeout = httpx.Timeout(self._timeout.connect, read=45.0)
        try:
            async with self.http.stream(
                "GET", self.address.rest(path), params=given, headers=headers, timeout=timeout
            ) as response:
                if response.status_code != 200:
                    answer_of(response.status_code, response.headers, await response.aread())
                    return
                parser = EventParser()
                async for data in response.aiter_bytes():
                    for event in parser.feed(data):
                        yield event
        except httpx.HTTPError as error:
            raise Unreachable(f"{self.address.http}: {str(error) or type(error).__name__}") from error


class ServerEvent(msgspec.Struct, frozen=True):
    """One server-sent event."""

    event: str
    data: str
    id: str | None = None


class EventParser:
    """Server-sent events from bytes cut anywhere; an unfinished event at the end is not an event."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._event = ""
        self._id: str | None = None
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[ServerEvent]:
        self._buffer += data
        events: list[ServerEvent] = []
        while True:
            end = self._buffer.find(b"\n")
            if end < 0:
                return events
            line = bytes(self._buffer[:end]).rstrip(b"\r").decode(errors="replace")
            del self._buffer[: end + 1]
            if not line:
                if self._data:
                    events.append(ServerEvent(self._event or "message", "\n".join(self._data), self._id))
                self._event, self._data, self._id = "", [], None
                continue
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                self._data.append(value)
            elif name == "event":
                self._event = value
            elif name == "id":
                self._id = value


def answer_of(status: int, headers: httpx.Headers, content: bytes) -> Any:
    """The JSON of a good answer; a bad one raised as the error it names, with `details.retry_after` and `http_status`."""
    if 200 <= status < 300:
        if status == 204 or not content:
            return None
        try:
            return msgspec.json.decode(content)
        except msgspec.DecodeError:
            raise ProtocolFault("the answer is not JSON: is this a hub's address?") from None
    if 300 <= status < 400:
        raise ProtocolFault(f"redirected to {headers.get('location')}: give the hub's own address")
    try:
        body = msgspec.json.decode(content)
    except msgspec.DecodeError:
        body = None
    body = body if isinstance(body, dict) else {}
    details = body.get("details") if isinstance(body.get("details"), dict) else {}
    error = error_from(
        str(body.get("code") or ""), str(body.get("message") or f"HTTP {status}"), details, status=status
    )
    error.details.setdefault("http_status", status)
    if (seconds := retry_after(headers.get("retry-after"))) is not None:
        error.details.setdefault("retry_after", seconds)
    raise error


def retry_after(value: str | None) -> float | None:
    """The seconds of a `Retry-After` header: a number, or a date."""
    if value is None:
        return None
    seconds = sane_seconds(value)
    if seconds is None:
        try:
            seconds = sane_seconds(parsedate_to_datetime(value).timestamp() - time.time())
        except (TypeError, ValueError):
            return None
    return seconds


def segment(text: str) -> str:
    """An id as one segment of a path; `.` and `..` cannot become a step."""
    quoted = quote(text, safe="")
    if not quoted.strip("."):
        raise error_from("not_found", status=404)
    return quoted


def _again(error: HubError) -> bool:
    status = error.details.get("http_status")
    return status in (408, 425, 429) or (isinstance(status, int) and status >= 500)
