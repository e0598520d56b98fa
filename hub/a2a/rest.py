"""HTTP+JSON by the SDK's dispatchers, repaired: no parse error in an answer, and 0.3 streams that fail before they begin."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from a2a.compat.v0_3.rest_adapter import REST03Adapter
from a2a.server.routes import DefaultServerCallContextBuilder, create_rest_routes
from a2a.server.routes.common import create_event_source_response
from a2a.types import DeleteTaskPushNotificationConfigRequest
from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import A2AError, InternalError, InvalidParamsError, InvalidRequestError
from google.protobuf.json_format import ParseError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from hub.a2a.handler import HubHandler

log = logging.getLogger("hub.a2a")
LENGTH, LENGTH_MAX = "historyLength", (1 << 31) - 1  # 32 bits in every version
Endpoint = Callable[[Request], Awaitable[Any]]
NOT_OF_THE_FORM = "The request is not of this operation's form."


def refused(error: A2AError) -> JSONResponse:
    """An error as HTTP+JSON shows it (specification, section 11.6)."""
    payload = build_rest_error_payload(error)
    return JSONResponse(payload, payload["error"]["code"])


class OldRest(REST03Adapter):
    """0.3 over HTTP+JSON."""

    def routes(self) -> dict[tuple[str, str], Callable[[Request], Any]]:
        """The SDK's, and the deletion that it forgot."""
        path = "/v1/tasks/{id}/pushNotificationConfigs/{push_id}"
        return {**super().routes(), (path, "DELETE"): self._delete_push_notification}

    async def _delete_push_notification(self, request: Request) -> Response:
        handler: Any = self.handler.handler03.request_handler
        asked = DeleteTaskPushNotificationConfigRequest(
            task_id=request.path_params["id"], id=request.path_params["push_id"]
        )
        try:
            await handler.on_delete_task_push_notification_config(asked, self._context_builder.build(request))
        except A2AError as error:
            return refused(error)
        return JSONResponse({})

    async def _handle_request(self, method: Any, request: Request) -> Response:
        """Also checks what the SDK takes for a number."""
        given = request.query_params.get(LENGTH)
        if given is not None and not (given.isascii() and given.isdecimal() and int(given[:20]) <= LENGTH_MAX):
            return refused(InvalidParamsError(f"{LENGTH} is a whole number from 0 to {LENGTH_MAX}."))
        answer: Response = await super()._handle_request(method, request)
        return answer

    async def _handle_streaming_request(self, method: Any, request: Request) -> Any:
        """The first item before the answer begins, so that what is wrong with the request has a status."""
        stream = aiter(method(request, self._context_builder.build(request)))
        try:
            first = await anext(stream)
        except Exception as error:
            return refused(as_told(error))
        return create_event_source_response(_lines(first, stream))


async def _lines(first: Any, stream: AsyncIterator[Any]) -> AsyncIterator[dict[str, str]]:
    yield {"data": json.dumps(first, ensure_ascii=False)}
    try:
        async for item in stream:
            yield {"data": json.dumps(item, ensure_ascii=False)}
    except Exception as error:
        payload = build_rest_error_payload(as_told(error))
        yield {"event": "error", "data": json.dumps(payload, ensure_ascii=False)}


def as_told(error: Exception) -> A2AError:
    """The protocol's error for what the SDK's own code raised around our handler."""
    if isinstance(error, A2AError):
        return error
    if isinstance(error, ParseError):
        return InvalidRequestError(NOT_OF_THE_FORM)
    log.error("A2A: a defect", exc_info=error)
    return InternalError()


def rest_routes(handler: HubHandler, builder: DefaultServerCallContextBuilder) -> list[BaseRoute]:
    """1.0's routes and 0.3's (below /v1); without the SDK's tenants, which would take any first word of a path for one."""
    old = OldRest(http_handler=handler, context_builder=builder).routes()
    routes = [Route(path, endpoint, methods=[method]) for (path, method), endpoint in old.items()]
    new = [route for route in create_rest_routes(handler, builder) if isinstance(route, Route)]
    return _repaired([*routes, *new])


def _repaired(routes: Iterable[Route]) -> list[BaseRoute]:
    return [Route(route.path, _quiet(route.endpoint), methods=list(route.methods or ())) for route in routes]


def _quiet(endpoint: Endpoint) -> Endpoint:
    @functools.wraps(endpoint)
    async def call(request: Request) -> Any:
        response = await endpoint(request)
        if isinstance(response, JSONResponse) and response.status_code == 400 and b"INVALID_REQUEST" in response.body:
            return refused(InvalidRequestError(NOT_OF_THE_FORM))
        return response

    return call
