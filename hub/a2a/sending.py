"""A message that comes by A2A: where it belongs, and its place in the conversation. One transaction, all of it or nothing.

It opens a trace when the agent has an executor (or takes delegated work and this is work), else a question that the agent
answers in its own words. `messageId` is the idempotency key of its sender at this agent: a resend finds the first one's task.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import IntegrityError
from msgspec import Raw

from hub.a2a import questions
from hub.a2a.answers import answer_of
from hub.a2a.models import Name, Question, Received
from hub.a2a.states import OPEN as OPEN_QUESTION
from hub.a2a.tasks import OURS, TaskRef, find_task
from sessions_app import states as session_states
from sessions_app.append import Draft, Stored, append
from sessions_app.changes import Changes, unit_of_work
from sessions_app.db import utc_now
from sessions_app.drafts import draft_message
from sessions_app.models import Agent, Participant, Presence, Session
from sessions_app.protocol.bodies import MessageBody, utf8_length
from sessions_app.protocol.errors import Conflict, HubError, Invalid, NotFound, SessionClosed, TooLarge
from sessions_app.protocol.ids import CLIENT_MESSAGE_ID, SESSION_ID
from sessions_app.protocol.jsontext import dumps, loads
from sessions_app.protocol.limits import METADATA_BYTES
from sessions_app.rest import quotas
from sessions_app.services.sessions import lock_session, open_session, require_acceptance
from sessions_app.turn import WORK_KINDS
from traces_app import lifecycle
from traces_app.leases import DELEGATE
from traces_app.models import Trace
from traces_app.states import OPEN as OPEN_TRACE
from traces_app.states import WAITING

NAME_CHARACTERS = 200
TITLE_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message as any of the protocol's versions brought it. `parts` are ours; `own_task_id` a new task's name (0.1)."""

    message_id: str
    parts: list[dict[str, Any]]
    task_id: str = ""
    context_id: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    extensions: list[str] = field(default_factory=list)
    reference_task_ids: list[str] = field(default_factory=list)
    own_task_id: str = ""

    def digest(self) -> str:
        said = [self.task_id or self.own_task_id, self.context_id, self.parts, self.metadata]
        return hashlib.sha256(dumps([*said, self.extensions, self.reference_task_ids]).encode()).hexdigest()


OVER = "This task has ended; send the message without its taskId to begin another one."


def receive(
    incoming: Incoming, *, owner_pk: int, agent_pk: int, along: Callable[[TaskRef], object] | None = None
) -> TaskRef:
    """Store the message, once; returns its task. Raises the refusals of any send, and `NotFound` for a foreign task.

    `along` is called with the task in the message's transaction, before anything can happen to it; not again at a resend.
    """
    key = _key(incoming.message_id)
    digest = incoming.digest()
    for last in (False, True):
        rows = Received.objects.filter(owner_id=owner_pk, agent_id=agent_pk, message_id=key)
        if (known := rows.values_list("digest", "task_id").first()) is not None:
            if known[0] != digest:
                raise Conflict("This messageId was used for another message.", field="messageId")
            return find_task(known[1], owner_pk, agent_pk)
        try:
            with unit_of_work() as changes:
                owner, agent = Agent.objects.get(pk=owner_pk), Agent.objects.get(pk=agent_pk)
                ref = _Reception(incoming, key, digest, owner, agent, changes).store()
                if along is not None:
                    along(ref)
                return ref
        except IntegrityError:  # the same messageId, or the same name, at the same moment: the other one is there now
            if last:
                raise
    raise AssertionError("unreachable")


def _key(message_id: str) -> str:
    """What the unique constraint sees of a client's id; of its own each time when resends are not to be recognised."""
    if not settings.HUB_A2A_IDEMPOTENT:
        return f"once:{secrets.token_hex(12)}"
    if CLIENT_MESSAGE_ID.fullmatch(message_id):
        return message_id
    return "sha256:" + hashlib.sha256(message_id.encode()).hexdigest()


class _Reception:
    """One message inside its transaction."""

    def __init__(self, incoming: Incoming, key: str, digest: str, owner: Agent, agent: Agent, changes: Changes) -> None:
        self.incoming = incoming
        self.key = key
        self.digest = digest
        self.owner = owner
        self.agent = agent
        self.changes = changes

    def store(self) -> TaskRef:
        if self.incoming.task_id:
            return self._follow_up(find_task(self.incoming.task_id, self.owner.pk, self.agent.pk))
        if self.incoming.own_task_id:
            try:
                return self._follow_up(find_task(self.incoming.own_task_id, self.owner.pk, self.agent.pk))
            except NotFound:
                self._check_name(self.incoming.own_task_id, "id")
        return self._new_task(self._session())

    # Where it belongs

    def _session(self) -> int:
        """The session of this context, made when the client begins one."""
        name = self.incoming.context_id
        if not name:
            return self._open("")
        public_id = name
        if SESSION_ID.fullmatch(name) is None:
            self._check_name(name, "contextId")
            names = Name.objects.filter(owner=self.owner, agent=self.agent, kind=Name.CONTEXT, name=name)
            known = names.values_list("target", flat=True).first()
            if known is None:
                return self._open(name)
            public_id = known
        session = Session.objects.filter(public_id=public_id).first()
        if session is None:
            raise _no_context()
        present = Participant.objects.filter(session=session, left_at=None).values_list("agent_id", flat=True)
        if not {self.owner.pk, self.agent.pk} <= set(present):
            raise _no_context()
        if session.status not in session_states.LIVE:
            raise SessionClosed("This context has ended; begin another one.")
        return session.pk

    def _open(self, name: str) -> int:
        quotas.sessions().take(self.owner.pk)
        require_acceptance(self.agent, self.owner)
        if self.owner.pk == self.agent.pk:
            raise Invalid("An agent does not ask itself.")
        text = next((part["text"] for part in self.incoming.parts if part.get("text")), "")
        title = " ".join(text.split())[:TITLE_CHARACTERS]
        opened = open_session(
            initiator=self.owner,
            participants=[self.agent],
            title=title if title.isprintable() else "",
            timeout_seconds=int(settings.HUB_A2A_CONTEXT_SECONDS) or None,
            busy_policy="parallel",  # the tasks of a context are independent of one another
            changes=self.changes,
        )
        if name:
            self._name(Name.CONTEXT, name, opened.session.public_id)
        return opened.session.pk

    @staticmethod
    def _check_name(name: str, what: str) -> None:
        if len(name) > NAME_CHARACTERS or not name.isprintable():
            raise Invalid(f"{what} is one line of {NAME_CHARACTERS} characters at the most.", field=what)

    def _name(self, kind: str, name: str, target: str) -> None:
        Name.objects.create(owner=self.owner, agent=self.agent, kind=kind, name=name, target=target)

    # What it becomes

    def _new_task(self, session_pk: int) -> TaskRef:
        draft = self._draft(session_pk, requires_execution=None)
        runner = self._runner(draft)
        draft = self._draft(session_pk, requires_execution=runner is not None, wants_response=runner is None)
        if runner is not None:
            draft.work = {"runner": (self.agent.pk, self.agent.agent_id, runner)}
        stored = self._append(draft)
        if runner is not None:
            task_id = str(draft.trace_id)
        else:
            task_id = questions.open_question(
                session_pk=session_pk,
                agent_pk=self.agent.pk,
                owner_pk=self.owner.pk,
                message_key=stored.message.key,
                message_sequence=stored.message.sequence,
            ).public_id
        self._note(task_id, stored)
        if self.incoming.own_task_id:
            self._name(Name.TASK, self.incoming.own_task_id, task_id)
        return find_task(task_id, self.owner.pk, self.agent.pk)

    def _runner(self, draft: Draft) -> str | None:
        """What executes this message, or None where the agent answers it: an executor takes all, a socket with `run=1` work."""
        if self.agent.executor:
            return self.agent.executor
        if draft.kind not in WORK_KINDS:
            return None
        takes = Presence.objects.filter(agent=self.agent, runs_traces=True, process__lease_until__gt=utc_now())
        return DELEGATE if takes.exists() else None

    def _follow_up(self, task: TaskRef) -> TaskRef:
        """A further message of a task that has not ended: the answer it waits for, or something to go with it."""
        given = self.incoming.context_id
        if given and given not in (task.context_id, task.session_id):
            raise Invalid("contextId is not that of the task.", field="contextId")
        row = lock_session(task.session_pk)
        if row.status not in session_states.LIVE:
            raise SessionClosed(OVER)
        if task.is_trace:
            trace = Trace.objects.get(pk=task.pk)
            if trace.status not in OPEN_TRACE:
                raise SessionClosed(OVER)
            draft = self._draft(task.session_pk, requires_execution=False)
            draft.trace_id = task.task_id
            stored = self._append(draft)
            if trace.status == WAITING:
                answer, approve = answer_of(self.incoming.parts, trace.pending_input or {})
                lifecycle.answer_trace(
                    trace_pk=trace.pk,
                    session_pk=task.session_pk,
                    by=self.owner,
                    answer=answer,
                    approve=approve,
                    changes=self.changes,
                )
        else:
            if not Question.objects.filter(pk=task.pk, state__in=OPEN_QUESTION).exists():
                raise SessionClosed(OVER)
            # It asks anew: the answer to either ends the task.
            stored = self._append(self._draft(task.session_pk, requires_execution=False, wants_response=True))
        self._note(task.task_id, stored)
        return task

    def _draft(self, session_pk: int, *, requires_execution: bool | None, wants_response: bool = False) -> Draft:
        incoming = self.incoming
        ours: dict[str, Any] = {"messageId": incoming.message_id}
        if incoming.extensions:
            ours["extensions"] = incoming.extensions
        if incoming.reference_task_ids:
            ours["referenceTaskIds"] = incoming.reference_task_ids
        body = MessageBody(
            to=[self.agent.agent_id],
            client_message_id=self.key,
            requires_execution=requires_execution,
            wait_for_response=wants_response,
            metadata=Raw(dumps(incoming.metadata).encode()),
        )
        if len(incoming.parts) == 1 and incoming.parts[0].keys() == {"text"}:
            body.content = incoming.parts[0]["text"]
        else:
            body.parts = Raw(dumps(incoming.parts).encode())
        draft = draft_message(body, session_pk, self.owner.pk, self.owner.agent_id)
        # Added after the check: what a client writes under this name is not ours.
        draft.metadata = dumps({**(loads(draft.metadata) if draft.metadata else {}), OURS: ours})
        if utf8_length(draft.metadata) > METADATA_BYTES:
            raise TooLarge(f"metadata holds {METADATA_BYTES} bytes at the most.", field="metadata")
        return draft

    def _append(self, draft: Draft) -> Stored:
        outcome = append([draft], self.changes)[0]
        if isinstance(outcome, HubError):
            raise outcome
        if outcome.duplicate:
            raise Conflict("This messageId was used for another message.", field="messageId")
        return outcome

    def _note(self, task_id: str, stored: Stored) -> None:
        Received.objects.create(
            owner=self.owner,
            agent=self.agent,
            message_id=self.key,
            digest=self.digest,
            task_id=task_id,
            message_key=stored.message.key,
            created_at=utc_now(),
        )


def _no_context() -> HubError:
    return Invalid("There is no such context for you at this agent.", field="contextId")
