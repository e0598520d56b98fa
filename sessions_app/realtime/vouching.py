"""What a serving process says of itself: its lease, and the agents that it vouches for while the lease runs."""

from __future__ import annotations

from sessions_app.realtime import presence
from sessions_app.realtime.registry import Registry
from sessions_app.threads import Readers


class Vouching:
    """Runs on the event loop; the rows are written in a reader thread."""

    def __init__(self, registry: Registry, readers: Readers) -> None:
        self._registry = registry
        self._readers = readers
        self._process_pk: int | None = None
        self._present: dict[int, bool] = {}
        self._as_of = -1

    async def register(self) -> None:
        """A new row for this process; nobody is present by it yet."""
        self._process_pk = await self._readers.run(presence.register_process)
        self._present, self._as_of = {}, -1

    async def flush(self) -> None:
        """Tell who has come and gone since the last time."""
        if self._process_pk is None:
            await self.register()
        process_pk, revision = self._process_pk, self._registry.revision
        if revision == self._as_of or process_pk is None:
            return
        here = self._registry.agents_here()
        arrived = {pk: runs for pk, runs in here.items() if self._present.get(pk) != runs}
        gone = set(self._present) - set(here)
        if arrived or gone:
            await self._readers.run(presence.set_presence, process_pk, arrived, gone)
        if self._process_pk == process_pk:  # else registered anew meanwhile, and nobody is present by the new row
            self._present, self._as_of = here, revision

    async def renew(self) -> None:
        """Keep the lease, or take a new one, and clear away processes that did not keep theirs."""
        if self._process_pk is None or not await self._readers.run(presence.renew_lease, self._process_pk):
            await self.register()
        await self._readers.run(presence.sweep_processes)

    async def give_up(self) -> None:
        """A clean stop: nobody is present here any more."""
        if self._process_pk is not None:
            await self._readers.run(presence.leave, self._process_pk)
