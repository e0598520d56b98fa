from __future__ import annotations

import subprocess
import sys

import pytest

from hub.client import TooLarge
from hub.client.address import Address, bearer
from hub.client.asks import Ask, Asks
from hub.client.errors import Invalid, NotFound, Unavailable, error_from
from hub.client.frames import Message, Unknown, Welcome, decode_frames
from hub.client.rest import EventParser, retry_after, segment
from hub.client.wire import check_size, encode, pack


def test_the_sdk_and_the_command_import_without_django() -> None:
    program = """
import sys
server = {"django", "channels", "daphne", "celery", "redis", "psycopg", "rest_framework", "structlog"}
command = {"typer", "rich", "click"}
class Block:
    names = server | command
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Block())
import hub.client, hub.client.conformance.__main__
Block.names = server
import hub.cli.app, hub.cli.basics, hub.cli.talk, hub.cli.traces, hub.cli.doctor, hub.cli.agents, hub.cli.workspace
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("base", "rest", "socket"),
    [
        ("https://cloud", "https://cloud/api/a2a/sessions", "wss://cloud/api/a2a/stream"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/api/a2a/sessions", "ws://127.0.0.1:8000/api/a2a/stream"),
        ("https://x.org/hub", "https://x.org/hub/api/a2a/sessions", "wss://x.org/hub/api/a2a/stream"),
        ("wss://x.org", "https://x.org/api/a2a/sessions", "wss://x.org/api/a2a/stream"),
    ],
)
def test_addresses_are_derived(base: str, rest: str, socket: str) -> None:
    address = Address.parse(base)
    assert address.rest("sessions") == rest
    assert address.socket() == socket


@pytest.mark.parametrize(
    "base", ["", "cloud", "ftp://x", "https://", "https://a:b@x", "https://x/?key=ak_1", "http://x:99999"]
)
def test_what_is_no_address_is_refused(base: str) -> None:
    with pytest.raises(ValueError):
        Address.parse(base)


def test_a_message_answers_like_the_json_it_came_from() -> None:
    (message,) = decode_frames(
        '{"type":"message","message_id":"m","session_id":"s","sequence":3,"from":"b","content":"x","parts":[{"text":"x"}]}'
    )
    assert isinstance(message, Message)
    assert message["content"] == message.content == "x"
    assert message["from"] == message.sender == "b"
    assert message["type"] == "message"
    assert message.get("nothing", 1) == 1
    assert "session_id" in message
    assert dict(message)["sequence"] == 3
    with pytest.raises(KeyError):
        message["nothing"]


def test_one_bad_frame_in_a_batch_does_not_touch_its_neighbours() -> None:
    frames = decode_frames('[{"type":"pong","id":1},{"type":"message","sequence":"x"},7,{"type":"pong","id":2}]')
    assert [type(frame).__name__ for frame in frames] == ["Pong", "Unknown", "Unknown", "Pong"]


def test_limits_may_be_any_numbers() -> None:
    (welcome,) = decode_frames('{"type":"welcome","limits":{"burst":5000.0,"messages_per_second":500,"window":1000}}')
    assert isinstance(welcome, Welcome)
    assert welcome.limits.burst == 5000


def test_a_frame_of_a_known_type_that_is_not_understood_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    (frame,) = decode_frames('{"type":"ack","sequence":"x"}')
    assert isinstance(frame, Unknown)
    assert "ack frame" in caplog.text
    caplog.clear()
    decode_frames('{"type":"hologram"}')
    assert caplog.text == ""


@pytest.mark.parametrize("value", [{"x": float("nan")}, {"x": "\ud800"}, {"x": object()}, {"x": float("inf")}])
def test_what_json_cannot_say_is_refused_before_it_is_sent(value: object) -> None:
    with pytest.raises(Invalid):
        encode(value)


def test_sizes_are_checked_in_bytes() -> None:
    fits = {"content": "é" * (128 * 1024)}
    check_size(fits, encode(fits))
    over = {"content": "é" * (128 * 1024) + "x"}
    with pytest.raises(TooLarge):
        check_size(over, encode(over))


def test_frames_are_packed_in_order() -> None:
    texts = [f'{{"n":{number}}}' for number in range(3)]
    assert list(pack(texts)) == ['[{"n":0},{"n":1},{"n":2}]']
    assert list(pack(texts[:1])) == ['{"n":0}']
    big = '"' + "x" * 100_000 + '"'
    assert list(pack([big, big, big])) == [big, big, big]


def test_server_sent_events_may_be_cut_anywhere() -> None:
    stream = 'id: 1\nevent: message\ndata: {"a":\ndata: "é"}\n\n: comment\n\ndata: last\n\ndata: unfinished\n'.encode()
    whole = EventParser().feed(stream)
    assert [(event.event, event.data, event.id) for event in whole] == [
        ("message", '{"a":\n"é"}', "1"),
        ("message", "last", None),
    ]
    for step in (1, 3, 7):
        parser = EventParser()
        events = [event for start in range(0, len(stream), step) for event in parser.feed(stream[start : start + step])]
        assert events == whole


@pytest.mark.parametrize(
    ("header", "seconds"), [(None, None), ("5", 5.0), ("soon", None), ("-3", None), ("1e99", 300.0)]
)
def test_retry_after_is_read_and_bounded(header: str | None, seconds: float | None) -> None:
    assert retry_after(header) == seconds


def test_retry_after_may_be_a_date() -> None:
    assert retry_after("Wed, 01 Jan 2098 00:00:00 GMT") == 300.0


@pytest.mark.parametrize(("text", "quoted"), [("a/b", "a%2Fb"), ("../x", "..%2Fx"), ("café?", "caf%C3%A9%3F")])
def test_ids_stay_one_segment_of_a_path(text: str, quoted: str) -> None:
    assert segment(text) == quoted


@pytest.mark.parametrize("text", ["", ".", ".."])
def test_dots_are_no_id(text: str) -> None:
    with pytest.raises(NotFound):
        segment(text)


def test_unknown_codes_take_the_class_of_their_status() -> None:
    error = error_from("brand_new", "x", status=503)
    assert isinstance(error, Unavailable)
    assert error.details["code"] == "brand_new"


def message(sequence: int, **fields: object) -> Message:
    base = {"message_id": f"m{sequence}", "session_id": "s", "sequence": sequence, "sender": "b"}
    return Message(**(base | fields))  # type: ignore[arg-type]


async def test_which_message_is_the_answer() -> None:
    import asyncio

    def ask(**fields: object) -> Ask:
        one = Ask("s", None, asyncio.get_running_loop().create_future(), asyncio.Event())
        one.message_id, one.sequence = "m5", 5
        for name, value in fields.items():
            setattr(one, name, value)
        return one

    assert ask().accepts(message(6))
    assert not ask().accepts(message(4))
    assert not ask().accepts(message(6, kind="system", sender="hub"))
    assert not ask().accepts(message(6, reply_to="m1"))
    assert ask().accepts(message(6, reply_to="m5"))
    assert not ask(to=["c"]).accepts(message(6))
    assert ask(to=["c"]).accepts(message(6, sender="c"))
    assert ask(trace_id="t").accepts(message(6, kind="result", trace_id="t"))
    assert not ask(trace_id="t").accepts(message(6))
    assert ask(kind="status_query").accepts(message(6, kind="system", sender="hub", reply_to="m5"))
    assert not ask(kind="status_query").accepts(message(6))


async def test_an_answer_that_overtakes_the_ack_is_found() -> None:
    import asyncio

    asks = Asks()
    ask = Ask("s", None, asyncio.get_running_loop().create_future(), asyncio.Event())
    asks.open(ask)
    asks.saw(message(4))
    asks.saw(message(6))
    assert not ask.answer.done()
    asks.sent(ask, message_id="m5", sequence=5, kind="chat", trace_id=None)
    assert ask.answer.result().sequence == 6
    assert asks.claim(message(6))
    assert not asks.claim(message(6))


@pytest.mark.parametrize("end", ["", "\r", "\r\n", " "])
def test_the_end_of_a_line_is_not_part_of_a_key(end: str) -> None:
    assert bearer("ak_1_x" + end) == "Bearer ak_1_x"


@pytest.mark.parametrize("key", ["ak_1_schlüssel", "ak_1\r\nX-Other: 1", "ak_1 x", "ak_1\0x"])
def test_what_can_be_no_key_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ValueError) as refused:
        bearer(key)
    assert key not in str(refused.value)
    assert "X-Other" not in str(refused.value)
