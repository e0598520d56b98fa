"""Guarded HTTP: it connects to what was judged, keeps its bounds, and cuts event streams into whole events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from hub.a2a import addresses
from hub.a2a import http as guarded
from hub.a2a.addresses import AddressRefused
from hub.a2a.http import EventFramer, GuardedTransport, TooLarge, Unreadable


class Resolver:
    """Answers each look-up with the next list of addresses."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    made = Resolver(["93.184.216.34"])
    monkeypatch.setattr(addresses, "resolve_host", made)
    return made


async def test_it_connects_to_the_address_that_was_judged_and_names_the_host(resolver: Resolver) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, text="ok")

    async with httpx.AsyncClient(transport=GuardedTransport(httpx.MockTransport(answer))) as client:
        assert (await client.get("https://agents.example.org:8443/card?x=1")).text == "ok"
    assert str(seen[0].url) == "https://93.184.216.34:8443/card?x=1"
    assert seen[0].headers["host"] == "agents.example.org:8443"
    assert seen[0].extensions["sni_hostname"] == "agents.example.org"


async def test_a_name_that_moves_to_loopback_between_two_requests_is_refused_at_the_second(resolver: Resolver) -> None:
    resolver.answers = [["93.184.216.34"], ["127.0.0.1"]]
    async with httpx.AsyncClient(
        transport=GuardedTransport(httpx.MockTransport(lambda request: httpx.Response(200)))
    ) as client:
        assert (await client.get("https://agents.example.org/")).status_code == 200
        with pytest.raises(AddressRefused):
            await client.get("https://agents.example.org/")


async def test_each_hop_of_a_redirection_is_judged(resolver: Resolver) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(302, headers={"location": "https://metadata.example.org/latest"})

    resolver.answers = [["93.184.216.34"], ["169.254.169.254"]]
    async with httpx.AsyncClient(
        transport=GuardedTransport(httpx.MockTransport(answer)), follow_redirects=True
    ) as client:
        with pytest.raises(AddressRefused):
            await client.get("https://agents.example.org/")
    assert resolver.asked == ["agents.example.org", "metadata.example.org"]


async def test_the_next_address_of_a_host_is_tried_when_one_does_not_answer(resolver: Resolver) -> None:
    resolver.answers = [["2606:4700::1111", "93.184.216.34"]]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "2606:4700::1111":
            raise httpx.ConnectError("no route")
        return httpx.Response(200, text=request.url.host)

    async with httpx.AsyncClient(transport=GuardedTransport(httpx.MockTransport(answer))) as client:
        assert (await client.get("https://agents.example.org/")).text == "93.184.216.34"


async def test_a_large_body_ends_at_the_bound(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "BODY_BYTES", 100)
    async with httpx.AsyncClient(
        transport=GuardedTransport(httpx.MockTransport(lambda request: httpx.Response(200, stream=Pieces(b"x" * 101))))
    ) as client:
        with pytest.raises(TooLarge):
            await client.get("https://agents.example.org/")


async def test_a_compressed_body_is_refused(resolver: Resolver) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-encoding": "gzip"}, stream=Pieces(b"bomb"))

    async with httpx.AsyncClient(transport=GuardedTransport(httpx.MockTransport(answer))) as client:
        with pytest.raises(Unreadable):
            await client.get("https://agents.example.org/")


class Pieces(httpx.AsyncByteStream):
    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece


async def lines_of(*pieces: bytes) -> list[str]:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Pieces(*pieces))

    async with httpx.AsyncClient(transport=GuardedTransport(httpx.MockTransport(answer))) as client:
        async with client.stream("GET", "https://agents.example.org/") as response:
            return [line async for line in response.aiter_lines()]


async def test_a_line_separator_inside_of_an_event_does_not_break_its_json(resolver: Resolver) -> None:
    text = "a\u2028b\u2029c\u0085d"
    lines = await lines_of(f"data: {json.dumps({'text': text}, ensure_ascii=False)}\n\n".encode())
    assert len(lines) == 2
    assert json.loads(lines[0].removeprefix("data: ")) == {"text": text}


async def test_an_event_that_was_cut_off_is_dropped(resolver: Resolver) -> None:
    assert await lines_of(b"data: 1\n\ndata: 2\n") == ["data: 1", ""]


async def test_an_event_over_the_bound_is_an_error(resolver: Resolver) -> None:
    with pytest.raises(TooLarge):
        await lines_of(b"data: " + b"x" * guarded.EVENT_BYTES + b"\n\n")


def test_an_event_just_under_the_bound_is_whole() -> None:
    event = b"data: " + b"x" * (guarded.EVENT_BYTES - 6) + b"\n\n"
    framer = EventFramer()
    pieces = [event[start : start + 65536] for start in range(0, len(event), 65536)]
    assert b"".join(framer.feed(piece) for piece in pieces) == event


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_standard_is_known_wherever_the_bytes_are_cut(end: bytes) -> None:
    stream = end.join([b": ping", b"event: a", b"data: 1", b"data: \xe4\xb8\xad", b"", b"", b"data: 2", b"", b"x"])
    wanted = b"event: a\ndata: 1\ndata: \xe4\xb8\xad\n\ndata: 2\n\n"
    for size in range(1, len(stream)):
        framer = EventFramer()
        assert b"".join(framer.feed(stream[i : i + size]) for i in range(0, len(stream), size)) == wanted


def test_a_long_line_that_comes_in_small_pieces_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Search:
        searched = 0

        def finditer(self, data: bytes, start: int = 0) -> Any:
            self.searched += len(data) - start
            return line_end.finditer(data, start)

    line_end, search = guarded._LINE_END, Search()
    monkeypatch.setattr(guarded, "_LINE_END", search)
    event = b"data: " + b"x" * 100_000 + b"\n\n"
    framer = EventFramer()
    assert b"".join(framer.feed(event[i : i + 10]) for i in range(0, len(event), 10)) == event
    assert search.searched < 2 * len(event)


def test_comments_cost_nothing_however_many_there_are() -> None:
    framer = EventFramer(most_bytes=100)
    for _ in range(1000):
        assert framer.feed(b": ping\n\n") == b""


def test_a_byte_order_mark_is_not_part_of_the_first_event() -> None:
    assert EventFramer().feed(b"\xef\xbb\xbfdata: 1\n\n") == b"data: 1\n\n"


async def test_the_http_below_really_connects_to_that_address(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a real socket: the name is known to nobody but our resolver."""
    import http.server
    import threading

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.headers["host"].encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        settings.HUB_A2A_ALLOW = ["127.0.0.1"]
        monkeypatch.setattr(addresses, "resolve_host", lambda host, port: ["127.0.0.1"])
        async with httpx.AsyncClient(transport=GuardedTransport()) as client:
            url = f"http://agents.invalid:{server.server_port}/"
            assert (await client.get(url)).text == f"agents.invalid:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
