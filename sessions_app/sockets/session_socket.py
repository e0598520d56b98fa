"""The socket of one session: `/api/a2a/sessions/{session_id}/stream`."""

from __future__ import annotations

import asyncio
from typing import Any

from django.conf import settings

from sessions_app.protocol.errors import Invalid
from sessions_app.realtime.feed import Feed
from sessions_app.realtime.places import Place
from sessions_app.realtime.subscriber import NORMAL
from sessions_app.sockets.answering import Socket
from sessions_app.sockets.handshake import Handshake


class SessionSocket(Socket):
    """Welcome, the unread messages, `replay_complete`, then live frames; closes with 1000 after an ended session's frame."""

    feed: Feed

    def follow(self, session_id: str, place: Place, handshake: Handshake) -> None:
        """Register with the position that the handshake asks for; an impossible one is told and then ignored."""
        state = place.state
        start, own_too = max(place.cursor, place.first_sequence - 1), not place.member
        if handshake.after is not None and handshake.problem is None:
            if handshake.after > state.last_sequence:
                self.problem: Invalid | None = Invalid(
                    "That sequence does not exist yet.", field="after", last_sequence=state.last_sequence
                )
            else:
                start, own_too, self.problem = max(handshake.after, place.first_sequence - 1), True, None
        else:
            self.problem = handshake.problem
            if self.problem is not None:
                self.problem.details["last_sequence"] = state.last_sequence
        self.feed = Feed(
            session_pk=state.pk,
            session_id=session_id,
            agent_id=self.principal.agent_id if place.member else "",
            position=start,
            replay_to=state.last_sequence,
            acked=place.cursor if place.member else start,
            window=self.window,
            own_too=own_too,
            recovered=start + 1 >= place.retained_from,
            view=place.view,
        )
        self.feed.told_state = state.turn() if state.status not in ("completed", "timeout") else None
        self.feed.see_state(state)
        self.runtime.registry.follow(self, self.feed)

    def welcome(self, session: dict[str, Any], place: Place) -> None:
        with self.opening():
            self.say_welcome(
                session_id=self.feed.session_id,
                session=session,
                cursor=place.cursor,
                last_sequence=place.state.last_sequence,
            )
            if self.problem is not None:
                self.refuse(self.problem)
        self.notify(self.feed)

    async def feed_for(self, session_id: str | None) -> Feed:
        if session_id is not None and session_id != self.feed.session_id:
            raise Invalid("This socket is of another session.", field="session_id")
        return self.feed

    async def session_ended(self, feed: Feed) -> None:
        """Over. A client that acknowledges by hand gets a while to do so."""
        if self.acknowledges_itself or self.principal.is_operator or feed.acked >= feed.position:
            self.end(NORMAL)
        else:
            loop = asyncio.get_running_loop()
            loop.call_later(settings.HUB_ACK_GRACE_SECONDS, self.end, NORMAL)

    def acknowledged(self, feed: Feed) -> None:
        if feed.has_ended and feed.acked >= feed.position:
            self.end(NORMAL)
