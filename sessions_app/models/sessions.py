from __future__ import annotations

from django.db import models
from django.db.models import Q

from sessions_app.context.shared import Shared, from_stored
from sessions_app.models.agents import Agent
from sessions_app.models.fields import JSONText
from sessions_app.protocol.limits import TIMEOUT_SECONDS_DEFAULT


class Session(models.Model):
    """A conversation: its number line (`last_sequence`), its turn state and its shared context.

    `open_questions` and `open_traces` are what `waiting_for` is derived from; `turn.py` explains their shapes.
    """

    CREATED, ACTIVE, WAITING, COMPLETED, TIMEOUT = "created", "active", "waiting", "completed", "timeout"
    LIVE = (CREATED, ACTIVE, WAITING)
    STATUSES = [(s, s) for s in (CREATED, ACTIVE, WAITING, COMPLETED, TIMEOUT)]

    public_id = models.CharField(max_length=40, unique=True)
    title = models.CharField(max_length=200, blank=True, default="")
    status = models.CharField(max_length=16, choices=STATUSES, default=CREATED)
    initiator = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="initiated_sessions")
    context = JSONText(default=dict, blank=True)
    context_provenance = JSONText(
        null=True, blank=True, default=None, help_text="whose words its keys hold, as sessions_app.context.shared"
    )

    last_sequence = models.BigIntegerField(default=0)
    first_sequence = models.BigIntegerField(default=1, help_text="the lowest sequence that retention has left")
    round = models.BigIntegerField(default=0)
    current_speaker = models.CharField(max_length=64, null=True, blank=True, default=None)
    open_questions = JSONText(default=list, blank=True)
    open_traces = JSONText(default=dict, blank=True)

    parent = models.ForeignKey("self", on_delete=models.PROTECT, null=True, blank=True, related_name="branches")
    branched_at = models.BigIntegerField(null=True, blank=True)
    merged_message_key = models.BigIntegerField(null=True, blank=True, help_text="the result that merge posted")
    timeout_seconds = models.IntegerField(null=True, blank=True, default=TIMEOUT_SECONDS_DEFAULT)
    busy_policy = models.CharField(max_length=16, default="enqueue")
    context_strategy = models.CharField(max_length=16, null=True, blank=True, default=None)

    created_at = models.DateTimeField()
    last_activity = models.DateTimeField()
    closed_at = models.DateTimeField(null=True, blank=True)
    close_reason = models.CharField(max_length=200, null=True, blank=True, default=None)

    # For machines: when this row last changed in any way, and what kind of change a process may have missed.
    changed_at = models.DateTimeField(db_index=True)
    state_revision = models.BigIntegerField(default=0)
    members_revision = models.BigIntegerField(default=0)
    context_revision = models.BigIntegerField(default=0)
    timeout_check_at = models.DateTimeField(null=True, blank=True, help_text="when the sweep looks at it next")

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=["created", "active", "waiting", "completed", "timeout"]), name="session_status"
            ),
            models.CheckConstraint(
                condition=Q(busy_policy__in=["enqueue", "reject", "interrupt", "parallel"]), name="session_busy_policy"
            ),
        ]
        indexes = [
            models.Index(fields=["last_activity", "id"], name="session_latest"),
            models.Index(fields=["status"], name="session_by_status"),
            models.Index(
                fields=["timeout_check_at"],
                name="session_timeout_check",
                condition=Q(timeout_check_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.public_id

    @property
    def shared(self) -> Shared:
        return Shared(self.context, from_stored(self.context_provenance))


class Participant(models.Model):
    """One agent's place in one session.

    Unread is `(last_sequence - cursor) - (sent - sent_read)`: others' messages after the cursor, without counting rows.
    `sent` counts the agent's own messages, `sent_read` those of them at or below the cursor.
    """

    INITIATOR, MEMBER, HUMAN, OBSERVER = "initiator", "member", "human", "observer"
    ORCHESTRATOR = "orchestrator"

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="participants")
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="participations")
    role = models.CharField(max_length=32, default=MEMBER)
    cursor = models.BigIntegerField(default=0)
    acknowledged = models.BooleanField(default=False, help_text="whether the cursor was ever moved")
    first_sequence = models.BigIntegerField(default=1, help_text="below this it may read nothing")
    context_strategy = models.CharField(max_length=16, null=True, blank=True, default=None)
    visibility = JSONText(null=True, blank=True, default=None, help_text="a visibility profile; null: the agent's own")
    sent = models.BigIntegerField(default=0)
    sent_read = models.BigIntegerField(default=0)
    joined_at = models.DateTimeField()
    left_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["session", "agent"], name="participant_once"),
            models.CheckConstraint(condition=Q(cursor__gte=0), name="participant_cursor"),
        ]

    def __str__(self) -> str:
        return f"{self.agent} in {self.session}"
