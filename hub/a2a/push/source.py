"""What notifications are made of: a task's own updates, as its streams send them. The inbound side has them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from django.conf import settings
from django.utils.module_loading import import_string

from hub.a2a.push.models import PushConfig
from sessions_app.protocol.jsontext import dumps

Task = tuple[str, int]
"""A task's id and the key of the agent whose it is."""


class Page(Protocol):
    """Updates in order; all up to `position` was looked at, `more`: there is more now, `over`: there will be none after it."""

    @property
    def updates(self) -> Sequence[tuple[int, Any]]: ...
    @property
    def position(self) -> int: ...
    @property
    def more(self) -> bool: ...
    @property
    def over(self) -> bool: ...


def positions_of(tasks: Collection[Task]) -> dict[Task, int]:
    """The latest sequence of each task that is there."""
    found: dict[Task, int] = _source("positions_of")(tasks)
    return found


def page_of(task: Task, after: int) -> Page | None:
    """The updates after a sequence; None for a task that its owner can't see any more."""
    page: Page | None = _source("page_of")(*task, after)
    return page


def bodies_of(config: PushConfig, page: Page) -> list[str]:
    """What is sent for these updates, as JSON text: a `StreamResponse` each, and to A2A 0.3 the task as it stands."""
    from a2a.utils.proto_utils import to_stream_response
    from google.protobuf.json_format import MessageToDict

    if not page.updates:
        return []
    if config.protocol == "1.0":
        return [dumps(MessageToDict(to_stream_response(update))) for _, update in page.updates]
    from a2a.compat.v0_3.conversions import to_compat_task

    task = import_string(settings.HUB_A2A_PUSH_TASK)(config.task_id, config.owner_id, config.agent_id)
    if task is None:
        return []
    return [to_compat_task(task).model_dump_json(by_alias=True, exclude_none=True)]


def _source(name: str) -> Any:
    return import_string(f"{settings.HUB_A2A_PUSH_SOURCE}.{name}")
