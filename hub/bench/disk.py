"""What one durable commit costs on this disk, measured alone: the floor of every acknowledged message."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from hub.bench.figures import percentile
from hub.bench.lanes import FRAME_BYTES


def commit_milliseconds(directory: Path, *, commits: int = 200) -> float:
    """The median of single-row commits of about 200 bytes in SQLite (WAL, `synchronous=FULL`) in `directory`."""
    path = directory / "commits.sqlite3"
    seconds = []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE entry (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
        for _ in range(commits):
            began = time.perf_counter()
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO entry (body) VALUES (?)", ["x" * FRAME_BYTES])
            connection.execute("COMMIT")
            seconds.append(time.perf_counter() - began)
    path.unlink()
    return percentile(seconds, 0.5) * 1e3
