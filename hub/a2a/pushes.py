"""Configurations of push notifications: whom a task's owner wants to have told. The delivery is `hub.a2a.push`."""

from __future__ import annotations

import secrets

from a2a.types import TaskPushNotificationConfig
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from django.db.models import QuerySet

from hub.a2a.addresses import AddressRefused, check_url
from hub.a2a.push.models import PushConfig
from hub.a2a.tasks import TaskRef
from hub.a2a.updates import page_after, position_of
from sessions_app.db import utc_now, write_transaction

MAX_CONFIGS = 20
UNNAMED = "default"


def check(config: TaskPushNotificationConfig) -> None:
    """Refuse what could not be kept, and addresses that the hub does not go to."""
    for name, value, most in (
        ("url", config.url, 2048),
        ("id", config.id, 128),
        ("token", config.token, 2048),
        ("scheme", config.authentication.scheme, 64),
        ("credentials", config.authentication.credentials, 4096),
    ):
        if len(value) > most or not (value.isprintable() or not value):
            raise InvalidParamsError(f"{name} is one line of {most} characters at the most.", data={"field": name})
    try:
        check_url(config.url)
    except AddressRefused as error:
        raise InvalidParamsError(str(error), data={"field": "url"}) from None


def save(ref: TaskRef, config: TaskPushNotificationConfig, protocol: str) -> TaskPushNotificationConfig:
    """Make or replace a configuration; what happened before is told to nobody."""
    rows = PushConfig.objects.filter(owner_id=ref.owner_pk, agent_id=ref.agent_pk, task_id=ref.task_id)
    # In 0.3 a task has one unnamed configuration, which is set and got again; since then each has a name.
    config_id = config.id or (f"push-{secrets.token_hex(8)}" if protocol == "1.0" else UNNAMED)
    values = {
        "url": config.url,
        "token": config.token,
        "scheme": config.authentication.scheme,
        "credentials": config.authentication.credentials,
        "protocol": "1.0" if protocol == "1.0" else "0.3",
    }
    with write_transaction():
        if not rows.filter(config_id=config_id).update(**values):
            if rows.count() >= MAX_CONFIGS:
                raise InvalidParamsError(f"A task has {MAX_CONFIGS} push notification configurations at the most.")
            position = position_of(ref.task_id, ref.agent_pk)
            rest = page_after(ref, position, 1)
            rows.create(
                owner_id=ref.owner_pk,
                agent_id=ref.agent_pk,
                task_id=ref.task_id,
                config_id=config_id,
                cursor=position,
                ended=rest.over and not rest.updates,  # the sweep need not look at it
                created_at=utc_now(),
                **values,
            )
    return show(ref, config_id)


def show(ref: TaskRef, config_id: str) -> TaskPushNotificationConfig:
    """One of a task's configurations; without an id (A2A 0.3) the first."""
    rows = _mine(ref)
    row = (rows.filter(config_id=config_id) if config_id else rows).first()
    if row is None:
        raise TaskNotFoundError("This task has no such push notification configuration.")
    return _shown(ref, row)


def listed(ref: TaskRef) -> list[TaskPushNotificationConfig]:
    return [_shown(ref, row) for row in _mine(ref)]


def delete(ref: TaskRef, config_id: str) -> None:
    """Gone, however often it is said."""
    with write_transaction():
        _mine(ref).filter(config_id=config_id).delete()


def _mine(ref: TaskRef) -> QuerySet[PushConfig]:
    mine = PushConfig.objects.filter(owner_id=ref.owner_pk, agent_id=ref.agent_pk, task_id=ref.task_id)
    return mine.order_by("pk")


def _shown(ref: TaskRef, row: PushConfig) -> TaskPushNotificationConfig:
    config = TaskPushNotificationConfig(id=row.config_id, task_id=ref.task_id, url=row.url, token=row.token)
    if row.scheme:
        config.authentication.scheme = row.scheme
        config.authentication.credentials = row.credentials
    return config
