"""The rows that A2A needs beside the conversation's and the traces' own.

A context is a session. A task that an executor runs is its trace, and has no second row; a task of an agent that just
answers is a `Question`.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from hub.a2a import states
from sessions_app.models import Agent, Session


class Question(models.Model):
    """A task that lives as long as its question is open: its events are 1 submitted, 2 the answer, 3 the end."""

    public_id = models.CharField(max_length=40, unique=True)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="+", db_index=False)
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="+", help_text="who is asked")
    owner = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="+", db_index=False, help_text="who asks")
    message_key = models.BigIntegerField(help_text="the key of its first message")
    message_sequence = models.BigIntegerField()
    state = models.CharField(max_length=16, choices=[(s, s) for s in states.STATES], default=states.SUBMITTED)
    answer_key = models.BigIntegerField(null=True, blank=True, help_text="the key of the message that answered it")
    last_sequence = models.BigIntegerField(default=1, help_text="of its events")
    created_at = models.DateTimeField()
    changed_at = models.DateTimeField(db_index=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=list(states.STATES)), name="a2a_question_state"),
        ]
        indexes = [
            models.Index(fields=["owner", "agent", "changed_at"], name="a2a_question_listed"),
            models.Index(fields=["session"], name="a2a_question_open", condition=Q(state="submitted")),
        ]

    def __str__(self) -> str:
        return self.public_id


class Received(models.Model):
    """A message that came by A2A, and its task. `message_id` is the client's: a second one of the same digest is a resend."""

    owner = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+", db_index=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+", db_index=False)
    message_id = models.CharField(max_length=128)
    digest = models.CharField(max_length=64)
    task_id = models.CharField(max_length=40, db_index=True)
    message_key = models.BigIntegerField(unique=True)
    created_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "received"
        ordering = ["id"]
        constraints = [models.UniqueConstraint(fields=["owner", "agent", "message_id"], name="a2a_received_once")]

    def __str__(self) -> str:
        return self.message_id


class Name(models.Model):
    """A name that a client chose itself for a context or (A2A 0.1) a task; only it knows it, and only at this agent."""

    CONTEXT, TASK = "context", "task"

    owner = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+", db_index=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+", db_index=False)
    kind = models.CharField(max_length=8)
    name = models.CharField(max_length=200)
    target = models.CharField(max_length=40, help_text="a session's or task's public id")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["owner", "agent", "kind", "name"], name="a2a_name_once"),
            models.CheckConstraint(condition=Q(kind__in=["context", "task"]), name="a2a_name_kind"),
        ]
        indexes = [models.Index(fields=["target", "owner", "agent"], name="a2a_name_of")]

    def __str__(self) -> str:
        return self.name
