"""Live text on its way to an A2A reader: whatever pieces come, the reader ends up with the whole result."""

from __future__ import annotations

from typing import Any

from a2a.types import Artifact, Part, TaskArtifactUpdateEvent
from hypothesis import given
from hypothesis import strategies as st

from hub.a2a.following import LiveText
from hub.a2a.tasks import RESULT, TaskRef
from hub.a2a.updates import artifact_update

REF = TaskRef(True, 1, "trace-x", "sess-x", 1, "sess-x", 1, 2, 1)


def frame(index: int, text: str, stream: str = "s") -> dict[str, Any]:
    return {"stream_id": stream, "index": index, "text": text}


def whole(text: str) -> TaskArtifactUpdateEvent:
    artifact = Artifact(artifact_id=RESULT, name=RESULT, parts=[Part(text=text)])
    return artifact_update(REF, artifact, append=False, last=True)


def read(frames: list[dict[str, Any]], result: str) -> tuple[str, int]:
    """What a reader has at the end, and how many characters it was sent."""
    live = LiveText(REF)
    text, sent = "", 0
    pieces = [piece for piece in map(live.take, frames) if piece is not None]
    for update in [*pieces, live.finish(whole(result))]:
        assert isinstance(update, TaskArtifactUpdateEvent)
        piece = "".join(part.text for part in update.artifact.parts)
        sent += len(piece)
        text = text + piece if update.append else piece
    return text, sent


def test_text_that_came_whole_is_not_sent_again() -> None:
    assert read([frame(0, "Beijing "), frame(1, "is sunny")], "Beijing is sunny.") == ("Beijing is sunny.", 17)


def test_an_answer_that_another_worker_began_again_replaces_the_first() -> None:
    assert (
        read([frame(0, "one "), frame(1, "two "), frame(0, "three "), frame(1, "four")], "three four")[0]
        == "three four"
    )


@given(
    st.lists(st.tuples(st.integers(0, 4), st.text(max_size=3), st.sampled_from("st")), max_size=8), st.text(max_size=9)
)
def test_whatever_is_lost_doubled_or_mixed_up_the_result_is_right(
    pieces: list[tuple[int, str, str]], result: str
) -> None:
    assert read([frame(*piece) for piece in pieces], result)[0] == result
