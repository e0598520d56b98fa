"""The calls that are made all the time: send, history, the wait for a response, and read.

They know neither Django's requests nor a server's: a `Call` brings what they need, and the same code runs as a Django view
(`views.py`) and in front of Django (`express.py`). Whether the session is yours comes before everything else, but costs no
query where the write itself decides it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from sessions_app.changes import Committed
from sessions_app.context.viewing import shown_to
from sessions_app.cursors import CursorMove
from sessions_app.drafts import draft_message
from sessions_app.keys import Principal
from sessions_app.protocol.bodies import MessageBody, ReadBody, check_wait
from sessions_app.protocol.errors import Forbidden, HubError, Invalid, MethodNotAllowed, NotFound, Unavailable
from sessions_app.protocol.ids import message_key
from sessions_app.protocol.jsontext import dumps
from sessions_app.realtime.runtime import Answer as Waited
from sessions_app.realtime.runtime import Runtime, get_runtime
from sessions_app.rest import quotas
from sessions_app.rest.answers import Answer, json_answer, text_answer
from sessions_app.rest.errors import as_refusal, error_answer
from sessions_app.rest.pages import history_page
from sessions_app.rest.reading import Query, idempotency_key, key_as_client_message_id, read_body
from sessions_app.selectors import find_access, recipients
from sessions_app.sql import messages_by_key

T = TypeVar("T")
_message_body = msgspec.json.Decoder(MessageBody)
_read_body = msgspec.json.Decoder(ReadBody)


class ClientGone(Exception):
    """The client has closed its connection; nobody waits for an answer."""


class Request(Protocol):
    """A request as any server shows it; header names are lower case."""

    method: str
    path: str
    query: str

    @property
    def headers(self) -> Mapping[str, str]: ...

    async def body(self) -> bytes:
        """The body, or a little more than we take of one that is too long."""

    async def while_connected(self, waiting: Awaitable[T]) -> T:
        """Await something long; given up with `ClientGone` or a cancellation when the client has gone."""


class Call:
    """One request of one principal."""

    __slots__ = ("principal", "request", "runtime")

    def __init__(self, runtime: Runtime, principal: Principal, request: Request) -> None:
        self.runtime = runtime
        self.principal = principal
        self.request = request

    async def session_key(self, session_id: str) -> int:
        """The integer key of a session; raises `NotFound` for what can't be one. Says nothing about whose it is."""
        known = _session_keys.get(session_id)
        if known is None:
            known = (await self.runtime.read(find_access, session_id, self.principal)).session_pk
            if len(_session_keys) >= MAX_REMEMBERED:
                _session_keys.clear()
            _session_keys[session_id] = known
        return known

    async def require_agent(self, session_id: str) -> None:
        """An operator may see every session, and take part in none."""
        if self.principal.is_operator:
            await self.runtime.read(find_access, session_id, self.principal)
            raise Forbidden("An operator watches; to take part use an agent's key.")

    async def wait_response(self, session_pk: int, question_key: int, timeout: float) -> Waited:
        """Wait for the response; it is given as this principal may see it."""
        waited = await self.runtime.wait_response(session_pk, question_key, timeout, self.principal)
        if waited.response is not None and not self.principal.is_operator:
            waited.response = await self.runtime.read(shown_to, waited.response, self.principal.agent_pk)
        return waited

    async def explain(self, refusal: HubError, session_id: str) -> HubError:
        """The refusal to give: whatever is wrong with a request, a session that is not yours is `not_found`."""
        try:
            await self.runtime.read(find_access, session_id, self.principal)
        except NotFound as unknown:
            return unknown
        return refusal


Handler = Callable[..., Awaitable[Answer]]
MAX_REMEMBERED = 50_000
_session_keys: dict[str, int] = {}  # a session's id never gets another key, so this can't grow stale


async def answer(request: Request, handlers: Mapping[str, Handler], *ids: str) -> Answer:
    """Authenticate, find the handler and run it; every way out is an answer."""
    try:
        runtime = get_runtime()
        if runtime.stopping:
            raise Unavailable(stored=False)
        principal = await runtime.authenticate(request.headers.get("authorization"))
        quotas.requests().take(principal.agent_pk)
        handler = handlers.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            raise MethodNotAllowed(allowed=[*handlers, *(["HEAD"] if "GET" in handlers else [])])
        return await handler(Call(runtime, principal, request), *ids)
    except ClientGone:
        raise
    except Exception as error:
        writing = request.method not in ("GET", "HEAD", "OPTIONS")
        return error_answer(as_refusal(error, where=f"{request.method} {request.path}", writing=writing))


async def send(call: Call, session_id: str) -> Answer:
    """`POST …/messages`: 201, or 200 with `duplicate` for a resend; waits for the response when asked to."""
    call.runtime.rates_messages.take(call.principal.agent_pk)
    await call.require_agent(session_id)
    agent_pk, agent_id = call.principal.agent_pk, call.principal.agent_id
    session_pk = await call.session_key(session_id)
    try:
        body = read_body(await call.request.body(), call.request.headers, _message_body)
        if (key := idempotency_key(call.request.headers)) is not None and body.client_message_id is None:
            body.client_message_id = key_as_client_message_id(key)
        timeout = check_wait(body.timeout)
        draft = draft_message(body, session_pk, agent_pk, agent_id)
    except HubError as refusal:
        raise await call.explain(refusal, session_id) from None
    stored = await call.runtime.append(draft)
    waited = None
    if body.wait_for_response:
        waited = await call.request.while_connected(call.wait_response(session_pk, stored.message.key, timeout))
    others = await call.runtime.read(recipients, session_pk, agent_pk)
    return _sent(stored.message, others, duplicate=stored.duplicate, waited=waited)


def _sent(message: Committed, others: list[dict[str, Any]], *, duplicate: bool, waited: Waited | None) -> Answer:
    status = waited.status if waited is not None else "sent"
    text = (
        f'{{"message_id":"{message.public_id}","sequence":{message.sequence},"status":"{status}",'
        f'"trace_id":{dumps(message.trace_id)},"message":{message.body},"recipients":{dumps(others)}'
    )
    if duplicate:
        text += ',"duplicate":true'
    if waited is not None:
        text += f',"response":{_text_of(waited.response)}'
    return text_answer(text + "}", 200 if duplicate else 201)


def _text_of(message: Committed | None) -> str:
    return message.body if message is not None else "null"


async def history(call: Call, session_id: str) -> Answer:
    """`GET …/messages`: a page of the log."""
    return text_answer(await call.runtime.read(history_page, session_id, call.principal, call.request.query))


async def response(call: Call, session_id: str, message_id: str) -> Answer:
    """`GET …/messages/{message_id}/response`: take up the wait for a response, as often as wanted."""
    session_pk, key = await call.runtime.read(_question, session_id, message_id, call.principal)
    timeout = check_wait(Query(call.request.query).seconds("timeout"))
    waited = await call.request.while_connected(call.wait_response(session_pk, key, timeout))
    return text_answer(
        f'{{"status":"{waited.status}","response":{_text_of(waited.response)},"message_id":"{message_id}"}}'
    )


def _question(session_id: str, message_id: str, principal: Principal) -> tuple[int, int]:
    """The keys of a session and of a message in it that the principal may see; raises `NotFound`."""
    access = find_access(session_id, principal)
    key = message_key(message_id)
    message = messages_by_key([key]).get(key) if key is not None else None
    if message is None or message.session_pk != access.session_pk or message.sequence < access.first_sequence:
        raise NotFound()
    return access.session_pk, message.key


async def read(call: Call, session_id: str) -> Answer:
    """`POST …/read`: move your cursor forward."""
    await call.require_agent(session_id)
    agent_pk, agent_id = call.principal.agent_pk, call.principal.agent_id
    session_pk = await call.session_key(session_id)
    try:
        body = read_body(await call.request.body(), call.request.headers, _read_body)
        now = await call.runtime.move_cursor(CursorMove(session_pk, agent_pk, agent_id, body.up_to))
    except Invalid as refusal:
        if refusal.details.get("field") == "sequence":  # the socket's name for it
            refusal.details["field"] = "up_to"
        raise await call.explain(refusal, session_id) from None
    except HubError as refusal:
        raise await call.explain(refusal, session_id) from None
    return json_answer({"cursor": now.cursor, "unread": now.unread})


def forget_everything() -> None:
    """For tests that replace the database under a running process."""
    _session_keys.clear()


ROUTES: dict[str, dict[str, Handler]] = {
    # below sessions/{session_id}/
    "messages": {"GET": history, "POST": send},
    "messages/{message_id}/response": {"GET": response},
    "read": {"POST": read},
}
