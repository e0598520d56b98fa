"""The injection ledger: what an agent has been given of a session, one row per message. Nothing is given twice.

Every function runs inside a transaction that holds the agent's history row (`histories.lock`): rounds with one agent of
one session choose one after another, and the unique constraint stands behind that.
"""

from __future__ import annotations

from collections.abc import Collection

from sessions_app.models import Delivery, Injection

AT_ONCE = 5_000  # SQLite takes 32,766 parameters


def known(session_pk: int, agent_pk: int, keys: Collection[int]) -> dict[int, str]:
    """`{message key: reserved | seen}` of those of these messages that the agent has been given or is being given."""
    found: dict[int, str] = {}
    wanted = sorted(keys)
    for start in range(0, len(wanted), AT_ONCE):
        rows = Injection.objects.filter(
            session_id=session_pk, agent_id=agent_pk, message_key__in=wanted[start : start + AT_ONCE]
        )
        found.update(rows.values_list("message_key", "state"))
    return found


def reserve(delivery: Delivery, keys: Collection[int]) -> list[int]:
    """Reserve what is not in the ledger yet for this delivery; returns the keys that it got."""
    taken = known(delivery.session_id, delivery.agent_id, keys)
    return _add(delivery, [key for key in dict.fromkeys(keys) if key not in taken], Injection.RESERVED)


def see(delivery: Delivery, also: Collection[int] = ()) -> None:
    """The agent took the delivery: what was reserved for it is seen, and so is `also` (the question itself)."""
    Injection.objects.filter(delivery=delivery).update(state=Injection.SEEN)
    taken = known(delivery.session_id, delivery.agent_id, also)
    _add(delivery, [key for key in dict.fromkeys(also) if key not in taken], Injection.SEEN)


def release(delivery: Delivery) -> None:
    """The delivery failed: what was reserved for it was not given, and may be chosen again."""
    Injection.objects.filter(delivery=delivery, state=Injection.RESERVED).delete()


def reset(session_pk: int, agent_pk: int) -> None:
    """The agent has forgotten everything; what is on its way to it stays reserved."""
    Injection.objects.filter(session_id=session_pk, agent_id=agent_pk, state=Injection.SEEN).delete()


def _add(delivery: Delivery, keys: list[int], state: str) -> list[int]:
    Injection.objects.bulk_create(
        Injection(
            session_id=delivery.session_id,
            agent_id=delivery.agent_id,
            message_key=key,
            state=state,
            delivery=delivery,
        )
        for key in keys
    )
    return keys
