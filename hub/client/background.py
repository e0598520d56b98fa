"""An agent without a loop of its own: a module that only registers handlers is a complete program."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from typing import TYPE_CHECKING

from hub.client.threads import ThreadPerCall

if TYPE_CHECKING:
    from hub.client.life import Life

log = logging.getLogger("hub.client")

GRACE_SECONDS = 0.3


class Background:
    """Runs the client in a thread that keeps the process alive, when handlers were registered and no loop was running.

    A program that starts a loop and uses the client in it takes the client over: this thread then ends. The short grace
    lets the usual program (handlers at module level, then `asyncio.run`) take over before anything was connected.
    """

    def __init__(self, client: Life) -> None:
        self._client = client
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Event | None = None
        self._lock = threading.Lock()

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def is_mine(self) -> bool:
        """Whether the caller runs in this thread."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._stop.clear()
                self._thread = threading.Thread(target=self._run, name="hub client")
                self._thread.start()

    async def stop(self) -> None:
        """End the thread's run, and wait for it unless we are in it."""
        with self._lock:
            thread = self._thread
            if thread is None:
                return
            self._stop.set()
            if self._loop is not None and self._stopped is not None:
                with contextlib.suppress(RuntimeError):  # its loop has just ended by itself
                    self._loop.call_soon_threadsafe(self._stopped.set)
        if not self.is_mine():
            await asyncio.get_running_loop().run_in_executor(None, thread.join)
            self._thread = None

    def _run(self) -> None:
        if self._stop.wait(GRACE_SECONDS):
            return
        try:
            asyncio.run(self._live())
        except Exception as error:
            log.error("the agent stopped: %s: %s", type(error).__name__, error)

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPerCall())
        with self._lock:
            self._loop, self._stopped = loop, asyncio.Event()
            if self._stop.is_set():
                return
        over = asyncio.create_task(self._client.run_forever())
        stopped = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait({over, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if over.done():
                over.result()
        finally:
            for task in (over, stopped):
                task.cancel()
            await asyncio.gather(over, stopped, return_exceptions=True)
            await self._client.release()
            with self._lock:
                self._loop = self._stopped = None


def run_until_signal(client: Life) -> None:
    """The main function of a program that is one agent; SIGINT and SIGTERM end it cleanly."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(client.run_forever())
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            log.info("stopping")
        finally:
            await client.close()

    asyncio.run(main())
