"""Who wants to be told what happens to a task, and the outbox: one row per notification."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from hub.a2a.push import states
from sessions_app.models import Agent


class PushConfig(models.Model):
    """`TaskPushNotificationConfig` of the client `owner` for a task of `agent`.

    `cursor` is the sequence, in the task's own events, up to which notifications have been made; `numbered` is how many.
    `ended`: the task has ended and its last event is among them. `token` and `credentials` are the client's own secrets:
    they are sent to its address and shown to nobody else.
    """

    PROTOCOLS = [("1.0", "1.0"), ("0.3", "0.3")]

    owner = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="+", help_text="whose task it is")
    task_id = models.CharField(max_length=128)
    config_id = models.CharField(max_length=128)
    url = models.CharField(max_length=2048)
    token = models.CharField(max_length=2048, blank=True, default="")
    scheme = models.CharField(max_length=64, blank=True, default="")
    credentials = models.CharField(max_length=4096, blank=True, default="")
    protocol = models.CharField(max_length=8, choices=PROTOCOLS, default="1.0")
    cursor = models.BigIntegerField(default=0)
    numbered = models.BigIntegerField(default=0)
    ended = models.BooleanField(default=False)
    created_at = models.DateTimeField()

    class Meta:
        verbose_name = "push config"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["agent", "owner", "task_id", "config_id"], name="push_config_once"),
        ]
        indexes = [
            models.Index(fields=["task_id"], name="push_config_task"),
            models.Index(fields=["id"], name="push_config_open", condition=Q(ended=False)),
        ]

    def __str__(self) -> str:
        return f"{self.config_id} of {self.task_id}"


class PushNotification(models.Model):
    """One event of a task for one config. `number` is its place in the config's order, from 1; `body` what is sent, as text.

    `attempts` is the fence: whoever counts it up from what it saw makes that attempt. Of one config only the first that is
    pending is due, so that nothing overtakes.
    """

    config = models.ForeignKey(PushConfig, on_delete=models.CASCADE, related_name="notifications", db_index=False)
    number = models.BigIntegerField()
    body = models.TextField()
    status = models.CharField(max_length=16, choices=[(s, s) for s in states.STATES], default=states.PENDING)
    attempts = models.IntegerField(default=0)
    due_at = models.DateTimeField()
    last_error = models.CharField(max_length=200, blank=True, default="")
    created_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "push notification"
        ordering = ["config", "number"]
        constraints = [
            models.UniqueConstraint(fields=["config", "number"], name="push_notification_once"),
            models.CheckConstraint(condition=Q(status__in=list(states.STATES)), name="push_notification_status"),
        ]
        indexes = [
            models.Index(fields=["due_at", "id"], name="push_due", condition=Q(status="pending")),
            models.Index(fields=["settled_at"], name="push_settled", condition=~Q(status="pending")),
        ]

    def __str__(self) -> str:
        return f"{self.number}: {self.status}"
