"""`hub agent run` and `hub agent workspace`: agents that need no program of their own."""

from __future__ import annotations

import asyncio
import logging
import shlex
import signal
from pathlib import Path
from typing import Annotated

import typer

from hub.cli.app import AsJson, Run
from hub.cli.command import Command, Feed, program_of
from hub.cli.screen import Screen, one_line
from hub.client import A2ASessionClient, Message, TraceRun

log = logging.getLogger("hub.cli")

agent = typer.Typer(no_args_is_help=True, help="Be an agent: a command-line program, or the one that knows a project.")
StateFile = Annotated[
    Path | None,
    typer.Option(help="A file for cursor and outbox: after a crash nothing is answered twice or forgotten."),
]


def register(app: typer.Typer) -> None:
    app.add_typer(agent, name="agent")


async def serve(run: Run, client: A2ASessionClient, what: str) -> None:
    """Run an agent until it is told to end, telling on stderr how the connection is."""
    screen: Screen = run.screen

    @client.on_connection
    def tell(state: str, error: BaseException | None) -> None:
        if screen.as_json:
            screen.data({"event": state, "agent_id": client.agent_id, "error": str(error) if error else None})
        else:
            screen.note(f"{client.agent_id}: {state}" + (f" ({what})" if state == "connected" else ""))

    @client.on_error
    def report(error: BaseException, message: object, attempt: int) -> None:
        screen.note(f"failed (attempt {attempt}): {type(error).__name__}: {error}", style="red")

    task = asyncio.ensure_future(client.run_forever())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        screen.note("stopping")
    finally:
        await client.close()


@agent.command()
def run(
    context: typer.Context,
    command: Annotated[str, typer.Option("--exec", metavar="COMMAND", help="The program and its arguments.")],
    feed: Annotated[Feed, typer.Option("--input", help="How the message reaches the program.")] = Feed.STDIN,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds after which a run is killed.")] = 300.0,
    parallel: Annotated[int, typer.Option(min=1, help="How many runs at the same time.")] = 4,
    workdir: Annotated[
        Path | None, typer.Option(help="Each session gets its own directory in here (a temporary one by default).")
    ] = None,
    replies: Annotated[
        int, typer.Option(min=1, help="Replies to one session at most: two programs may talk for ever.")
    ] = 1000,
    state: StateFile = None,
    as_json: AsJson = False,
) -> None:
    """Make any command-line program an agent. Each message is a run; what it prints is the reply, as it is written.

    The program finds HUB_SESSION_ID, HUB_MESSAGE_ID, HUB_FROM, HUB_SEQUENCE and HUB_KIND in its environment, and runs in
    its session's own directory, so what it leaves there is there again for the next message.

    No shell is involved. Examples: `hub agent run --exec 'wc -w'` · `hub agent run --exec 'grep -rn -- {} .' --input argument` ·
    `hub agent run --exec "bash -c 'cat notes; tee -a notes'"`
    """
    this = Run(context, as_json)

    async def work() -> None:
        words = program_of(shlex.split(command))  # before anybody is told that this agent is there
        client = await this.client(state=state, parallel=max(64, parallel))
        program = Command(words, feed=feed, timeout=timeout, parallel=parallel, workdir=workdir)
        counts: dict[str, int] = {}

        @client.on_message
        async def handle(message: Message) -> None:
            if not wants_words(message, client.agent_id):
                return
            counts[message.session_id] = counts.get(message.session_id, 0) + 1
            if counts[message.session_id] > replies:
                log.warning("session %s: %d replies are enough", message.session_id, replies)
                return
            async with client.reply_stream(message) as out:
                outcome = await program.run(message, out.write)
                await out.write(outcome.remark(empty=not out.text))
                if outcome.failed:
                    out.metadata["exec"] = {"exit": outcome.code, "timed_out": outcome.timed_out}
            if as_json:
                this.screen.data({"event": "ran", "message_id": message.message_id, **outcome.as_dict()})
            else:
                this.screen.note(
                    f"{message.sender} [{message.sequence}] {one_line(message.content, 60)}: {outcome.brief}"
                )

        try:
            await serve(this, client, one_line(command, 60))
        finally:
            program.clean()

    this.go(work)


@agent.command()
def workspace(
    context: typer.Context,
    root: Annotated[
        Path, typer.Option(exists=True, file_okay=False, help="The project; nothing outside is read.")
    ] = Path(),
    state: StateFile = None,
    as_json: AsJson = False,
) -> None:
    """Be the agent that knows a project: it names its modules, analyses the one that is asked for, gives details.

    It reads inside --root only, and runs nothing. It takes messages and delegated traces alike, and answers in the
    language that it is asked in (Chinese or English).

    Example: `hub agent workspace --root .`, and elsewhere `hub chat terminal-agent-456`.
    """
    this = Run(context, as_json)

    async def work() -> None:
        from hub.cli.workspace import Guide  # reads syntax trees: not for those who only send a message

        guide = Guide(root)
        client = await this.client(state=state)

        @client.on_message
        async def handle(message: Message) -> None:
            if not wants_words(message, client.agent_id):
                return
            answer = await asyncio.to_thread(guide.answer, message.session_id, message.content)
            if answer:
                await client.reply(message, answer)
                this.screen.note(f"{message.sender} [{message.sequence}] {one_line(message.content, 60)}")

        @client.run_traces
        async def execute(work: TraceRun) -> str:
            # What is to be executed comes here instead: the hub cannot see this directory.
            asked = one_line(work.task, 100)
            await work.goal("answer", asked, status="running")
            answer = await asyncio.to_thread(guide.answer, work.session_id, work.task)
            await work.goal("answer", asked, status="done")
            this.screen.note(f"{work.trace_id}: {asked}")
            return answer or guide.help(work.task)

        await serve(this, client, str(root.resolve()))

    this.go(work)


def wants_words(message: Message, agent_id: str) -> bool:
    """Whether an answer in words is ours to give: addressed to us, and no trace of somebody's executes it already."""
    return (
        message.kind not in ("system", "result")
        and message.trace_id is None
        and not message.withheld
        and message.addresses(agent_id)
    )
