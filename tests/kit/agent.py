"""The kit's agent, as executor `python:tests.kit.agent:run`: what it does is in the prefix of the message's id.

Written after the kit's `scenarios/*.feature` (1.0) and the documentation of its 0.3 branch, where tasks must rest in a state
that can be cancelled and continued.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from sessions_app.models import Message
from traces_app.executors.contract import Completed, NeedsInput, Outcome, Report, Request

STREAMING_TIMEOUT = float(os.environ.get("TCK_STREAMING_TIMEOUT") or 2)
FILE = {"raw": "dGNr", "mediaType": "text/plain", "filename": "output.txt"}
LINK = {"url": "https://example.com/output.txt", "mediaType": "text/plain", "filename": "output.txt"}


def run(request: Request, report: Report) -> Outcome:
    message_id = current_message_id(request)
    for prefix, answer in ANSWERS:
        if message_id.startswith(prefix):
            return answer(report)
    # 0.3: something to cancel and to continue.
    report.message("assistant", "Processing")
    time.sleep(float(os.environ.get("SUT_DELAY", "0.3")))
    report.check()
    return NeedsInput("Hello world!")


def current_message_id(request: Request) -> str:
    """The client's id of the latest message of this task: its request, or what answered its question."""
    rows = Message.objects.filter(trace_id=request.trace_id).exclude(sender__agent_id=request.agent_id)
    metadata = rows.order_by("-sequence").values_list("metadata", flat=True).first() or {}
    return str((metadata.get("a2a") or {}).get("messageId") or "")


def _complete(report: Report) -> Outcome:
    return Completed("Hello from TCK")


def _end(report: Report) -> Outcome:
    return Completed("")


def _parts(*parts: Mapping[str, Any]) -> Callable[[Report], Outcome]:
    return lambda report: Completed("", parts)


def _chunked(report: Report) -> Outcome:
    for text, append in (("chunk-1 ", False), ("chunk-2", True)):
        data = {"artifact_id": "chunked", "parts": [{"text": text}], "append": append, "last_chunk": append}
        report.event("artifact", data)
    return Completed("")


def _long(report: Report) -> Outcome:
    end = time.monotonic() + 2 * STREAMING_TIMEOUT + 0.5
    while time.monotonic() < end:
        report.check()
        time.sleep(0.05)
    return Completed("")


ANSWERS: list[tuple[str, Callable[[Report], Outcome]]] = [
    ("tck-complete-task", _complete),
    ("tck-artifact-text", _parts({"text": "Generated text content"})),
    ("tck-artifact-file-url", _parts(LINK)),
    ("tck-artifact-file", _parts(FILE)),
    ("tck-artifact-data", _parts({"data": {"key": "value", "count": 42}})),
    ("tck-input-required", lambda report: NeedsInput("")),
    ("tck-message-response", _parts({"text": "Direct message response", "metadata": {"a2a": "message"}})),
    ("tck-stream-artifact-chunked", _chunked),
    ("tck-stream-artifact-file", _parts(FILE)),
    ("tck-stream-artifact-text", _parts({"text": "Streamed text content"})),
    ("tck-stream-ordering-001", _parts({"text": "Ordered output"})),
    ("tck-stream-001", _parts({"text": "Stream hello from TCK"})),
    ("tck-stream-003", _parts({"text": "Stream task lifecycle"})),
    ("tck-stream-002", _end),
    ("test-resubscribe-message-id", _long),
]
