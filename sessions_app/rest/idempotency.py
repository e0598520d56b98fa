"""Creation exactly once: the answer is stored in the transaction that creates, under the client's key.

Per agent and path, for 24 hours. A refused creation stores nothing, so the same key may try again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
from django.db import IntegrityError

from sessions_app.changes import Changes, unit_of_work
from sessions_app.db import utc_now
from sessions_app.models import IdempotentAnswer
from sessions_app.protocol.errors import Conflict, Unavailable
from sessions_app.rest.answers import Answer

KEPT_FOR = timedelta(hours=24)
PURGED_AT_ONCE = 100
UNDER_WAY = 0


def answer_once(
    agent_pk: int,
    path: str,
    key: str,
    body: Any,
    make: Callable[[Changes], Answer],
    kept: Callable[[Answer], Answer] | None = None,
) -> Answer:
    """What `make` answered the first time; raises `Conflict` when the key came with another body then."""
    plain = msgspec.json.decode(msgspec.json.encode(body))  # the same body in another order or spacing is the same body
    digest = hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()
    for _ in range(2):
        if (known := _look_up(agent_pk, path, key, digest)) is not None:
            return known
        try:
            with unit_of_work() as changes:
                # The row comes first: on PostgreSQL a second request with this key waits here, holding nothing else.
                row = IdempotentAnswer.objects.create(
                    agent_id=agent_pk, path=path, key=key, body_digest=digest, status=UNDER_WAY, created_at=utc_now()
                )
                answer = make(changes)
                stored = kept(answer) if kept is not None else answer
                IdempotentAnswer.objects.filter(pk=row.pk).update(status=stored.status, answer=stored.body.decode())
                _purge()
            return answer
        except IntegrityError:
            continue  # somebody else was first with this key; their answer is ours
    raise Unavailable(stored=False)


def _look_up(agent_pk: int, path: str, key: str, digest: str) -> Answer | None:
    row = IdempotentAnswer.objects.filter(agent_id=agent_pk, path=path, key=key).first()
    if row is None:
        return None
    if row.created_at < utc_now() - KEPT_FOR:
        row.delete()
        return None
    if row.body_digest != digest:
        raise Conflict("This Idempotency-Key was used with another body.", field="Idempotency-Key")
    return Answer(row.status, row.answer.encode(), {"Idempotency-Replayed": "true"})


def _purge() -> None:
    """Delete a few that nobody may ask for any more, so that the table does not outgrow a day."""
    expired = IdempotentAnswer.objects.filter(created_at__lt=utc_now() - KEPT_FOR).order_by("created_at")
    keys = list(expired.values_list("pk", flat=True)[:PURGED_AT_ONCE])
    if keys:
        IdempotentAnswer.objects.filter(pk__in=keys).delete()
