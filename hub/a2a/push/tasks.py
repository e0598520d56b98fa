"""The Celery task. It carries keys and nothing else; the row decides whether there is something to send."""

from __future__ import annotations

import logging

from celery import shared_task
from django.db import connection

from hub.a2a.push import outbox
from sessions_app.db import is_outage, on_postgres

log = logging.getLogger("hub.a2a")


@shared_task(name=outbox.TASK, ignore_result=True, acks_late=False)
def push(notification_pk: int, attempts: int) -> None:
    """Make one attempt at a notification. Delivered twice, or late, it does nothing."""
    try:
        outbox.deliver(notification_pk, attempts)
    except Exception as error:
        if not is_outage(error):
            raise
        log.warning("a push notification could not be sent now: %r", error)  # its claim runs out, the sweep rings again
        connection.close()
    finally:
        if on_postgres():
            connection.close()
