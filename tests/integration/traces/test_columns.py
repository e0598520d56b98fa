"""What the statements of a trace write is what the models' own fields would have written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.db.models import DateTimeField, Field, IntegerField, Model, TextField

from sessions_app.models.fields import JSONText
from traces_app.columns import prepared
from traces_app.models import ToolCall, Trace, TraceEvent

MOMENTS = [datetime(2026, 11, 30, 12, 0, tzinfo=UTC), datetime(2026, 2, 3, 4, 5, 6, 78, tzinfo=UTC)]


def values_for(field: Field[Any, Any]) -> list[Any]:
    if isinstance(field, JSONText):
        return [None, {}, {"a": ["é", 1.5, None]}, "text", 1 << 60]
    if isinstance(field, DateTimeField):
        return [None, *MOMENTS]
    if field.get_internal_type() == "BooleanField":
        return [True, False]
    if isinstance(field, IntegerField) or field.is_relation:
        return [0, 7, 1 << 40]
    assert isinstance(field, TextField) or field.get_internal_type() == "CharField", field
    return ["", "分析 core"]


@pytest.mark.parametrize("model", [Trace, TraceEvent, ToolCall])
def test_a_column_takes_what_its_field_would_make_of_a_value(model: type[Model]) -> None:
    for field in model._meta.concrete_fields:
        for value in values_for(field):
            assert prepared(model, field.attname, value) == field.get_db_prep_save(value, connection), field
