"""The workers' application: `celery -A hub worker`. The database decides who runs what; the queue only rings."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hub.settings")

from celery import Celery
from celery.signals import worker_init, worker_ready, worker_shutting_down

app = Celery("hub")
app.config_from_object("django.conf:settings", namespace="CELERY")
# Our tasks give their connections back themselves. Celery would close the whole pool of a process after each of them.
app.conf.CELERY_DB_REUSE_MAX = 1_000_000_000
app.autodiscover_tasks(["traces_app", "hub.a2a.outbound", "hub.a2a.push"])


@worker_init.connect
def _before_any_fork(**_: Any) -> None:
    from hub.embedded.worker import prepare

    prepare()


@worker_ready.connect
def _ready(**_: Any) -> None:
    from hub.embedded.worker import begin

    begin(app)


@worker_shutting_down.connect
def _shutting_down(**_: Any) -> None:
    from hub.embedded.worker import hand_back_soon

    hand_back_soon()
