"""Who got to know what: the conversation as you may see it, own histories, deliveries, summaries."""

from __future__ import annotations

from rest_framework.request import Request

from sessions_app.context.profiles import View, open_view
from sessions_app.context.selectors import (
    conversation,
    deliveries_of,
    delivery_view,
    own_history,
    summaries_of,
    summary_view,
)
from sessions_app.context.viewing import find_views
from sessions_app.models import Agent, Participant, Session
from sessions_app.protocol.errors import Invalid, NotFound
from sessions_app.rest.answers import Answer, json_answer
from sessions_app.rest.base import HubView, SessionView
from sessions_app.rest.document import CURSOR, LIMIT, documented, query
from sessions_app.rest.reading import list_cursor, read_list_cursor
from sessions_app.selectors import Access, find_access, may_name_an_agent

AGENT = query("agent", "string", "an agent of the session; another than you only for operators")
ENTRIES_MOST = 2_000


class Contexts(HubView):
    @documented(
        "show_context",
        "A session's conversation through your eyes, as of `through`; or an agent's own history",
        {200: "Context"},
        parameters=(
            query("through", "integer", "a snapshot as of this sequence", minimum=0),
            query(
                "limit", "integer", f"the newest so many entries; {ENTRIES_MOST} by default", minimum=1, maximum=2000
            ),
            query("agent", "string", "for operators: through this agent's eyes"),
        ),
    )
    def get(self, request: Request, session_id: str) -> Answer:
        session_id, _, agent_id = session_id.partition("_")  # a session's id has no _
        access = find_access(session_id, self.principal)
        if agent_id:
            return self._history(access, agent_id)
        through = self.query.number("through")
        if through is not None and through > access.last_sequence:
            raise Invalid("That sequence does not exist yet.", field="through", last_sequence=access.last_sequence)
        limit = self.query.number("limit", least=1, most=ENTRIES_MOST) or ENTRIES_MOST
        reader_pk, view = self._eyes(access)
        session = Session.objects.select_related("initiator").get(pk=access.session_pk)
        return json_answer(conversation(session, view, reader_pk, through=through, limit=limit))

    def _eyes(self, access: Access) -> tuple[int, View]:
        """Whose view is asked for."""
        named = self.query.text("agent")
        if named is None or (named == self.principal.agent_id and not self.principal.is_operator):
            return access.reader_pk, access.view
        if not self.principal.is_operator:
            raise NotFound()
        pk = agent_key(access.session_pk, named)
        return pk, find_views(access.session_pk, [pk]).get(pk, open_view())

    def _history(self, access: Access, agent_id: str) -> Answer:
        if not self.principal.is_operator and agent_id != self.principal.agent_id:
            raise NotFound()
        pk = agent_key(access.session_pk, agent_id)
        if not Participant.objects.filter(session_id=access.session_pk, agent_id=pk).exists():
            raise NotFound()
        return json_answer(own_history(access.session_pk, pk))


def agent_key(session_pk: int, agent_id: str) -> int:
    """The key of an agent that takes or took part in the session; raises `NotFound`."""
    pk = None
    if may_name_an_agent(agent_id):
        rows = Agent.objects.filter(agent_id=agent_id, participations__session_id=session_pk)
        pk = rows.values_list("pk", flat=True).first()
    if pk is None:
        raise NotFound()
    return int(pk)


class _OwnList(SessionView):
    """A list of which an agent sees its own, and an operator all."""

    def wanted(self) -> int | None:
        """The agent whose rows are asked for; None is everybody."""
        named = self.query.text("agent")
        if self.principal.is_operator:
            return None if named is None else agent_key(self.access.session_pk, named)
        if named not in (None, self.principal.agent_id):
            raise NotFound()
        return self.principal.agent_pk

    def before(self) -> int | None:
        given = self.query.text("cursor")
        return read_list_cursor(given)[1] if given is not None else None


def _next(following: int | None) -> str | None:
    return list_cursor("", following) if following is not None else None


class Deliveries(_OwnList):
    @documented(
        "list_deliveries",
        "What an agent was sent, byte for byte, and why; latest first",
        {200: "DeliveryList"},
        parameters=(AGENT, LIMIT, CURSOR),
    )
    def get(self, request: Request, session_id: str) -> Answer:
        rows, following = deliveries_of(self.access.session_pk, self.wanted(), self.before(), self.query.limit())
        return json_answer({"deliveries": [delivery_view(row) for row in rows], "next_cursor": _next(following)})


class Summaries(_OwnList):
    @documented(
        "list_summaries",
        "Summaries of what you may see, and of your own history; latest first",
        {200: "SummaryList"},
        parameters=(AGENT, LIMIT, CURSOR),
    )
    def get(self, request: Request, session_id: str) -> Answer:
        pk = self.wanted()
        view: View | None = self.access.view
        if self.principal.is_operator:
            view = None if pk is None else find_views(self.access.session_pk, [pk]).get(pk, View("", None, hash=""))
        rows, following = summaries_of(self.access.session_pk, view, pk or 0, self.before(), self.query.limit())
        return json_answer({"summaries": [summary_view(row) for row in rows], "next_cursor": _next(following)})
