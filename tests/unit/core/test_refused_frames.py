"""A client with many sends under way learns from an error which one it is about."""

from __future__ import annotations

import pytest

from sessions_app.protocol.frames import names_in


@pytest.mark.parametrize(
    "content",
    ['"\\u0000"', "1", "123456789012345678901234567890", "1e999", "NaN", '"\\ud800"', "[" * 70 + "]" * 70, "1" * 5000],
)
def test_a_readable_frame_is_named_whatever_was_wrong_with_it(content: str) -> None:
    frame = f'{{"type":"message","content":{content},"client_message_id":"s2","id":"i7"}}'
    assert names_in(frame) == ("i7", "s2")


@pytest.mark.parametrize(
    ("frame", "names"),
    [
        ('{"id":7,"type":"ack","sequence":99999999999999999999999}', (7, None)),
        ('{"id":true,"client_message_id":{}}', (None, None)),
        ('{"id":"\\u0000","client_message_id":"\\ud800"}', (None, None)),
        ('{"id":99999999999999999999}', (None, None)),
        ('{"id":"' + "x" * 201 + '"}', (None, None)),
        ('{"id":"i7"', (None, None)),
        ('["id"]', (None, None)),
        ("[" * 100_000, (None, None)),
    ],
)
def test_only_names_that_can_be_said_back_are(frame: str, names: tuple[object, object]) -> None:
    assert names_in(frame) == names
