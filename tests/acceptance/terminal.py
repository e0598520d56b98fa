"""A program in a terminal of its own: what it writes is waited for, what a person types is written."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import signal
import struct
import termios
from collections.abc import AsyncIterator, Mapping

from tests.processes import ROOT, clean_environment


class Terminal:
    """`output` is everything that was shown so far, as it was written. What follows a `seen` is waited for after it."""

    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self.process = process
        self.output = ""
        self._master = master
        self._at = 0
        self._more = asyncio.Event()
        self._bytes = b""
        asyncio.get_running_loop().add_reader(master, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except OSError:  # Linux says so when nobody has the other end open any more
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
        self._bytes += data
        self.output = self._bytes.decode(errors="ignore").replace("\r\n", "\n")
        self._more.set()

    async def until(self, pattern: str, timeout: float = 30) -> re.Match[str]:
        """The next place where the output matches; an `AssertionError` with the output when none comes."""
        try:
            async with asyncio.timeout(timeout):
                while (found := re.compile(pattern).search(self.output, self._at)) is None:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"never shown: {pattern!r}\n{self.output!r}") from None
        self._at = found.end()
        return found

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def end(self, timeout: float = 30) -> int:
        """Its exit code; everything that it wrote has been read then."""
        code = await asyncio.wait_for(self.process.wait(), timeout)
        with contextlib.suppress(OSError):
            os.set_blocking(self._master, False)
            while data := os.read(self._master, 65536):
                self._bytes += data
        self.output = self._bytes.decode(errors="ignore").replace("\r\n", "\n")
        return code


@contextlib.asynccontextmanager
async def terminal(*command: str, env: Mapping[str, str], columns: int = 120) -> AsyncIterator[Terminal]:
    """Start `command` in a terminal; killed in the end if it still runs."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))

    def own_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env=clean_environment({"TERM": "xterm", "PYTHONPATH": str(ROOT), **env}),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=own_terminal,
    )
    os.close(slave)
    shown = Terminal(process, master)
    try:
        yield shown
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            await process.wait()
        asyncio.get_running_loop().remove_reader(master)
        os.close(master)
