"""Whose words stand under the keys of a shared context, and who is shown them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sessions_app.context.profiles import Profile, Redaction, View
from sessions_app.context.provenance import Provenance
from sessions_app.context.shared import Shared, Words, from_columns, from_stored, said_by, stored
from sessions_app.protocol.jsontext import dumps
from sessions_app.protocol.limits import CONTEXT_BYTES

LABELLED = Provenance(("b",), ("secret",))


def whose(shared: Shared) -> dict[str, tuple[str, ...]]:
    return {key: words.by for words in shared.words for key in words.keys}


def seen(shared: Shared, reader: str, **profile: Any) -> dict[str, Any]:
    return View(reader, Profile(**profile)).context(shared)


@pytest.mark.parametrize(
    ("before", "patch", "values", "names"),
    [
        ({}, {"x": 1}, {"x": 1}, {"x": ("b",)}),
        ({"x": 1}, {"x": 2}, {"x": 2}, {"x": ("b",)}),
        ({"x": {"y": 1}}, {"x": 2}, {"x": 2}, {"x": ("b",)}),
        ({"x": 1}, {"x": {"y": 2}}, {"x": {"y": 2}}, {"x": ("b",)}),
        ({"x": {"y": 1}}, {"x": {"z": 2}}, {"x": {"y": 1, "z": 2}}, {"x": ("a", "b")}),
        ({"x": {"y": 1}}, {"x": {"z": {}}}, {"x": {"y": 1, "z": {}}}, {"x": ("a", "b")}),
        ({"x": {"y": 1, "z": 2}}, {"x": {"z": None}}, {"x": {"y": 1}}, {"x": ("a",)}),
        ({"x": {"y": 1}}, {"x": {}}, {"x": {"y": 1}}, {"x": ("a",)}),
        ({"x": 1, "y": 2}, {"x": None}, {"y": 2}, {"y": ("a",)}),
        ({"x": 1}, {"y": 2}, {"x": 1, "y": 2}, {"x": ("a",), "y": ("b",)}),
    ],
)
def test_a_patch_names_its_writer_where_its_words_stand(
    before: dict[str, Any], patch: dict[str, Any], values: dict[str, Any], names: dict[str, tuple[str, ...]]
) -> None:
    after = said_by(before, "a").patched(patch, "b")
    assert after.values == values
    assert whose(after) == names


def test_what_stood_there_before_anybody_was_named_is_everybodys_until_somebody_adds_to_it() -> None:
    old = Shared({"x": {"y": 1}, "z": 1})
    assert seen(old, "c", withheld_senders=("b",)) == old.values
    after = old.patched({"x": {"y": 2}}, "b")
    assert whose(after) == {"x": ("b",)}
    assert seen(after, "c", withheld_senders=("b",)) == {"z": 1}


def test_a_removed_key_that_comes_again_is_its_new_writers() -> None:
    shared = said_by({"x": 1}, "b", LABELLED).patched({"x": None}, "a").patched({"x": 2}, "a")
    assert shared.words == [Words(("x",), ("a",))]


def test_an_object_that_is_merged_is_made_of_all_that_went_into_it() -> None:
    shared = said_by({"x": {"y": 1}}, "b", LABELLED).patched({"x": {"z": 1}}, "a", Provenance(("d",), ("inner",)))
    assert shared.words == [Words(("x",), ("a", "b"), Provenance(("b", "d"), ("inner", "secret")))]


@pytest.mark.parametrize(
    ("words", "profile", "shown"),
    [
        (Words(("x",), ("b",)), {"withheld_senders": ("b",)}, False),
        (Words(("x",), ("b",)), {"withheld_senders": ("a",)}, True),
        (Words(("x",), ("b",)), {"senders": ("a",)}, False),
        (Words(("x",), ("b",)), {"senders": ("a", "b")}, True),
        (Words(("x",), ("a", "b")), {"withheld_senders": ("b",)}, False),
        (Words(("x",), ("b", "c")), {"withheld_senders": ("b",)}, False),
        (Words(("x",), ("a", "c")), {"senders": ("a",)}, True),
        (Words(("x",), ("c",)), {"senders": ("a",)}, True),
        (Words(("x",), ("c",), LABELLED), {"withheld_labels": ("secret",)}, True),
        (Words(("x",), ("b",), LABELLED), {"withheld_labels": ("secret",)}, False),
        (Words(("x",), ("main",), LABELLED), {"withheld_senders": ("b",)}, False),
        (Words(("x",), ("b",), Provenance(("b",))), {"withheld_kinds": ("result",)}, False),
        (Words(("x",), ("b",)), {"withheld_kinds": ("result",)}, True),
        (Words(("x",), ("b",)), {"kinds": ("chat",)}, True),
        (Words(("x",), ("b",), Provenance(("b",), (), ("Diagnosis",))), {"withheld_part_types": ("Diagnosis",)}, False),
        (Words(("x",), ("b",)), {"scope": "addressed"}, True),
        (Words(("x",), ("a",)), {"withheld_context": ("x",)}, False),
    ],
)
def test_c_gets_a_key_where_it_may_get_all_that_stands_there(
    words: Words, profile: dict[str, Any], shown: bool
) -> None:
    shared = Shared({"x": "words", "free": 1}, [words])
    expected = {"x": "words", "free": 1} if shown else {"free": 1}
    assert seen(shared, "c", **profile) == expected
    assert View("c", None).context(shared) == shared.values, "without a profile everything is shown"


def test_a_value_comes_back_from_its_columns_and_from_another_process() -> None:
    shared = said_by({"x": 1, "y": 2}, "b", LABELLED).patched({"y": 3}, "a")
    assert from_columns(dumps(shared.values), dumps(stored(shared.words))) == shared
    assert from_stored(stored(shared.words)) == shared.words
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(shared), type=Shared) == shared
    assert (stored([]), from_stored(None), from_columns("{}", None)) == (None, [], Shared())


def test_keys_of_one_writer_are_named_once() -> None:
    shared = said_by({}, "b").patched({f"k{number}": 0 for number in range(20_000)}, "b")
    assert len(shared.words) == 1
    assert len(dumps(shared.words)) < len(dumps(shared.values)) < CONTEXT_BYTES
    assert shared.fits()


def test_names_without_end_do_not_fit() -> None:
    labels = tuple(f"label-{number}" for number in range(60_000))
    assert not said_by({"x": 1}, "b", Provenance(("b",), labels)).fits()
    assert not said_by({"x": "x" * CONTEXT_BYTES}, "b").fits()


def test_results_that_take_the_place_of_a_text_take_its_writer_away() -> None:
    text = said_by({"previous_results": "none", "x": 1}, "b")
    assert whose(text.with_entries("previous_results", {"t": {}})) == {"x": ("b",)}
    entries = said_by({"previous_results": {"t": {}}}, "b")
    assert whose(entries.with_entries("previous_results", {"t": {}, "u": {}})) == {"previous_results": ("b",)}


def test_what_is_shared_elsewhere_is_still_whose_it_was() -> None:
    shared = said_by({"x": 1}, "b").patched({"y": 1}, "a")
    assert View("c", Profile(withheld_senders=("b",))).shared(shared) == Shared({"y": 1}, [Words(("y",), ("a",))])
    assert View("c", None).shared(shared) == shared


def test_redaction_reaches_the_names_of_keys_and_none_loses_its_writers() -> None:
    shared = said_by({"4711": 1, "free": "4711"}, "b").patched({"[x]": 2, "y": 3}, "a")
    redacting = Profile(redactions=(Redaction("4711", "[x]"),))
    elsewhere = View("c", redacting).shared(shared)
    assert elsewhere.values == seen(shared, "c", redactions=redacting.redactions) == {"free": "[x]", "[x]": 2, "y": 3}
    assert seen(elsewhere, "d", withheld_senders=("b",)) == {"y": 3}
    assert seen(elsewhere, "d", withheld_senders=("a",)) == {"free": "[x]"}
    after = elsewhere.patched({"z": 1}, "e")
    assert whose(after) == {"[x]": ("a", "b"), "free": ("b",), "y": ("a",), "z": ("e",)}
