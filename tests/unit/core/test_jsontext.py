"""Which JSON the hub takes, on every door."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from sessions_app.protocol import ids, limits
from sessions_app.protocol.bodies import MessageBody, SessionPatch, check_content, merge_patch
from sessions_app.protocol.errors import ALL, Invalid, TooLarge
from sessions_app.protocol.jsontext import MAX_DEPTH, decode, dumps, loads


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "{",
        '{"a":1',
        '{"a":1}x',
        "NaN",
        '{"a":NaN}',
        '{"a":Infinity}',
        '{"a":-Infinity}',
        '{"a":1e400}',
        '"\\ud800"',
        '"\\udc00"',
        '"\\ud800x"',
        '"\\ud800\\ud800"',
        '{"\\ud800":1}',
        '"a\\u0000b"',
        '{"a\\u0000":1}',
        '{"a":[{"b":"\\u0000"}]}',
        '"\x01"',
        "1" * 5000,
        str(1 << 64),
        str(-(1 << 63) - 1),
        nested(MAX_DEPTH + 1),
        "[" * 20_000,
        '{"a":' * 10_000,
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b"\xc3(",
    ],
)
def test_hostile_text_is_invalid_and_nothing_else(text: str | bytes) -> None:
    with pytest.raises(Invalid):
        loads(text)


@pytest.mark.parametrize(
    "text",
    [
        '"\\\\u0000"',
        '"\\ud83d\\ude00"',
        nested(MAX_DEPTH),
        str((1 << 64) - 1),
        str(-(1 << 63)),
        '"[[[[' + "[" * 100 + '"',
        "1.5",
    ],
)
def test_text_that_only_looks_hostile_is_taken(text: str) -> None:
    assert loads(text) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"context":{"x":1,"a":[1,2,3,{"ok":0.5,"b":1e999}]}}', "context.a[3].b"),
        ('{"context":{"big":-1e400}}', "context.big"),
        ('{"context":{"a b":{"c.d":1e999}}}', 'context["a b"]["c.d"]'),
        ('{"context":{"a":[{"k":"x\\u0000"}]}}', "context.a[0].k"),
        ('{"context":{"a":[{"\\u0000":1}]}}', "context.a[0]"),
        ('{"context":{"n":[0,123456789012345678901234567890]}}', "context.n[1]"),
        ('{"context":[1]}', "context"),
        ('{"title":1}', "title"),
        ('{"context":{"' + "k" * 500 + '":1e999}}', 'context["' + "k" * 64 + '"]'),
    ],
)
def test_an_error_names_the_field_as_its_writer_can_find_it(text: str, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        decode(text, msgspec.json.Decoder(SessionPatch))
    assert refused.value.details["field"] == field


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ('"content":"x","metadata":{"a":[{"b":1e999}]}', "metadata.a[0].b"),
        ('"parts":[{"text":"x"},{"data":{"deep":[{"n":1e999}]}}]', "parts[1].data.deep[0].n"),
        ('"parts":[{"text":"x","metadata":{"a":"\\u0000"}}]', "parts[0].metadata.a"),
        ('"parts":[{"text":5}]', "parts[0].text"),
    ],
)
def test_also_inside_of_what_is_kept_as_it_came(fields: str, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_content(decode("{" + fields + "}", msgspec.json.Decoder(MessageBody)))
    assert refused.value.details["field"] == field


@pytest.mark.parametrize(
    ("metadata", "kept"),
    [
        ('{"n":1.50,"x":"y"}', '{"n":1.50,"x":"y"}'),
        ('{"classified_by":"operator","n":1}', '{"n":1}'),
        ('{"classified\\u005fby":"operator","n":1}', '{"n":1}'),
        ('{"note":"classified_by"}', '{"note":"classified_by"}'),
        ('{"note":{"trace_status":"mine"}}', '{"note":{"trace_status":"mine"}}'),
        ('{"trace_status":"failed","a2a":{"messageId":"forged"}}', None),
    ],
)
def test_what_only_the_hub_says_in_metadata_is_left_out_of_what_a_client_writes(
    metadata: str, kept: str | None
) -> None:
    body = decode('{"content":"x","metadata":' + metadata + "}", msgspec.json.Decoder(MessageBody))
    assert check_content(body).metadata == kept


def test_of_several_members_the_one_of_the_wrong_type_is_named() -> None:
    with pytest.raises(Invalid) as refused:
        decode('{"names":{"one":"1","two":2}}', msgspec.json.Decoder(dict[str, dict[str, str]]))
    assert refused.value.details["field"] == "names.two"


def test_a_path_ends_where_it_would_grow_too_long() -> None:
    text = '{"context":' + '{"abcdefghijklmnopqrstuvwxyz":' * 60 + "1e999" + "}" * 60 + "}"
    with pytest.raises(Invalid) as refused:
        decode(text, msgspec.json.Decoder(SessionPatch))
    assert len(refused.value.details["field"]) <= 300


@given(
    st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), lambda inner: st.lists(inner))
)
def test_what_json_can_say_comes_back_the_same(value: object) -> None:
    text = dumps(value)
    if "\\u0000" in text:
        with pytest.raises(Invalid):
            loads(text)
    else:
        assert loads(text) == value


def body(**fields: object) -> MessageBody:
    return MessageBody(**{k: (Raw(dumps(v)) if k in {"parts", "metadata"} else v) for k, v in fields.items()})  # type: ignore[arg-type]


def test_content_is_the_text_of_the_parts_joined_by_newlines() -> None:
    checked = check_content(body(parts=[{"text": "one"}, {"data": {"n": 1}}, {"text": "two"}]))
    assert checked.text == "one\ntwo"
    assert checked.parts is not None
    assert json.loads(checked.parts)[1] == {"data": {"n": 1}}


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [{}],
        [{"text": "a", "url": "b"}],
        [{"text": 5}],
        [{"raw": "not base64!"}],
        ["text"],
        {"text": "a"},
    ],
)
def test_a_part_that_is_none_is_refused_with_its_field(parts: object) -> None:
    with pytest.raises(Invalid) as refusal:
        check_content(body(parts=parts))
    assert refusal.value.details["field"].startswith("parts")


def test_sizes_are_bytes_not_characters() -> None:
    assert len(check_content(body(content="a" * limits.CONTENT_BYTES)).text) == limits.CONTENT_BYTES
    with pytest.raises(TooLarge):
        check_content(body(content="a" * (limits.CONTENT_BYTES + 1)))
    assert check_content(body(content="文" * (limits.CONTENT_BYTES // 3))).parts is None
    with pytest.raises(TooLarge):
        check_content(body(content="文" * (limits.CONTENT_BYTES // 3 + 1)))


def test_metadata_is_kept_to_the_letter_and_nothing_is_nothing() -> None:
    kept = MessageBody(content="x", metadata=Raw('{"big":9007199254740993, "z":1,"a":2}'))
    assert check_content(kept).metadata == '{"big":9007199254740993, "z":1,"a":2}'
    assert check_content(MessageBody(content="x", metadata=Raw("{ }"))).metadata is None
    with pytest.raises(Invalid):
        check_content(MessageBody(content="x", metadata=Raw("[1]")))


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # RFC 7396, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_does_what_its_rfc_says(target: object, patch: object, result: object) -> None:
    assert merge_patch(target, patch) == result


@given(st.integers(0, (1 << 63) - 1))
def test_a_message_id_is_its_key_in_other_letters(key: int) -> None:
    assert ids.MESSAGE_ID.fullmatch(ids.message_id(key))
    assert ids.message_key(ids.message_id(key)) == key


@pytest.mark.parametrize(
    "text", ["msg-zzzzzzzzzzzzz", "msg-", "msg-ABCDEFGHJKMNP", "x", "msg-0000000000000\n", "msg-٠٠٠٠٠٠٠٠٠٠٠٠٠"]
)
def test_what_is_no_message_id_has_no_key(text: str) -> None:
    assert ids.message_key(text) is None


def test_keys_of_one_process_grow_and_never_repeat() -> None:
    keys = ids.MessageKeys()
    made = [keys.next() for _ in range(5000)]
    assert made == sorted(set(made))


@pytest.mark.parametrize(
    "name", ["hub", "me", "system", "human.jo", "human", "", "A", "-a", ".a", "a/b", "a\n", "é", "a" * 65, "..", "а"]
)
def test_names_that_no_agent_may_have(name: str) -> None:
    assert not ids.is_agent_id(name)


@pytest.mark.parametrize("name", ["a", "0", "cloud-agent-123", "a.b_c", "a" * 64, "humans"])
def test_names_that_an_agent_may_have(name: str) -> None:
    assert ids.is_agent_id(name)


def test_every_error_has_a_code_of_its_own() -> None:
    assert len({error.code for error in ALL}) == len(ALL)
