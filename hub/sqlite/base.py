"""The stock backend, but for the translation of `%s` to `?`: each text is translated once and remembered.

Django does it with a regular expression at every execution, which for a statement of many rows costs as much as the rows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.db.backends.sqlite3 import base

MAX_TEXTS = 512


@lru_cache(MAX_TEXTS)
def translate(query: str) -> str:
    """A statement in Django's "format" style as SQLite takes it."""
    return str(base.FORMAT_QMARK_REGEX.sub("?", query).replace("%%", "%"))


class CursorWrapper(base.SQLiteCursorWrapper):
    def convert_query(self, query: str, *, param_names: Any = None) -> str:
        if param_names is None:
            return translate(query)
        return str(super().convert_query(query, param_names=param_names))


class DatabaseWrapper(base.DatabaseWrapper):
    def create_cursor(self, name: Any = None) -> Any:
        return self.connection.cursor(factory=CursorWrapper)
