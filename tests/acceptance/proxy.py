"""A TCP proxy that can be cut: for tests of what happens when the connection goes."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Proxy:
    """Passes bytes on to `port` of the loopback address, until `cut` resets every connection at once."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self.accepted = 0
        self.cuts = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Reset all connections; what was on its way is lost."""
        self.cuts += 1
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        onward: asyncio.StreamWriter | None = None
        try:
            back, onward = await asyncio.open_connection("127.0.0.1", self.target)
            self._writers.add(onward)
            await asyncio.gather(_pump(reader, onward), _pump(back, writer))
        except (OSError, asyncio.CancelledError):
            pass  # the target is down, or we were cut or closed: the client sees a closed connection
        finally:
            for end in (writer, onward):
                if end is not None:
                    end.transport.abort()
                    self._writers.discard(end)
            self._tasks.discard(task)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        target.write(data)
        await target.drain()
    target.close()
