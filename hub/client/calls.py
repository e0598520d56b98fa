"""The hub's REST calls as methods: sessions, history, participants, context, branches, agents, traces."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Generator, Sequence
from typing import Any, TypeVar

import msgspec

from hub.client.address import Address
from hub.client.errors import Unreachable
from hub.client.frames import Message, Participant, Record, Session, read
from hub.client.rest import Rest, ServerEvent, segment

UNSET: Any = msgspec.UNSET
R = TypeVar("R")


class Agent(Record, kw_only=True):
    """An entry of the directory."""

    agent_id: str
    description: str | None = None
    skills: list[Any] | None = None
    online: bool | None = None
    last_seen: str | None = None
    kind: str | None = None
    executor: str | None = None
    accepts: str | list[str] | None = None


class Trace(Record, kw_only=True):
    """A trace as REST shows it; `goals` is the goal tree by `parent_id`."""

    trace_id: str
    session_id: str | None = None
    message_id: str | None = None
    agent_id: str | None = None
    requested_by: str | None = None
    executor: str | None = None
    task: str | None = None
    status: str = "created"
    attempt: int = 0
    losses: int = 0
    parent_trace_id: str | None = None
    continue_from: dict[str, Any] | None = None
    context: dict[str, Any] | None = None
    goals: list[dict[str, Any]] | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    pending_input: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    last_sequence: int = 0
    created_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None


class History:
    """The log of a session: `async for message in history`, or `await history` for a list.

    Pages are read as they are needed, by number, so that nothing is skipped or doubled while messages arrive.
    """

    def __init__(
        self, rest: Rest, session_id: str, *, after: int, before: int | None, limit: int | None, inherited: bool
    ) -> None:
        self._rest = rest
        self._path = f"sessions/{segment(session_id)}/messages"
        self._after = after
        self._before = before
        self._limit = limit
        self._inherited = 1 if inherited else None

    async def __aiter__(self) -> AsyncIterator[Message]:
        if self._before is not None:
            for message in await self._last():
                yield message
            return
        left, after = self._limit, self._after
        while left is None or left > 0:
            size = 500 if left is None else min(left, 500)
            page = await self._rest.get(self._path, after=after, limit=size, inherited=self._inherited)
            messages = [read(Message, value) for value in page["messages"]]
            for message in messages:
                yield message
            if not messages or not page.get("has_more"):
                return
            after = messages[-1].sequence
            left = None if left is None else left - len(messages)

    async def _last(self) -> list[Message]:
        """The `limit` messages below `before`, ascending."""
        found: list[Message] = []
        before, left = self._before, 50 if self._limit is None else self._limit
        while left > 0 and before is not None and before > 1:
            page = await self._rest.get(self._path, before=before, limit=min(left, 500), inherited=self._inherited)
            messages = [read(Message, value) for value in page["messages"]]
            if not messages:
                break
            found = messages + found
            before, left = messages[0].sequence, left - len(messages)
        return found

    def __await__(self) -> Generator[Any, None, list[Message]]:
        return self._all().__await__()

    async def _all(self) -> list[Message]:
        return [message async for message in self]


class Calls:
    """Everything that needs no socket. Errors are those of `hub.client.errors`."""

    def __init__(
        self, base_url: str, agent_id: str, api_key: str, *, timeout: float = 30.0, retry_for: float = 60.0
    ) -> None:
        self.address = Address.parse(base_url)
        self.agent_id = agent_id
        self.rest = Rest(self.address, api_key, timeout=timeout, retry_for=retry_for)

    # --- sessions ---

    async def session(self, session_id: str) -> Session:
        return read(Session, await self.rest.get(f"sessions/{segment(session_id)}"))

    async def sessions(
        self,
        *,
        status: str | None = None,
        participant: str | None = None,
        parent: str | None = None,
        limit: int | None = None,
    ) -> list[Session]:
        """Yours, latest activity first; all of them, or the first `limit`."""
        return await self._list(
            Session, "sessions", "sessions", limit, status=status, participant=participant, parent=parent
        )

    async def update_session(self, session_id: str, **changes: Any) -> Session:
        """Change `title`, `timeout_seconds`, `busy_policy` or (by merge patch) `context`."""
        return read(Session, await self.rest.patch(f"sessions/{segment(session_id)}", changes))

    def history(
        self,
        session_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        inherited: bool = False,
    ) -> History:
        """The log from `after` on, or the last `limit` below `before`. Reading moves no cursor."""
        return History(self.rest, session_id, after=after, before=before, limit=limit, inherited=inherited)

    async def end_session(self, session_id: str, reason: str | None = None) -> Session:
        """End a session now. Ending an ended one changes nothing."""
        body = {} if reason is None else {"reason": reason}
        return read(Session, await self.rest.post(f"sessions/{segment(session_id)}/close", body))

    async def mark_read(self, session_id: str, up_to: int) -> dict[str, Any]:
        """Move your cursor forward by hand: `{cursor, unread}`. Handlers do it for you."""
        answer: dict[str, Any] = await self.rest.post(f"sessions/{segment(session_id)}/read", {"up_to": up_to})
        return answer

    # --- participants, context, branches ---

    async def participants(self, session_id: str) -> list[Participant]:
        return (await self.session(session_id)).participants

    async def add_participant(
        self, session_id: str, agent_id: str, *, role: str | None = None, history: str = "from_now"
    ) -> dict[str, Any]:
        """Add an agent; `history="all"` lets it read what was said before (initiator or operator)."""
        body: dict[str, Any] = {"agent_id": agent_id, "history": history}
        if role is not None:
            body["role"] = role
        answer: dict[str, Any] = await self.rest.post(f"sessions/{segment(session_id)}/participants", body)
        return answer

    async def remove_participant(self, session_id: str, agent_id: str) -> None:
        await self.rest.delete(f"sessions/{segment(session_id)}/participants/{segment(agent_id)}")

    async def leave(self, session_id: str) -> None:
        await self.remove_participant(session_id, self.agent_id)

    async def context(self, session_id: str) -> dict[str, Any]:
        """The session's shared context."""
        return (await self.session(session_id)).context

    async def update_context(self, session_id: str, patch: dict[str, Any]) -> dict[str, Any]:
        """Merge into the shared context (RFC 7396: null deletes); the new context."""
        return (await self.update_session(session_id, context=patch)).context

    async def conversation(self, session_id: str, *, through: int | None = None) -> dict[str, Any]:
        """Your filtered view of the conversation, as a context to hand to a model."""
        answer: dict[str, Any] = await self.rest.get(f"contexts/{segment(session_id)}", through=through)
        return answer

    async def branch(
        self,
        session_id: str,
        *,
        from_sequence: int | None = None,
        participants: Sequence[str] | None = None,
        title: str | None = None,
        initial_message: str | dict[str, Any] | None = None,
    ) -> Session:
        """A side talk: a session with this one as its parent. You are its initiator."""
        body = {
            "from_sequence": from_sequence,
            "participants": list(participants) if participants is not None else None,
            "title": title,
            "initial_message": initial_message,
        }
        given = {name: value for name, value in body.items() if value is not None}
        return read(Session, await self.rest.post(f"sessions/{segment(session_id)}/branches", given))

    async def branches(self, session_id: str) -> list[Session]:
        return await self.sessions(parent=session_id)

    async def merge(self, session_id: str, summary: str | None = None) -> dict[str, Any]:
        """Post a branch's outcome into its parent and complete the branch."""
        body = {} if summary is None else {"summary": summary}
        answer: dict[str, Any] = await self.rest.post(f"sessions/{segment(session_id)}/merge", body)
        return answer

    # --- agents ---

    async def agents(self, *, limit: int | None = None) -> list[Agent]:
        return await self._list(Agent, "agents", "agents", limit)

    async def agent(self, agent_id: str) -> Agent:
        return read(Agent, await self.rest.get(f"agents/{segment(agent_id)}"))

    async def me(self) -> Agent:
        return read(Agent, await self.rest.get("agents/me"))

    async def update_me(self, **card: Any) -> Agent:
        """Change your card: `description`, `skills`, `accepts`, …"""
        return read(Agent, await self.rest.patch("agents/me", card))

    # --- traces ---

    async def traces(self, session_id: str, *, limit: int | None = None) -> list[Trace]:
        return await self._list(Trace, f"sessions/{segment(session_id)}/traces", "traces", limit)

    async def trace(self, trace_id: str) -> Trace:
        return read(Trace, await self.rest.get(f"traces/{segment(trace_id)}"))

    async def cancel_trace(self, trace_id: str) -> Trace:
        return read(Trace, await self.rest.post(f"traces/{segment(trace_id)}/cancel"))

    async def continue_trace(self, trace_id: str, content: str, *, after_sequence: int | None = None) -> Trace:
        body = {"content": content} | ({} if after_sequence is None else {"after_sequence": after_sequence})
        return read(Trace, await self.rest.post(f"traces/{segment(trace_id)}/continue", body))

    async def answer_trace(self, trace_id: str, answer: Any = UNSET, *, approve: bool | None = None) -> Trace:
        """Answer what a waiting trace asks: with a text or value, or by approving or refusing."""
        body = {"approve": approve} if approve is not None else {"answer": answer}
        return read(Trace, await self.rest.post(f"traces/{segment(trace_id)}/input", body))

    async def trace_events(self, trace_id: str) -> AsyncIterator[ServerEvent]:
        """The log of a trace and then what happens, until it has ended; resumed over cuts."""
        async for event in self._follow(f"traces/{segment(trace_id)}/stream", last=lambda event: event.event == "end"):
            yield event

    async def session_events(self, session_id: str, *, after: int | None = None) -> AsyncIterator[ServerEvent]:
        """Everything that happens in a session, own messages too, until it has ended; moves no cursor."""
        path = f"sessions/{segment(session_id)}/events"
        async for event in self._follow(path, last=_ends_session, after=after):
            yield event

    async def _follow(self, path: str, *, last: Any, after: int | None = None) -> AsyncIterator[ServerEvent]:
        position: str | None = None
        quiet = 0
        while True:
            try:
                async for event in self.rest.events(path, last_event_id=position, after=after):
                    position = event.id or position
                    quiet = 0
                    yield event
                    if last(event):
                        return
                quiet += 1
            except Unreachable:
                quiet += 1
                if quiet > 60:
                    raise
            await self.rest.pause(quiet)

    async def _list(self, kind: type[R], path: str, name: str, limit: int | None, **params: Any) -> list[R]:
        found: list[R] = []
        cursor: str | None = None
        while limit is None or len(found) < limit:
            size = min(100, limit - len(found)) if limit is not None else 100
            page = await self.rest.get(path, cursor=cursor, limit=size, **params)
            found += [read(kind, value) for value in page[name]]
            cursor = page.get("next_cursor")
            if not cursor:
                break
        return found if limit is None else found[:limit]


def _ends_session(event: ServerEvent) -> bool:
    if event.event != "session":
        return False
    try:
        return json.loads(event.data).get("status") in ("completed", "timeout")
    except (ValueError, AttributeError):
        return False
