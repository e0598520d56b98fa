"""What the hub remembers of remote A2A agents: their cards, the context each gave a session, the task each trace became."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from hub.a2a.outbound import states
from sessions_app.models import Agent, Session
from sessions_app.models.fields import JSONText
from traces_app.models import Trace


class RemoteCard(models.Model):
    """An agent card as its URL gave it. The cache of all processes; the agents that use it name the URL in their config."""

    url = models.CharField(max_length=2048, unique=True)
    card = JSONText(null=True, default=None)
    etag = models.CharField(max_length=500, blank=True, default="")
    fetched_at = models.DateTimeField(null=True, blank=True, help_text="when it was last fetched or confirmed")
    fresh_until = models.DateTimeField(null=True, blank=True)
    due_at = models.DateTimeField(db_index=True, help_text="when the sweep has it fetched next")
    failed_at = models.DateTimeField(null=True, blank=True)
    failure = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        verbose_name = "remote card"
        ordering = ["url"]

    def __str__(self) -> str:
        return self.url


class RemoteContext(models.Model):
    """The `contextId` that a remote agent gave to its part of a session; sent with every task from then on."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="+", db_index=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+")
    context_id = models.CharField(max_length=500)
    changed_at = models.DateTimeField()

    class Meta:
        verbose_name = "remote context"
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["session", "agent"], name="remote_context_once")]

    def __str__(self) -> str:
        return self.context_id


class RemoteTask(models.Model):
    """What a trace is on the remote side. `turn` is the number of answers that were sent to it so far.

    Written only by the trace's current attempt, and by the sweep once the trace has ended: then `end_due_at` says when the
    remote is told next, until it has been, or `end_attempts` have been made.
    """

    trace = models.OneToOneField(Trace, on_delete=models.CASCADE, related_name="remote_task")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+")
    turn = models.IntegerField(default=0)
    message_id = models.CharField(max_length=100)
    task_id = models.CharField(max_length=500, blank=True, default="")
    context_id = models.CharField(max_length=500, blank=True, default="")
    state = models.CharField(max_length=20, default=states.SENDING, choices=[(s, s) for s in states.STATES])
    end_attempts = models.IntegerField(default=0)
    end_due_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField()

    class Meta:
        verbose_name = "remote task"
        ordering = ["-id"]
        constraints = [models.CheckConstraint(condition=Q(state__in=list(states.STATES)), name="remote_task_state")]
        indexes = [
            # Few are not over at any time.
            models.Index(fields=["trace"], name="remote_task_open", condition=Q(state__in=list(states.UNFINISHED))),
        ]

    def __str__(self) -> str:
        return self.task_id or self.message_id
