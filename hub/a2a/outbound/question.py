"""The message to a remote agent: the question with the context that the agent's strategy gives it, as a recorded delivery.

What is sent is what the delivery holds: its parts and metadata as they stand, and `sent`, the body as it leaves, written
down before it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.db import connection

from hub.a2a.outbound import rows
from hub.a2a.outbound.models import RemoteTask
from sessions_app.context import deliveries
from sessions_app.context.deliveries import Ask, Reply
from sessions_app.context.strategies import PER_AGENT
from sessions_app.protocol.errors import Conflict
from sessions_app.protocol.jsontext import dumps, loads
from traces_app.asking import question_of
from traces_app.executors.contract import Request
from traces_app.models import Trace

if TYPE_CHECKING:
    from a2a.types import AgentCard, SendMessageRequest

CARRIED = ("userId",)  # what of a message's metadata travels with the question


class Question:
    """One turn's question: `message()` is what to send, then `taken`, `refused` or `forgotten` says what became of it."""

    def __init__(self, request: Request, trace: Trace, row: RemoteTask, card: AgentCard) -> None:
        self._request = request
        self._trace = trace
        self._row = row
        self._ask = _ask(request, trace, row, card)
        self._delivery = deliveries.prepare(self._ask)
        self._settled = False
        self.has_context = False

    def message(self) -> SendMessageRequest:
        """The request. A new task goes into the session's context with this agent; an answer goes to its task."""
        from a2a.types import Message, Part, Role, SendMessageRequest
        from google.protobuf.json_format import ParseDict

        row, delivery = self._row, self._delivery
        parts = [ParseDict(part, Part()) for part in loads(delivery.parts)]
        message = Message(message_id=row.message_id, role=Role.ROLE_USER, parts=parts)
        message.metadata.update(loads(delivery.metadata))
        if row.task_id:
            message.task_id, message.context_id = row.task_id, row.context_id
        else:
            message.context_id = rows.context_of(self._trace.session_id, self._trace.agent_id)
            if earlier := self._continued():
                message.reference_task_ids.append(earlier)
        self.has_context = bool(message.context_id) and not message.task_id
        return SendMessageRequest(message=message)

    async def record(self, body: bytes) -> None:
        """Keep the body that is about to leave; called on the event loop."""
        await asyncio.to_thread(self._record, body.decode("utf-8", "replace"))

    def taken(self) -> None:
        """The remote has answered: it got the question."""
        if not self._settled:
            self._settled = True
            deliveries.delivered(self._delivery, Reply())

    def refused(self, code: str) -> None:
        """The remote never got it, or did not take it."""
        if not self._settled:
            self._settled = True
            deliveries.failed(self._delivery, code)

    def forgotten(self) -> bool:
        """The remote does not know the context any more: everything goes once more, into a new one. False the second time."""
        if self._settled or not self.has_context:
            return False
        rows.forget_context(self._trace.session_id, self._trace.agent_id)
        try:
            self._delivery = deliveries.forgotten(self._delivery, self._ask)
        except Conflict:
            return False
        return True

    def _record(self, body: str) -> None:
        try:
            deliveries.record_sent(self._delivery, body)
        finally:
            connection.close()  # this thread's own

    def _continued(self) -> str:
        source = self._request.continue_from
        return rows.task_id_of(str(source.get("trace_id", ""))) if source else ""


def _ask(request: Request, trace: Trace, row: RemoteTask, card: AgentCard) -> Ask:
    metadata = {name: request.metadata[name] for name in CARRIED if name in request.metadata}
    if row.turn:
        # An answer belongs to a task that has all the rest.
        answer = request.inputs[-1].get("answer")
        return Ask(
            session_pk=trace.session_id,
            agent_pk=trace.agent_id,
            query=answer if isinstance(answer, str) else dumps(answer),
            asker_pk=trace.requested_by_id,
            search=False,
            strategy=PER_AGENT,
            key=row.message_id,
            metadata=metadata,
        )
    return replace(
        question_of(trace),
        key=row.message_id,
        metadata=metadata,
        parts=[_wire(part) for part in request.parts if "text" not in part],
        speaks=spoken_by(card),
    )


def spoken_by(card: AgentCard) -> dict[str, list[str]] | None:
    """Which versions of our part types a card names: an extension's params `{"partTypes": {"ConversationHistory": ["1.0"]}}`."""
    from google.protobuf.json_format import MessageToDict

    for extension in card.capabilities.extensions:
        types = MessageToDict(extension.params).get("partTypes")
        if isinstance(types, dict):
            return {
                str(name): [str(v) for v in versions] for name, versions in types.items() if isinstance(versions, list)
            }
    return None


def _wire(part: Mapping[str, Any]) -> dict[str, Any]:
    known = ("text", "data", "url", "raw", "mediaType", "filename", "metadata")
    return {name: value for name, value in part.items() if name in known}
