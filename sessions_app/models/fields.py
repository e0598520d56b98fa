"""JSON kept as text, so that it comes back as it came and reads the same on SQLite and PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from django.db import models

if TYPE_CHECKING:
    TextField = models.TextField[Any, Any]
else:
    TextField = models.TextField


class JSONText(TextField):
    """A JSON value in a text column: no reordering, no lost digits, and ready to be put into a frame unparsed.

    (`jsonb` sorts keys, folds numbers and refuses U+0000.)
    """

    _pyi_private_set_type: Any
    _pyi_private_get_type: Any

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> Any:
        return None if value is None else msgspec.json.decode(value)

    def get_prep_value(self, value: Any) -> str | None:
        return None if value is None else msgspec.json.encode(value).decode()

    def to_python(self, value: Any) -> Any:
        return value

    def value_to_string(self, obj: models.Model) -> str:
        return msgspec.json.encode(self.value_from_object(obj)).decode()
