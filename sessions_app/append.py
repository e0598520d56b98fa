"""The one append path: the only code that writes a message, whichever door it came through.

In one transaction, in this order: lock the sessions' rows in id order, then look for duplicates (before the lock that was
a race), refuse what may not be written, let the hooks open traces, number, insert, move `last_sequence` and the turn
state. Because the lock is held to the commit, a visible sequence means that all lower ones are visible. Every draft has an
outcome of its own: a bad one never fails its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db.backends.utils import CursorWrapper

from sessions_app import sql, states
from sessions_app.changes import Changes, Committed, SessionState
from sessions_app.db import prepared_cursor, utc_now, wire_time, write_transaction
from sessions_app.hooks import append_hooks, question_hooks
from sessions_app.identities import hub_agent_key
from sessions_app.members import Member, Members, members_of
from sessions_app.protocol.errors import Conflict, HubError, Invalid, NotFound, SessionClosed
from sessions_app.protocol.ids import HUB, message_id, message_keys
from sessions_app.protocol.jsontext import dumps, same_json
from sessions_app.status_answers import status_answer
from sessions_app.turn import WORK_KINDS, Heard, Turn, closed_questions


@dataclass(slots=True)
class Draft:
    """A checked message that wants to be stored. `parts`, `metadata` are JSON text; `key` is its id, chosen already.

    `work` is for the hooks alone: what the door knows of the work that is asked for. `ends_trace` names the
    trace that is open no more once this is stored.
    """

    session_pk: int
    sender_pk: int
    content: str
    kind: str = "chat"
    parts: str | None = None
    to: list[str] | None = None
    reply_to: int | None = None
    client_message_id: str | None = None
    requires_execution: bool | None = None
    metadata: str | None = None
    classified_by: str | None = None
    wants_response: bool = False
    context_refs: list[int] = field(default_factory=list)
    trace_id: str | None = None
    work: dict[str, Any] | None = None
    ends_trace: str | None = None
    key: int = field(default_factory=message_keys.next)


@dataclass(frozen=True, slots=True)
class Stored:
    """The outcome of a draft that is in the log, now or (`duplicate`) from an earlier send."""

    message: Committed
    duplicate: bool = False


Outcome = Stored | HubError


@dataclass(slots=True)
class Ledger:
    """One locked session while drafts are written into it."""

    row: sql.LockedSession
    members: Members
    turn: Turn
    last_sequence: int
    time: str
    before: tuple[object, ...]


@dataclass(slots=True)
class Entry:
    """What a hook sees of a draft about to be numbered; it may set `draft.trace_id`, add to `turn.open_traces`, or raise.

    `post(draft)` numbers another message of this session before it.
    """

    draft: Draft
    sender: str
    ledger: Ledger
    changes: Changes
    post: Callable[[Draft], None]


def append(drafts: Sequence[Draft], changes: Changes) -> list[Outcome]:
    """Write `drafts` in order; returns one outcome each. Joins the caller's transaction, else has one of its own."""
    with write_transaction(), prepared_cursor() as cursor:
        locked = sql.lock_sessions(cursor, (draft.session_pk for draft in drafts))
        return _Batch(cursor, locked, changes).write(drafts)


class _Batch:
    def __init__(self, cursor: CursorWrapper, locked: dict[int, sql.LockedSession], changes: Changes) -> None:
        self.cursor = cursor
        self.locked = locked
        self.changes = changes
        self.now = wire_time(utc_now()) or ""
        self.ledgers: dict[int, Ledger] = {}
        self.rows: list[sql.MessageRow] = []
        self.sent: dict[tuple[int, int], int] = {}
        self.stored: dict[tuple[int, int, str], tuple[Draft, Stored]] = {}

    def write(self, drafts: Sequence[Draft]) -> list[Outcome]:
        known = self._duplicates(drafts)
        replies = self._replies(drafts)
        outcomes: list[Outcome] = []
        for draft in drafts:
            try:
                outcomes.append(self._write_one(draft, known, replies))
            except HubError as refusal:
                outcomes.append(refusal)
        self._flush()
        return outcomes

    def _duplicates(self, drafts: Sequence[Draft]) -> dict[tuple[int, int, str], Committed]:
        wanted = [(d.session_pk, d.sender_pk, d.client_message_id) for d in drafts if d.client_message_id is not None]
        if not wanted:
            return {}
        keys = sql.find_duplicates(self.cursor, wanted)
        originals = sql.messages_by_key(set(keys.values()))
        return {name: originals[key] for name, key in keys.items()}

    def _replies(self, drafts: Sequence[Draft]) -> dict[int, tuple[int, int]]:
        """`{key: (session, sequence)}` of the messages that are replied or referred to."""
        keys = {d.reply_to for d in drafts if d.reply_to is not None} | {k for d in drafts for k in d.context_refs}
        if not keys:
            return {}
        self.cursor.execute(
            f"SELECT id, session_id, sequence FROM sessions_app_message WHERE id IN ({sql.marks(keys)})", list(keys)
        )
        return {row[0]: (row[1], row[2]) for row in self.cursor.fetchall()}

    def _ledger(self, session_pk: int) -> Ledger:
        ledger = self.ledgers.get(session_pk)
        if ledger is None:
            row = self.locked.get(session_pk)
            if row is None:
                raise NotFound()
            turn = Turn.load(
                row.status, row.initiator, row.current_speaker, row.round, row.open_questions, row.open_traces
            )
            # Times are for people; still they may not run backwards inside a session when a clock does.
            ledger = self.ledgers[session_pk] = Ledger(
                row,
                members_of(session_pk, row.members_revision, self.changes),
                turn,
                row.last_sequence,
                max(self.now, row.last_activity),
                (turn.status, turn.waiting_for),
            )
        return ledger

    def _write_one(
        self,
        draft: Draft,
        known: dict[tuple[int, int, str], Committed],
        replies: dict[int, tuple[int, int]],
    ) -> Stored:
        ledger = self._ledger(draft.session_pk)
        by_hub = draft.sender_pk == hub_agent_key()
        member = ledger.members.by_key.get(draft.sender_pk)
        if member is None and not by_hub and draft.trace_id is None:
            raise NotFound()
        if draft.client_message_id is not None:
            name = (draft.session_pk, draft.sender_pk, draft.client_message_id)
            if original := known.get(name):
                self._require_same(draft, original)
                return Stored(original, duplicate=True)
            if earlier := self.stored.get(name):  # the same id twice in one batch
                self._require_same(draft, earlier[1].message)
                return Stored(earlier[1].message, duplicate=True)
        if ledger.turn.status not in states.LIVE:
            raise SessionClosed()
        self._check(draft, member, ledger, replies)
        talkers = ledger.members.talkers
        said_to_a_talker = (
            bool(talkers) and draft.kind == "chat" and (len(talkers) > 1 or draft.sender_pk not in talkers)
        )
        if draft.kind in WORK_KINDS or draft.requires_execution or said_to_a_talker or settings.HUB_CLASSIFIER_MODEL:
            entry = Entry(
                draft, member.agent_id if member else HUB, ledger, self.changes, lambda other: self._post(other, ledger)
            )
            for hook in append_hooks():
                hook(entry)
        if draft.ends_trace is not None:
            ledger.turn.open_traces.pop(draft.ends_trace, None)
        sender = member.agent_id if member else self._name_of(draft.sender_pk)
        stored = Stored(self._number(draft, sender, ledger))
        if draft.client_message_id is not None:
            self.stored[(draft.session_pk, draft.sender_pk, draft.client_message_id)] = (draft, stored)
        if draft.kind == "status_query" and not by_hub:
            self._answer_status(draft, ledger)
        return stored

    def _post(self, draft: Draft, ledger: Ledger) -> None:
        member = ledger.members.by_key.get(draft.sender_pk)
        self._number(draft, member.agent_id if member else self._name_of(draft.sender_pk), ledger)

    def _name_of(self, agent_pk: int) -> str:
        if agent_pk == hub_agent_key():
            return HUB
        self.cursor.execute("SELECT agent_id FROM sessions_app_agent WHERE id = %s", [agent_pk])
        return str(self.cursor.fetchone()[0])

    @staticmethod
    def _check(draft: Draft, member: Member | None, ledger: Ledger, replies: dict[int, tuple[int, int]]) -> None:
        if draft.to is not None:
            for name in draft.to:
                if name not in ledger.members.by_name or (member is not None and name == member.agent_id):
                    raise Invalid("to names other participants of this session.", field="to")
        floor = member.first_sequence if member else 1
        for key, field_name in [(draft.reply_to, "reply_to"), *((key, "context_refs") for key in draft.context_refs)]:
            if key is None:
                continue
            session_pk, sequence = replies.get(key, (0, 0))
            if session_pk != draft.session_pk or sequence < floor:
                raise Invalid("There is no such message for you in this session.", field=field_name)

    def _require_same(self, draft: Draft, original: Committed) -> None:
        """A resend must say the same; the rest of the original is what its row says."""
        self.cursor.execute(
            """SELECT content, parts, "to", reply_to, requires_execution, metadata FROM sessions_app_message
                WHERE id = %s""",
            [original.key],
        )
        row = self.cursor.fetchone()
        if row is None:  # written by this very batch, not inserted yet
            row = next(
                (r.content, r.parts, r.to, r.reply_to, r.requires_execution, r.metadata)
                for r in self.rows
                if r.id == original.key
            )
        content, parts, to, reply_to, requires_execution, metadata = row
        if requires_execution is not None:
            requires_execution = bool(requires_execution)
        same = (
            content == draft.content
            and (
                same_json(parts, draft.parts) or ((parts is None) != (draft.parts is None) and _only_text(parts, draft))
            )
            and same_json(to, dumps(draft.to) if draft.to is not None else None)
            and reply_to == draft.reply_to
            and requires_execution == draft.requires_execution
            and same_json(metadata, draft.metadata)
        )
        if not same:
            raise Conflict("This client_message_id was used for another message.", field="client_message_id")

    def _number(self, draft: Draft, sender: str, ledger: Ledger) -> Committed:
        """Give the draft its sequence, take it into the turn state, and keep its row for the insert."""
        ledger.last_sequence += 1
        public_id = message_id(draft.key)
        heard = Heard(
            public_id,
            ledger.last_sequence,
            sender,
            draft.kind,
            draft.to,
            message_id(draft.reply_to) if draft.reply_to is not None else None,
            draft.trace_id,
            draft.wants_response,
        )
        asked = ledger.turn.open_questions
        ledger.turn.hear(heard, ledger.members.by_name)
        if asked and (answered := closed_questions(asked, ledger.turn.open_questions)):
            for hook in question_hooks():
                hook(draft.session_pk, answered, "answered", draft.key)
        to = dumps(draft.to) if draft.to is not None else None
        self.rows.append(
            sql.MessageRow(
                draft.key,
                draft.session_pk,
                ledger.last_sequence,
                draft.sender_pk,
                ledger.turn.round,
                draft.kind,
                draft.content,
                draft.parts,
                to,
                draft.reply_to,
                draft.trace_id,
                draft.client_message_id,
                draft.requires_execution,
                draft.metadata,
                draft.classified_by,
                ledger.time,
            )
        )
        counted = (draft.session_pk, draft.sender_pk)
        self.sent[counted] = self.sent.get(counted, 0) + 1
        message = sql.encode_message(
            draft.key,
            draft.session_pk,
            ledger.row.public_id,
            ledger.last_sequence,
            ledger.turn.round,
            sender,
            to,
            draft.kind,
            draft.content,
            draft.parts,
            draft.reply_to,
            draft.trace_id,
            draft.client_message_id,
            draft.metadata,
            draft.classified_by,
            ledger.time,
        )
        self.changes.session(draft.session_pk).messages.append(message)
        return message

    def _answer_status(self, query: Draft, ledger: Ledger) -> None:
        """The hub answers from its rows, in the same transaction, so that the answer follows the question."""
        text = status_answer(query.content, message_id(query.key), query.session_pk, ledger.turn)
        answer = Draft(query.session_pk, hub_agent_key(), text, kind="system", reply_to=query.key)
        self._number(answer, HUB, ledger)

    def _flush(self) -> None:
        if not self.rows:
            return
        sql.insert_messages(self.cursor, self.rows)
        sql.count_sent(self.cursor, dict(sorted(self.sent.items())))
        updates = []
        for pk, ledger in self.ledgers.items():
            if ledger.last_sequence == ledger.row.last_sequence:
                continue
            turn, row = ledger.turn, ledger.row
            moved = (turn.status, turn.waiting_for) != ledger.before
            revision = row.state_revision + 1 if moved else row.state_revision
            updates.append(
                sql.SessionUpdate(
                    turn.status,
                    ledger.last_sequence,
                    turn.round,
                    turn.current_speaker,
                    turn.stored_questions(),
                    turn.stored_traces(),
                    ledger.time,
                    self.now,
                    revision,
                    pk,
                )
            )
            change = self.changes.session(pk)
            change.members = ledger.members.keys
            change.state = SessionState(
                pk,
                row.public_id,
                turn.status,
                turn.current_speaker,
                turn.waiting_for,
                turn.round,
                row.close_reason,
                ledger.last_sequence,
                revision,
                row.members_revision,
                row.context_revision,
            )
        sql.update_sessions(self.cursor, updates)


def _only_text(parts: str | None, draft: Draft) -> bool:
    """Text given as `content` and the same text given as one part are the same body."""
    plain = dumps([{"text": draft.content}])
    return same_json(parts or plain, draft.parts or plain)
