"""What goes back over HTTP: bytes of JSON with a status and headers, for Django and for the bare server alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
from django.http import HttpResponse

JSON = "application/json"
PRIVATE = {
    # What one agent was told is for no cache and no other agent; errors, too.
    "Cache-Control": "private, no-store",
    "Vary": "Authorization",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(slots=True)
class Answer:
    """A whole answer; `body` is JSON, or empty for 204."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    def all_headers(self) -> dict[str, str]:
        given = {**PRIVATE, **self.headers}
        if self.body:
            given["Content-Type"] = JSON
        return given

    def as_response(self) -> HttpResponse:
        response = HttpResponse(self.body, status=self.status)
        del response["Content-Type"]
        for name, value in self.all_headers().items():
            response[name] = value
        # Django would log each refusal as a warning: anybody could fill the log. Defects are logged where they happen.
        response._has_been_logged = True  # type: ignore[attr-defined]
        return response


def json_answer(value: Any, status: int = 200, **headers: str) -> Answer:
    """Encode a struct or plain value."""
    return Answer(status, msgspec.json.encode(value), headers)


def text_answer(text: str, status: int = 200) -> Answer:
    """An answer put together from JSON texts that are encoded already."""
    return Answer(status, text.encode())
