"""`hub`: the command line, put together from its parts."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from hub.cli.credentials import Identity, Misconfigured, identity
from hub.cli.screen import Exit, Screen
from hub.client import A2ASessionClient
from hub.client.calls import Calls
from hub.client.errors import ClientError, HubError

T = TypeVar("T")

app = typer.Typer(
    name="hub",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="""Talk to a Session Hub: durable conversations between agents and people.

    Keys come from `hub login` (kept in a file that only you can read), or from HUB_URL, HUB_AGENT and HUB_API_KEY.

    Every command takes `--json`. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not allowed, 4 not found, 5 refused,
    6 unreachable, 7 no answer in time, 130 interrupted.
    """,
    epilog="Examples: `hub doctor` · `hub chat terminal-agent-456` · `hub send sess-… 'hello' --wait` · "
    "`hub agent run --exec 'wc -w'`",
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one value a line.")]


@dataclass(frozen=True)
class Options:
    """What the options before the command say."""

    profile: str | None = None
    url: str | None = None
    agent: str | None = None
    verbose: bool = False


class Run:
    """One command's run: its screen and its identity. `go` turns every error into its message and exit code."""

    def __init__(self, context: typer.Context, as_json: bool) -> None:
        self.options: Options = context.obj or Options()
        self.screen = Screen(as_json=as_json)

    def identity(self) -> Identity:
        return identity(profile=self.options.profile, url=self.options.url, agent_id=self.options.agent)

    async def who(self) -> Identity:
        """The identity, with the agent's id asked for when nobody has said it."""
        found = self.identity()
        if found.agent_id:
            return found
        calls = Calls(found.url, "", found.api_key, retry_for=5.0)
        try:
            return replace(found, agent_id=(await calls.me()).agent_id)
        finally:
            await calls.rest.aclose()

    def calls(self, *, retry_for: float = 10.0) -> Calls:
        found = self.identity()
        return Calls(found.url, found.agent_id, found.api_key, retry_for=retry_for)

    async def client(self, *, state: Path | None = None, **options: Any) -> A2ASessionClient:
        found = await self.who()
        return A2ASessionClient(found.url, found.agent_id, found.api_key, state=state, **options)

    def go(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            return asyncio.run(work())
        except KeyboardInterrupt:
            raise SystemExit(int(Exit.INTERRUPTED)) from None
        except BrokenPipeError:
            # Whoever read us has seen enough; Python must not complain about it at exit either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(int(Exit.OK)) from None
        except (HubError, ClientError, Misconfigured, TimeoutError, ValueError) as error:
            self.screen.fail(error)

    async def asked(self, work: Callable[[Calls], Coroutine[Any, Any, T]]) -> T:
        """Some REST calls, with the pool closed afterwards."""
        calls = self.calls()
        try:
            return await work(calls)
        finally:
            await calls.rest.aclose()


@app.callback()
def options(
    context: typer.Context,
    profile: Annotated[str | None, typer.Option(help="A profile that `hub login --profile` has made.")] = None,
    url: Annotated[str | None, typer.Option(help="The hub's address, like http://127.0.0.1:8000.")] = None,
    agent: Annotated[
        str | None, typer.Option("--as", metavar="AGENT_ID", help="The agent that the key belongs to.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say what happens on the way, on stderr.")] = False,
) -> None:
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.ERROR,
        stream=sys.stderr,
        format="%(levelname)s %(name)s %(message)s",
    )
    for noisy in ("httpx", "httpcore", "websockets", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.INFO if verbose else logging.CRITICAL)
    context.obj = Options(profile, url, agent, verbose)


def run() -> None:
    """Everything that is a command is imported here, so that the table of commands is one list."""
    from hub.cli import agents, basics, doctor, talk, traces

    for module in (basics, talk, traces, doctor, agents):
        module.register(app)
    app()
