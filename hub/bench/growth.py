"""W8, run inside the generator process: the same work beside a short history and beside a long one, in turns.

The histories are written straight into the server's database, as the append path would have left them: sent through the
hub, a million messages would take minutes.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing

from hub.bench import meter
from hub.bench.figures import Sample, percentile
from hub.bench.targets import Hub, Room
from hub.bench.workloads import Connected, Run, Workload, open_lane, sample, settle

SPANS = 3
PAGES = 40
LOCK_SECONDS = 60.0

# Keys below all that the clock gives, and different in each session.
_HISTORY = """
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :messages)
INSERT INTO sessions_app_message (id, session_id, sequence, sender_id, round, kind, content, client_message_id, created_at)
SELECT s.id * 100000000 + n, s.id, n, s.initiator_id, n, 'chat', :content, 'history-' || n, s.created_at
  FROM numbers, sessions_app_session s WHERE s.public_id = :session"""
_SESSION = """UPDATE sessions_app_session SET last_sequence = :messages, round = :messages WHERE public_id = :session"""
_PLACES = """
UPDATE sessions_app_participant SET cursor = :messages, acknowledged = 1,
       sent = CASE WHEN agent_id = s.initiator_id THEN :messages ELSE 0 END,
       sent_read = CASE WHEN agent_id = s.initiator_id THEN :messages ELSE 0 END
  FROM sessions_app_session s WHERE s.id = session_id AND s.public_id = :session"""


def write_history(database: str, session_id: str, messages: int) -> None:
    """Give a new session `messages` of its initiator's, all of them read by everybody. Blocks for seconds."""
    values = {"session": session_id, "messages": messages, "content": "x" * 150}
    with closing(sqlite3.connect(database, timeout=LOCK_SECONDS, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for statement in (_HISTORY, _SESSION, _PLACES):
            connection.execute(statement, values)
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


class History:
    """One session with a history, and what was measured beside it."""

    def __init__(self, room: Room, messages: int) -> None:
        self.room = room
        self.messages = messages
        self.session_id = room.sender.url.split("?")[0].rsplit("/", 2)[-2]
        self.cpu_us: list[float] = []
        self.rates: list[float] = []
        self.pages: list[float] = []

    async def send(self, run: Run, connected: Connected) -> list[str]:
        """W1 ×1 for a span; what went wrong."""
        lane = connected.lane
        lane.run(connected.sender)
        await asyncio.sleep(run.warm_seconds)
        stop, before = meter.start(run.server_pid), lane.finished
        await asyncio.sleep(run.seconds)
        messages, spent = lane.finished - before, stop()
        lane.stop()
        if messages:
            self.cpu_us.append(spent.server_cpu * spent.seconds * 1e6 / messages)
            self.rates.append(messages / spent.seconds)
        return await settle([connected])

    async def read(self, target: Hub) -> None:
        """Pages of 50 from the middle of it."""
        for number in range(PAGES):
            began = time.perf_counter()
            await target.page(self.session_id, before=self.messages // 2 + number, limit=50)
            self.pages.append(time.perf_counter() - began)


async def growth(run: Run) -> Sample:
    """In turns, so that a drift of the machine hits both alike."""
    assert isinstance(run.target, Hub)
    if run.database is None:
        raise RuntimeError("only where the generator can reach the database")
    histories = []
    for messages in run.histories:
        [room] = await run.target.rooms(1, 1)
        histories.append(History(room, messages))
        await asyncio.to_thread(write_history, run.database, histories[-1].session_id, messages)
    connected = [await open_lane(run, history.room, after=history.messages) for history in histories]
    problems: list[str] = []
    stop = meter.start(run.server_pid)
    for _ in range(SPANS):
        for history, lane in zip(histories, connected, strict=True):
            problems += await history.send(run, lane)
            await history.read(run.target)
    spent = stop()
    for lane in connected:
        lane.close()
    short, long = histories
    values = _values("short", short) | _values("long", long)
    if "short_cpu_us" in values and "long_cpu_us" in values:
        values["cpu_growth"] = values["long_cpu_us"] / values["short_cpu_us"]
    values["page_growth"] = values["long_page_ms"] / values["short_page_ms"]
    return sample(run, "w8", spent, problems, **values)


def _values(name: str, history: History) -> dict[str, float]:
    values = {f"{name}_page_ms": percentile(history.pages, 0.5) * 1e3}
    if history.cpu_us:
        values[f"{name}_cpu_us"] = _middle(history.cpu_us)
        values[f"{name}_messages_per_second"] = _middle(history.rates)
    return values


def _middle(values: Sequence[float]) -> float:
    return percentile(values, 0.5)


RUNNERS: dict[str, Workload] = {"w8": growth}
