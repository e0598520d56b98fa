"""The short way for plain text frames must give what the protocol says, and leave everything else alone."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.server import text_frame
from hub.websocket import take_text_frames


def frame(payload: bytes, *, first: int = 0x81, mask: bytes | None = b"\x01\x02\xfe\x7f") -> bytes:
    """A frame written by the book (RFC 6455, section 5.2)."""
    flag = 0x80 if mask is not None else 0
    size = len(payload)
    if size < 126:
        head = bytes([first, flag | size])
    elif size < 65536:
        head = bytes([first, flag | 126]) + struct.pack("!H", size)
    else:
        head = bytes([first, flag | 127]) + struct.pack("!Q", size)
    if mask is None:
        return head + payload
    return head + mask + bytes(octet ^ mask[i % 4] for i, octet in enumerate(payload))


@given(st.lists(st.text(max_size=300), max_size=5), st.binary(min_size=4, max_size=4), st.integers(0, 2000))
def test_whole_frames_are_read_and_a_cut_one_is_left(texts: list[str], mask: bytes, cut: int) -> None:
    frames = [frame(text.encode(), mask=mask) for text in texts]
    data = b"".join(frames)[:cut]
    read, taken = take_text_frames(data)
    whole, size = 0, 0
    while whole < len(frames) and size + len(frames[whole]) <= len(data):
        size += len(frames[whole])
        whole += 1
    assert (read, taken) == (texts[:whole], size)


@pytest.mark.parametrize("size", [0, 1, 3, 125, 126, 127, 65535])
def test_every_length_form_that_is_taken_is_read_right(size: int) -> None:
    text = "x" * size
    assert take_text_frames(frame(text.encode())) == ([text], len(frame(text.encode())))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x81",
        frame(b"x", mask=None),
        frame(b"x", first=0x01),  # the first of several fragments
        frame(b"x", first=0x80),  # a continuation
        frame(b"x", first=0x82),  # binary
        frame(b"", first=0x88),  # close
        frame(b"x", first=0x89),  # ping
        frame(b"x", first=0xC1),  # compressed
        frame(b"x" * 65536),
        frame(b"\xc3("),
        frame("é".encode()[:1]),
        b"\x81\xfe\x00\x05" + b"\0\0\0\0" + b"hello",  # five octets in the form for more than 125
    ],
)
def test_everything_else_is_left_untouched(data: bytes) -> None:
    assert take_text_frames(data) == ([], 0)


def test_a_control_frame_between_two_texts_stops_the_short_way_there() -> None:
    one, ping, two = frame(b"one"), frame(b"p", first=0x89), frame(b"two")
    assert take_text_frames(one + ping + two) == (["one"], len(one))


@given(st.text(max_size=70_000))
def test_what_is_sent_is_an_unmasked_text_frame(text: str) -> None:
    assert text_frame(text) == frame(text.encode(), mask=None)
