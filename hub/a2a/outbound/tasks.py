"""The Celery tasks. They carry a key and nothing else; the row decides whether there is something to do."""

from __future__ import annotations

import logging
from collections.abc import Callable

from celery import shared_task
from django.db import connection

from hub.a2a.outbound import ends, refreshing
from sessions_app.db import is_outage, on_postgres

log = logging.getLogger("hub.a2a")


@shared_task(name=ends.TASK, ignore_result=True, acks_late=False)
def end(remote_task_pk: int) -> None:
    """Tell a remote that nobody waits for its task any more."""
    _do(ends.end_remote, remote_task_pk)


@shared_task(name=refreshing.TASK, ignore_result=True, acks_late=False)
def card(remote_card_pk: int) -> None:
    """Fetch a card that is stale, or was never fetched."""
    _do(refreshing.refresh_card, remote_card_pk)


def _do(work: Callable[[int], object], pk: int) -> None:
    try:
        work(pk)
    except Exception as error:
        if not is_outage(error):
            raise
        log.warning("a remote agent could not be looked after now: %r", error)  # the sweep rings again
        connection.close()
    finally:
        if on_postgres():
            connection.close()
