"""Query strings, cursors, bodies and keys, checked before anything is done with them."""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions_app.protocol.bodies import CloseBody, check_wait
from sessions_app.protocol.errors import HubError, Invalid, TooLarge, Unsupported
from sessions_app.rest.reading import (
    SEQUENCE_MAX,
    Query,
    idempotency_key,
    key_as_client_message_id,
    list_cursor,
    read_body,
    read_list_cursor,
    read_time_cursor,
)

decoder = msgspec.json.Decoder(CloseBody)


@pytest.mark.parametrize(
    "text", ["-1", "abc", "", "1.5", "1e3", " 1", "1 ", "٣", "1" * 20, str(SEQUENCE_MAX + 1), "\0"]
)
def test_what_is_no_number_in_range_is_invalid_by_its_name(text: str) -> None:
    from urllib.parse import urlencode

    with pytest.raises(Invalid) as refusal:
        Query(urlencode({"after": text})).number("after")
    assert refusal.value.details == {"field": "after"}


def test_numbers_in_range_are_read_and_of_two_the_last_counts() -> None:
    assert Query("").number("after") is None
    assert Query("after=0").number("after") == 0
    assert Query(f"after={SEQUENCE_MAX}").number("after") == SEQUENCE_MAX
    assert Query("after=1&after=2").number("after") == 2
    assert Query("after=007").number("after") == 7
    assert Query("").limit() == 50
    assert Query("limit=500").limit() == 500


def test_a_query_string_with_a_thousand_parameters_is_invalid() -> None:
    with pytest.raises(Invalid):
        Query("&".join(f"x{n}=1" for n in range(1000)))


@given(st.text(), st.text())
def test_no_query_string_is_a_defect(text: str, name: str) -> None:
    try:
        query = Query(text)
        query.number(name), query.flag(name), query.seconds(name)
    except HubError:
        pass


@given(
    st.text(alphabet=st.characters(exclude_characters="\0", codec="utf-8"), max_size=100), st.integers(0, SEQUENCE_MAX)
)
def test_a_cursor_comes_back_as_it_was_given(text: str, number: int) -> None:
    cursor = list_cursor(text, number)
    assert cursor.isascii()
    assert read_list_cursor(cursor) == (text, number)


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_no_made_up_cursor_is_a_defect(text: str) -> None:
    for read in (read_list_cursor, read_time_cursor):
        try:
            read(text)
        except Invalid:
            pass


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("2026-11-30 01:02:03", True),
        ("2026-11-30 01:02:03.000001", True),
        ("2026-11-30T01:02:03.123456Z", True),
        ("2026-13-30 01:02:03", False),
        ("2026-11-30 24:00:01", False),
        ("2026-11-30", False),
        ("now()", False),
        ("0000-00-00 00:00:00", False),
    ],
)
def test_a_cursor_in_time_holds_a_time(text: str, good: bool) -> None:
    cursor = list_cursor(text, 1)
    if good:
        assert read_time_cursor(cursor) == (text, 1)
    else:
        with pytest.raises(Invalid):
            read_time_cursor(cursor)


@given(st.floats(0, 50) | st.integers(0, 50))
def test_seconds_are_read_as_any_client_writes_them(seconds: float) -> None:
    """Python's own spelling, JSON's, and exponents in either case."""
    spellings = {str(seconds), f"{seconds:e}", f"{seconds:E}", msgspec.json.encode(seconds).decode(), f"0{seconds}"}
    for text in spellings:
        found = Query(urlencode({"timeout": text})).seconds("timeout")
        assert found == float(text), text
        assert found is not None
        assert check_wait(min(found, 50.0)) == min(found, 50.0)


@pytest.mark.parametrize(
    "text", ["", " 5", "5 ", "+5", ".5", "5.", "1_0", "0x5", "NaN", "Infinity", "٣", "5e", "e5", "1,5", "--1"]
)
def test_what_is_no_json_number_is_no_seconds(text: str) -> None:
    with pytest.raises(Invalid, match="5e-1"):
        Query(urlencode({"timeout": text})).seconds("timeout")


@pytest.mark.parametrize("text", ["-1", "-1e-9", "51", "5e1000", "9" * 30])
def test_seconds_out_of_range_are_told_the_range(text: str) -> None:
    with pytest.raises(Invalid, match="0 to 50 seconds"):
        check_wait(Query(f"timeout={text}").seconds("timeout"))


@pytest.mark.parametrize(("given_", "seconds"), [(None, 30.0), (0, 0), (0.5, 0.5), (50, 50)])
def test_a_wait_is_as_long_as_asked_for(given_: float | None, seconds: float) -> None:
    assert check_wait(given_) == seconds


@pytest.mark.parametrize("given_", [-1, -0.001, 50.1, 51, 1e30, float("nan"), float("inf")])
def test_a_wait_that_is_impossible_or_longer_than_we_wait_is_invalid(given_: float) -> None:
    with pytest.raises(Invalid) as refused:
        check_wait(given_)
    assert refused.value.details["field"] == "timeout"


def test_an_empty_body_is_an_empty_object_whatever_it_says_it_is() -> None:
    assert read_body(b"", {"content-type": "text/plain"}, decoder).reason is None


@pytest.mark.parametrize(
    ("kind", "taken"),
    [
        ("application/json", True),
        ("APPLICATION/JSON;charset=utf-8", True),
        ('application/json; charset="UTF-8"', True),
        ("application/merge-patch+json", True),
        ("application/x+jsonx", False),
        ("text/json", False),
        ("application/json; charset=utf-16", False),
        ("application/x-www-form-urlencoded", False),
        ("json", False),
    ],
)
def test_a_body_says_that_it_is_json(kind: str, taken: bool) -> None:
    if taken:
        assert read_body(b'{"reason":"x"}', {"content-type": kind}, decoder).reason == "x"
    else:
        with pytest.raises(Unsupported):
            read_body(b'{"reason":"x"}', {"content-type": kind}, decoder)


@pytest.mark.parametrize("length", ["1048577", "9" * 15, "9" * 5000])
def test_a_body_that_says_it_is_too_large_is_believed(length: str) -> None:
    with pytest.raises(TooLarge):
        read_body(b"", {"content-length": length}, decoder)


def test_a_body_that_is_larger_than_it_says_is_too_large() -> None:
    with pytest.raises(TooLarge):
        read_body(b" " * (1024 * 1024 + 1), {"content-length": "5"}, decoder)
    with pytest.raises(Invalid):
        read_body(b" " * (1024 * 1024), {"content-length": "-5"}, decoder)


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=255))
def test_every_idempotency_key_fits_its_column_and_a_client_message_id(text: str) -> None:
    key = idempotency_key({"idempotency-key": text})
    assert key is not None
    assert len(key) <= 128
    name = key_as_client_message_id(key)
    assert 1 <= len(name) <= 128
    assert name.startswith("idem-")
    assert name.isascii()
    assert name.isprintable()


def test_two_long_keys_stay_two() -> None:
    keys = {idempotency_key({"idempotency-key": "k" * length}) for length in range(1, 256)}
    assert len(keys) == 255
    assert len({key_as_client_message_id(key) for key in keys if key is not None}) == 255
