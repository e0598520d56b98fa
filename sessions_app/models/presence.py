from __future__ import annotations

from django.db import models

from sessions_app.models.agents import Agent


class HubProcess(models.Model):
    """A process that serves sockets. While its lease runs it vouches for its presence rows; nothing depends on a clean end."""

    started_at = models.DateTimeField()
    lease_until = models.DateTimeField(db_index=True)
    host = models.CharField(max_length=200, blank=True, default="")

    class Meta:
        verbose_name_plural = "hub processes"

    def __str__(self) -> str:
        return f"process {self.pk}"


class Presence(models.Model):
    """An agent has at least one live socket or stream in this process."""

    process = models.ForeignKey(HubProcess, on_delete=models.CASCADE, related_name="presences")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="presences")
    since = models.DateTimeField()
    runs_traces = models.BooleanField(default=False, help_text="one of its sockets takes delegated traces (run=1)")

    class Meta:
        verbose_name_plural = "presence"
        constraints = [models.UniqueConstraint(fields=["process", "agent"], name="presence_once")]

    def __str__(self) -> str:
        return f"{self.agent} at {self.process}"
