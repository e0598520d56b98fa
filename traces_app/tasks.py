"""The Celery task. It carries a key and nothing else; the database decides whether there is something to run."""

from __future__ import annotations

import logging

from celery import shared_task
from django.db import connection

from sessions_app.db import is_outage, on_postgres
from traces_app import bell, classifier
from traces_app.keeper import answer_bell, ring_celery
from traces_app.runner import run_trace

log = logging.getLogger("hub.traces")


@shared_task(name=classifier.TASK, ignore_result=True, acks_late=False)
def classify(undecided_pk: int) -> None:
    """Have a model decide about a message. Delivered twice, or late, it does nothing."""
    try:
        classifier.decide(undecided_pk)
    except Exception as error:
        if not is_outage(error):
            raise
        log.warning("a message could not be classified now: %r", error)  # it is due again
        connection.close()
    finally:
        if on_postgres():
            connection.close()


@shared_task(name="traces.run", ignore_result=True, acks_late=False)
def run(trace_pk: int) -> None:
    """Run a trace if it is there to be run. Delivered twice, or late, it does nothing."""
    try:
        run_trace(trace_pk)
        if not bell.is_heard():
            answer_bell(ring_celery)  # whoever stood in line behind it would wait for a sweep
    except Exception as error:
        if not is_outage(error):
            raise
        log.warning("a trace could not be run now: %r", error)  # its lease runs out, the sweep rings again
        connection.close()
    finally:
        if on_postgres():
            connection.close()  # back to the pool; a file stays open for the next one
