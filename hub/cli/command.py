"""One run of a command-line program on one message: fed, followed, bounded, and killed with its children when it must end."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from hub.client.frames import Message
from sessions_app.protocol.limits import CONTENT_BYTES

OUTPUT_BYTES = CONTENT_BYTES - 8 * 1024  # the reply holds a remark as well
ERROR_BYTES = 4 * 1024
_SAFE = re.compile(r"[^A-Za-z0-9._-]")


class Feed(StrEnum):
    STDIN = "stdin"
    ARGUMENT = "argument"


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `code` is negative for a signal, None when the program could not be started."""

    code: int | None
    seconds: float
    errors: str = ""
    timed_out: bool = False
    truncated: bool = False
    problem: str = ""

    @property
    def failed(self) -> bool:
        return self.code != 0

    @property
    def brief(self) -> str:
        if self.problem:
            return self.problem
        if self.timed_out:
            return f"killed after {self.seconds:.0f} s"
        return f"exit {self.code} after {self.seconds:.1f} s"

    def remark(self, *, empty: bool) -> str:
        """What to add to the program's own words; a reply is never empty."""
        notes = []
        if self.truncated:
            notes.append("[the output was cut here]")
        if self.failed:
            notes.append(f"[{self.brief}]")
            if self.errors.strip():
                notes.append(self.errors.strip())
        if not notes and empty:
            notes.append("[no output]")
        return ("" if empty or not notes else "\n") + "\n".join(notes)

    def as_dict(self) -> dict[str, Any]:
        return {
            "exit": self.code,
            "seconds": round(self.seconds, 3),
            "timed_out": self.timed_out,
            "truncated": self.truncated,
        }


def program_of(words: Sequence[str]) -> list[str]:
    """The words with their program's whole path; raises ValueError when there is none that could be started.

    Looked up here and now: a run's directory is its session's own, where `./reply.sh` would be another file or none.
    """
    if not words or not words[0]:
        raise ValueError("--exec names no program")
    found = shutil.which(words[0])
    if found is None:
        raise ValueError(f"--exec {words[0]}: there is no such program that can be executed")
    return [os.path.abspath(found), *words[1:]]


class Command:
    """Runs `words` once per message, not more than `parallel` at a time, each session in a directory of its own."""

    def __init__(
        self, words: Sequence[str], *, feed: Feed, timeout: float, parallel: int, workdir: Path | None = None
    ) -> None:
        self._words = list(words)
        self._feed = feed
        self._timeout = timeout
        self._slots = asyncio.Semaphore(parallel)
        self._temporary = tempfile.mkdtemp(prefix="hub-agent-") if workdir is None else None
        self._workdir = Path(self._temporary) if self._temporary is not None else Path(workdir or ".").resolve()

    def clean(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def directory(self, session_id: str) -> Path:
        """The session's own; the id comes from outside, so only plain characters of it become a name."""
        path = self._workdir / ("s-" + _SAFE.sub("_", session_id)[:120])
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path

    async def run(self, message: Message, write: Callable[[str], Awaitable[None]]) -> Outcome:
        """Run, writing text as it comes. Cancelled or too late: the whole process group is killed."""
        async with self._slots:
            began = time.monotonic()
            words = self._command_line(message.content)
            if words is None:
                return Outcome(None, 0.0, problem="a message that begins with '-' could pass for an option: refused")
            try:
                process = await asyncio.create_subprocess_exec(
                    *words,
                    stdin=asyncio.subprocess.PIPE if self._feed is Feed.STDIN else asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    cwd=self.directory(message.session_id),
                    env=self._environment(message),
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                return Outcome(None, 0.0, problem=f"cannot run {words[0]}: {error}")
            return await self._follow(process, message, write, began)

    def _command_line(self, text: str) -> list[str] | None:
        """The program's arguments: `{}` becomes the message, else it is the last one (and then may not look like an option)."""
        if self._feed is not Feed.ARGUMENT:
            return self._words
        if "{}" in self._words:
            return [text if word == "{}" else word for word in self._words]
        return None if text.startswith("-") else [*self._words, text]

    async def _follow(
        self,
        process: asyncio.subprocess.Process,
        message: Message,
        write: Callable[[str], Awaitable[None]],
        began: float,
    ) -> Outcome:
        timed_out = truncated = False
        feeding = asyncio.ensure_future(_feed(process, message.content))
        errors = asyncio.ensure_future(_tail(process.stderr))
        try:
            async with asyncio.timeout(self._timeout):
                truncated = await _copy(process.stdout, write)
                if truncated:
                    _kill(process)
                await process.wait()
        except TimeoutError:
            timed_out = True
        finally:
            _kill(process)  # children that it left behind would hold the pipes open
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2):
                    await process.wait()
                    await asyncio.wait({errors})
            errors.cancel()
        said = errors.result() if errors.done() and not errors.cancelled() else ""
        code = 0 if truncated else process.returncode
        return Outcome(code, time.monotonic() - began, errors=said, timed_out=timed_out, truncated=truncated)

    def _environment(self, message: Message) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name != "HUB_API_KEY"}
        return kept | {
            "HUB_SESSION_ID": message.session_id,
            "HUB_MESSAGE_ID": message.message_id,
            "HUB_FROM": message.sender,
            "HUB_SEQUENCE": str(message.sequence),
            "HUB_KIND": message.kind,
        }


async def _feed(process: asyncio.subprocess.Process, text: str) -> None:
    if process.stdin is None:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it need not read it all
        process.stdin.write(text.encode())
        await process.stdin.drain()
    process.stdin.close()


async def _copy(stdout: asyncio.StreamReader | None, write: Callable[[str], Awaitable[None]]) -> bool:
    """Pass output on as text; True when there was more than a message holds."""
    assert stdout is not None
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    total = 0
    while data := await stdout.read(8192):
        # Bytes that are no text grow when they are replaced: count what is sent.
        text = decoder.decode(data).replace("\0", "\ufffd")
        total += len(text.encode())
        if total > OUTPUT_BYTES:
            return True
        await write(text)
    await write(decoder.decode(b"", final=True))
    return False


async def _tail(stderr: asyncio.StreamReader | None) -> str:
    assert stderr is not None
    kept = b""
    while data := await stderr.read(8192):
        kept = (kept + data)[-ERROR_BYTES:]
    return kept.decode(errors="replace").replace("\0", "\ufffd")


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
