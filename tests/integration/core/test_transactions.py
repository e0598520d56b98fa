"""What a commit promises: it is on the disk, unless whoever wrote it has said that it need not be yet."""

from __future__ import annotations

import pytest
from django.db import connection

from sessions_app.db import on_postgres, write_transaction

pytestmark = pytest.mark.django_db(transaction=True)


def promise() -> str | int:
    with connection.cursor() as cursor:
        cursor.execute("SHOW synchronous_commit" if on_postgres() else "PRAGMA synchronous")
        value: str | int = cursor.fetchone()[0]
    return value


def test_a_transaction_is_synced_unless_it_says_otherwise_and_so_is_the_next_one() -> None:
    with write_transaction():
        before = promise()
    with write_transaction(synced=False):
        during = promise()
    assert during == (before if on_postgres() else 1)
    with write_transaction():
        assert promise() == before
    with pytest.raises(ZeroDivisionError), write_transaction(synced=False):
        raise ZeroDivisionError
    assert promise() == before
    if not on_postgres():
        assert before == 2, "FULL"


def test_one_that_joins_another_changes_nothing_of_what_that_promises() -> None:
    with write_transaction():
        before = promise()
        with write_transaction(synced=False):
            assert promise() == before
