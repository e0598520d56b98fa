"""A result fits into a message, whatever an executor returns; a continued history lacks no result."""

from __future__ import annotations

import json

from sessions_app.protocol.limits import CONTENT_BYTES
from traces_app.outcomes import Completed
from traces_app.requests import repaired
from traces_app.results import cancelled_text, failed_text, result_of
from traces_app.states import MOVES, OPEN, STATUSES, TERMINAL


def test_a_result_that_is_too_long_is_cut_and_kept_as_an_artifact() -> None:
    result = result_of(Completed("界" * CONTENT_BYTES))
    assert len(result.text.encode()) <= CONTENT_BYTES
    assert result.artifact is not None
    assert result.artifact["size"] == 3 * CONTENT_BYTES


def test_parts_are_the_whole_result_and_get_the_summary_when_they_have_no_text() -> None:
    result = result_of(Completed("two", ({"data": {"n": 2}},)))
    assert json.loads(result.parts or "") == [{"text": "two"}, {"data": {"n": 2}}]
    assert result.text == "two"
    spoken = result_of(Completed("short", ({"text": "long"},)))
    assert (spoken.text, spoken.summary) == ("long", "short")


def test_unfit_parts_are_left_out_and_said_so() -> None:
    result = result_of(Completed("ok", ({"text": "a", "url": "b"},)))
    assert (result.text, result.parts) == ("ok", None)
    assert "parts_left_out" in result.metadata


def test_an_end_is_told_in_the_language_of_the_request() -> None:
    assert failed_text("分析core", "timeout", "…").text.startswith("未能完成")
    assert failed_text("analyse core", "timeout", "…").text.startswith("Failed")
    assert cancelled_text("分析core", "alice").text == "已取消（alice）。"


def test_each_call_of_a_continued_history_is_followed_by_its_result() -> None:
    call = {"type": "tool_call", "call_id": "1", "attempt": 1}
    other = {"type": "tool_call", "call_id": "1", "attempt": 2}
    result = {"type": "tool_result", "call_id": "1", "attempt": 2, "ok": True}
    stray = {"type": "tool_result", "call_id": "9", "attempt": 1, "ok": True}
    whole = repaired([call, other, result, stray])
    assert [(e["type"], e["attempt"]) for e in whole] == [
        ("tool_call", 1),
        ("tool_result", 1),
        ("tool_call", 2),
        ("tool_result", 2),
    ]
    assert whole[1]["error"]["code"] == "interrupted"


def test_no_move_leads_out_of_a_terminal_state() -> None:
    assert set(STATUSES) == OPEN | TERMINAL
    for sources, target in MOVES.values():
        assert not sources & TERMINAL
        assert target in STATUSES
