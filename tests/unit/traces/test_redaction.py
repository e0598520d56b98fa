"""What an executor says is stored as plain JSON, within bounds, without what looks like a secret."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces_app.redaction import HIDDEN, MAX_DEPTH, redact_text, storable, storable_text


@pytest.mark.parametrize(
    "text",
    [
        "ak_abcdefghijkl_ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_abcde",
        "key sk-abcdefghijklmnopqrstuvwxyz012345",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "AKIAABCDEFGHIJKLMNOP",
        "Authorization: Bearer abcdefghijklmnop.qrstuvwxyz",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijk",
        "postgresql://me:opensesame@db/hub",
        "password=opensesame",
        'api_key: "opensesame"',
        "-----BEGIN RSA PRIVATE KEY-----\nopensesame\n-----END RSA PRIVATE KEY-----",
        "xoxb-abcdefghij",
        "token=abcdef",
        "ab://me:x@db",
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str) -> None:
    hidden = redact_text(text)
    assert HIDDEN in hidden
    for secret in ("opensesame", "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOP", "abcdefghijklmnop.qrst"):
        assert secret not in hidden


@pytest.mark.parametrize(
    "text",
    [
        "the token budget is 400",
        "passwords are hashed",
        "https://example.org/a:b@c",
        "read core/secret.py",
        "sk-short",
        "分析core模块",
    ],
)
def test_plain_talk_is_left_as_it_is(text: str) -> None:
    assert redact_text(text) == text


def test_a_secret_is_known_by_the_name_it_stands_under() -> None:
    value = {"password": "x", "nested": [{"API_KEY": "y", "input_tokens": 17, "token": "z"}], "path": "a"}
    assert storable(value) == {
        "password": HIDDEN,
        "nested": [{"API_KEY": HIDDEN, "input_tokens": 17, "token": HIDDEN}],
        "path": "a",
    }


def test_what_json_or_a_database_does_not_take_is_made_fit() -> None:
    deep: Any = "end"
    for _ in range(MAX_DEPTH * 4):
        deep = [deep]
    value = storable(
        {"nul": "a\0b", "lone": "\ud800", "big": 10**30, "huge": 10**5000, "nan": math.nan, 3: {1}, "deep": deep}
    )
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text.encode()
    assert "\0" not in text
    assert value["nul"] == "a\ufffdb"
    assert value["big"] == str(10**30)
    assert "bits" in value["huge"]
    assert value["3"] == [1]


def test_long_text_is_cut() -> None:
    assert storable_text("x" * 50, 10) == "x" * 9 + "…"


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_anything_becomes_json(value: Any) -> None:
    text = json.dumps(storable(value), ensure_ascii=False, allow_nan=False)
    assert "\0" not in text
    text.encode()
