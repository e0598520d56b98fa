"""Statements that run again and again: on PostgreSQL they are kept prepared, and but for that nobody sees a difference."""

from __future__ import annotations

import pytest
from django.db import DatabaseError, connection, transaction

from sessions_app.db import on_postgres, prepared_cursor

pytestmark = pytest.mark.django_db


def kept(mark: str) -> int:
    """How many statements with this text in them this connection keeps."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE strpos(statement, %s) > 0", [f"AS {mark},"])
        return int(cursor.fetchone()[0])


def test_a_statement_that_runs_again_is_prepared_once_and_gives_the_same() -> None:
    with prepared_cursor() as cursor:
        for number in range(8):
            cursor.execute("SELECT 1 AS prepared_here, 1 + %s", [number])
            assert cursor.fetchall() == [(1, 1 + number)]
    with connection.cursor() as cursor:
        for number in range(8):
            cursor.execute("SELECT 1 AS written_out, 1 + %s", [number])
    if on_postgres():
        assert (kept("prepared_here"), kept("written_out")) == (1, 0)


def test_its_errors_are_those_of_every_statement() -> None:
    with pytest.raises(DatabaseError), transaction.atomic(), prepared_cursor() as cursor:
        cursor.execute("SELECT a FROM nowhere WHERE a = %s", [1])
    with prepared_cursor() as cursor:
        cursor.execute("SELECT %s + 1", [1])
        assert cursor.fetchone() == (2,)
