"""How the admin reads: for a bounded time, and by the beginning of a name where the index can do it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import OperationalError, connection, transaction
from django.db.models import Q

from sessions_app.db import on_postgres

LAST_CHARACTER = "\U0010ffff"
STEPS_BETWEEN_LOOKS = 20_000


class TooSlow(Exception):
    """A page's queries were given up; nothing was changed."""


@contextmanager
def read_time_limit(seconds: float) -> Iterator[None]:
    """Give up what is read inside after `seconds` (PostgreSQL: each statement); raises `TooSlow`."""
    if on_postgres():
        is_inner = connection.in_atomic_block
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL statement_timeout = {int(seconds * 1000)}")
                yield
                if is_inner:  # LOCAL is up to the end of the outermost transaction
                    cursor.execute("SET LOCAL statement_timeout = DEFAULT")
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) != "57014":  # query_canceled
                raise
            raise TooSlow from error
        return
    connection.ensure_connection()
    database = connection.connection
    end = time.monotonic() + seconds
    database.set_progress_handler(lambda: time.monotonic() > end, STEPS_BETWEEN_LOOKS)
    try:
        yield
    except OperationalError as error:
        if "interrupted" not in str(error):
            raise
        raise TooSlow from error
    finally:
        database.set_progress_handler(None, 0)


def starts_with(field: str, text: str) -> Q:
    """Rows whose `field`, a unique text column in ASCII, begins with `text`, by the column's index.

    PostgreSQL has an index made for LIKE beside the unique one; SQLite's LIKE takes none, but compares bytes.
    """
    if on_postgres():
        return Q(**{f"{field}__startswith": text})
    return Q(**{f"{field}__gte": text, f"{field}__lt": text + LAST_CHARACTER})
