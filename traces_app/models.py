"""The rows of the execution layer: a trace, its events, and what the events add up to (goals, tool calls, approvals)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from sessions_app.models import Agent, Session
from sessions_app.models.fields import JSONText
from traces_app import states


class Trace(models.Model):
    """One execution of one request; written in the transaction that stores the message which asked for it.

    `attempt` is the fence of every write of whoever runs it; `losses` counts the leases that ran out. `in_line`: it waits
    until the earlier traces of its session have ended (`busy_policy` `enqueue`). `called`: no message asked for it, but the
    run of its parent, whose end posts what it answered.
    """

    STATUSES = [(s, s) for s in states.STATUSES]

    public_id = models.CharField(max_length=40, unique=True)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="traces", db_index=False)
    message_key = models.BigIntegerField(help_text="the key of the message that asked for it")
    message_sequence = models.BigIntegerField()
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="+", help_text="whose result it is")
    requested_by = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="+", db_index=False)
    executor = models.CharField(max_length=200)
    task = models.TextField()
    parent = models.ForeignKey("self", on_delete=models.CASCADE, null=True, blank=True, related_name="children")
    continue_from = JSONText(null=True, blank=True, default=None)
    context = JSONText(default=dict, blank=True, help_text="the session's context when its latest attempt began")
    context_provenance = JSONText(
        null=True, blank=True, default=None, help_text="whose words that holds, as sessions_app.context.shared"
    )
    in_line = models.BooleanField(default=True)
    called = models.BooleanField(default=False, help_text="by its parent, which posts the answer")
    asking = JSONText(
        default=dict, blank=True, help_text="what whoever asked wants to be known: refs, model_refs, search"
    )
    provenance = JSONText(
        default=dict,
        blank=True,
        help_text="whose words its log and its result hold, as sessions_app.context.provenance",
    )
    reply = JSONText(null=True, blank=True, default=None, help_text="how a called trace's answer is posted")

    status = models.CharField(max_length=16, choices=STATUSES, default=states.CREATED)
    attempt = models.IntegerField(default=0)
    losses = models.IntegerField(default=0)
    owner = models.CharField(max_length=100, blank=True, default="", help_text="who runs this attempt, for people")
    lease_until = models.DateTimeField(null=True, blank=True)
    hints = models.IntegerField(default=0, help_text="how often the sweep has rung the bell for it")
    next_hint_at = models.DateTimeField(help_text="when the sweep rings next, if nobody has claimed it by then")

    result = JSONText(null=True, blank=True, default=None)
    error = JSONText(null=True, blank=True, default=None)
    pending_input = JSONText(null=True, blank=True, default=None)
    input_until = models.DateTimeField(null=True, blank=True)
    inputs = JSONText(default=list, blank=True, help_text="what was asked and answered so far")
    usage = JSONText(default=dict, blank=True)
    last_sequence = models.BigIntegerField(default=0, help_text="of its events")

    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    changed_at = models.DateTimeField(db_index=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=Q(status__in=list(states.STATUSES)), name="trace_status"),
        ]
        indexes = [
            models.Index(fields=["session", "id"], name="trace_of_session"),
            models.Index(fields=["status", "id"], name="trace_by_status"),
            # Few rows are not terminal at any time: these two indexes stay small however long the table grows.
            models.Index(
                fields=["session", "id"], name="trace_open", condition=Q(status__in=["created", "running", "waiting"])
            ),
            models.Index(
                fields=["status", "lease_until"],
                name="trace_due",
                condition=Q(status__in=["created", "running", "waiting"]),
            ),
        ]

    def __str__(self) -> str:
        return self.public_id


class Undecided(models.Model):
    """A message that the rules left undecided and that somebody could execute: a model is asked, after the append.

    The row is the outbox: it goes with the decision, or when no model could be asked `attempts` times.
    """

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="+")
    message_key = models.BigIntegerField(unique=True)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+", help_text="who would execute it")
    executor = models.CharField(max_length=200)
    attempts = models.IntegerField(default=0)
    due_at = models.DateTimeField(db_index=True)

    class Meta:
        verbose_name_plural = "undecided"
        ordering = ["id"]

    def __str__(self) -> str:
        return str(self.message_key)


class TraceEvent(models.Model):
    """Append-only; `sequence` from 1 without gaps per trace. `data` is redacted JSON."""

    trace = models.ForeignKey(Trace, on_delete=models.CASCADE, related_name="events", db_index=False)
    sequence = models.BigIntegerField()
    type = models.CharField(max_length=16)
    span_id = models.CharField(max_length=32)
    parent_id = models.CharField(max_length=32, null=True, blank=True)
    attempt = models.IntegerField()
    timestamp = models.DateTimeField()
    data = JSONText(default=dict)

    class Meta:
        ordering = ["trace", "sequence"]
        constraints = [models.UniqueConstraint(fields=["trace", "sequence"], name="trace_event_sequence")]

    def __str__(self) -> str:
        return f"{self.sequence} {self.type}"


class Goal(models.Model):
    """What the `goal` events add up to: one node of a trace's tree. `parent_goal` names another goal of the same trace."""

    trace = models.ForeignKey(Trace, on_delete=models.CASCADE, related_name="goals", db_index=False)
    goal_id = models.CharField(max_length=64)
    parent_goal = models.CharField(max_length=64, null=True, blank=True)
    title = models.CharField(max_length=500)
    status = models.CharField(max_length=16, choices=[(s, s) for s in states.GOAL_STATUSES], default="open")
    position = models.IntegerField(default=0)

    class Meta:
        ordering = ["trace", "position"]
        constraints = [
            models.UniqueConstraint(fields=["trace", "goal_id"], name="goal_once"),
            models.CheckConstraint(condition=Q(status__in=list(states.GOAL_STATUSES)), name="goal_status"),
        ]

    def __str__(self) -> str:
        return self.title


class ToolCall(models.Model):
    """A `tool_call` event and, once it is there, its `tool_result`. One whose attempt was lost never gets a result."""

    RUNNING, DONE, FAILED = "running", "done", "failed"

    trace = models.ForeignKey(Trace, on_delete=models.CASCADE, related_name="tool_calls", db_index=False)
    call_id = models.CharField(max_length=64)
    attempt = models.IntegerField()
    name = models.CharField(max_length=200)
    arguments = JSONText(default=dict)
    status = models.CharField(max_length=16, default=RUNNING)
    result = JSONText(null=True, blank=True, default=None)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["trace", "id"]
        constraints = [
            models.UniqueConstraint(fields=["trace", "call_id", "attempt"], name="tool_call_once"),
            models.CheckConstraint(condition=Q(status__in=["running", "done", "failed"]), name="tool_call_status"),
        ]

    def __str__(self) -> str:
        return self.name


class Approval(models.Model):
    """A person's leave for one exact call: its digest is over name and arguments. It expires, and is used once."""

    ASKED, GIVEN, REFUSED, USED = "asked", "given", "refused", "used"

    trace = models.ForeignKey(Trace, on_delete=models.CASCADE, related_name="approvals", db_index=False)
    digest = models.CharField(max_length=64)
    tool = models.CharField(max_length=200)
    arguments = JSONText(default=dict)
    status = models.CharField(max_length=16, default=ASKED)
    asked_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    decided_by = models.ForeignKey(Agent, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    decided_at = models.DateTimeField(null=True, blank=True)
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["trace", "id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=["asked", "given", "refused", "used"]), name="approval_status"
            ),
        ]
        indexes = [models.Index(fields=["trace", "digest"], name="approval_call")]

    def __str__(self) -> str:
        return f"{self.tool}: {self.status}"
