"""`hub doctor`: what is wrong with my connection? One step after the other, each with what to do about it."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import httpx
import typer
from websockets.asyncio.client import connect

from hub.cli.app import AsJson, Run
from hub.cli.credentials import Identity, Misconfigured
from hub.cli.screen import Exit, one_line
from hub.client.address import bearer
from hub.client.calls import Calls
from hub.client.errors import ClientError, HubError, Unauthenticated
from hub.client.frames import ErrorFrame, Pong, Welcome, decode_frames
from hub.client.rest import ssl_context

SECONDS = 5.0


def register(app: typer.Typer) -> None:
    app.command()(doctor)


@dataclass
class Step:
    """One thing that was looked at. `ok` None is a remark: not good, and not what stops you."""

    name: str
    ok: bool | None
    found: str
    advice: str = ""
    exit: Exit = Exit.UNREACHABLE


def doctor(context: typer.Context, as_json: AsJson = False) -> None:
    """Look at name, port, certificate, health, key and socket, and say what is wrong and what to do."""
    run = Run(context, as_json)

    async def work() -> Exit:
        code = Exit.OK
        async for step in examine(run):
            if as_json:
                run.screen.data({"step": step.name, "ok": step.ok, "found": step.found, "advice": step.advice})
            else:
                mark = {True: "ok  ", None: "note", False: "FAIL"}[step.ok]
                run.screen.line(f"{mark}  {step.name}: {step.found}", style="red" if step.ok is False else None)
                if step.advice and step.ok is not True:
                    run.screen.line(f"      {step.advice}")
            if step.ok is False and code is Exit.OK:
                code = step.exit
        return code

    code = run.go(work)
    if code is not Exit.OK:
        raise SystemExit(int(code))


async def examine(run: Run) -> AsyncIterator[Step]:
    """The steps, as far as they make sense: what follows from a failure is not reported as another."""
    try:
        found = run.identity()
        calls = Calls(found.url, found.agent_id, found.api_key, retry_for=0.0, timeout=SECONDS)
    except (Misconfigured, ValueError) as error:
        yield Step("identity", False, str(error), "Example: hub login --url http://127.0.0.1:8000", Exit.USAGE)
        return
    yield Step("identity", True, f"{calls.address.http} with the key {found.api_key[:6]}… from {found.source}")
    try:
        reached = True
        async for step in _network(calls):
            reached = reached and step.ok is not False
            yield step
        if reached:
            async for step in _hub(calls, found):
                yield step
    finally:
        await calls.rest.aclose()


async def _network(calls: Calls) -> AsyncIterator[Step]:
    parts = urlsplit(calls.address.http)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        if os.environ.get(name) and not calls.address.loopback:
            yield Step("proxy", None, f"{name} is set", "Traffic goes through it; it must let WebSockets pass.")
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(SECONDS):
            addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError) as error:
        yield Step(
            "name", False, f"{host} is not known: {error}", "Check the address for a typing error, and your DNS."
        )
        return
    yield Step("name", True, f"{host} is {', '.join(sorted({str(entry[4][0]) for entry in addresses}))}")
    try:
        began = time.monotonic()
        async with asyncio.timeout(SECONDS):
            _, writer = await asyncio.open_connection(host, port)
        writer.close()
    except TimeoutError:
        yield Step("port", False, f"{host}:{port} does not answer", "A firewall may drop it, or the machine is off.")
        return
    except OSError as error:
        advice = "Is the hub running? `manage.py serve`, and look at its port."
        yield Step("port", False, f"{host}:{port}: {error.strerror or error}", advice)
        return
    yield Step("port", True, f"{host}:{port} answers in {(time.monotonic() - began) * 1000:.0f} ms")


def _reasons(response: httpx.Response) -> str:
    """Why a hub is not ready, in its own words; empty where the answer is not of that form."""
    try:
        reasons = response.json()["reasons"]
        return one_line("; ".join(f"{name}: {why['message']}" for name, why in reasons.items()), 400)
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""


async def _hub(calls: Calls, found: Identity) -> AsyncIterator[Step]:
    for path, name in (("/healthz", "alive"), ("/readyz", "ready")):
        try:
            response = await calls.rest.http.get(calls.address.rest(path), timeout=SECONDS)
        except httpx.HTTPError as error:
            certificate = "CERTIFICATE" in str(error).upper()
            advice = (
                "The certificate is not trusted: set SSL_CERT_FILE to your authority's, or mend the server's chain."
                if certificate
                else "Something listens there, but it does not speak HTTP as a hub does: check scheme and port."
            )
            yield Step(name, False, str(error) or type(error).__name__, advice)
            return
        if response.status_code != 200:
            answered = f"{path} answers {response.status_code}: {_reasons(response) or response.text[:200]}"
            if path == "/readyz":
                yield Step(name, False, answered, "The hub runs, but a part of it does not: ask its operator.")
            else:
                yield Step(name, False, answered, "That is not a hub, or a proxy answers in its place.")
            return
        yield Step(name, True, f"{path} says {response.text.strip()[:100]}")
        if path == "/healthz" and (date := response.headers.get("date")):
            drift = abs(parsedate_to_datetime(date).timestamp() - time.time())
            if drift > 60:
                yield Step(
                    "clock", None, f"differs from the hub's by {drift:.0f} s", "Nothing depends on it but your reading."
                )
    try:
        me = await calls.me()
    except Unauthenticated as error:
        yield Step(
            "key", False, str(error), "It was revoked, has expired or is mistyped: get another one.", Exit.DENIED
        )
        return
    except HubError as error:
        if error.code not in ("forbidden", "not_found"):
            yield Step("key", False, f"{error.code}: {error}", "Ask the hub's operator.", Exit.DENIED)
            return
        yield Step("key", None, "an operator's key", "It may watch, but not take part.")
        return
    except ClientError as error:
        yield Step("key", False, str(error), "A proxy may answer in the hub's place.")
        return
    yield Step("key", True, f"you are {me.agent_id}")
    if found.agent_id and found.agent_id != me.agent_id:
        advice = f"Say --as {me.agent_id}, set HUB_AGENT, or log in again."
        yield Step("agent", False, f"the key is {me.agent_id}'s, not {found.agent_id}'s", advice, Exit.DENIED)
        return
    yield await _socket(calls, found)


async def _socket(calls: Calls, found: Identity) -> Step:
    advice = "HTTP works and the socket does not: a proxy in between must pass `Upgrade: websocket` on."
    url = calls.address.socket(ack="manual")
    try:
        async with asyncio.timeout(2 * SECONDS):
            async with connect(
                url,
                additional_headers={"Authorization": bearer(found.api_key)},
                compression=None,
                proxy=None if calls.address.loopback else True,
                ssl=ssl_context() if url.startswith("wss:") else None,
            ) as connection:
                began, unread = 0.0, 0
                async for data in connection:
                    for frame in decode_frames(data):
                        if isinstance(frame, ErrorFrame):
                            return Step("socket", False, f"{frame.code}: {frame.message}", advice, Exit.DENIED)
                        if isinstance(frame, Welcome):
                            unread = sum(entry.unread for entry in frame.sessions or [])
                            began = time.monotonic()
                            await connection.send('{"type":"ping","id":"doctor"}')
                        if isinstance(frame, Pong):
                            took = (time.monotonic() - began) * 1000
                            return Step("socket", True, f"welcome, pong after {took:.1f} ms, {unread} unread")
                return Step("socket", False, f"closed with {connection.close_code} before an answer", advice)
    except (OSError, TimeoutError, Exception) as error:
        return Step("socket", False, f"{type(error).__name__}: {error}", advice)
