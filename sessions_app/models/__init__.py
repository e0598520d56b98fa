"""The rows that are the truth. The hot statements over them are in `sessions_app/sql.py`; a test holds both together."""

from sessions_app.models.agents import Agent, ApiKey
from sessions_app.models.context import AgentHistory, Delivery, HistoryEntry, Injection, Summary
from sessions_app.models.messages import Message
from sessions_app.models.presence import HubProcess, Presence
from sessions_app.models.requests import IdempotentAnswer, KindRule
from sessions_app.models.sessions import Participant, Session

__all__ = [
    "Agent",
    "AgentHistory",
    "ApiKey",
    "Delivery",
    "HistoryEntry",
    "HubProcess",
    "IdempotentAnswer",
    "Injection",
    "KindRule",
    "Message",
    "Participant",
    "Presence",
    "Session",
    "Summary",
]
