"""Cards that are stale, or were never fetched, are fetched by the workers; the directory follows what they say."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from hub.a2a.outbound.cards import EXECUTOR, CardRefused, refresh
from hub.a2a.outbound.config import read_config
from hub.a2a.outbound.models import RemoteCard
from sessions_app.db import write_transaction
from sessions_app.models import Agent
from sessions_app.protocol.errors import HubError

log = logging.getLogger("hub.a2a")

TASK = "a2a.card"
CLAIM_SECONDS = 60.0
SWEEP_LIMIT = 50


def take_due(now: datetime) -> list[tuple[str, list[int]]]:
    """`SWEEPS`: the cards that are to be fetched now; of several sweeps one gets each of them."""
    found = list(
        RemoteCard.objects.filter(due_at__lte=now).order_by("due_at").values_list("pk", "due_at")[:SWEEP_LIMIT]
    )
    taken = []
    if found:
        with write_transaction():
            for pk, due_at in found:
                until = now + timedelta(seconds=CLAIM_SECONDS)
                if RemoteCard.objects.filter(pk=pk, due_at=due_at).update(due_at=until):
                    taken.append((TASK, [pk]))
    return taken


def refresh_card(pk: int) -> bool:
    """Fetch a card for the agents that use it; one that nobody uses any more is forgotten. False when it could not be had."""
    row = RemoteCard.objects.filter(pk=pk).first()
    if row is None:
        return False
    for agent in Agent.objects.filter(executor=EXECUTOR, is_active=True):
        if (agent.executor_config or {}).get("card_url") != row.url:
            continue
        try:
            refresh(read_config(agent.executor_config))
        except (CardRefused, HubError) as refusal:
            log.warning("the card of %s can't be had: %s", agent.agent_id, refusal)
            return False
        return True
    with write_transaction():
        RemoteCard.objects.filter(pk=pk, due_at=row.due_at).delete()
    return False
