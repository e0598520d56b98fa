"""Who is online: rows under the lease of the process that vouches for them. Nothing depends on a clean disconnect."""

from __future__ import annotations

import socket
from datetime import timedelta

from django.conf import settings
from django.db.models import Q

from sessions_app.changes import PresenceChanged, unit_of_work
from sessions_app.db import utc_now
from sessions_app.models import Agent, HubProcess, Presence


def register_process() -> int:
    """A row for this process, under a lease that it has to renew."""
    now = utc_now()
    lease = timedelta(seconds=settings.HUB_LEASE_SECONDS)
    return HubProcess.objects.create(started_at=now, lease_until=now + lease, host=socket.gethostname()[:200]).pk


def renew_lease(process_pk: int) -> bool:
    """False when somebody has cleared this process away (it was silent for too long): register anew."""
    until = utc_now() + timedelta(seconds=settings.HUB_LEASE_SECONDS)
    return HubProcess.objects.filter(pk=process_pk).update(lease_until=until) == 1


def set_presence(process_pk: int, arrived: dict[int, bool], gone: set[int]) -> None:
    """Agents that now have a socket here (`{agent: takes delegated traces}`) and such that have none any more."""
    now = utc_now()
    touched = [*arrived, *gone]
    with unit_of_work() as changes:
        before = online_among(touched)
        Presence.objects.filter(process_id=process_pk, agent_id__in=gone).delete()
        if arrived:
            Presence.objects.bulk_create(
                [Presence(process_id=process_pk, agent_id=a, since=now, runs_traces=r) for a, r in arrived.items()],
                update_conflicts=True,
                update_fields=["runs_traces"],
                unique_fields=["process", "agent"],
            )
        if gone:
            Agent.objects.filter(pk__in=gone).update(last_seen=now)
        after = online_among(touched)
        names = dict(Agent.objects.filter(pk__in=before ^ after).values_list("pk", "agent_id"))
        changes.presence += [PresenceChanged(pk, name, pk in after) for pk, name in names.items()]


def online_among(agent_pks: list[int]) -> set[int]:
    """Which of these agents have a live socket or stream in any process."""
    rows = Presence.objects.filter(agent_id__in=agent_pks, process__lease_until__gt=utc_now())
    return set(rows.values_list("agent_id", flat=True))


def sweep_processes() -> None:
    """Clear away processes whose lease has run out, and tell of the agents that went with them."""
    dead = list(HubProcess.objects.filter(lease_until__lt=utc_now()).values_list("pk", "lease_until"))
    if not dead:
        return
    with unit_of_work() as changes:
        keys = [pk for pk, _ in dead]
        agents = list(Presence.objects.filter(process_id__in=keys).values_list("agent_id", flat=True))
        still = online_among(agents)
        Agent.objects.filter(pk__in=agents).exclude(pk__in=still).filter(
            Q(last_seen=None) | Q(last_seen__lt=dead[0][1])
        ).update(last_seen=dead[0][1])
        HubProcess.objects.filter(pk__in=keys).delete()
        names = dict(Agent.objects.filter(pk__in=set(agents) - still).values_list("pk", "agent_id"))
        changes.presence += [PresenceChanged(pk, name, False) for pk, name in names.items()]


def leave(process_pk: int) -> None:
    """A clean stop: take this process and its presence away at once."""
    with unit_of_work() as changes:
        agents = list(Presence.objects.filter(process_id=process_pk).values_list("agent_id", flat=True))
        HubProcess.objects.filter(pk=process_pk).delete()
        gone = set(agents) - online_among(agents)
        Agent.objects.filter(pk__in=gone).update(last_seen=utc_now())
        names = dict(Agent.objects.filter(pk__in=gone).values_list("pk", "agent_id"))
        changes.presence += [PresenceChanged(pk, name, False) for pk, name in names.items()]
