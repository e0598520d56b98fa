"""What agents were told: deliveries, the injection ledger, agents' own histories, summaries (`sessions_app/context/`)."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from sessions_app.models.agents import Agent
from sessions_app.models.fields import JSONText
from sessions_app.models.sessions import Session


class Delivery(models.Model):
    """One question put to one agent, with everything that travelled along. `parts` and `metadata` are what was sent, as text."""

    PREPARED, DELIVERED, FAILED = "prepared", "delivered", "failed"
    STATUSES = [(s, s) for s in (PREPARED, DELIVERED, FAILED)]

    public_id = models.CharField(max_length=40, unique=True)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="deliveries")
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="deliveries")
    key = models.CharField(max_length=160, null=True, blank=True, unique=True, help_text="a retry finds it by this")
    strategy = models.CharField(max_length=16)
    status = models.CharField(max_length=16, choices=STATUSES, default=PREPARED)
    asked_by = models.CharField(max_length=64, blank=True, default="")
    query = models.TextField(blank=True)
    message_key = models.BigIntegerField(null=True, blank=True, help_text="the message that the question stands in")
    round = models.BigIntegerField(default=0)
    through_sequence = models.BigIntegerField(default=0, help_text="nothing after it was looked at")
    parts = models.TextField(help_text="JSON text, byte for byte what is sent")
    metadata = models.TextField(default="{}", help_text="JSON text of the message's metadata")
    sent = models.TextField(
        null=True, blank=True, help_text="the whole body as it went over the wire, where that is known"
    )
    reasons = JSONText(default=list, blank=True, help_text="why each message was chosen")
    estimated_tokens = models.BigIntegerField(default=0)
    visibility_hash = models.CharField(max_length=64)
    rebuilt = models.BooleanField(default=False, help_text="all over again, since the agent had forgotten")
    error = models.TextField(blank=True, default="")
    created_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "deliveries"
        ordering = ["-id"]
        indexes = [models.Index(fields=["session", "agent", "id"], name="delivery_of_agent")]
        constraints = [
            models.CheckConstraint(condition=Q(status__in=["prepared", "delivered", "failed"]), name="delivery_status"),
            models.CheckConstraint(
                condition=Q(strategy__in=["embedded", "per_agent", "shared"]), name="delivery_strategy"
            ),
        ]

    def __str__(self) -> str:
        return self.public_id


class Injection(models.Model):
    """A row of the ledger: this agent has been given this message, or is being given it. Nothing is given twice."""

    RESERVED, SEEN = "reserved", "seen"
    STATES = [(s, s) for s in (RESERVED, SEEN)]

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="+", db_index=False)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+", db_index=False)
    message_key = models.BigIntegerField()
    state = models.CharField(max_length=16, choices=STATES, default=RESERVED)
    delivery = models.ForeignKey(Delivery, on_delete=models.CASCADE, related_name="injections")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "agent", "message_key"], name="injection_once"),
            models.CheckConstraint(condition=Q(state__in=["reserved", "seen"]), name="injection_state"),
        ]

    def __str__(self) -> str:
        return f"{self.message_key} to {self.agent_id}: {self.state}"


class AgentHistory(models.Model):
    """An agent's own history in one session, kept by the hub; its public name is `{session_id}_{agent_id}`."""

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="histories")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="histories")
    last_position = models.BigIntegerField(default=0)
    bytes_told = models.BigIntegerField(default=0, help_text="with tokens_told: what the model's own counts say")
    tokens_told = models.BigIntegerField(default=0)
    used_at = models.DateTimeField(db_index=True)

    class Meta:
        verbose_name = "agent history"
        verbose_name_plural = "agent histories"
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["session", "agent"], name="history_once")]

    def __str__(self) -> str:
        return f"history {self.pk}"


class HistoryEntry(models.Model):
    """One entry of an agent's own history. `data` holds what text does not: a tool call's name, id and arguments."""

    INJECTION, QUERY, REPLY, TOOL_CALL, TOOL_RESULT = "injection", "query", "reply", "tool_call", "tool_result"
    KINDS = [(k, k) for k in (INJECTION, QUERY, REPLY, TOOL_CALL, TOOL_RESULT)]

    history = models.ForeignKey(AgentHistory, on_delete=models.CASCADE, related_name="entries", db_index=False)
    position = models.BigIntegerField()
    kind = models.CharField(max_length=16, choices=KINDS)
    role = models.CharField(max_length=16)
    source_agent = models.CharField(max_length=64, blank=True, default="")
    round = models.BigIntegerField(default=0)
    content = models.TextField(blank=True)
    data = JSONText(null=True, blank=True)
    message_key = models.BigIntegerField(null=True, blank=True)
    delivery = models.ForeignKey(Delivery, on_delete=models.SET_NULL, null=True, blank=True, related_name="entries")
    created_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "history entries"
        ordering = ["history", "position"]
        constraints = [
            models.UniqueConstraint(fields=["history", "position"], name="history_position"),
            models.CheckConstraint(
                condition=Q(kind__in=["injection", "query", "reply", "tool_call", "tool_result"]),
                name="history_entry_kind",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.position} {self.kind}"


class Summary(models.Model):
    """A summary beside the messages, never instead of them. Made of what readers of `visibility_hash` may see, and theirs alone.

    Of a session's messages (`history` null; `covers_*` are sequences) or of an agent's own history (positions).
    """

    LLM, EXTRACTIVE = "llm", "extractive"

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="summaries")
    history = models.ForeignKey(AgentHistory, on_delete=models.CASCADE, null=True, blank=True, related_name="summaries")
    visibility_hash = models.CharField(max_length=64)
    tier = models.IntegerField(default=1, help_text="1: of the raw, 2: of summaries")
    covers_from = models.BigIntegerField()
    covers_to = models.BigIntegerField()
    rounds_from = models.BigIntegerField(default=0)
    rounds_to = models.BigIntegerField(default=0)
    method = models.CharField(max_length=16, choices=[(m, m) for m in (LLM, EXTRACTIVE)])
    source_hash = models.CharField(max_length=64)
    text = models.TextField()
    data = JSONText(null=True, blank=True, help_text="decisions, open questions, facts with message ids")
    created_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "summaries"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["session", "visibility_hash", "tier", "covers_to"],
                name="summary_once",
                condition=Q(history__isnull=True),
            ),
            models.UniqueConstraint(
                fields=["history", "tier", "covers_to"],
                name="history_summary_once",
                condition=Q(history__isnull=False),
            ),
            models.CheckConstraint(condition=Q(method__in=["llm", "extractive"]), name="summary_method"),
        ]

    def __str__(self) -> str:
        return f"summary {self.covers_from}–{self.covers_to}"
