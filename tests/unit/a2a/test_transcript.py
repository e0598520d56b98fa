"""What a remote says, put together: the pieces that are passed on are the text that is stored in the end."""

from __future__ import annotations

from typing import Any

import pytest
from a2a.types import StreamResponse
from google.protobuf.json_format import ParseDict

from hub.a2a.outbound import transcript
from hub.a2a.outbound.transcript import TooMuch, Transcript


def event(value: dict[str, Any]) -> StreamResponse:
    made: StreamResponse = ParseDict(value, StreamResponse())
    return made


def piece(text: str, key: str = "a", *, append: bool = True) -> StreamResponse:
    return event({"artifactUpdate": {"artifact": {"artifactId": key, "parts": [{"text": text}]}, "append": append}})


def status(state: str, said: str = "") -> StreamResponse:
    value: dict[str, Any] = {"state": f"TASK_STATE_{state}"}
    if said:
        value["message"] = {"parts": [{"text": said}]}
    return event({"statusUpdate": {"status": value}})


def task(state: str, *artifacts: list[str]) -> StreamResponse:
    listed = [{"artifactId": str(n), "parts": [{"text": t} for t in texts]} for n, texts in enumerate(artifacts)]
    return event(
        {"task": {"id": "t", "contextId": "c", "status": {"state": f"TASK_STATE_{state}"}, "artifacts": listed}}
    )


def told(said: Transcript, *events: StreamResponse) -> str:
    return "".join(said.take(one) for one in events)


def test_pieces_are_joined_without_a_break_and_artifacts_by_a_line() -> None:
    said = Transcript()
    pieces = told(
        said, piece("one ", append=False), piece("two"), piece("three", "b", append=False), status("COMPLETED")
    )
    assert pieces == said.text() == "one two\nthree"
    assert said.parts() == ()


def test_parts_that_came_whole_stay_lines_of_their_own() -> None:
    said = Transcript()
    assert told(said, task("COMPLETED", ["one", "two"])) == said.text() == "one\ntwo"


def test_a_task_that_is_taken_up_again_lists_what_was_streamed_and_only_the_rest_is_told() -> None:
    said = Transcript()
    assert told(said, event({"task": {"id": "t"}}), event_zero("one "), event_zero("two ")) == "one two "
    said.rejoined = True
    assert told(said, task("WORKING", ["one ", "two ", "three "])) == "three "
    assert told(said, event_zero("four"), status("COMPLETED")) == "four"
    assert said.text() == "one two three four"


def event_zero(text: str) -> StreamResponse:
    return piece(text, "0")


def test_a_text_that_was_changed_behind_what_was_told_is_stored_as_it_is_now() -> None:
    said = Transcript()
    assert told(said, piece("draft", append=False), piece("final", append=False), status("COMPLETED")) == "draft"
    assert said.text() == "final"


def test_the_last_status_is_the_answer_only_where_there_is_no_other_and_the_task_was_completed() -> None:
    said = Transcript()
    assert told(said, status("WORKING", "thinking"), status("COMPLETED", "the answer")) == "the answer"
    said = Transcript()
    told(said, piece("the answer", append=False), status("COMPLETED", "Done."))
    assert said.text() == "the answer"
    for state in ("FAILED", "INPUT_REQUIRED", "CANCELED", "REJECTED"):
        said = Transcript()
        assert told(said, status(state, "words")) == said.text() == ""
        assert said.remark() == "words"


def test_what_it_said_while_it_worked_is_not_its_last_word() -> None:
    said = Transcript()
    told(said, status("WORKING", "thinking"), status("COMPLETED"))
    assert (said.text(), said.parts()) == ("", ())


def test_numbers_are_whole_where_they_are_and_types_of_media_are_kept() -> None:
    said = Transcript()
    parts = [
        {"text": "# a", "mediaType": "text/markdown"},
        {"data": {"n": 1, "list": [2.5, 3], "big": 1e300, "no": None, "yes": True}},
        {"raw": "AAEC", "filename": "x.bin"},
    ]
    said.take(event({"artifactUpdate": {"artifact": {"artifactId": "a", "parts": parts}}}))
    said.take(status("COMPLETED"))
    assert said.parts() == tuple(parts)
    assert isinstance(said.parts()[1]["data"]["n"], int)


def test_it_ends_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "MAX_TEXT", 10)
    said = Transcript()
    told(said, piece("0123456789"))
    with pytest.raises(TooMuch):
        said.take(piece("x"))
