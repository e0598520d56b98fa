"""`hub login`, `agents`, `sessions`, `history`, `close`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.table import Table

from hub.cli.app import AsJson, Run
from hub.cli.credentials import DEFAULT_PROFILE, Identity, Misconfigured, config_path, save
from hub.cli.screen import Screen, harmless, one_line
from hub.client.calls import Calls
from hub.client.frames import Message, Session

SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="A session's id, like sess-….")]


def register(app: typer.Typer) -> None:
    app.command()(login)
    app.command()(agents)
    app.command()(sessions)
    app.command()(history)
    app.command()(close)


def login(
    context: typer.Context,
    url: Annotated[str | None, typer.Option(help="The hub's address.")] = None,
    profile: Annotated[str, typer.Option(help="The name to keep it under.")] = DEFAULT_PROFILE,
    key_stdin: Annotated[
        bool, typer.Option("--key-stdin", help="Read the key from standard input in any case.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a key and keep it in a file that only you can read (mode 0600).

    Example: `hub login --url http://127.0.0.1:8000` (it asks for the key), or
    `manage.py agent key me | hub login --url …`: a key that is piped is read without a word.
    """
    run = Run(context, as_json)

    async def work() -> None:
        asks = sys.stdin.isatty() and not key_stdin
        where = url or run.options.url or os.environ.get("HUB_URL")
        if not where and asks and not as_json:
            where = typer.prompt("Hub address", err=True)
        if not where:
            raise Misconfigured("give --url")
        key = "" if key_stdin else os.environ.get("HUB_API_KEY", "")
        if not key:
            key = typer.prompt("API key", hide_input=True, err=True) if asks else _last_word(sys.stdin.readline())
        if not key.strip():
            raise Misconfigured("there is no key on standard input")
        calls = Calls(where, "", key.strip(), retry_for=3.0)
        try:
            me = await calls.me()
        finally:
            await calls.rest.aclose()
        path = config_path()
        save(path, profile, Identity(calls.address.http, me.agent_id, key.strip(), profile))
        if as_json:
            run.screen.data({"agent_id": me.agent_id, "url": calls.address.http, "profile": profile, "file": str(path)})
        else:
            run.screen.line(f"You are {me.agent_id} at {calls.address.http}. Kept in {path}.")

    run.go(work)


def _last_word(line: str) -> str:
    """The key of a line as `manage.py agent` prints it, `agent<TAB>key`, or of one that holds nothing else."""
    return (line.split() or [""])[-1]


def agents(context: typer.Context, as_json: AsJson = False) -> None:
    """The directory: who there is, and who is online."""
    run = Run(context, as_json)

    async def work() -> None:
        found = await run.asked(lambda calls: calls.agents())
        if as_json:
            for agent in found:
                run.screen.data(agent.as_dict())
            return
        rows = [
            (agent.agent_id, "online" if agent.online else "offline", one_line(agent.description or "", 70))
            for agent in found
        ]
        table(run.screen, ("agent", "", "description"), rows)

    run.go(work)


def sessions(
    context: typer.Context,
    status: Annotated[str | None, typer.Option(help="created, active, waiting, completed or timeout.")] = None,
    participant: Annotated[str | None, typer.Option("--with", help="Only those with this agent.")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="How many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Your sessions, latest activity first."""
    run = Run(context, as_json)

    async def work() -> None:
        found = await run.asked(lambda calls: calls.sessions(status=status, participant=participant, limit=limit))
        if as_json:
            for session in found:
                run.screen.data(session.as_dict())
            return
        me = (await run.who()).agent_id
        table(run.screen, ("session", "status", "unread", "last activity", "with"), [_row(one, me) for one in found])

    run.go(work)


def _row(session: Session, me: str) -> tuple[str, ...]:
    unread = next((entry.unread for entry in session.participants if entry.agent_id == me), None)
    others = ", ".join(entry.agent_id for entry in session.participants if entry.agent_id != me and not entry.left_at)
    title = f"{session.title}: " if session.title else ""
    activity = (session.last_activity or "")[:19].replace("T", " ")
    return (session.session_id, session.status, str(unread or ""), activity, one_line(title + others, 60))


def history(
    context: typer.Context,
    session_id: SessionId,
    after: Annotated[int, typer.Option(min=0, help="Only messages after this number.")] = 0,
    before: Annotated[int | None, typer.Option(min=1, help="The last ones before this number.")] = None,
    limit: Annotated[int | None, typer.Option("-n", "--limit", min=1, help="How many at most.")] = None,
    as_json: AsJson = False,
) -> None:
    """What was said in a session. Reading marks nothing as read."""
    run = Run(context, as_json)

    async def work() -> None:
        async def read(calls: Calls) -> None:
            async for message in calls.history(session_id, after=after, before=before, limit=limit):
                show_message(run.screen, message)

        await run.asked(read)

    run.go(work)


def close(
    context: typer.Context,
    session_id: SessionId,
    reason: Annotated[str | None, typer.Option(help="Why (completed).")] = None,
    as_json: AsJson = False,
) -> None:
    """End a session. Ending one that has ended changes nothing."""
    run = Run(context, as_json)

    async def work() -> None:
        session = await run.asked(lambda calls: calls.end_session(session_id, reason))
        if as_json:
            run.screen.data(session.as_dict())
        else:
            run.screen.line(f"{session_id} is {session.status}.")

    run.go(work)


def show_message(screen: Screen, message: Message) -> None:
    """One message: as JSON, or as `[12] 01:02:03 cloud-agent: text`."""
    if screen.as_json:
        screen.data(message.as_dict())
        return
    clock = (message.timestamp or "")[11:19]
    kind = "" if message.kind == "chat" else f" ({message.kind})"
    addressed = f" → {', '.join(message.to)}" if message.to else ""
    text = "(withheld)" if message.withheld else message.content
    screen.line(f"[{message.sequence}] {clock} {message.sender}{addressed}{kind}: {text}")


def table(screen: Screen, columns: Iterable[str], rows: Iterable[tuple[str, ...]]) -> None:
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(column, overflow="fold", no_wrap=column in ("session", "status"))
    for row in rows:
        grid.add_row(*(harmless(cell) for cell in row))
    screen.console.print(grid)
