"""Keys: issued once, kept as hashes, verified in one place for every door."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from dataclasses import dataclass
from datetime import datetime, timedelta

from sessions_app.changes import unit_of_work
from sessions_app.db import utc_now
from sessions_app.models import Agent, ApiKey
from sessions_app.protocol.errors import Invalid, Unauthenticated

# ak_<12 letters: public prefix>_<43 letters: 32 random bytes>
_KEY = re.compile(r"ak_([a-z2-7]{12})_[A-Za-z0-9_-]{43}", re.ASCII)
_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
REMEMBER_SECONDS = 2.0
LAST_USED_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking: an agent by one of its keys. `expires_at` is when the key ends by itself."""

    agent_pk: int
    agent_id: str
    key_pk: int
    scope: str
    expires_at: datetime | None = None

    @property
    def is_operator(self) -> bool:
        return self.scope == ApiKey.OPERATOR


def issue_key(
    agent: Agent, scope: str = ApiKey.AGENT, label: str = "", expires_in: timedelta | None = None
) -> tuple[str, ApiKey]:
    """Make a key for `agent`; returns the key, which is shown this once, and its row."""
    if scope not in (ApiKey.AGENT, ApiKey.OPERATOR):
        raise Invalid("scope is agent or operator.", field="scope")
    prefix = "".join(secrets.choice(_LETTERS) for _ in range(12))
    key = f"ak_{prefix}_{secrets.token_urlsafe(32)}"
    row = ApiKey.objects.create(
        agent=agent,
        prefix=prefix,
        digest=_digest(key),
        scope=scope,
        label=label,
        expires_at=utc_now() + expires_in if expires_in is not None else None,
    )
    return key, row


def revoke_keys(rows: list[ApiKey]) -> None:
    """Revoke; live sockets, streams and waits of these keys end within seconds, on every process."""
    with unit_of_work() as changes:
        ApiKey.objects.filter(pk__in=[row.pk for row in rows], revoked_at=None).update(revoked_at=utc_now())
        changes.revoked_keys += [row.pk for row in rows]
    for row in rows:
        forget_key(row.pk)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


_remembered: dict[str, tuple[float, Principal]] = {}


def bearer(header: str | None) -> str | None:
    """The key in an `Authorization` header (RFC 6750), or None."""
    if header is None:
        return None
    scheme, _, key = header.strip().partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def remembered(key: str | None) -> Principal | None:
    """Who `key` was, when that was verified within the last two seconds; never touches the database."""
    if key is None:
        return None
    known = _remembered.get(_digest(key))
    if known is None or time.monotonic() - known[0] > REMEMBER_SECONDS:
        return None
    principal = known[1]
    if principal.expires_at is not None and principal.expires_at <= utc_now():
        return None
    return principal


def verify_key(key: str | None) -> Principal:
    """Who this key is; raises `Unauthenticated`, alike for none, unknown, expired and revoked ones."""
    if (known := remembered(key)) is not None:
        return known
    if key is None or _KEY.fullmatch(key) is None:
        raise Unauthenticated()
    digest = _digest(key)
    row = ApiKey.objects.select_related("agent").filter(digest=digest).first()
    now = utc_now()
    if row is None or not _is_good(row, now):
        raise Unauthenticated()
    if row.last_used_at is None or (now - row.last_used_at).total_seconds() > LAST_USED_SECONDS:
        ApiKey.objects.filter(pk=row.pk).update(last_used_at=now)
    principal = Principal(row.agent_id, row.agent.agent_id, row.pk, row.scope, row.expires_at)
    if len(_remembered) > 10_000:
        _remembered.clear()
    _remembered[digest] = (time.monotonic(), principal)
    return principal


def _is_good(row: ApiKey, now: datetime) -> bool:
    return row.revoked_at is None and row.agent.is_active and (row.expires_at is None or row.expires_at > now)


def bad_keys(key_pks: set[int]) -> set[int]:
    """Which of these keys no longer open anything: revoked, expired, or their agent switched off."""
    now = utc_now()
    rows = ApiKey.objects.select_related("agent").filter(pk__in=key_pks)
    return key_pks - {row.pk for row in rows if _is_good(row, now)}


def forget_key(key_pk: int) -> None:
    """Verify this key anew at its next use."""
    for digest, (_, principal) in list(_remembered.items()):
        if principal.key_pk == key_pk:
            _remembered.pop(digest, None)


def forget_everything() -> None:
    """For tests that replace the database under a running process."""
    _remembered.clear()
