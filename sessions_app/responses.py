"""Which later message answers a given one. It is a function of immutable rows, so it never changes once it is there."""

from __future__ import annotations

from django.db import connection

from sessions_app import sql, states
from sessions_app.changes import Committed
from sessions_app.models import Message, Session
from sessions_app.protocol.errors import NotFound
from sessions_app.protocol.ids import HUB, message_id
from sessions_app.turn import WORK_KINDS, Heard, Question, responds

CHUNK = 200


def find_response(session_pk: int, question_key: int, after: int = 0) -> tuple[Committed | None, bool, int]:
    """`(response, whether the session has ended, sequence looked at so far)`; go on from the last with `after`."""
    row = (
        Message.objects.filter(pk=question_key, session_id=session_pk)
        .values_list("sequence", "sender__agent_id", "kind", "to", "trace_id")
        .first()
    )
    if row is None:
        raise NotFound()
    sequence, sender, kind, to, trace_id = row
    # The order matters: what is seen as ended has all its messages visible.
    ended = Session.objects.values_list("status", flat=True).get(pk=session_pk) in states.ENDED
    looked = max(after, sequence)
    while True:
        with connection.cursor() as cursor:
            cursor.execute(
                """SELECT m.id, m.sequence, a.agent_id, m.kind, m.reply_to, m.trace_id FROM sessions_app_message m
                     JOIN sessions_app_agent a ON a.id = m.sender_id
                    WHERE m.session_id = %s AND m.sequence > %s ORDER BY m.sequence LIMIT %s""",
                [session_pk, looked, CHUNK],
            )
            page = cursor.fetchall()
        for key, later, author, later_kind, reply_to, later_trace in page:
            looked = later
            anybody = author != sender and (author != HUB or later_kind == "result")
            owes = to if to is not None else [author] if anybody else []
            question = Question(
                message_id(question_key), sequence, sender, owes, kind, trace_id if kind in WORK_KINDS else None
            )
            heard = Heard("", later, author, later_kind, None, message_id(reply_to) if reply_to else None, later_trace)
            if responds(question, heard):
                return sql.messages_by_key([key])[key], ended, looked
        if len(page) < CHUNK:
            return None, ended, looked
