"""A process tells who is present by it once, again when it had to register anew, and nothing while nobody moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sessions_app.realtime import presence
from sessions_app.realtime.vouching import Vouching


class Database:
    """A fake of the readers: rows that remember what they were told."""

    def __init__(self) -> None:
        self.process = 0
        self.lost = False
        self.told: list[tuple[Any, ...]] = []
        self.meanwhile: Callable[[], Any] | None = None

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if function is presence.register_process:
            self.process += 1
            return self.process
        if function is presence.renew_lease:
            lost, self.lost = self.lost, False
            return not lost
        if function is presence.set_presence:
            self.told.append(arguments)
            if self.meanwhile is not None:
                meanwhile, self.meanwhile = self.meanwhile, None
                await meanwhile()
        return None


class Sockets:
    """A fake of the registry."""

    def __init__(self) -> None:
        self.here: dict[int, bool] = {}
        self.revision = 0

    def move(self, here: dict[int, bool]) -> None:
        self.here, self.revision = here, self.revision + 1

    def agents_here(self) -> dict[int, bool]:
        return dict(self.here)


def made() -> tuple[Vouching, Database, Sockets]:
    database, sockets = Database(), Sockets()
    vouching: Any = Vouching(sockets, database)  # type: ignore[arg-type]
    return vouching, database, sockets


def test_who_comes_and_goes_is_told_once() -> None:
    async def story() -> None:
        vouching, database, sockets = made()
        sockets.move({7: False})
        await vouching.flush()
        await vouching.flush()
        sockets.move({8: True})
        await vouching.flush()
        assert database.told == [(1, {7: False}, set()), (1, {8: True}, {7})]

    asyncio.run(story())


def test_a_process_whose_lease_was_lost_tells_it_all_anew() -> None:
    async def story() -> None:
        vouching, database, sockets = made()
        sockets.move({7: False})
        await vouching.flush()
        database.lost = True
        await vouching.renew()
        await vouching.flush()
        assert database.told == [(1, {7: False}, set()), (2, {7: False}, set())]

    asyncio.run(story())


def test_what_was_told_to_the_old_row_while_a_new_one_was_taken_is_told_to_that() -> None:
    async def story() -> None:
        vouching, database, sockets = made()
        await vouching.register()
        sockets.move({7: False})
        database.lost, database.meanwhile = True, vouching.renew
        await vouching.flush()
        await vouching.flush()
        assert database.told == [(1, {7: False}, set()), (2, {7: False}, set())]

    asyncio.run(story())
