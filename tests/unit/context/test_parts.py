"""Typed parts: read tolerantly, written for the receiver, and never misread."""

from __future__ import annotations

from typing import Any

import pytest

from sessions_app.context.parts import CONVERSATION_HISTORY, Handler, Registry, parse_version, registry
from sessions_app.protocol.errors import Invalid

HISTORY = [
    {"role": "user", "content": "I am looking for a lightweight laptop"},
    {"role": "assistant", "content": "Great choice. Do you have any preferred brands?"},
]
SEED = {
    "messageId": "msg-001",
    "contextId": "ctx-123",
    "metadata": {"userId": "2"},
    "parts": [
        {"text": "tell me more about option 4"},
        {"data": HISTORY, "metadata": {"type": "ConversationHistory", "schemaVersion": "1.0"}},
        {
            "data": {
                "userProfile": {"location": "Sample City", "preferredLanguage": "en-US"},
                "foundItems": {"query": "lightweight laptops", "items": [1, 2], "totalCount": 2},
                "sessionContext": {"sourceId": "WebChat"},
            },
            "metadata": {"type": "UserContext", "schemaVersion": "1.0"},
        },
    ],
}


def history(version: Any, data: Any = HISTORY) -> dict[str, Any]:
    return {"data": data, "metadata": {"type": "ConversationHistory", "schemaVersion": version}}


def test_the_message_of_the_second_seed_is_understood() -> None:
    read = registry.read_all(SEED["parts"])  # type: ignore[arg-type]
    assert [(part.type, part.version, part.known) for part in read] == [
        ("ConversationHistory", "1.0", True),
        ("UserContext", "1.0", True),
    ]
    assert [(entry["role"], entry["content"]) for entry in read[0].data] == [
        (entry["role"], entry["content"]) for entry in HISTORY
    ]
    assert read[1].data["foundItems"]["totalCount"] == 2


@pytest.mark.parametrize("version", ["1.0", "1.7", "1.7.3", "1.0-beta", "1", 1, 1.0])
def test_a_known_major_is_read_whatever_its_minor(version: Any) -> None:
    typed = registry.read(history(version))
    assert typed is not None
    assert typed.known


@pytest.mark.parametrize("version", ["2.0", "0.9", "17.0.1"])
def test_an_unknown_major_is_refused_with_the_versions_we_speak(version: str) -> None:
    with pytest.raises(Invalid) as refusal:
        registry.read(history(version))
    assert refusal.value.details["supported"] == ["1.0"]
    assert version in refusal.value.message
    assert "1.0" in refusal.value.message


@pytest.mark.parametrize("version", ["one", "", "1.x", "01.0", None, "1." + "9" * 50])
def test_what_is_no_version_is_invalid(version: Any) -> None:
    with pytest.raises(Invalid):
        registry.read(history(version))


def test_an_unknown_type_is_passed_on_untouched() -> None:
    part = {"data": {"x": [1, None]}, "metadata": {"type": "Weather", "schemaVersion": "9.0", "more": 1}}
    typed = registry.read(part)
    assert typed is not None
    assert (typed.known, typed.part, typed.data) == (False, part, part["data"])


def test_parts_without_a_type_are_nobodys() -> None:
    parts: list[dict[str, Any]] = [
        {"text": "x"}, {"data": {}}, {"data": {}, "metadata": {}}, {"text": "x", "metadata": {"type": "A"}},
    ]  # fmt: skip
    for part in parts:
        assert registry.read(part) is None


@pytest.mark.parametrize(
    "data", [{}, "x", [1], [{"role": "user"}], [{"role": "root", "content": "x"}], [{"role": "user", "content": 1}]]
)
def test_unfit_data_is_invalid_and_never_a_crash(data: Any) -> None:
    with pytest.raises(Invalid):
        registry.read(history("1.0", data))


def test_arrays_wrapped_for_a2a_0_3_and_whole_numbers_as_floats_are_read() -> None:
    injections = [{"source_agent": "a", "round": 2.0, "content": "x", "message_id": "msg-1"}]
    part = {"data": {"value": injections}, "metadata": {"type": "ContextInjections", "schemaVersion": "1.0"}}
    typed = registry.read(part)
    assert typed is not None
    assert typed.data == [{"source_agent": "a", "round": 2, "content": "x", "message_id": "msg-1"}]
    assert isinstance(typed.data[0]["round"], int)


def test_a_sender_downgrades_to_the_highest_version_that_the_receiver_names() -> None:
    ours = Registry()
    ours.register(Handler("T", 1, 4, list, lambda data, minor: [*data, f"1.{minor}"]))
    ours.register(Handler("T", 2, 1, list, lambda data, minor: [*data, f"2.{minor}"]))
    made = {
        versions: ours.make("T", [], {"T": list(versions)} if versions else None)
        for versions in ((), ("1.2", "1.0"), ("2.0", "1.9"), ("3.0", "1.9"))
    }
    assert [part["metadata"]["schemaVersion"] for part in made.values()] == ["2.1", "1.2", "2.0", "1.4"]
    assert made["1.2", "1.0"]["data"] == ["1.2"]
    with pytest.raises(Invalid) as refusal:
        ours.make("T", [], {"T": ["3.0"]})
    assert refusal.value.details["supported"] == ["1.4", "2.1"]
    assert ours.spoken() == {"T": ["1.4", "2.1"]}
    assert parse_version("1.7.3") == (1, 7)
    assert registry.make(CONVERSATION_HISTORY, HISTORY)["metadata"]["schemaVersion"] == "1.0"
