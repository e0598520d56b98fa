"""Form fields for what our models hold."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from django import forms
from django.core.exceptions import ValidationError

from sessions_app.protocol import jsontext
from sessions_app.protocol.errors import Invalid


def one_line(value: str) -> None:
    """A validator: no line breaks, no control characters."""
    if not value.isprintable():
        raise ValidationError("This is one line, without control characters.")


class JSONField(forms.CharField):
    """A JSON value of one type, typed by hand under the hub's own rules of what JSON it takes."""

    def __init__(self, shape: Any, *, empty: Any, most_bytes: int, **options: Any) -> None:
        self.decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(shape)
        self.empty = empty
        self.most_bytes = most_bytes
        options.setdefault("required", False)
        options.setdefault("widget", forms.Textarea(attrs={"class": "vLargeTextField hub-json", "rows": 3}))
        super().__init__(strip=True, empty_value="", **options)

    def prepare_value(self, value: Any) -> str:
        if isinstance(value, str):  # what was typed, shown again beside its error
            return value
        return "" if value is None or value == self.empty else json.dumps(value, indent=2, ensure_ascii=False)

    def clean(self, value: Any) -> Any:
        typed = super().clean(value)
        if not typed:
            return self.empty
        if len(typed.encode()) > self.most_bytes:
            raise ValidationError(f"This holds {self.most_bytes} bytes at the most.")
        try:
            return jsontext.decode(typed, self.decoder)
        except Invalid as error:
            raise ValidationError(error.message) from None

    def has_changed(self, initial: Any, data: Any) -> bool:
        if not isinstance(data, str) or not data.strip():
            return initial is not None and bool(initial != self.empty)
        try:
            return bool(jsontext.loads(data) != initial)
        except Invalid:
            return True
