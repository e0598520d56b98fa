"""A message is put together by hand: whatever its free fields hold, it stays JSON and says the same."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sessions_app.protocol.frames import message_body
from sessions_app.protocol.jsontext import dumps

free_text = st.text(st.characters(exclude_categories=["Cs"]))
nested = st.dictionaries(free_text, st.one_of(free_text, st.none(), st.integers(-(2**53), 2**53), st.lists(free_text)))


@given(free_text, st.one_of(st.none(), free_text), nested, st.one_of(st.none(), st.lists(nested, min_size=1)))
def test_whatever_people_write_comes_out_as_json_that_says_it(
    content: str, client_message_id: str | None, metadata: dict[str, Any], parts: list[dict[str, Any]] | None
) -> None:
    body = message_body(
        "msg-1",
        "sess-1",
        7,
        2,
        "alice",
        dumps(["bob"]),
        "chat",
        content,
        None if parts is None else dumps(parts),
        "msg-0",
        None,
        client_message_id,
        dumps(metadata),
        "2026-11-30T00:00:00.000000Z",
    )
    assert json.loads(body) == {
        "message_id": "msg-1",
        "session_id": "sess-1",
        "sequence": 7,
        "round": 2,
        "from": "alice",
        "to": ["bob"],
        "kind": "chat",
        "content": content,
        "parts": [{"text": content}] if parts is None else parts,
        "reply_to": "msg-0",
        "trace_id": None,
        "client_message_id": client_message_id,
        "metadata": metadata,
        "timestamp": "2026-11-30T00:00:00.000000Z",
    }


def test_what_was_never_set_is_null_and_metadata_an_object() -> None:
    body = json.loads(message_body("m", "s", 1, 1, "a", None, "chat", "", None, None, None, None, None, "t"))
    assert body["to"] is body["reply_to"] is body["trace_id"] is body["client_message_id"] is None
    assert body["metadata"] == {}
