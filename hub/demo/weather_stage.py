"""The first seed's three rounds on a hub of its own: weather, activity, weather again; each store is printed and checked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from hub.demo.lines import counted
from hub.demo.model_server import ModelServer
from hub.demo.stage import DemoFailed, Say, events, free_port, make_agents, process, ready
from hub.demo.weather import ANSWERED, ASKED, CARDS, MAIN, script

USER = "cloud-agent-123"
ROUND_SECONDS = 50


@dataclass
class Expected:
    """What the document says stands where, round by round; `ids` are the messages' as the hub has given them."""

    store: list[tuple[str, int, str]] = field(default_factory=list)
    own: dict[str, list[tuple[str, str]]] = field(default_factory=lambda: {card.agent_id: [] for card in CARDS})
    main: list[str] = field(default_factory=list)


async def perform_weather(base: Path, say: Say, *, scripted: bool) -> list[str]:
    """Run the rounds; returns what was found good, raises `DemoFailed`. Leaves no process and no file behind."""
    with tempfile.TemporaryDirectory(prefix="hub-demo-") as directory, contextlib.ExitStack() as beside:
        data, port = Path(directory), free_port()
        url = f"http://127.0.0.1:{port}"
        model = beside.enter_context(ModelServer(script)) if scripted else None
        serve = [sys.executable, "manage.py", "serve", "--port", str(port), "--data", str(data)]
        async with process(serve, data / "hub.log", cwd=base) as hub:
            await ready(url, hub, data / "hub.log")
            keys = await asyncio.to_thread(make_agents, base, data)
            say(f"hub        {url}, a process of its own with its worker, on SQLite")
            how = f"a scripted model at {model.base_url}" if model else "rules alone, no model"
            say(f"main agent {MAIN}: {how}")
            async with asyncio.timeout(4 * ROUND_SECONDS), contextlib.AsyncExitStack() as clients:
                operator, user = [
                    await clients.enter_async_context(_client(url, keys[name])) for name in ("demo-watcher", USER)
                ]
                await _register(operator, model)
                good = await _Play(user, operator, say).rounds()
    if model is not None:
        if not model.requests:
            raise DemoFailed("the model was never asked")
        good.append(f"the model was asked {counted(len(model.requests), 'time')} over its wire")
    return good


def _client(url: str, key: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.AsyncClient(base_url=f"{url}/api/a2a", headers=headers, timeout=httpx.Timeout(10, read=60))


async def _register(operator: httpx.AsyncClient, model: ModelServer | None) -> None:
    config = {"model": "scripted", "base_url": model.base_url} if model else {}
    bodies: list[dict[str, Any]] = [
        {"agent_id": MAIN, "name": "主智能体", "executor": "orchestrator", "executor_config": config}
    ]
    bodies += [
        {
            "agent_id": card.agent_id,
            "name": card.name,
            "description": card.description,
            "skills": card.skills,
            "executor": card.executor,
        }
        for card in CARDS
    ]
    for body in bodies:
        _json(await operator.post("/agents", json=body))


def _json(answer: httpx.Response) -> Any:
    if answer.status_code >= 300:
        raise DemoFailed(f"{answer.request.method} {answer.request.url.path}: {answer.status_code} {answer.text[:300]}")
    return answer.json()


class _Play:
    def __init__(self, user: httpx.AsyncClient, operator: httpx.AsyncClient, say: Say) -> None:
        self._user = user
        self._operator = operator
        self._say = say
        self._expected = Expected()
        self._session = ""
        self._pieces: dict[str, list[str]] = {}

    async def rounds(self) -> list[str]:
        names = [MAIN, *(card.agent_id for card in CARDS)]
        self._session = _json(await self._user.post("/sessions", json={"participants": names}))["session_id"]
        self._say(f"session    {self._session}: {USER}, {', '.join(names)}\n")
        listening = asyncio.create_task(self._listen())
        try:
            for number in range(1, len(ASKED) + 1):
                await self._round(number)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        _json(await self._user.post(f"/sessions/{self._session}/close", json={}))
        streamed = sum(len(pieces) for pieces in self._pieces.values())
        return [
            "three rounds: the conversation store and each agent's own history are those of the document",
            "what was injected is fenced, with its source, its round and the id of the message; nothing twice",
            "agent_a never saw what was asked of agent_b; agent_c was never called",
            f"{counted(streamed, 'piece')} of text seen live; each stored message is what its pieces joined are",
        ]

    async def _listen(self) -> None:
        """The pieces of text as the user's stream shows them."""
        async for kind, frame in events(self._user, f"/sessions/{self._session}/events?after=0"):
            if kind == "chunk":
                self._pieces.setdefault(frame["stream_id"], []).append(frame["text"])

    async def _round(self, number: int) -> None:
        question = ASKED[number - 1]
        agent, answer = ANSWERED[number - 1]
        self._say(f"== round {number}: {question}")
        body = {"content": question, "wait_for_response": True, "timeout": ROUND_SECONDS}
        sent = _json(await self._user.post(f"/sessions/{self._session}/messages", json=body))
        if sent["status"] != "answered":
            raise DemoFailed(f"round {number} was not answered: {sent['status']}")
        reply = sent["response"]
        self._say(f"   {reply['from']}: {reply['content']}")
        pieces = self._pieces.get(reply["metadata"].get("stream_id", ""), [])
        if pieces and "".join(pieces) != reply["content"]:
            raise DemoFailed(f"the pieces of round {number} are not its message: {pieces}")
        self._expected.store += [(USER, number, question), (agent, number, answer)]
        await self._expect_own(number, agent, question, answer)
        await self._show(number)

    async def _expect_own(self, number: int, agent: str, question: str, answer: str) -> None:
        """What the round adds to the called agent's own history: what was injected, the question, the answer."""
        own = self._expected.own[agent]
        if number > 1:
            source, told = ANSWERED[number - 2]
            page = _json(await self._user.get(f"/sessions/{self._session}/messages?limit=500"))
            key = next((m["message_id"] for m in page["messages"] if (m["from"], m["content"]) == (source, told)), "?")
            text = f"For context: [{source}] said: {told}"
            own.append(("user", f"<<<BEGIN CONTEXT {key}>>>\n{text}\n<<<END CONTEXT {key}>>>"))
        own += [("user", question), ("assistant", answer)]
        self._expected.main += ["user", "assistant", "tool", "assistant"]

    async def _show(self, number: int) -> None:
        found = _json(await self._user.get(f"/contexts/{self._session}"))
        store = [(e["agent_name"], e["round"], e["message"]["content"]) for e in found["entries"]]
        self._say(f"   ConversationStore {self._session} (round {found['current_round']})")
        for name, round_, content in store:
            self._say(f"     R{round_} {name}: {content}")
        _same(f"the conversation store after round {number}", store, self._expected.store)
        for card in CARDS:
            messages = await self._own(card.agent_id)
            self._say(f"   {self._session}_{card.agent_id}" + ("" if messages else "  (never called)"))
            for message in messages:
                lines = message["content"].splitlines()
                self._say(f"     {message['role']}: {lines[0]}")
                for line in lines[1:]:
                    self._say(f"           {line}")
            own = [(m["role"], m["content"]) for m in messages]
            _same(f"the history of {card.agent_id} after round {number}", own, self._expected.own[card.agent_id])
        main = await self._own(MAIN)
        _same(f"the history of {MAIN} after round {number}", [m["role"] for m in main], self._expected.main)
        self._say(f"   {self._session}_{MAIN}: {' → '.join(m['role'] for m in main)}")
        await self._show_delivery(number)

    async def _own(self, agent: str) -> list[dict[str, Any]]:
        found = _json(await self._operator.get(f"/contexts/{self._session}_{agent}"))
        messages: list[dict[str, Any]] = found["messages"]
        return messages

    async def _show_delivery(self, number: int) -> None:
        """What the called agent was sent, and why."""
        agent, _ = ANSWERED[number - 1]
        found = _json(await self._operator.get(f"/sessions/{self._session}/deliveries?agent={agent}&limit=1"))
        (delivery,) = found["deliveries"]
        parts = json.dumps(delivery["parts"], ensure_ascii=False)
        why = ", ".join(f"{r['source_agent']} R{r['round']} by {r['how']}" for r in delivery["reasons"]) or "nothing"
        self._say(f"   sent to {agent} ({delivery['strategy']}, {delivery['status']}): {parts}")
        self._say(f"   injected: {why}\n")
        injected = [
            item
            for part in delivery["parts"]
            if part.get("metadata", {}).get("type") == "ContextInjections"
            for item in part["data"]
        ]
        source = [(ANSWERED[number - 2][0], number - 1, ANSWERED[number - 2][1])] if number > 1 else []
        _same(
            f"what was injected in round {number}",
            [(item["source_agent"], int(item["round"]), item["content"]) for item in injected],
            source,
        )


def _same(what: str, found: object, wanted: object, show: Callable[[object], str] = repr) -> None:
    if found != wanted:
        raise DemoFailed(f"{what} is\n  {show(found)}\nand not\n  {show(wanted)}")
