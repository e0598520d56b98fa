"""Offers of delegated traces to the `run=1` sockets of this process. The rows say what is to be offered; the first accept wins.

An offer uses up nothing. A socket gets each one once per attempt, and again after a while or when its agent has finished
something else (it may have been full).
"""

from __future__ import annotations

import logging
import time
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Raw

from sessions_app.context import turns
from sessions_app.protocol.errors import HubError
from sessions_app.protocol.frames import encode
from sessions_app.realtime.runtime import Runtime
from sessions_app.realtime.subscriber import Subscriber
from sessions_app.sql import marks
from traces_app import sql
from traces_app.leases import DELEGATE, lease_seconds
from traces_app.requests import delivery_of, history_of, told_history
from traces_app.selectors import trace_view
from traces_app.states import CREATED

log = logging.getLogger("hub.traces")

OFFERS_AT_ONCE = 100
REPEAT_SECONDS = 30.0
LOOK_SECONDS = 1.0


class Offers:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._takers: dict[int, set[Subscriber]] = {}
        self._offered: WeakKeyDictionary[Subscriber, dict[tuple[int, int], float]] = WeakKeyDictionary()
        self._due = False
        self._busy = False
        self._looked = 0.0

    def joined(self, subscriber: Subscriber) -> None:
        if subscriber.runs_traces:
            self._takers.setdefault(subscriber.principal.agent_pk, set()).add(subscriber)
            self._offered[subscriber] = {}
            self._soon()

    def moved(self, agent_pk: int, status: str) -> None:
        """A delegated trace of this agent has moved, here or elsewhere."""
        if agent_pk not in self._takers:
            return
        if status != CREATED:
            for subscriber in self._takers[agent_pk]:
                self._offered.get(subscriber, {}).clear()  # it may have room now
        self._soon()

    def _soon(self) -> None:
        self._due = True
        if not self._busy:
            self._busy = True
            self._runtime.loop.create_task(self._offer_all())

    async def look(self) -> None:
        if self._takers and not self._busy and time.monotonic() - self._looked >= LOOK_SECONDS:
            self._soon()

    async def _offer_all(self) -> None:
        try:
            while self._due:
                self._due = False
                self._looked = time.monotonic()
                await self._offer()
        except HubError as error:
            log.warning("offers have to wait: %s", error)
        except Exception:
            log.exception("offers could not be made")
        finally:
            self._busy = False

    async def _offer(self) -> None:
        here = self._runtime.registry.subscribers
        for agent_pk, takers in list(self._takers.items()):
            takers &= here
            if not takers:
                del self._takers[agent_pk]
        if not self._takers:
            return
        now = time.monotonic()
        for pk, agent_pk, attempt in await self._runtime.read(_open_to, list(self._takers)):
            wanting = [
                subscriber
                for subscriber in self._takers.get(agent_pk, ())
                if now - self._offered.get(subscriber, {}).get((pk, attempt), -REPEAT_SECONDS) >= REPEAT_SECONDS
            ]
            if not wanting:
                continue
            frame = await self._runtime.read(_offer_of, pk, attempt)
            if frame is None:
                continue
            for subscriber in wanting:
                self._offered.setdefault(subscriber, {})[(pk, attempt)] = now
                subscriber.say(frame)


def _open_to(agent_pks: list[int]) -> list[tuple[int, int, int]]:
    """`(trace, agent, the number of the attempt that an accept would begin)`."""
    where = f"t.executor = %s AND t.agent_id IN ({marks(agent_pks)})"
    rows = sql.claimable("t.id, t.agent_id, t.attempt + 1", where, [DELEGATE, *agent_pks], limit=OFFERS_AT_ONCE)
    return [(pk, agent, attempt) for pk, agent, attempt in rows]


def _offer_of(pk: int, attempt: int) -> str | None:
    """The `trace.run` frame, if it is still on offer."""
    found = sql.load_claimable(pk)
    if found is None or found.trace.attempt + 1 != attempt:
        return None
    asked = sql.load_asked(pk)
    # One that a main agent called has its question, with the very parts of the delivery.
    delivery = delivery_of(asked, found.trace.public_id)
    question: dict[str, Any] = {}
    if delivery is not None:
        question["question"] = {
            **turns.request_document(delivery),
            "delivery_id": delivery.public_id,
            "strategy": delivery.strategy,
            "parts": Raw(delivery.parts.encode()),
        }
    return encode(
        "trace.run",
        session_id=asked.session_id,
        trace=trace_view(pk, asked.view),
        attempt=attempt,
        lease_seconds=lease_seconds(DELEGATE),
        context=asked.view.context(found.shared),
        history=history_of(asked) if delivery is None else told_history(delivery),
        **question,
    )
