"""Sessions: open, list, show, change, close; branches and merge."""

from __future__ import annotations

import msgspec
from django.conf import settings
from django.http import HttpRequest
from rest_framework.request import Request

from sessions_app import states
from sessions_app.changes import Changes, unit_of_work
from sessions_app.context.viewing import shown_to
from sessions_app.protocol.bodies import BranchBody, CloseBody, MergeBody, SessionBody, SessionPatch, check_choice
from sessions_app.protocol.errors import Invalid
from sessions_app.protocol.ids import SESSION_ID
from sessions_app.protocol.limits import PARTICIPANTS_MAX
from sessions_app.rest import quotas
from sessions_app.rest.answers import Answer, json_answer, text_answer
from sessions_app.rest.base import HubView, SessionView
from sessions_app.rest.document import CURSOR, LIMIT, documented, query
from sessions_app.rest.reading import list_cursor, read_time_cursor
from sessions_app.selectors import SessionFilter, latest_sessions
from sessions_app.services.branches import create_branch, merge_branch
from sessions_app.services.sessions import Opened, close_session, create_session, patch_session
from sessions_app.session_views import session_view, session_views

_session_body = msgspec.json.Decoder(SessionBody)
_session_patch = msgspec.json.Decoder(SessionPatch)
_branch_body = msgspec.json.Decoder(BranchBody)
_merge_body = msgspec.json.Decoder(MergeBody)
_close_body = msgspec.json.Decoder(CloseBody)
STATUSES = tuple(sorted(states.LIVE | states.ENDED))


class Sessions(HubView):
    @documented(
        "list_sessions",
        "Your sessions, latest activity first",
        {200: "SessionList"},
        parameters=(
            query("status", "string", "only these", enum=STATUSES),
            query("participant", "string", "an agent that takes part"),
            query("parent", "string", "the session that they branch off"),
            LIMIT,
            CURSOR,
        ),
    )
    def get(self, request: Request) -> Answer:
        wanted = SessionFilter(
            check_choice(self.query.text("status"), STATUSES, "status"),
            self.query.text("participant"),
            self.query.text("parent"),
        )
        given = self.query.text("cursor")
        before = read_time_cursor(given) if given is not None else None
        limit = self.query.limit()
        if wanted.parent is not None and SESSION_ID.fullmatch(wanted.parent) is None:
            return json_answer({"sessions": [], "next_cursor": None})
        keys, following = latest_sessions(self.principal, wanted, before, limit)
        cursor = list_cursor(*following) if following is not None else None
        return json_answer({"sessions": session_views(keys, self.reader_pk), "next_cursor": cursor})

    @documented("create_session", "Open a session", {201: "OpenedSession"}, body=SessionBody, creates=True)
    def post(self, request: Request) -> Answer:
        body = self.body(request, _session_body)
        quotas.sessions().take(self.principal.agent_pk)

        def make(changes: Changes) -> Answer:
            opened = create_session(
                body=body, caller=self.caller(), is_operator=self.principal.is_operator, changes=changes
            )
            return _opened(opened, request, self.reader_pk)

        return self.create(request, body, make)


class OneSession(SessionView):
    @documented("show_session", "A session with its participants, context and turn state", {200: "Session"})
    def get(self, request: Request, session_id: str) -> Answer:
        return json_answer(session_view(self.access.session_pk, self.reader_pk))

    @documented(
        "patch_session", "Change title, time-out, policy or shared context", {200: "Session"}, body=SessionPatch
    )
    def patch(self, request: Request, session_id: str) -> Answer:
        self.refuse_operator()
        patch = self.body(request, _session_patch)
        with unit_of_work() as changes:
            patch_session(session_pk=self.access.session_pk, patch=patch, by=self.principal.agent_id, changes=changes)
        return json_answer(session_view(self.access.session_pk, self.reader_pk))


class Close(SessionView):
    @documented("close_session", "End a session; again: unchanged", {200: "Session"}, body=CloseBody)
    def post(self, request: Request, session_id: str) -> Answer:
        body = self.body(request, _close_body)
        with unit_of_work() as changes:
            close_session(session_pk=self.access.session_pk, reason=body.reason, changes=changes)
        return json_answer(session_view(self.access.session_pk, self.reader_pk))


class Branches(SessionView):
    @documented("create_branch", "Open a branch of a session", {201: "OpenedSession"}, body=BranchBody, creates=True)
    def post(self, request: Request, session_id: str) -> Answer:
        self.refuse_operator()
        body = self.body(request, _branch_body)
        if body.participants is not None and len(body.participants) > PARTICIPANTS_MAX:
            raise Invalid(f"A session has {PARTICIPANTS_MAX} participants at the most.", field="participants")
        quotas.sessions().take(self.principal.agent_pk)

        def make(changes: Changes) -> Answer:
            opened = create_branch(parent_pk=self.access.session_pk, body=body, caller=self.caller(), changes=changes)
            return _opened(opened, request, self.reader_pk)

        return self.create(request, body, make)


class Merge(SessionView):
    @documented(
        "merge_branch", "Post a branch's outcome into its parent and complete it", {200: "Message"}, body=MergeBody
    )
    def post(self, request: Request, session_id: str) -> Answer:
        self.refuse_operator()
        body = self.body(request, _merge_body)
        with unit_of_work() as changes:
            stored = merge_branch(branch_pk=self.access.session_pk, body=body, caller=self.caller(), changes=changes)
        return text_answer(shown_to(stored.message, self.principal.agent_pk).body)


def _opened(opened: Opened, request: Request, reader_pk: int | None) -> Answer:
    session = session_view(opened.session.pk, reader_pk)
    trace_id = opened.message.message.trace_id if opened.message is not None else None
    return json_answer({**session, "trace_id": trace_id, "ws_url": ws_url(session["session_id"], request)}, 201)


def ws_url(session_id: str, request: HttpRequest | Request) -> str:
    """Where a session's socket is: at the public URL from the settings, else where this request came in."""
    base: str = settings.HUB_PUBLIC_URL or f"{request.scheme}://{request.get_host()}"
    scheme, _, rest = base.partition("://")
    return f"{'wss' if scheme == 'https' else 'ws'}://{rest}/api/a2a/sessions/{session_id}/stream"
