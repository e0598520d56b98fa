from __future__ import annotations

import pytest

from hub.cli.live import Growing, LiveView
from hub.cli.screen import Screen
from hub.client import Chunk, Message, Presence, SessionUpdate


def chunk(text: str, *, stream: str = "st-1", sender: str = "b") -> Chunk:
    return Chunk(session_id="sess-1", sender=sender, stream_id=stream, text=text)


def message(content: str, *, stream: str | None = "st-1", sender: str = "b") -> Message:
    metadata = {"stream_id": stream} if stream else None
    return Message(message_id="m", session_id="sess-1", sequence=1, sender=sender, content=content, metadata=metadata)


@pytest.fixture
def view() -> LiveView:
    return LiveView(Screen())


def test_a_prompt_never_comes_between_the_pieces_of_a_reply(view: LiveView, capsys: pytest.CaptureFixture[str]) -> None:
    view.prompt()
    view.typed()
    view.show(chunk("first "))
    view.prompt()  # what was typed is acknowledged only now
    view.show(chunk("second"))
    view.show(message("first second"))
    assert capsys.readouterr().out == "> b: first second\n> "


def test_a_reply_that_is_whole_before_what_it_answers_is_acknowledged_leaves_one_prompt(
    view: LiveView, capsys: pytest.CaptureFixture[str]
) -> None:
    view.prompt()
    view.typed()
    view.show(message("quick", stream=None))
    view.prompt()
    assert capsys.readouterr().out == "> b: quick\n> "


def test_a_reply_to_somebody_who_is_at_the_prompt_begins_a_line(
    view: LiveView, capsys: pytest.CaptureFixture[str]
) -> None:
    view.prompt()
    view.show(chunk("one"))
    view.show(message("one"))
    view.show(message("two", stream=None))
    assert capsys.readouterr().out == "> \nb: one\n> \nb: two\n> "


def test_what_was_lost_of_the_chunks_is_shown_with_the_message(
    view: LiveView, capsys: pytest.CaptureFixture[str]
) -> None:
    view.show(chunk("the beginning"))
    view.show(message("the beginning and the end"))
    assert capsys.readouterr().out == "b: the beginning and the end\n> "
    view.typed()
    view.show(chunk("the end", stream="st-2"))
    view.show(message("the beginning and the end", stream="st-2"))
    assert capsys.readouterr().out == "b: the end\nb: the beginning and the end\n> "


def test_two_replies_that_grow_side_by_side_are_told_apart_and_both_shown_whole(
    view: LiveView, capsys: pytest.CaptureFixture[str]
) -> None:
    view.show(chunk("one", sender="a", stream="st-a"))
    view.show(chunk("two", sender="b", stream="st-b"))
    view.show(message("one.", sender="a", stream="st-a"))
    view.show(message("two.", sender="b", stream="st-b"))
    out = capsys.readouterr().out
    assert out.splitlines()[:2] == ["a: one", "b: two"]
    assert "a: one.\n" in out
    assert "b: two.\n" in out


def test_a_note_has_a_line_of_its_own_and_the_prompt_comes_back(
    view: LiveView, capsys: pytest.CaptureFixture[str]
) -> None:
    view.prompt()
    view.show(Presence(session_id="sess-1", agent_id="b", status="offline"))
    view.show(SessionUpdate(session_id="sess-1", status="completed"))
    said = capsys.readouterr()
    assert said.out == "> \n> \n", "and none when nobody may speak any more"
    assert said.err == "b is offline\nthe session is completed\n"


def test_programs_get_messages_as_json_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    view = LiveView(Screen(as_json=True))
    view.prompt()
    view.show(chunk("one"))
    view.show(message("one"))
    view.prompt()
    (line,) = capsys.readouterr().out.splitlines()
    assert '"content": "one"' in line


def test_a_reply_without_names_is_the_text_alone(capsys: pytest.CaptureFixture[str]) -> None:
    reply = Growing(Screen())
    reply.add(chunk("a\t"))
    reply.end(message("a\tb"))
    reply.end(message("c\td", stream=None))
    assert capsys.readouterr().out == "a\tb\nc\td\n"
