"""The command `hub` in processes of its own, against the small hub."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.integration.client.fakehub import FakeHub
from tests.processes import wait_until

NASTY = "\x1b[2J\x1b]52;c;aGk=\x07 \x9b31m a\rb \u202edrow \x7f é"


@dataclass
class Done:
    code: int
    out: str
    err: str

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.out.splitlines()]


def environment(hub: FakeHub | None, agent: str, home: Path) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("HUB_")}
    env |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "PYTHONPATH": str(Path.cwd()), "COLUMNS": "200"}
    if hub is not None:
        env |= {"HUB_URL": hub.url, "HUB_AGENT": agent, "HUB_API_KEY": hub.agent(agent)}
    return env


async def hub_command(
    hub: FakeHub | None,
    *arguments: str,
    home: Path,
    agent: str = "me-agent",
    stdin: str = "",
    cwd: Path | None = None,
    **more: str,
) -> Done:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hub.cli", *arguments),
        env=environment(hub, agent, home) | more,
        cwd=cwd,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 40)
    return Done(process.returncode or 0, out.decode(), err.decode())


@contextlib.asynccontextmanager
async def running(
    hub: FakeHub, *arguments: str, home: Path, agent: str, cwd: Path | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hub.cli", *arguments),
        env=environment(hub, agent, home),
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        await hub.until(lambda: any(peer.agent == agent for peer in hub.peers), timeout=30)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.communicate(), 20)


async def test_history_neutralises_what_others_wrote_and_json_is_exact(hub: FakeHub, tmp_path: Path) -> None:
    session = hub.session("me-agent", "b")
    hub.say(session, "b", NASTY)
    for command in ("history", "tail"):
        shown = await hub_command(hub, command, session.session_id, home=tmp_path)
        assert shown.code == 0, shown.err
        assert "drow" in shown.out
        assert not set(shown.out) & {"\x1b", "\x9b", "\r", "\x07", "\x7f", "\u202e"}
        exact = await hub_command(hub, command, session.session_id, "--json", home=tmp_path)
        assert exact.lines()[0]["content"] == NASTY
        assert not set(exact.out) & {"\x1b", "\x9b", "\r", "\x07", "\x7f", "\u202e"}


async def test_login_keeps_the_key_in_a_file_of_mode_0600_and_uses_it(hub: FakeHub, tmp_path: Path) -> None:
    key = hub.agent("me-agent")
    done = await hub_command(None, "login", "--url", hub.url, "--key-stdin", home=tmp_path, stdin=key + "\n")
    assert done.code == 0, done.err
    (file,) = tmp_path.rglob("credentials.json")
    assert file.stat().st_mode & 0o777 == 0o600
    assert key not in done.out + done.err
    assert (await hub_command(None, "agents", "--json", home=tmp_path)).lines()[0]["agent_id"] == "me-agent"
    file.chmod(0o644)
    refused = await hub_command(None, "agents", home=tmp_path)
    assert refused.code == 2
    assert "chmod 600" in refused.err


async def test_a_wrong_key_is_not_kept(hub: FakeHub, tmp_path: Path) -> None:
    done = await hub_command(None, "login", "--url", hub.url, "--key-stdin", home=tmp_path, stdin="ak_wrong\n")
    assert done.code == 3
    assert not list(tmp_path.rglob("credentials.json"))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("history", "sess-unknown"), 4),
        (("history", "../../etc"), 4),
        (("history",), 2),
        (("nonsense",), 2),
    ],
)
async def test_exit_codes(hub: FakeHub, tmp_path: Path, arguments: tuple[str, ...], code: int) -> None:
    assert (await hub_command(hub, *arguments, home=tmp_path)).code == code


async def test_errors_are_json_too(hub: FakeHub, tmp_path: Path) -> None:
    done = await hub_command(hub, "history", "sess-unknown", "--json", home=tmp_path)
    assert done.out == ""
    assert json.loads(done.err)["error"]["code"] == "not_found"


async def test_nobody_there_is_code_6_and_doctor_says_what_to_do(tmp_path: Path) -> None:
    nobody = "http://127.0.0.1:9"
    done = await hub_command(None, "doctor", "--json", home=tmp_path, HUB_URL=nobody, HUB_API_KEY="ak_x", HUB_AGENT="a")
    assert done.code == 6
    last = done.lines()[-1]
    assert (last["step"], last["ok"]) == ("port", False)
    assert "manage.py serve" in str(last["advice"])


async def test_doctor_is_content_with_a_hub_and_names_a_bad_key(hub: FakeHub, tmp_path: Path) -> None:
    well = await hub_command(hub, "doctor", "--json", home=tmp_path)
    assert well.code == 0, well.out
    assert {step["step"] for step in well.lines()} >= {"identity", "name", "port", "alive", "ready", "key", "socket"}
    ill = await hub_command(hub, "doctor", "--json", home=tmp_path, HUB_API_KEY="ak_wrong")
    assert ill.code == 3
    assert ill.lines()[-1]["step"] == "key"


@pytest.mark.parametrize("line", ["{key}\n", "me-agent\t{key}\n", "  {key}"])
async def test_a_key_that_is_piped_is_read_without_a_word(hub: FakeHub, tmp_path: Path, line: str) -> None:
    given = line.format(key=hub.agent("me-agent"))
    done = await hub_command(None, "login", "--url", hub.url, home=tmp_path, stdin=given)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"You are me-agent at {hub.url}.")


async def test_login_without_a_terminal_takes_no_key_for_an_address_and_nothing_for_a_key(
    hub: FakeHub, tmp_path: Path
) -> None:
    key = hub.agent("me-agent")
    unsaid = await hub_command(None, "login", home=tmp_path, stdin=f"{key}\n")
    assert (unsaid.code, "give --url" in unsaid.err) == (2, True)
    assert key not in unsaid.out + unsaid.err
    empty = await hub_command(None, "login", "--url", hub.url, home=tmp_path)
    assert (empty.code, "no key" in empty.err) == (2, True)


async def test_doctor_says_in_the_hubs_words_why_it_is_not_ready(hub: FakeHub, tmp_path: Path) -> None:
    why = {"workers": {"code": "no_worker", "message": "Work waits, and no worker takes it."}}
    refusal = (503, {"status": "not ready", "checks": {"workers": "failed"}, "reasons": why})
    hub.refuse_http = lambda method, path: refusal if path == "/readyz" else None
    last = (await hub_command(hub, "doctor", "--json", home=tmp_path)).lines()[-1]
    assert (last["step"], last["ok"]) == ("ready", False)
    assert str(last["found"]).endswith("workers: Work waits, and no worker takes it.")


async def test_a_program_becomes_an_agent_and_send_waits_for_its_answer(hub: FakeHub, tmp_path: Path) -> None:
    async with running(hub, "agent", "run", "--exec", "tr a-z A-Z", home=tmp_path, agent="shout-agent"):
        done = await hub_command(hub, "send", "shout-agent", "hello there", "--wait", home=tmp_path)
        assert done.out == "HELLO THERE\n", done.err
        assert done.code == 0
        (session,) = hub.sessions.values()
        again = await hub_command(hub, "send", session.session_id, "once more", "--wait", "--json", home=tmp_path)
        assert again.lines()[0]["content"] == "ONCE MORE"
        assert again.lines()[0]["reply_to"] == session.messages[2]["message_id"]
        piped = await hub_command(hub, "chat", "shout-agent", home=tmp_path, stdin="one\ntwo\n")
        assert piped.out == "ONE\nTWO\n", piped.err


async def test_each_session_of_a_program_has_its_own_directory(hub: FakeHub, tmp_path: Path) -> None:
    program = "bash -c 'cat >> notes; cat notes'"
    async with running(hub, "agent", "run", "--exec", program, home=tmp_path, agent="note-agent"):
        first, second = hub.session("me-agent", "note-agent"), hub.session("me-agent", "note-agent")
        for text in ("one;", "two;"):
            await hub_command(hub, "send", first.session_id, text, "--wait", home=tmp_path)
        done = await hub_command(hub, "send", second.session_id, "other", "--wait", home=tmp_path)
        assert done.out == "other\n"
        assert first.messages[-1]["content"] == "one;two;"


def is_dead(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


async def test_a_program_that_hangs_is_killed_with_its_children(hub: FakeHub, tmp_path: Path) -> None:
    program = "bash -c 'echo begun; sleep 300 & echo $! > pid; wait'"
    arguments = ("agent", "run", "--exec", program, "--timeout", "4", "--workdir", str(tmp_path / "work"))
    async with running(hub, *arguments, home=tmp_path, agent="slow-agent"):
        done = await hub_command(hub, "send", "slow-agent", "go", "--wait", home=tmp_path)
        assert done.out.startswith("begun\n")
        assert "killed after 4 s" in done.out
        (pid_file,) = (tmp_path / "work").rglob("pid")
        child = int(pid_file.read_text())
        # Killed is killed; when an orphan's entry is cleared away is the init process's business, not ours.
        await asyncio.to_thread(wait_until, lambda: is_dead(child), timeout=30, what="its child is dead")


async def test_a_program_that_fails_says_so(hub: FakeHub, tmp_path: Path) -> None:
    program = "bash -c 'echo partly; echo why >&2; exit 3'"
    async with running(hub, "agent", "run", "--exec", program, home=tmp_path, agent="bad-agent"):
        done = await hub_command(hub, "send", "bad-agent", "go", "--wait", "--json", home=tmp_path)
        assert done.code == 1, "the answer came, but what was asked was not done"
        (answer,) = done.lines()
        assert "partly" in str(answer["content"])
        assert "[exit 3" in str(answer["content"])
        assert "why" in str(answer["content"])


async def test_who_waits_in_vain_is_told_so_and_what_became_of_the_message(hub: FakeHub, tmp_path: Path) -> None:
    session = hub.session("me-agent", "silent-agent")
    waited = ("send", session.session_id, "are you there?", "--wait", "--timeout", "3")
    done = await hub_command(hub, *waited, home=tmp_path)
    assert (done.code, done.out) == (7, "")
    assert "Nobody has answered within 3 s. The message is stored" in done.err
    assert [message["content"] for message in session.messages] == ["are you there?"]


@pytest.mark.parametrize("program", ["no-such-command", "./no-such-file --flag", "./not-executable", "''"])
async def test_a_program_that_is_not_there_is_told_at_the_start(hub: FakeHub, tmp_path: Path, program: str) -> None:
    (tmp_path / "not-executable").write_text("#!/bin/sh")
    done = await hub_command(hub, "agent", "run", "--exec", program, "--json", home=tmp_path, cwd=tmp_path)
    assert done.code == 2, done.err
    assert json.loads(done.err)["error"]["code"] == "value_error"
    assert "connected" not in done.out
    assert not hub.peers, "nobody was told that this agent is there"


async def test_a_program_is_found_from_where_the_agent_was_started_and_its_loss_is_told(
    hub: FakeHub, tmp_path: Path
) -> None:
    program = tmp_path / "reply"
    program.write_text("#!/bin/sh\necho here\n")
    program.chmod(0o755)
    async with running(hub, "agent", "run", "--exec", "./reply", home=tmp_path, agent="own-agent", cwd=tmp_path):
        done = await hub_command(hub, "send", "own-agent", "go", "--wait", home=tmp_path)
        assert (done.code, done.out.strip()) == (0, "here"), done.err
        program.unlink()
        lost = await hub_command(hub, "send", "own-agent", "go", "--wait", home=tmp_path)
        assert lost.code == 1
        assert "cannot run" in lost.out


async def test_a_message_cannot_become_an_option(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the secret")
    async with running(hub, "agent", "run", "--exec", "cat", "--input", "argument", home=tmp_path, agent="cat-agent"):
        done = await hub_command(hub, "send", "cat-agent", "--wait", "--", "--help", home=tmp_path)
        assert "refused" in done.out


async def test_a_key_never_reaches_the_program(hub: FakeHub, tmp_path: Path) -> None:
    async with running(hub, "agent", "run", "--exec", "env", home=tmp_path, agent="env-agent"):
        done = await hub_command(hub, "send", "env-agent", "x", "--wait", home=tmp_path)
        assert "HUB_MESSAGE_ID=" in done.out
        assert "ak_" not in done.out


async def test_sent_twice_under_one_id_is_stored_once(hub: FakeHub, tmp_path: Path) -> None:
    session = hub.session("me-agent", "b")
    for _ in range(2):
        done = await hub_command(hub, "send", session.session_id, "x", "--id", "mine", "--json", home=tmp_path)
        assert done.code == 0
    assert len(session.messages) == 1


async def test_close_ends_a_session(hub: FakeHub, tmp_path: Path) -> None:
    session = hub.session("me-agent", "b")
    done = await hub_command(hub, "close", session.session_id, home=tmp_path)
    assert done.out == f"{session.session_id} is completed.\n"
    listed = await hub_command(hub, "sessions", home=tmp_path)
    assert session.session_id in listed.out
    assert "completed" in listed.out
