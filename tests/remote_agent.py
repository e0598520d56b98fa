"""A remote A2A agent for tests, on the SDK's own server: `daphne tests.remote_agent:application` (see `RemoteProcess`).

The first word of a message says what happens; the first part of the path says over what:

    /v1 JSON-RPC 1.0    /rest HTTP+JSON 1.0    /v03 JSON-RPC 0.3    /rest03 HTTP+JSON 0.3
    /plain without streaming
    /bearer /header /query  want a credential      /cut /cut03 /silent  break the first stream of each task after two events
    /moved redirects its calls

`GET /seen` tells what came: message ids, headers, cancelled tasks.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from google.protobuf.json_format import MessageToDict, ParseDict
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BASE = os.environ.get("REMOTE_BASE", "http://127.0.0.1:1")
SECRET = "open-sesame-0123456789"
SEEN: dict[str, Any] = {"messages": [], "cancelled": [], "requests": [], "runs": 0}


class Actor(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        message = context.message
        assert message is not None
        SEEN["runs"] += 1
        SEEN["messages"].append(MessageToDict(message))
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        text = next((part.text for part in message.parts if part.text), "")
        word, _, rest = text.partition(" ")
        waiting = any(old.parts and old.parts[0].text.startswith("ask") for old in task.history[:1])
        if waiting and context.current_task is not None:
            await updater.add_artifact([Part(text=f"painted {text}")], name="answer")
            await updater.complete()
            return
        act = getattr(self, f"_{word}", None)
        await (act(updater, rest, context) if act is not None else self._echo(updater, text, context))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        SEEN["cancelled"].append(context.task_id)
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()

    async def _echo(self, updater: TaskUpdater, rest: str, context: RequestContext) -> None:
        await updater.add_artifact([Part(text=f"echo: {rest}")], name="answer")
        await updater.complete()

    async def _stream(self, updater: TaskUpdater, rest: str, context: RequestContext) -> None:
        """`stream N`: N words, each a piece of one artifact."""
        number = int(rest)
        await updater.start_work(updater.new_agent_message([Part(text="I am thinking.")]))
        for index in range(number):
            await updater.add_artifact(
                [Part(text=f"word{index} ")], artifact_id="a", append=index > 0, last_chunk=index == number - 1
            )
            await asyncio.sleep(0.02)
        await updater.complete()

    async def _ask(self, updater: TaskUpdater, rest: str, context: RequestContext) -> None:
        await updater.requires_input(updater.new_agent_message([Part(text="Which colour?")]))

    async def _auth(self, updater: TaskUpdater, rest: str, context: RequestContext) -> None:
        await updater.requires_auth(updater.new_agent_message([Part(text="Log in at the bank.")]))

    async def _fail(self, updater: TaskUpdater, rest: str, context: RequestContext) -> None:
        await updater.failed(updater.new_agent_message([Part(text="It broke.")]))

    async def _reject(self, updater: TaskUpdater, rest: str, context: RequestContext) -> None:
        await updater.reject(updater.new_agent_message([Part(text="Not with me.")]))

    async def _gone(self, updater: TaskUpdater, rest: str, context: RequestContext) -> None:
        await updater.cancel()

    async def _sleep(self, updater: TaskUpdater, rest: str, context: RequestContext) -> None:
        """`sleep SECONDS`, then an answer."""
        await updater.start_work()
        await asyncio.sleep(float(rest))
        await updater.add_artifact([Part(text="slept")])
        await updater.complete()

    async def _files(self, updater: TaskUpdater, rest: str, context: RequestContext) -> None:
        numbers = ParseDict({"data": {"n": 1, "half": 0.5}}, Part())
        file = Part(url="https://files.example.org/a.pdf", media_type="application/pdf", filename="a.pdf")
        await updater.add_artifact([Part(text="# Found", media_type="text/markdown"), numbers, file])
        await updater.complete(updater.new_agent_message([Part(text="Done.")]))

    async def _say(self, updater: TaskUpdater, rest: str, context: RequestContext) -> None:
        """Answers by the last status alone."""
        await updater.complete(updater.new_agent_message([Part(text=f"said: {rest}")]))


def card(name: str, *, binding: str = "JSONRPC", version: str = "1.0", streaming: bool = True) -> AgentCard:
    made = AgentCard(
        name=f"Remote {name}",
        description="An agent for tests.",
        version="1",
        supported_interfaces=[
            AgentInterface(url=f"{BASE}/{name}/rpc", protocol_binding=binding, protocol_version=version)
        ],
        capabilities=AgentCapabilities(streaming=streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="colours", name="Colours", description="Paints.", tags=["paint"])],
    )
    schemes = {
        "bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}},
        "header": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
        "query": {"apiKeySecurityScheme": {"location": "query", "name": "key"}},
    }
    if name in schemes:
        ParseDict(
            {"securitySchemes": {"it": schemes[name]}, "securityRequirements": [{"schemes": {"it": {"list": []}}}]},
            made,
        )
    return made


OLD_REST = ("rest03", "cut03")
CARDS = {
    "v1": card("v1"),
    "rest": card("rest", binding="HTTP+JSON"),
    "v03": card("v03", version="0.3"),
    **{name: card(name, binding="HTTP+JSON", version="0.3") for name in OLD_REST},
    "plain": card("plain", streaming=False),
    **{name: card(name) for name in ("bearer", "header", "query", "cut", "silent", "moved")},
}


def _old_card(name: str) -> dict[str, Any]:
    """A card as an agent of 0.3 writes it itself (specification 0.3.0, section 5.5), with no word of 1.0."""
    return {
        "protocolVersion": "0.3.0",
        "name": f"Remote {name}",
        "description": "An agent for tests.",
        "url": f"{BASE}/{name}/rpc",
        "preferredTransport": "HTTP+JSON",
        "version": "1",
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "colours", "name": "Colours", "description": "Paints.", "tags": ["paint"]}],
    }


def _mount(name: str, made: AgentCard) -> Mount:
    handler = DefaultRequestHandler(Actor(), InMemoryTaskStore(), made)
    routes: list[Any] = create_agent_card_routes(made, cache_control="max-age=120")
    if name in OLD_REST:
        old = _old_card(name)
        routes = [Route("/.well-known/agent-card.json", lambda request: JSONResponse(old))]
    if made.supported_interfaces[0].protocol_binding == "JSONRPC":
        routes += create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=True)
    else:
        routes += [Mount("/rpc", routes=create_rest_routes(handler, enable_v0_3_compat=name in OLD_REST))]
    return Mount(f"/{name}", routes=routes)


async def _seen(request: Any) -> JSONResponse:
    return JSONResponse(SEEN)


_inner = Starlette(
    routes=[Route("/seen", _seen), *[_mount(name, made) for name, made in CARDS.items()]],
)


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    name = scope["path"].strip("/").partition("/")[0]
    if "/rpc" not in scope["path"]:
        await _inner(scope, receive, send)
        return
    body = await _body(receive)
    headers = {key.decode(): value.decode() for key, value in scope["headers"]}
    query = scope["query_string"].decode()
    SEEN["requests"].append({"path": scope["path"], "headers": headers, "query": query, "body": body.decode()})
    given = {
        "bearer": headers.get("authorization") == f"Bearer {SECRET}",
        "header": headers.get("x-key") == SECRET,
        "query": f"key={SECRET}" in query,
    }
    if not given.get(name, True):
        await JSONResponse({"error": "no"}, 401)(scope, receive, send)
    elif name == "moved":
        await JSONResponse({}, 307, {"location": f"{BASE}/v1/rpc"})(scope, receive, send)
    else:
        await _answer(name, body, scope, receive, send)


async def _body(receive: Receive) -> bytes:
    body: bytes = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return body


class Cut(Exception):
    """The connection goes."""


async def _answer(name: str, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
    """As the SDK does; at `/cut` and `/silent` the first stream of a message loses everything after its second event."""
    breaks = name == "cut03" and scope["path"].endswith("/v1/message:stream")
    if name in ("cut", "silent"):
        breaks = json.loads(body)["method"] in ("SendStreamingMessage", "message/stream")
    sent = 0
    given = False

    async def again() -> MutableMapping[str, Any]:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    async def counting(message: MutableMapping[str, Any]) -> None:
        nonlocal sent
        if breaks and message["type"] == "http.response.body" and b"data:" in message.get("body", b""):
            sent += 1
            if sent > 2:
                if name == "silent":
                    await asyncio.sleep(3600)
                raise Cut()
        await send(message)

    try:
        await _inner(scope, again, counting)
    except BaseException as error:
        if "Cut" not in repr(error):
            raise
        raise Cut() from None
