"""The SDK's request handler over our rows: one for all agents and for all three versions of the protocol.

The door has found the agent and the principal and put them, with the raw request, into `context.state["call"]`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler, validate_request_params
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    TaskNotCancelableError,
    UnsupportedOperationError,
)
from django.conf import settings
from google.protobuf.json_format import MessageToDict

from hub.a2a import pushes, sending
from hub.a2a.call import Call
from hub.a2a.cards import REPLAY, card_of
from hub.a2a.errors import as_a2a_error
from hub.a2a.following import Watch, follow
from hub.a2a.listing import PAGE_DEFAULT, PAGE_MAX, Wanted, decode_place, encode_place, list_tasks
from hub.a2a.parts import part_in
from hub.a2a.questions import cancel_question
from hub.a2a.tasks import Snapshot, TaskRef, direct_answer, find_task, snapshot
from hub.a2a.updates import Update
from sessions_app.changes import unit_of_work
from sessions_app.protocol.errors import Unavailable
from traces_app import lifecycle

Event = Task | Message | Update


def hub_errors(method: Callable[..., Any]) -> Callable[..., Any]:
    """Whatever goes wrong inside leaves as one of the protocol's errors, and is logged here when it is a defect."""
    where = f"A2A {method.__name__}"
    writing = method.__name__ in ("on_message_send", "on_message_send_stream", "on_cancel_task")
    if inspect.isasyncgenfunction(method):

        @functools.wraps(method)
        async def stream(self: Any, params: Any, context: ServerCallContext) -> AsyncGenerator[Any]:
            inner = method(self, params, context)
            try:
                async for item in inner:
                    yield item
            except Exception as error:
                raise as_a2a_error(error, where=where, writing=writing) from None
            finally:
                await inner.aclose()

        return stream

    @functools.wraps(method)
    async def call(self: Any, params: Any, context: ServerCallContext) -> Any:
        try:
            return await method(self, params, context)
        except Exception as error:
            raise as_a2a_error(error, where=where, writing=writing) from None

    return call


def call_of(context: ServerCallContext) -> Call:
    call: Call = context.state["call"]
    return call


class HubHandler(RequestHandler):
    """All operations of the specification's section 3.1."""

    # Sending

    @hub_errors
    @validate_request_params
    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task | Message:
        call = call_of(context)
        history = history_length(params.configuration)
        ref = await self._receive(params, call)
        with Watch(call.runtime, ref) as watch:
            seen = await self._snapshot(call, ref, history=history)
            if not seen.rests and not params.configuration.return_immediately:
                submitted = seen.task.status.state == TaskState.TASK_STATE_SUBMITTED
                patience = settings.HUB_A2A_WAIT_SECONDS if submitted else None
                try:
                    async with aclosing(
                        follow(watch, call.principal, seen.position, until_it_rests=True, begun_within=patience)
                    ) as updates:
                        async for _ in updates:
                            pass
                    seen = await self._snapshot(call, ref, history=history)
                except Unavailable:
                    if not call.runtime.stopping:
                        raise
                    # The message is stored, and its task goes on without us: as it was last seen.
        return direct_answer(seen.task) or seen.task

    @hub_errors
    @validate_request_params
    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        call = call_of(context)
        history = history_length(params.configuration)
        ref = await self._receive(params, call)
        with Watch(call.runtime, ref) as watch:
            seen = await self._snapshot(call, ref, history=history)
            yield seen.task
            if seen.rests:
                return
            async with aclosing(self._updates(call, watch, seen.position, until_it_rests=True)) as updates:
                async for event in updates:
                    yield event

    async def _receive(self, params: SendMessageRequest, call: Call) -> TaskRef:
        message = params.message
        if message.role == Role.ROLE_AGENT:
            raise InvalidParamsError("A client's message has the role of the user.")
        for part in message.parts:
            if part.media_type and not accepted(part.media_type):
                raise ContentTypeNotSupportedError(f"Parts of type {part.media_type[:100]} are not taken here.")
        push = params.configuration.task_push_notification_config
        wants_push = params.configuration.HasField("task_push_notification_config")
        if wants_push:
            await call.read(pushes.check, push)
        metadata = dict(MessageToDict(params.metadata)) | dict(MessageToDict(message.metadata))
        incoming = sending.Incoming(
            message_id=message.message_id,
            parts=[part_in(part) for part in message.parts],
            task_id=message.task_id,
            context_id=message.context_id,
            metadata=metadata,
            extensions=list(message.extensions),
            reference_task_ids=list(message.reference_task_ids),
            own_task_id=call.own_task_id,
        )
        call.runtime.rates_messages.take(call.principal.agent_pk)
        # In one transaction: a task that is quick would have ended before anybody could be told of it.
        receive = functools.partial(
            sending.receive,
            incoming,
            owner_pk=call.principal.agent_pk,
            agent_pk=call.agent.pk,
            along=functools.partial(pushes.save, config=push, protocol=call.protocol) if wants_push else None,
        )
        return await call.read(receive)

    # Reading

    @hub_errors
    @validate_request_params
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task:
        call = call_of(context)
        history = history_length(params)
        return (await self._snapshot(call, await self._find(call, params.id), history=history)).task

    @hub_errors
    @validate_request_params
    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        call = call_of(context)
        if (given := call.given("status")) is not None and not _is_state(given):
            raise InvalidParamsError("status is a TaskState.", data={"field": "status"})
        size = params.page_size if params.HasField("page_size") else PAGE_DEFAULT
        if not 1 <= size <= PAGE_MAX:
            raise InvalidParamsError(f"pageSize is 1 to {PAGE_MAX}.", data={"field": "pageSize"})
        since = None
        if params.HasField("status_timestamp_after"):
            since = params.status_timestamp_after.ToDatetime(UTC)
        wanted = Wanted(
            owner_pk=call.principal.agent_pk,
            agent_pk=call.agent.pk,
            context_id=params.context_id,
            state=params.status,
            since=since,
            size=size,
            after=decode_place(params.page_token),
            history=history_length(params),
            artifacts=params.include_artifacts,
        )
        listed = await call.read(list_tasks, wanted)
        return ListTasksResponse(
            tasks=[seen.task for seen in listed.tasks],
            total_size=listed.total,
            page_size=size,
            next_page_token=encode_place(listed.following),
        )

    @hub_errors
    @validate_request_params
    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        call = call_of(context)
        ref = await self._find(call, params.id)
        replays = REPLAY in call.extensions
        with Watch(call.runtime, ref) as watch:
            seen = await call.read(functools.partial(snapshot, origin=replays), ref)
            if seen.is_over and not replays:
                raise UnsupportedOperationError("This task has ended.", data={"extension": REPLAY})
            yield seen.task
            after = (call.last_event_id if replays else None) or seen.position
            async with aclosing(self._updates(call, watch, after)) as updates:
                async for event in updates:
                    yield event

    async def _updates(
        self, call: Call, watch: Watch, after: int, *, until_it_rests: bool = False
    ) -> AsyncGenerator[Update]:
        """What follows; with their sequences for those who speak our extension."""
        async with aclosing(follow(watch, call.principal, after, until_it_rests=until_it_rests)) as updates:
            async for number, update in updates:
                if number is not None and REPLAY in call.extensions:
                    update.metadata.update({REPLAY: {"sequence": number}})
                yield update

    async def _find(self, call: Call, task_id: str) -> TaskRef:
        ref: TaskRef = await call.read(find_task, task_id, call.principal.agent_pk, call.agent.pk)
        return ref

    async def _snapshot(self, call: Call, ref: TaskRef, *, history: int | None = None) -> Snapshot:
        seen: Snapshot = await call.read(functools.partial(snapshot, history=history), ref)
        return seen

    # Cancelling

    @hub_errors
    @validate_request_params
    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task:
        call = call_of(context)
        ref = await self._find(call, params.id)
        if not await call.read(_cancel, ref, call.principal.agent_id):
            raise TaskNotCancelableError()
        return (await self._snapshot(call, ref)).task

    # Push notification configurations

    @hub_errors
    @validate_request_params
    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        call = call_of(context)
        ref = await self._find(call, params.task_id)
        await call.read(pushes.check, params)
        return await call.read(pushes.save, ref, params, call.protocol)

    @hub_errors
    @validate_request_params
    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        call = call_of(context)
        return await call.read(pushes.show, await self._find(call, params.task_id), params.id)

    @hub_errors
    @validate_request_params
    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        call = call_of(context)
        found = await call.read(pushes.listed, await self._find(call, params.task_id))
        return ListTaskPushNotificationConfigsResponse(configs=found)

    @hub_errors
    @validate_request_params
    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        call = call_of(context)
        await call.read(pushes.delete, await self._find(call, params.task_id), params.id)

    # The card

    @hub_errors
    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        call = call_of(context)
        return await call.read(functools.partial(card_of, extended=True), call.agent, call.public_url)


def _cancel(ref: TaskRef, by: str) -> bool:
    with unit_of_work() as changes:
        if ref.is_trace:
            return lifecycle.cancel_trace(trace_pk=ref.pk, session_pk=ref.session_pk, by=by, changes=changes)
        return cancel_question(question_pk=ref.pk, session_pk=ref.session_pk, changes=changes)


def history_length(given: Any) -> int | None:
    """How many messages of history are wanted; None where the client does not say. Raises for a negative number."""
    if not given.HasField("history_length"):
        return None
    if given.history_length < 0:
        raise InvalidParamsError("historyLength is not negative.", data={"field": "historyLength"})
    return int(given.history_length)


def accepted(media_type: str) -> bool:
    """Whether the settings name this type, or all of its family (`text/*`)."""
    plain = media_type.split(";")[0].strip().lower()
    family = plain.split("/")[0] + "/*"
    return any(known.lower() in (plain, family, "*/*") for known in settings.HUB_A2A_INPUT_MODES)


def _is_state(given: Any) -> bool:
    if isinstance(given, str) and not given.isdigit():
        return given in list(TaskState.keys())
    try:
        return int(given) in TaskState.values()
    except (TypeError, ValueError):
        return False
