from __future__ import annotations

from django.db import models
from django.db.models import Q

from sessions_app.models.agents import Agent


class IdempotentAnswer(models.Model):
    """What a creating POST answered under an `Idempotency-Key`; kept for 24 hours."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+")
    path = models.CharField(max_length=300)
    key = models.CharField(max_length=128)
    body_digest = models.CharField(max_length=64)
    status = models.IntegerField()
    answer = models.TextField()
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "path", "key"], name="idempotency_once")]

    def __str__(self) -> str:
        return f"{self.path} {self.key}"


class KindRule(models.Model):
    """A pattern, editable in the admin, that decides a message's kind before the built-in rules do. Ordered by `position`."""

    position = models.IntegerField(default=100)
    name = models.SlugField(max_length=60, unique=True)
    kind = models.CharField(max_length=16)
    pattern = models.CharField(max_length=500, help_text="a regular expression over the message's text")
    is_active = models.BooleanField(default=True)

    class Meta:
        ordering = ["position", "id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(kind__in=["chat", "status_query", "task", "tool_call"]), name="kind_rule_kind"
            )
        ]

    def __str__(self) -> str:
        return self.name
