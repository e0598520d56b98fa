"""The door of A2A in front of Django: who asks whom, in which version, and whether the request can be one at all.

Django's middleware does not run here. The card is everybody's; everything else needs a key of the scope `agent`. What is
dispatched has an agent, a principal, a known version, and a body that is small enough; the rest is refused here.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import msgspec
from a2a.extensions.common import get_requested_extensions
from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    InvalidRequestError,
    JSONParseError,
    VersionNotSupportedError,
)
from django.conf import settings
from starlette.datastructures import QueryParams
from starlette.responses import JSONResponse, Response

from hub.a2a import oldest
from hub.a2a.call import Call
from hub.a2a.cards import API_KEY_HEADER, PREFIX, REPLAY, card_json, find_card_agent
from hub.a2a.dispatch import make_application
from hub.a2a.errors import as_a2a_error, rpc_error
from hub.a2a.handler import HubHandler
from hub.a2a.rest import refused
from sessions_app.keys import Principal
from sessions_app.models import Agent
from sessions_app.protocol.errors import Forbidden, HubError, NotFound, Unavailable
from sessions_app.protocol.jsontext import loads
from sessions_app.realtime.runtime import Runtime, get_runtime
from sessions_app.rest import quotas
from sessions_app.rest.errors import HTTP_STATUS, as_refusal, bad_host, error_answer
from sessions_app.rest.express import AsgiRequest, Receive, Scope, Send, host_is_allowed
from sessions_app.rest.hot import ClientGone
from sessions_app.rest.metrics import CLIENT_GONE, count
from sessions_app.rest.reading import too_large

STARTED = datetime.now(UTC)  # a card also says what this process speaks, and where
CARDS = ("/.well-known/agent-card.json", "/.well-known/agent.json")  # the second one is that of A2A 0.2 and before
JSON_TYPES = ("application/json", "application/a2a+json")
_VERSION = re.compile(r"(1\.0|0\.3)(?:\.\d{1,6})?")
GRPC_NAMES = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}


class Door:
    """An ASGI application for everything below /a2a/agents/, and for the root agent's card."""

    def __init__(self) -> None:
        self._application = make_application()
        self._handler = HubHandler()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = time.perf_counter()
        request = AsgiRequest(scope, receive)
        answered = False

        async def counted(message: Any) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                count(request.method, message["status"], time.perf_counter() - begun)
            await send(message)

        try:
            await self._answer(scope, request, receive, counted)
        except ClientGone:
            # An ASGI server tells of the end of an answer in the same words as of a client that has gone.
            if not answered:
                count(request.method, CLIENT_GONE, time.perf_counter() - begun)

    async def _answer(self, scope: Scope, request: AsgiRequest, receive: Receive, send: Send) -> None:
        try:
            if not host_is_allowed(request.headers.get("host", "")):
                raise bad_host()
            name, rest = _where(scope["path"])
            runtime = get_runtime()
            if runtime.stopping:
                raise Unavailable(stored=False)
            if rest in CARDS:
                response: Response | None = await self._card(runtime, name, request, scope)
            else:
                call = await self._call(runtime, name, request, scope)
                response = await self._dispatch(call, rest, request, scope, receive, send)
        except HubError as refusal:
            response = _refused(refusal)
        except ClientGone:
            raise
        except A2AError as error:
            response = refused(error)
        except Exception as error:
            response = _refused(as_refusal(error, where=f"A2A {request.method} {request.path}"))
        if response is not None:
            await response(scope, receive, _private(send))

    # The card

    async def _card(self, runtime: Runtime, name: str, request: AsgiRequest, scope: Scope) -> Response:
        if request.method not in ("GET", "HEAD"):
            return JSONResponse(_shown(405, "Only GET."), 405, headers={"Allow": "GET, HEAD"})
        agent = await runtime.read(find_card_agent, name)
        if agent is None:
            raise NotFound()
        body, tag = card_json(agent, public_url(scope))
        headers = {"ETag": tag, "Cache-Control": f"public, max-age={settings.HUB_A2A_CARD_SECONDS}"}
        headers["Last-Modified"] = format_datetime(max(agent.changed_at or agent.created_at, STARTED), usegmt=True)
        headers["Access-Control-Allow-Origin"] = "*"  # it is public, and says where a key is needed
        if _matches(request.headers.get("if-none-match"), tag):
            return Response(status_code=304, headers=headers)
        if request.method == "HEAD":
            headers["Content-Length"], body = str(len(body)), b""
        return Response(body, headers=headers, media_type="application/json")

    # Calls

    async def _call(self, runtime: Runtime, name: str, request: AsgiRequest, scope: Scope) -> Call:
        principal = await _principal(runtime, request.headers)
        quotas.requests().take(principal.agent_pk)
        if principal.is_operator:
            raise Forbidden("An operator watches; to talk to an agent use an agent's key.")
        agent: Agent | None = await runtime.read(find_card_agent, name)
        if agent is None:
            raise NotFound()
        wanted = [request.headers.get(header, "") for header in ("a2a-extensions", "x-a2a-extensions")]
        last = request.headers.get("last-event-id", "")
        return Call(
            runtime,
            principal,
            agent,
            public_url(scope),
            extensions=frozenset(get_requested_extensions(wanted)) & {REPLAY},
            last_event_id=int(last) if re.fullmatch(r"\d{1,15}", last) else None,
        )

    async def _dispatch(
        self, call: Call, rest: str, request: AsgiRequest, scope: Scope, receive: Receive, send: Send
    ) -> Response | None:
        """Have it answered by the SDK's dispatchers (None), or by the response that is returned."""
        is_rpc = rest == "/"
        body = await request.body() if request.method in ("POST", "PUT", "PATCH") else b""
        content_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
        given: Any = None
        if is_rpc and request.method == "POST":
            try:
                given = read_rpc(body, request.headers)
            except A2AError as error:
                return JSONResponse(rpc_error(_id_of(body), error))
        elif too_large(body, request.headers):
            return JSONResponse(_shown(413, "The body is too large."), 413)
        elif body and content_type not in JSON_TYPES:
            return not_json()
        elif body:
            try:
                loads(body)  # the SDK's parser lets through what no door of ours stores: NUL, NaN, any depth
            except HubError as error:
                return refused(as_a2a_error(error, where="a request"))
        query = QueryParams(scope.get("query_string", b""))
        try:
            version = _version(request.headers.get("a2a-version") or query.get("A2A-Version") or "")
        except VersionNotSupportedError as error:
            return JSONResponse(rpc_error(_id_of(body), error)) if is_rpc else refused(error)
        call.params = given["params"] if given is not None and isinstance(given.get("params"), dict) else dict(query)
        call.protocol = version or "0.3"
        if given is not None and given.get("method") in oldest.METHODS:
            response = await request.while_connected(oldest.answer(self._handler, call, given))
            await response(scope, receive, _private(send))
            return None
        inner = self._scope(scope, call, rest, version)
        plain = content_type == "application/json"
        await self._run(inner, body, receive, _private(send, plain=plain, extensions=call.extensions))
        return None

    @staticmethod
    def _scope(scope: Scope, call: Call, rest: str, version: str) -> Scope:
        """What the dispatchers see: the path below the agent's address, one version header, and who asks."""
        root = f"{scope.get('root_path', '')}{PREFIX}{call.agent.agent_id}"
        headers = [(name, value) for name, value in scope["headers"] if name.lower() != b"a2a-version"]
        if version:
            headers.append((b"a2a-version", version.encode()))
        path = root + rest
        return {
            **scope,
            "root_path": root,
            "path": path,
            "raw_path": path.encode(),
            "headers": headers,
            "a2a.call": call,
        }

    async def _run(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Run the application as long as its client is there: what waits for a task goes with whoever waited."""
        gone = asyncio.Event()
        given = False

        async def replay() -> MutableMapping[str, Any]:
            nonlocal given
            if not given:
                given = True
                return {"type": "http.request", "body": body, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def listen() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()

        application = asyncio.ensure_future(self._application(scope, replay, send))
        listener = asyncio.ensure_future(listen())
        try:
            await asyncio.wait((application, listener), return_when=asyncio.FIRST_COMPLETED)
            if not application.done():
                raise ClientGone
            application.result()
        finally:
            for task in (application, listener):
                task.cancel()
            await asyncio.gather(application, listener, return_exceptions=True)


def _where(path: str) -> tuple[str, str]:
    """The agent that is meant, and the path below its address; `/` for the address itself."""
    if path in CARDS:
        return str(settings.HUB_A2A_ROOT_AGENT), path
    name, _, rest = path[len(PREFIX) :].partition("/")
    return name, "/" + rest.rstrip("/")


async def _principal(runtime: Runtime, headers: Mapping[str, str]) -> Principal:
    """Who this is: the one verifier of all doors, with the key where A2A's clients put it."""
    header = headers.get("authorization")
    if header is None and (key := headers.get(API_KEY_HEADER.lower())) is not None:
        header = f"Bearer {key}"
    return await runtime.authenticate(header)


def public_url(scope: Scope) -> str:
    """Where the hub is reached: the setting, else the address of the listening socket; never what a request says."""
    if settings.HUB_PUBLIC_URL:
        return str(settings.HUB_PUBLIC_URL)
    host, port = scope.get("server") or ("127.0.0.1", 8000)
    shown = f"[{host}]" if ":" in str(host) else host
    return f"http://{shown}:{port}"


def _version(given: str) -> str:
    """`1.0`, `0.3` or nothing (which the specification reads as 0.3); raises for every other version."""
    if not given:
        return ""
    if (match := _VERSION.fullmatch(given.strip())) is None:
        raise VersionNotSupportedError("This hub speaks A2A 1.0 and 0.3.")
    return match[1]


def read_rpc(body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    """A JSON-RPC 2.0 request, as far as an envelope can be checked; raises the error to answer."""
    content_type = headers.get("content-type", "application/json").split(";")[0].strip().lower()
    if content_type not in JSON_TYPES:
        raise ContentTypeNotSupportedError("The body is application/json.")
    if too_large(body, headers):
        raise InvalidRequestError("The request is too large.")
    try:
        given = loads(body)
    except HubError:
        raise JSONParseError() from None
    if not isinstance(given, dict):
        raise InvalidRequestError("Batch requests are not supported." if isinstance(given, list) else None)
    if given.get("jsonrpc") != "2.0" or not isinstance(given.get("method"), str) or not given["method"]:
        raise InvalidRequestError()
    if not _is_id(given.get("id")):
        raise InvalidRequestError("id is a string, an integer or null.")
    if "params" in given and not isinstance(given["params"], dict):
        raise InvalidRequestError("params is an object.")
    return given


def not_json() -> Response:
    """What a body is in is HTTP's affair, hence its status, 415, as on every door; 400 is for what the parts hold."""
    payload = build_rest_error_payload(
        ContentTypeNotSupportedError("The body is application/a2a+json or application/json.")
    )
    payload["error"]["code"] = 415
    return JSONResponse(payload, 415)


def _is_id(value: Any) -> bool:
    return value is None or (isinstance(value, str | int) and not isinstance(value, bool))


def _id_of(body: bytes) -> Any:
    """The id to answer with, where there is a fit one."""
    try:
        given = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    value = given.get("id") if isinstance(given, dict) else None
    return value if _is_id(value) else None


def _matches(header: str | None, tag: str) -> bool:
    """RFC 9110, section 13.1.2: weak comparison."""
    if header is None:
        return False
    tags = [part.strip().removeprefix("W/") for part in header.split(",")]
    return "*" in tags or tag in tags


def _shown(status: int, message: str) -> dict[str, Any]:
    name = GRPC_NAMES.get(status, "INVALID_ARGUMENT" if status < 500 else "UNAVAILABLE")
    return {"error": {"code": status, "status": name, "message": message}}


def _refused(refusal: HubError) -> Response:
    """What is refused before anything is dispatched looks the same for every binding: a status, and the reason as JSON."""
    headers = error_answer(refusal).headers
    status = HTTP_STATUS[refusal.code]
    return JSONResponse(_shown(status, refusal.message), status, headers=headers)


def _private(send: Send, *, plain: bool = False, extensions: frozenset[str] = frozenset()) -> Send:
    """Answers are for the caller alone; who writes application/json is answered in it."""

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            headers = [(name.lower(), value) for name, value in message["headers"]]
            names = {name for name, _ in headers}
            if plain:
                a2a = b"application/a2a+json"
                headers = [
                    (n, b"application/json") if n == b"content-type" and v.startswith(a2a) else (n, v)
                    for n, v in headers
                ]
            if b"cache-control" not in names:
                headers.append((b"cache-control", b"private, no-store"))
            headers += [
                (b"vary", b"Authorization, " + API_KEY_HEADER.encode()),
                (b"x-content-type-options", b"nosniff"),
            ]
            if extensions:
                headers.append((b"a2a-extensions", ", ".join(sorted(extensions)).encode()))
            message = {**message, "headers": headers}
        await send(message)

    return sending
