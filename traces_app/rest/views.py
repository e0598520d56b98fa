"""Traces over REST: a session's, one, its events, and what can be done to one."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import UNSET
from rest_framework.request import Request

from sessions_app.changes import Changes, unit_of_work
from sessions_app.keys import Principal
from sessions_app.protocol.errors import Forbidden, Invalid
from sessions_app.rest import quotas
from sessions_app.rest.answers import Answer, json_answer
from sessions_app.rest.base import HubView, SessionView
from sessions_app.rest.document import CURSOR, LIMIT, documented, query
from sessions_app.rest.reading import Query, list_cursor, read_list_cursor
from traces_app import lifecycle
from traces_app.models import Trace
from traces_app.news import followed
from traces_app.rest.shapes import ContinueBody, InputBody
from traces_app.selectors import (
    TraceAccess,
    event_view,
    events_after,
    events_before,
    find_trace,
    fit_page,
    trace_view,
    trace_views,
    traces_of,
)
from traces_app.services import continue_trace

_continue_body = msgspec.json.Decoder(ContinueBody)
_input_body = msgspec.json.Decoder(InputBody)
_empty_body = msgspec.json.Decoder(dict[str, Any])


class SessionTraces(SessionView):
    @documented("list_traces", "A session's traces, latest first", {200: "TraceList"}, parameters=(LIMIT, CURSOR))
    def get(self, request: Request, session_id: str) -> Answer:
        given = self.query.text("cursor")
        before = read_list_cursor(given)[1] if given is not None else None
        keys, following = traces_of(self.access.session_pk, self.access.first_sequence, before, self.query.limit())
        cursor = list_cursor("", following) if following is not None else None
        return json_answer({"traces": trace_views(keys, self.access.view), "next_cursor": cursor})


class TraceView(HubView):
    """A view under `traces/{trace_id}`: whether that is yours to see comes before everything else."""

    access: TraceAccess

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        self.principal = cast(Principal, request.auth)
        quotas.requests().take(self.principal.agent_pk)
        self.access = find_trace(kwargs["trace_id"], self.principal)
        self.query = Query(request.META.get("QUERY_STRING", ""))


class OneTrace(TraceView):
    @documented("show_trace", "A trace with its goals, result and what it waits for", {200: "Trace"})
    def get(self, request: Request, trace_id: str) -> Answer:
        return json_answer(trace_view(self.access.pk, self.access.view))


class Events(TraceView):
    @documented(
        "list_trace_events",
        "The log of a trace, by number",
        {200: "TraceEventPage"},
        parameters=(
            query("after", "integer", "upwards from after this sequence (default 0)", minimum=0),
            query("before", "integer", "the highest below this sequence", minimum=1),
            LIMIT,
        ),
    )
    def get(self, request: Request, trace_id: str) -> Answer:
        limit = self.query.limit()
        after, before = self.query.number("after"), self.query.number("before", least=1)
        if after is not None and before is not None:
            raise Invalid("Give after or before, not both.", field="before")
        trace = followed([self.access.pk])[self.access.pk]
        last = trace.last_sequence
        if after is not None and after > last:
            raise Invalid("That sequence does not exist yet.", field="after", last_sequence=last)
        if before is not None:
            rows = events_before(self.access.pk, min(before, last + 1), limit)
        else:
            rows = [row for row in events_after(self.access.pk, after or 0, limit) if row.sequence <= last]
        views = fit_page(
            [event_view(row, trace_id, self.access.view, trace.log) for row in rows],
            downwards=before is not None,
        )
        if before is not None:
            has_more = bool(views) and views[0]["sequence"] > 1
        else:
            has_more = bool(views) and views[-1]["sequence"] < last
        return json_answer({"events": views, "last_sequence": last, "first_sequence": 1, "has_more": has_more})


class Cancel(TraceView):
    @documented("cancel_trace", "Cancel; a finished one is left as it is", {200: "Trace"})
    def post(self, request: Request, trace_id: str) -> Answer:
        self.body(request, _empty_body)
        with unit_of_work() as changes:
            lifecycle.cancel_trace(
                trace_pk=self.access.pk,
                session_pk=self.access.session_pk,
                by=self.principal.agent_id,
                changes=changes,
            )
        return json_answer(trace_view(self.access.pk, self.access.view))


class Continue(TraceView):
    @documented(
        "continue_trace", "A new trace with this one's history", {201: "Trace"}, body=ContinueBody, creates=True
    )
    def post(self, request: Request, trace_id: str) -> Answer:
        self.refuse_operator()
        body = self.body(request, _continue_body)

        def make(changes: Changes) -> Answer:
            pk, _ = continue_trace(
                trace_pk=self.access.pk,
                content=body.content,
                after_sequence=body.after_sequence,
                caller=self.caller(),
                changes=changes,
            )
            return json_answer(trace_view(pk, self.access.view), 201)

        return self.create(request, body, make)


class Input(TraceView):
    @documented("answer_trace", "Answer what a waiting trace asks", {200: "Trace"}, body=InputBody)
    def post(self, request: Request, trace_id: str) -> Answer:
        self.refuse_operator()
        body = self.body(request, _input_body)
        if (body.answer is UNSET) == (body.approve is UNSET):
            raise Invalid("Give answer or approve.", field="answer")
        caller = self.caller()
        runs_it = Trace.objects.filter(pk=self.access.pk, agent_id=caller.pk).exclude(requested_by_id=caller.pk)
        if runs_it.exists():
            raise Forbidden("Who runs a trace does not answer its questions.")
        with unit_of_work() as changes:
            lifecycle.answer_trace(
                trace_pk=self.access.pk,
                session_pk=self.access.session_pk,
                by=caller,
                answer=None if body.answer is UNSET else body.answer,
                approve=body.approve if isinstance(body.approve, bool) else None,
                changes=changes,
            )
        return json_answer(trace_view(self.access.pk, self.access.view))
