"""An agent that is a model of Anthropic's, against a server that speaks that wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hub.demo.model_server import Answer, ModelServer, Script
from sessions_app.models import Agent, Delivery
from tests.integration.models.anthropic_server import AnthropicServer
from tests.integration.models.conftest import Serve, configure, run, text_of
from tests.integration.traces.conftest import Talk
from traces_app.executors.llm.choice import NO_KEY, choose
from traces_app.models import ToolCall, Trace

Told = list[dict[str, Any]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[ModelServer] = []

    def started(script: Script) -> ModelServer:
        servers.append(AnthropicServer(script).__enter__())
        return servers[-1]

    yield started
    for server in servers:
        server.__exit__()


def started(server: ModelServer, **config: Any) -> tuple[Talk, Trace]:
    talk = Talk("bob", executor="llm")
    configure("bob", server, **{"model": "anthropic:scripted", "max_tokens": 500, **config})
    return talk, talk.ask("What is it?")


def test_text_is_streamed_and_stored_as_its_sum_and_the_first_request_is_the_delivery(
    serve: Serve, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUB_LLM_KEY_LOCAL", "the-local-key")
    server = serve(lambda body: Answer(["Good ", "day", "。"]))
    talk, trace = started(server, key="LOCAL")
    run(trace)
    (result,) = talk.messages("result")
    assert result.content == "Good day。" == text_of(told, trace.public_id)
    assert (trace.usage["input_tokens"], trace.usage["output_tokens"]) == (11, 7)
    assert server.keys == ["Bearer the-local-key"]
    assert Delivery.objects.get().sent == server.bodies[0]
    assert "You are bob" in str(server.requests[0]["system"])


def test_calls_are_made_and_their_results_go_back(serve: Serve, tools: list[dict[str, Any]]) -> None:
    def script(body: dict[str, Any]) -> Answer:
        asked = body["messages"][-1]["content"]
        if any(block["type"] == "tool_result" for block in asked if isinstance(block, dict)):
            return Answer(["It is ", "5."])
        return Answer(["Let me see."], [("add", {"a": 2, "b": 3})])

    server = serve(script)
    talk, trace = started(server, tools=["add"])
    run(trace)
    assert [message.content for message in talk.messages("result")] == ["Let me see.\n\nIt is 5."]
    assert tools == [{"a": 2, "b": 3}]
    assert [(call.name, call.status) for call in ToolCall.objects.filter(trace=trace)] == [("add", "done")]
    assert '{\\"sum\\":5}' in server.bodies[1]


def test_a_stream_that_breaks_off_leaves_what_it_had_said(serve: Serve) -> None:
    talk, trace = started(serve(lambda body: Answer(["It ", "is"], cut=True)))
    run(trace)
    (result,) = talk.messages("result")
    assert (result.content, result.metadata["interrupted"]) == ("It is", True)
    assert trace.error["code"] == "interrupted"


@pytest.mark.parametrize(("status", "code"), [(401, "model_refused"), (529, "model_unavailable")])
def test_a_refusal_has_its_stable_code(serve: Serve, status: int, code: str) -> None:
    _, trace = started(serve(lambda body: Answer(status=status)))
    assert run(trace).error["code"] == code


def test_nobody_there_and_no_key(serve: Serve) -> None:
    talk, trace = started(serve(lambda body: Answer(["ok"])), base_url="http://127.0.0.1:9")
    assert run(trace).error["code"] == "model_unavailable"
    Agent.objects.filter(agent_id="bob").update(executor_config={"model": "anthropic:scripted"})
    assert run(talk.ask()).error["code"] == "no_model"


def test_the_hubs_own_endpoint_and_key_are_for_its_own_providers_models(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUB_LLM_KEY_THEIRS", "their-key")
    settings.HUB_LLM_MODEL = "qwen3:8b"
    settings.HUB_LLM_BASE_URL = "http://127.0.0.1:11434/v1"
    settings.HUB_LLM_API_KEY = "the-hubs-own-key"
    theirs = choose({"model": "anthropic:claude", "key": "THEIRS"})
    assert (theirs.base_url, theirs.key) == (None, "their-key"), "the key goes to Anthropic and not to the local server"
    assert choose({"model": "anthropic:claude"}).key == NO_KEY
    assert choose({"model": "llama3"}).key == "the-hubs-own-key"
    assert choose({"model": "llama3", "base_url": "http://127.0.0.1:1/v1"}).key == NO_KEY
    settings.HUB_LLM_MODEL, settings.HUB_LLM_BASE_URL = "anthropic:claude", ""
    assert (choose({}).key, choose({"model": "gpt"}).key) == ("the-hubs-own-key", NO_KEY)
