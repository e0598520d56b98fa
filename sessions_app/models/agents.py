from __future__ import annotations

from django.db import models
from django.db.models import Q

from sessions_app.models.fields import JSONText


class Agent(models.Model):
    """A registered identity. `agent_id` never changes, so processes may remember it by its key."""

    AGENT, HUMAN, SYSTEM = "agent", "human", "system"

    agent_id = models.CharField(max_length=64, unique=True)
    kind = models.CharField(max_length=16, default=AGENT, help_text="agent, human or system; others as you like")
    name = models.CharField(max_length=200, blank=True, default="")
    description = models.TextField(blank=True, default="")
    skills = JSONText(default=list, blank=True)
    accepts = JSONText(null=True, blank=True, default=None, help_text="null: anyone; else a list of agent ids")
    executor = models.CharField(max_length=200, null=True, blank=True, default=None)
    executor_config = JSONText(default=dict, blank=True)
    context_strategy = models.CharField(max_length=16, null=True, blank=True, default=None)
    visibility = JSONText(
        null=True,
        blank=True,
        default=None,
        help_text="a visibility profile; null: everything, or what its kind may see",
    )
    is_active = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(
        auto_now=True, null=True, help_text="what it says of itself; being seen is no change"
    )
    last_seen = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["agent_id"]

    def __str__(self) -> str:
        return self.agent_id


class ApiKey(models.Model):
    """A key as we keep it: its public prefix and the SHA-256 of the whole; the key itself was shown once."""

    AGENT, OPERATOR = "agent", "operator"
    SCOPES = [(AGENT, "acts as the agent"), (OPERATOR, "registers agents, watches and closes sessions")]

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="keys")
    prefix = models.CharField(max_length=16, unique=True)
    digest = models.CharField(max_length=64, unique=True)
    scope = models.CharField(max_length=16, choices=SCOPES, default=AGENT)
    label = models.CharField(max_length=100, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "API key"
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=Q(scope__in=["agent", "operator"]), name="api_key_scope"),
        ]

    def __str__(self) -> str:
        return f"ak_{self.prefix}…"
