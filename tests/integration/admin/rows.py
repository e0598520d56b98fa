"""Rows in bulk, much like the hub would have left them. For tests that read: nothing here shows how to write."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from django.db import connection

from sessions_app.models import Agent, Message, Participant, Session
from sessions_app.protocol.ids import MessageKeys, message_keys, new_session_id

START = datetime(2026, 1, 1, tzinfo=UTC)


def make_agents(count: int, prefix: str = "agent") -> list[Agent]:
    return Agent.objects.bulk_create([Agent(agent_id=f"{prefix}-{number}") for number in range(count)])


def make_sessions(count: int, agents: Sequence[Agent], *, status: str = Session.ACTIVE) -> list[Session]:
    """Sessions of two agents each, changed one second after the other."""
    sessions = Session.objects.bulk_create(
        [
            Session(
                public_id=new_session_id(),
                title=f"Talk {number}",
                status=status,
                initiator=agents[number % len(agents)],
                context={"number": number},
                created_at=START + timedelta(seconds=number),
                last_activity=START + timedelta(seconds=number),
                changed_at=START + timedelta(seconds=number),
            )
            for number in range(count)
        ],
        batch_size=500,
    )
    Participant.objects.bulk_create(
        [
            Participant(session=session, agent=agents[(number + step) % len(agents)], joined_at=START)
            for number, session in enumerate(sessions)
            for step in range(min(2, len(agents)))
        ],
        batch_size=500,
    )
    return sessions


def make_messages(session: Session, senders: Sequence[Agent], count: int, content: str = "Message {}") -> list[int]:
    """The next `count` messages of a session; returns their keys."""
    first = session.last_sequence
    rows = [
        Message(
            id=message_keys.next(),
            session=session,
            sequence=first + number,
            sender=senders[number % len(senders)],
            round=number,
            kind=Message.CHAT,
            content=content.replace("{}", str(first + number)),
            created_at=START + timedelta(seconds=number),
        )
        for number in range(1, count + 1)
    ]
    Message.objects.bulk_create(rows, batch_size=500)
    session.last_sequence = first + count
    Session.objects.filter(pk=session.pk).update(last_sequence=session.last_sequence)
    return [row.pk for row in rows]


def make_many_sessions(count: int, agents: Sequence[Agent], *, status: str = Session.COMPLETED) -> list[int]:
    """Sessions of two agents each, made by the database itself; returns their keys, which follow each other."""
    first = (Session.objects.order_by("-pk").values_list("pk", flat=True).first() or 0) + 1
    digits = "lpad(i::text, 26, '0')" if _postgres() else "printf('%026d', i)"
    # Ids are of a-z and 2-7 only.
    name = f"'sess-' || replace(replace(replace(replace({digits}, '0', 'a'), '1', 'b'), '8', 'c'), '9', 'd')"
    moment = "%s::timestamptz + i * interval '1 second'" if _postgres() else "datetime(%s, i || ' seconds')"
    start = START if _postgres() else "2026-01-01 00:00:00"
    with connection.cursor() as cursor:
        cursor.execute(
            f"""INSERT INTO sessions_app_session
                  (id, public_id, title, status, initiator_id, context, last_sequence, first_sequence, round, open_questions,
                   open_traces, busy_policy, created_at, last_activity, changed_at, state_revision, members_revision,
                   context_revision)
                SELECT {first - 1} + i, {name.replace("%", "%%")}, 'Talk ' || i, %s, {agents[0].pk} + i %% {len(agents)},
                       '{{}}', 0, 1, 0, '[]', '{{}}', 'enqueue', {moment}, {moment}, {moment}, 0, 0, 0
                  FROM {_numbers(count)}""",
            [status, start, start, start],
        )
        for step in range(2):
            cursor.execute(
                f"""INSERT INTO sessions_app_participant
                      (session_id, agent_id, role, cursor, acknowledged, first_sequence, sent, sent_read, joined_at)
                    SELECT {first - 1} + i, {agents[0].pk} + (i + {step}) %% {len(agents)}, 'member', 0, %s, 1, 0, 0, %s
                      FROM {_numbers(count)}""",
                [False, START],
            )
        if _postgres():
            cursor.execute("SELECT setval(pg_get_serial_sequence('sessions_app_session', 'id'), %s)", [first + count])
    return list(range(first, first + count))


def make_many_messages(session_pks: Sequence[int], sender: Agent, total: int) -> None:
    """Messages made by the database itself: half of them in the first session, the others spread over the rest."""
    half, rest = total // 2, max(len(session_pks) - 1, 1)
    first_key = int((START.timestamp() * 1000) - MessageKeys.EPOCH_MS) << 22
    with connection.cursor() as cursor:
        cursor.execute(
            f"""INSERT INTO sessions_app_message
                  (id, session_id, sequence, sender_id, round, kind, content, created_at)
                SELECT {first_key} + i * 4194304,
                       CASE WHEN i <= {half} THEN {session_pks[0]}
                            ELSE {session_pks[0]} + 1 + (i - {half} - 1) %% {rest} END,
                       CASE WHEN i <= {half} THEN i ELSE 1 + (i - {half} - 1) / {rest} END,
                       {sender.pk}, 1, 'chat', 'Message ' || i || ' and what it has to say in about two hundred letters. '
                         || 'The quick brown fox jumps over the lazy dog, and then it does so again, for good measure. '
                         || 'Nobody reads this, but the pages of the table are as full as they would be.',
                       %s
                  FROM {_numbers(total)}""",
            [START],
        )
        Session.objects.filter(pk=session_pks[0]).update(last_sequence=half)
        cursor.execute("ANALYZE")


def _postgres() -> bool:
    return connection.vendor == "postgresql"


def _numbers(count: int) -> str:
    """A table of one column `i`, from 1 to `count`."""
    if _postgres():
        return f"generate_series(1::bigint, {count}) AS numbers(i)"
    return f"(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) SELECT i FROM n) AS numbers"
