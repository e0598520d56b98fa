from __future__ import annotations

from django.db import models
from django.db.models import Q

from sessions_app.models.agents import Agent
from sessions_app.models.fields import JSONText
from sessions_app.models.sessions import Session
from sessions_app.protocol.ids import message_id


class Message(models.Model):
    """One durable entry of a session. Written by `append` alone; its key is chosen before the commit (`ids.MessageKeys`)."""

    CHAT, STATUS_QUERY, TASK, TOOL_CALL = "chat", "status_query", "task", "tool_call"
    RESULT, SYSTEM = "result", "system"
    KINDS = [(k, k) for k in (CHAT, STATUS_QUERY, TASK, TOOL_CALL, RESULT, SYSTEM)]

    id = models.BigAutoField(
        primary_key=True
    )  # given by us; so declared it is SQLite's own row number, and no index more
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="messages", db_index=False)
    sequence = models.BigIntegerField()
    sender = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="+", db_index=False)
    round = models.BigIntegerField()
    kind = models.CharField(max_length=16, choices=KINDS)
    content = models.TextField(blank=True)
    parts = JSONText(null=True, blank=True, help_text="null: one text part, the content")
    to = JSONText(null=True, blank=True)
    reply_to = models.BigIntegerField(null=True, blank=True, help_text="the key of the message it answers")
    trace_id = models.CharField(max_length=40, null=True, blank=True)
    client_message_id = models.CharField(max_length=128, null=True, blank=True)
    requires_execution = models.BooleanField(null=True, blank=True)
    metadata = JSONText(null=True, blank=True)
    classified_by = models.CharField(max_length=80, null=True, blank=True, help_text="who decided the kind")
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["session", "sequence"]
        constraints = [
            models.UniqueConstraint(fields=["session", "sequence"], name="message_sequence"),
            models.UniqueConstraint(
                fields=["session", "sender", "client_message_id"],
                name="message_client_id",
                condition=Q(client_message_id__isnull=False),
            ),
            models.CheckConstraint(
                condition=Q(kind__in=["chat", "status_query", "task", "tool_call", "result", "system"]),
                name="message_kind",
            ),
        ]

    @property
    def public_id(self) -> str:
        return message_id(self.id)

    def __str__(self) -> str:
        return self.public_id
