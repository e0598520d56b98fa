"""The SDK's dispatchers, and what has to be put right in release 1.3.0 of them. Each repair has a test that fails without it.

- An internal error carries the exception's text; a parse error that of protobuf or json.
- 0.3: bad params are -32600 instead of -32602, and a number of more than 32 bits is an internal error; a result that is null is
  left out; a part of an unknown kind is a text.
- The version is looked for in the header alone (the door has put it there).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from a2a.compat.v0_3.jsonrpc_adapter import JSONRPC03Adapter
from a2a.server.context import ServerCallContext
from a2a.server.jsonrpc_models import InvalidParamsError as OldInvalidParams
from a2a.server.jsonrpc_models import InvalidRequestError as OldInvalidRequest
from a2a.server.jsonrpc_models import JSONRPCError
from a2a.server.routes import DefaultServerCallContextBuilder
from a2a.server.routes.common import create_event_source_response
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.utils import constants
from a2a.utils.errors import A2AError, InternalError, InvalidParamsError, InvalidRequestError, JSONParseError
from a2a.utils.version_validator import validate_version
from django.conf import settings
from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hub.a2a.errors import rpc_error
from hub.a2a.handler import HubHandler
from hub.a2a.rest import LENGTH, LENGTH_MAX, as_told, rest_routes

PARSE = "parseError"


class CallBuilder(DefaultServerCallContextBuilder):
    """Hands the door's `Call` to the handler."""

    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        context.state["call"] = request.scope["a2a.call"]
        return context


class Dispatcher(JsonRpcDispatcher):
    def _generate_error_response(self, request_id: Any, error: Any) -> JSONResponse:
        return super()._generate_error_response(request_id, told(error))


class OldAdapter(JSONRPC03Adapter):
    """0.3, whose envelope the dispatcher has checked already: what fails here is `params`."""

    def _generate_error_response(self, request_id: Any, error: Any) -> JSONResponse:
        if isinstance(error, OldInvalidRequest):
            error = OldInvalidParams()
        elif isinstance(error, JSONRPCError) or not isinstance(error, A2AError):
            error = InternalError()
        return super()._generate_error_response(request_id, error)

    @validate_version(constants.PROTOCOL_VERSION_0_3)
    async def _process_streaming_request(self, request_id: Any, request_obj: Any, context: ServerCallContext) -> Any:
        """In 0.3 a stream's refusal is an event of the stream; what it says is ours to choose."""
        handler = self.handler
        stream = (
            handler.on_message_send_stream if request_obj.method == "message/stream" else handler.on_subscribe_to_task
        )
        return create_event_source_response(_old_events(request_id, aiter(stream(request_obj, context))))

    async def handle_request(self, request_id: Any, method: str, body: dict[str, Any], request: Request) -> Any:
        if any(_is_of_no_kind(part) for part in _parts_of(body)) or not _lengths_fit(body.get("params")):
            return self._generate_error_response(request_id, OldInvalidRequest())
        response = await super().handle_request(request_id, method, body, request)
        if not isinstance(response, JSONResponse):
            return response
        shown = json.loads(bytes(response.body))
        if "result" not in shown and "error" not in shown:
            return JSONResponse({**shown, "result": None})
        if isinstance(shown.get("error"), dict) and shown["error"].get("data", 0) is None:
            del shown["error"]["data"]
            return JSONResponse(shown)
        return response


async def _old_events(request_id: Any, stream: AsyncIterator[Any]) -> AsyncIterator[dict[str, str]]:
    try:
        async for item in stream:
            yield {"data": item.model_dump_json(by_alias=True, exclude_none=True)}
    except Exception as error:
        yield {"data": json.dumps(rpc_error(request_id, as_told(error)), ensure_ascii=False)}


def _parts_of(body: Any) -> list[Any]:
    message = body["params"].get("message") if isinstance(body.get("params"), dict) else None
    parts = message.get("parts") if isinstance(message, dict) else None
    return parts if isinstance(parts, list) else []


def _is_of_no_kind(part: Any) -> bool:
    """The SDK takes a part whose discriminator it does not know for a text."""
    return isinstance(part, dict) and part.get("kind", part.get("type", "text")) not in ("text", "file", "data")


def _lengths_fit(params: Any) -> bool:
    """What is no 32-bit number, the SDK fails to put into its own types."""
    params = params if isinstance(params, dict) else {}
    configuration = params.get("configuration")
    given = [params.get(LENGTH), configuration.get(LENGTH) if isinstance(configuration, dict) else None]
    return all(abs(length) <= LENGTH_MAX for length in given if isinstance(length, int | float))


def told(error: Any) -> A2AError | JSONRPCError:
    """The error as a client may see it: nobody's exception text."""
    if isinstance(error, JSONParseError):
        return JSONParseError()
    if isinstance(error, InvalidParamsError | InvalidRequestError) and PARSE in (error.data or {}):
        return type(error)()
    if isinstance(error, JSONRPCError) and error.code == -32603:
        return InternalError()
    return error if isinstance(error, A2AError | JSONRPCError) else InternalError()


def make_application() -> Starlette:
    """One application for all agents; which one is asked, and by whom, is in the scope."""
    EventSourceResponse.DEFAULT_PING_INTERVAL = settings.HUB_A2A_PING_SECONDS
    handler, builder = HubHandler(), CallBuilder()
    dispatcher = Dispatcher(handler, builder, enable_v0_3_compat=True)
    dispatcher._v03_adapter = OldAdapter(handler, builder)
    return Starlette(
        routes=[Route("/", dispatcher.handle_requests, methods=["POST"]), *rest_routes(handler, builder)],
        exception_handlers={404: _nothing_here, 405: _nothing_here},
    )


def _nothing_here(request: Request, error: Any) -> Response:
    status = {404: "NOT_FOUND", 405: "UNIMPLEMENTED"}[error.status_code]
    body = {"error": {"code": error.status_code, "status": status, "message": "There is no such operation."}}
    return JSONResponse(body, error.status_code, headers=getattr(error, "headers", None))
