"""One step of a model: what it is given, its text as it comes, and what it said in the end. The only caller of models."""

from __future__ import annotations

import asyncio
import importlib
import logging
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.conf import settings

from sessions_app.db import lend_connection
from traces_app.executors.llm.choice import NO_KEY, Choice, NoModel
from traces_app.executors.llm.loop import model_loop
from traces_app.redaction import storable_text

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model
    from pydantic_ai.tools import ToolDefinition

log = logging.getLogger("hub.models")

CONNECT_SECONDS = 10.0
CLIENTS = ("httpx", "httpx2", "openai", "anthropic")
LOOK_SECONDS = 0.05  # how often a run that waits for its model asks whether it is still wanted
Say = Callable[[str], None]
_wire: ContextVar[Callable[[str], Future[None]] | None] = ContextVar("wire", default=None)
"""Who wants to know the body of the request that this task is about to send; it goes out when that is done."""


class ModelFailed(Exception):
    """The model could not be asked, or broke off: a stable `code`, a message fit to be shown, and what it had said."""

    def __init__(self, code: str, message: str, said: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.said = said


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a model wants; `problem` says why its arguments can't be read."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What a model answered: text, calls, or both. `usage` counts tokens; `cut` when it reached the limit of its length."""

    text: str
    calls: list[Call]
    message: ModelResponse
    usage: dict[str, float] = field(default_factory=dict)
    cut: bool = False


def ask_model(
    choice: Choice,
    messages: Sequence[ModelMessage],
    tools: Sequence[ToolDefinition] = (),
    *,
    say: Say = lambda piece: None,
    look: Callable[[], None] = lambda: None,
    sent: Callable[[str], None] | None = None,
) -> Step:
    """Ask once, from a thread of one's own; `say` gets each piece of text at once. Raises `ModelFailed`.

    `sent` gets the body of the request, as it is on the wire, before it leaves (again when the library tries again).
    `look` is called every `LOOK_SECONDS`; what it raises ends the request, and so does whoever cancels the trace.
    """
    pieces: queue.SimpleQueue[str | tuple[str, Future[None]] | None] = queue.SimpleQueue()
    said: list[str] = []

    def noted(body: str) -> Future[None]:
        done: Future[None] = Future()
        pieces.put((body, done))
        return done

    future = model_loop.submit(
        _request(choice, list(messages), list(tools), pieces.put, noted if sent is not None else None)
    )
    future.add_done_callback(lambda _: pieces.put(None))
    lend_connection()
    try:
        while True:
            try:
                piece = pieces.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                look()
                continue
            if piece is None:
                break
            if isinstance(piece, tuple):
                body, done = piece
                if sent is not None:
                    sent(body)
                done.set_result(None)
                continue
            if piece := storable_text(piece, len(piece)):
                said.append(piece)
                say(piece)
    finally:
        future.cancel()
    return _step(future, "".join(said))


def _step(future: Future[ModelResponse], said: str) -> Step:
    try:
        answer = future.result()
    except NoModel as error:
        raise ModelFailed("no_model", str(error)) from None
    except Exception as error:
        raise _failure(error, said) from error
    calls = [_call(part) for part in answer.tool_calls]
    if answer.state != "complete" or "finish_reason" not in (answer.provider_details or {}):
        # A connection that was closed in the middle looks like an end, and the library takes it for one: but a model that
        # ends says why, and what it said is kept as it came.
        raise ModelFailed("interrupted", "The model's answer broke off.", said)
    if answer.finish_reason == "content_filter":
        raise ModelFailed("refused", "The model's provider withheld the answer.", said)
    used = answer.usage
    usage: dict[str, float] = {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens}
    if used.cache_read_tokens:
        usage["cache_read_tokens"] = used.cache_read_tokens
    return Step(said, calls, answer, usage, cut=answer.finish_reason == "length")


def _call(part: Any) -> Call:
    try:
        arguments = part.args_as_dict(raise_if_invalid=True)
    except (ValueError, AssertionError):
        return Call(part.tool_call_id, part.tool_name, {}, "the arguments are not one JSON object")
    return Call(part.tool_call_id, part.tool_name, arguments)


def _failure(error: Exception, said: str) -> ModelFailed:
    """What may be told of it: never a body, which may quote what was sent."""
    from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UnexpectedModelBehavior, UserError

    if said:
        log.warning("a model broke off: %s", _named(error))
        return ModelFailed("interrupted", "The model's answer broke off.", said)
    log.warning("a model could not be asked: %s", _named(error))
    if isinstance(error, ModelHTTPError):
        code = (
            "model_unavailable" if error.status_code in (408, 409, 429) or error.status_code >= 500 else "model_refused"
        )
        return ModelFailed(code, f"The model's endpoint answered {error.status_code}.")
    if isinstance(error, UnexpectedModelBehavior):
        return ModelFailed("model_error", "The model's answer could not be understood.")
    if isinstance(error, UserError | ImportError):
        return ModelFailed("no_model", f"The model can't be used as it is configured ({type(error).__name__}).")
    if isinstance(error, ModelAPIError) or type(error).__module__.split(".")[0] in CLIENTS:
        return ModelFailed("model_unavailable", f"The model can't be reached ({type(error).__name__}).")
    log.error("asking a model failed", exc_info=error)
    return ModelFailed("model_error", f"Asking the model failed ({type(error).__name__}).")


def _named(error: Exception) -> str:
    """For the log: kinds and a status, never the words of an endpoint, which may quote what was sent."""
    status = getattr(error, "status_code", None)
    cause = error.__cause__ or error.__context__
    names = [type(error).__name__, *([str(status)] if status is not None else [])]
    return " ".join(names) + (f" (by {type(cause).__name__})" if cause is not None else "")


def preload() -> None:
    """Import what asking needs, which takes seconds: once, in the parent of a pool of processes."""
    for name in ("openai", "pydantic_ai.direct", "pydantic_ai.models.openai"):
        importlib.import_module(name)


# On the loop thread


async def _request(
    choice: Choice,
    messages: list[ModelMessage],
    tools: list[ToolDefinition],
    say: Callable[[str], None],
    noted: Callable[[str], Future[None]] | None = None,
) -> ModelResponse:
    from pydantic_ai.direct import model_request_stream
    from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

    _wire.set(noted)
    wanted = ModelSettings()
    if choice.temperature is not None:
        wanted["temperature"] = choice.temperature
    if choice.max_tokens is not None:
        wanted["max_tokens"] = choice.max_tokens
    parameters = ModelRequestParameters(function_tools=tools)
    async with model_request_stream(
        _model(choice), messages, model_settings=wanted, model_request_parameters=parameters
    ) as stream:
        async for event in stream:
            # The first piece of a text comes with its start, not as a delta.
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                say(event.part.content)
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                say(event.delta.content_delta)
    return stream.get()


async def _note(request: Any) -> None:
    """A hook of the HTTP client: it runs in the task that sends."""
    noted = _wire.get()
    if noted is not None and request.content:
        await asyncio.wrap_future(noted(request.content.decode("utf-8", "replace")))


def _model(choice: Choice) -> Model:
    """One client per endpoint, key and model for the life of the loop."""
    name = (choice.provider, choice.model, choice.base_url, choice.key)
    if name not in model_loop.models:
        model_loop.models[name] = _made(choice)
    made: Model = model_loop.models[name]
    return made


def _made(choice: Choice) -> Model:
    seconds = float(settings.HUB_LLM_SECONDS)
    if choice.key == NO_KEY and choice.base_url is None:
        raise NoModel("A provider's own models need HUB_LLM_API_KEY or a `key`; any other one needs a base_url.")
    return _of_anthropic(choice, seconds) if choice.provider == "anthropic" else _of_openai(choice, seconds)


# The base URL is given, so that no variable of the environment that is meant for other programs decides where a talk goes.


def _of_openai(choice: Choice, seconds: float) -> Model:
    import openai
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    client = openai.AsyncOpenAI(
        api_key=choice.key,
        base_url=choice.base_url or "https://api.openai.com/v1",
        organization="",
        project="",
        timeout=openai.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds)),
        max_retries=2,
        http_client=openai.DefaultAsyncHttpxClient(event_hooks={"request": [_note]}),
    )
    return OpenAIChatModel(choice.model, provider=OpenAIProvider(openai_client=client))


def _of_anthropic(choice: Choice, seconds: float) -> Model:
    try:
        import anthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider
    except ImportError:
        raise NoModel("Models of Anthropic need the extra: pip install 'session-hub[anthropic]'.") from None
    client = anthropic.AsyncAnthropic(
        api_key=choice.key,
        base_url=choice.base_url or "https://api.anthropic.com",
        timeout=anthropic.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds)),
        max_retries=2,
        http_client=anthropic.DefaultAsyncHttpxClient(event_hooks={"request": [_note]}),
    )
    return AnthropicModel(choice.model, provider=AnthropicProvider(anthropic_client=client))
