"""`hub chat`, `send`, `tail`."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from hub.cli.app import AsJson, Run
from hub.cli.basics import SessionId, show_message
from hub.cli.live import Growing, LiveView
from hub.cli.screen import Exit, Screen
from hub.client import A2ASessionClient, Chunk, Message, SessionUpdate
from hub.client.calls import Calls
from hub.client.errors import SendTimeout
from hub.client.frames import read
from hub.client.rest import segment


def register(app: typer.Typer) -> None:
    app.command()(chat)
    app.command()(send)
    app.command()(tail)


def is_session(target: str) -> bool:
    return target.startswith("sess-")


def send(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="SESSION|AGENT", help="A session, or an agent to begin one with.")],
    text: Annotated[str, typer.Argument(help="What to say; `-` reads standard input.")],
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the answer and print it.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the answer.", min=0.1)] = 120.0,
    to: Annotated[list[str] | None, typer.Option(help="Who should answer, in a group; may be repeated.")] = None,
    reply_to: Annotated[str | None, typer.Option(help="The message that this answers.")] = None,
    execute: Annotated[
        bool | None, typer.Option("--execute/--no-execute", help="Say that it is work to be done, or that it is not.")
    ] = None,
    message_key: Annotated[
        str | None, typer.Option("--id", help="Your own id for it: sending it again stores nothing new.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send one message; with `--wait`, print the answer as it is written; exit code 1 when it says that the work failed.

    Examples: `hub send sess-… 'focus on core' --wait` · `git diff | hub send reviewer-agent - --wait`
    """
    run = Run(context, as_json)
    content = sys.stdin.read() if text == "-" else text
    given: dict[str, Any] = {"content": content, "to": to, "reply_to": reply_to, "requires_execution": execute}
    body = {name: value for name, value in given.items() if value is not None}

    async def quick(calls: Calls) -> None:
        key = message_key or f"cli-{secrets.token_hex(12)}"
        if is_session(target):
            body["client_message_id"] = key
            answer = await calls.rest.post(f"sessions/{segment(target)}/messages", body)
        else:
            start = {"participants": [target], "initial_message": {**body, "client_message_id": key}}
            answer = await calls.rest.post("sessions", start, key=key)
        if as_json:
            run.screen.data(answer)
        elif is_session(target):
            run.screen.line(f"sent as {answer['message_id']}, number {answer['sequence']}")
        else:
            run.screen.line(answer["session_id"])
        _note_trace(run.screen, answer.get("trace_id"))

    async def and_wait() -> bool:
        well = True
        client = await run.client(retry_for=10.0)
        async with client:
            session_id = target if is_session(target) else await client.create_session(target)
            if not is_session(target):
                run.screen.note(session_id)
            reply = Growing(run.screen)
            options = {"reply_to": reply_to, "requires_execution": execute, "client_message_id": message_key}
            async for piece in _answered(
                client.stream(session_id, content, to=to, timeout=timeout, **options), timeout
            ):
                _show_answer(run.screen, reply, piece)
                if isinstance(piece, Message):
                    _note_trace(run.screen, piece.trace_id)
                    well = not tells_failure(piece)
        return well

    if wait:
        if not run.go(and_wait):
            raise SystemExit(int(Exit.FAILED))
    else:
        run.go(lambda: run.asked(quick))


def _show_answer(screen: Screen, reply: Growing, piece: Chunk | Message) -> None:
    if isinstance(piece, Message):
        if screen.as_json:
            screen.data(piece.as_dict())
        else:
            reply.end(piece)
    elif not screen.as_json:
        reply.add(piece)


def tells_failure(answer: Message) -> bool:
    """Whether an answer says that what was asked was not done: a trace's result, or the reply of `hub agent run`."""
    said = answer.metadata or {}
    ran = said.get("exec")
    return (answer.kind == "result" and said.get("trace_status") in ("failed", "cancelled")) or (
        isinstance(ran, dict) and ran.get("exit", 0) != 0
    )


def _note_trace(screen: Screen, trace_id: str | None) -> None:
    if trace_id and not screen.as_json:
        screen.note(f"it is executed; see: hub trace {trace_id}")


def tail(
    context: typer.Context,
    session_id: SessionId,
    last: Annotated[
        int,
        typer.Option("-n", "--last", min=0, help="Show so many messages of before first; 0: only new ones."),
    ] = 10,
    after: Annotated[
        int | None,
        typer.Option(min=0, help="Show all after this number first; 0: all there are."),
    ] = None,
    everything: Annotated[bool, typer.Option("--events", help="Show turns, presence and traces, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the last messages of a session, then each new one as it comes, until the session ends.

    Marks nothing as read; an operator may follow any session. Example: `hub tail sess-… --after 0` for the whole talk.
    """
    run = Run(context, as_json)

    async def work(calls: Calls) -> None:
        start = after
        if start is None:
            start = max(0, (await calls.session(session_id)).last_sequence - last)
        async for event in calls.session_events(session_id, after=start):
            try:
                value = msgspec.json.decode(event.data)
            except msgspec.DecodeError:
                continue
            if not isinstance(value, dict):
                continue
            if as_json:
                if event.event in ("message", "session") or everything:
                    run.screen.data({"type": event.event, **value})
            elif event.event == "message":
                show_message(run.screen, read(Message, value))
            elif event.event == "session" and value.get("status") in ("completed", "timeout"):
                run.screen.note(f"the session is {value['status']}")
            elif everything:
                run.screen.note(_event_line(event.event, value))

    run.go(lambda: run.asked(work))


def _event_line(name: str, value: dict[str, Any]) -> str:
    shown = {key: item for key, item in value.items() if key not in ("type", "session_id") and item is not None}
    return f"  {name} " + " ".join(f"{key}={item}" for key, item in shown.items())


def chat(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="AGENT|SESSION", help="Who to talk to, or a session to go on with.")],
    group: Annotated[list[str] | None, typer.Option("--with", help="More participants; may be repeated.")] = None,
    keep: Annotated[bool, typer.Option("--keep/--close", help="Leave a new session open when you leave.")] = True,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer when input is piped.", min=0.1)] = 120.0,
    state: Annotated[Path | None, typer.Option(help="A file for cursor and outbox, to survive a crash.")] = None,
    as_json: AsJson = False,
) -> None:
    """Talk to an agent in the terminal; what it says appears as it is written. End with Ctrl-D.

    Piped input is sent line by line, each after the answer to the one before: `printf 'hi\\nbye\\n' | hub chat agent`.
    """
    run = Run(context, as_json)

    async def work() -> None:
        client = await run.client(state=state, retry_for=10.0)
        async with client:
            new = not is_session(target)
            session_id = await client.create_session(target, participants=group) if new else target
            run.screen.note(f"session {session_id}" if new else f"going on in {session_id}")
            try:
                if sys.stdin.isatty():
                    await _live(run.screen, client, session_id)
                else:
                    await _piped(run.screen, client, session_id, timeout)
            finally:
                if new and not keep:
                    await client.close_session(session_id)
            if new and keep:
                run.screen.note(f"left open; go on with: hub chat {session_id}")

    run.go(work)


async def _piped(screen: Screen, client: A2ASessionClient, session_id: str, timeout: float) -> None:
    async for line in _lines():
        if not line.strip():
            continue
        reply = Growing(screen)
        async for piece in _answered(client.stream(session_id, line, timeout=timeout), timeout):
            _show_answer(screen, reply, piece)


async def _live(screen: Screen, client: A2ASessionClient, session_id: str) -> None:
    view = LiveView(screen)
    listener = asyncio.create_task(_listen(view, client, session_id))
    try:
        view.prompt()
        async for line in _lines():
            view.typed()
            if listener.done():
                break
            if line.strip():
                await client.send_message(session_id, line)
            view.prompt()
    finally:
        if not listener.done():
            listener.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listener


async def _answered(pieces: AsyncIterator[Chunk | Message], seconds: float) -> AsyncIterator[Chunk | Message]:
    try:
        async for piece in pieces:
            yield piece
    except SendTimeout:  # says for itself what became of the message
        raise
    except TimeoutError:
        said = f"Nobody has answered within {seconds:g} s. The message is stored, and so will be an answer (`hub history`)."
        said += " Was it work for an agent that the hub runs? Where it is not plain that it is, say so: --execute."
        raise TimeoutError(said) from None


async def _listen(view: LiveView, client: A2ASessionClient, session_id: str) -> None:
    async with client.events(session_id) as events:
        async for event in events:
            view.show(event)
            if isinstance(event, SessionUpdate) and event.ended:
                return


async def _lines() -> AsyncIterator[str]:
    """Lines of standard input without blocking the loop; read in a daemon thread, so that leaving need not wait for one."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    wanted = threading.Semaphore(0)

    def pump() -> None:
        while True:
            wanted.acquire()
            try:
                line: str | None = input()
            except (EOFError, OSError, UnicodeDecodeError):
                line = None
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(lines.put_nowait, line)
            if line is None:
                return

    threading.Thread(target=pump, daemon=True, name="hub stdin").start()
    while True:
        wanted.release()
        line = await lines.get()
        if line is None:
            return
        yield line
