"""What travels under each strategy, who decided it, and what a long talk becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import override_settings

from sessions_app.context import choosing, deliveries, histories, selectors, summaries, viewing
from sessions_app.context.deliveries import Reply
from sessions_app.context.histories import NewEntry
from sessions_app.context.parts import registry
from sessions_app.context.summaries import Task, Written
from sessions_app.models import Delivery, HistoryEntry, Participant, Summary
from sessions_app.protocol.errors import Invalid
from tests.integration.context.conftest import MakeTalk, Talk

CONTEXT = {
    "userProfile": {"location": "Sample City", "preferredLanguage": "en-US"},
    "foundItems": {"query": "lightweight laptops", "items": ["a", "b"], "totalCount": 2},
    "sessionContext": {"sourceId": "WebChat"},
}
TALK = [
    ("user", "I am looking for a lightweight laptop"),
    ("shop", "Great choice. Do you have any preferred brands?"),
    ("user", "show me models under 1,000 dollars"),
    ("shop", "Here are some options that match."),
]


def parts_of(delivery: Delivery) -> list[dict[str, Any]]:
    return list(json.loads(delivery.parts))


def test_the_message_of_the_second_seed_is_produced(talk: MakeTalk) -> None:
    it = talk("shop", cards={"shop": {"kind": "external"}}, context=CONTEXT)
    for sender, text in TALK:
        it.say(sender, text)
    delivery = it.ask("shop", "tell me more about option 4", metadata={"userId": "2"})
    assert delivery.strategy == "embedded", "the default for agents of others"
    parts = parts_of(delivery)
    assert parts == [
        {"text": "tell me more about option 4"},
        {
            "data": [
                {"role": "user" if sender == "user" else "assistant", "content": text, "name": sender}
                for sender, text in TALK
            ],
            "metadata": {"type": "ConversationHistory", "schemaVersion": "1.0"},
        },
        {"data": CONTEXT, "metadata": {"type": "UserContext", "schemaVersion": "1.0"}},
    ]
    assert json.loads(delivery.metadata) == {"userId": "2"}
    assert [part.known for part in registry.read_all(parts)] == [True, True]
    assert delivery.estimated_tokens >= len(delivery.parts) // 4


def test_versions_follow_the_receivers_card(talk: MakeTalk) -> None:
    it = talk("shop", cards={"shop": {"kind": "external"}})
    it.say("user", "hello")
    delivery = deliveries.prepare(it.asking("shop", "x", speaks={"ConversationHistory": ["1.9", "1.0"]}))
    assert parts_of(delivery)[1]["metadata"]["schemaVersion"] == "1.0"
    with pytest.raises(Invalid) as refusal:
        deliveries.prepare(it.asking("shop", "x", speaks={"ConversationHistory": ["2.0"]}))
    assert refusal.value.details["supported"] == ["1.0"]


def rounds(it: Talk, agent: str, first: int, last: int) -> None:
    for number in range(first, last + 1):
        it.say("user", f"question {number} about topic {number}?")
        it.say(agent, f"We decided answer {number} for topic {number}. It is file_{number}.py that matters.")


def test_after_the_tenth_round_the_history_is_a_summary_and_the_last_rounds(talk: MakeTalk) -> None:
    it = talk("shop", cards={"shop": {"kind": "external"}})
    rounds(it, "shop", 1, 9)
    ninth = it.ask("shop", "the tenth question")
    assert len(parts_of(ninth)[1]["data"]) == 18, "until then it is whole"
    it.say("shop", "the tenth answer", reply_to=ninth.message_key)
    eleventh = it.ask("shop", "the eleventh question")
    history = parts_of(eleventh)[1]["data"]
    assert history[0]["content"].startswith("Summary of rounds 1–8 (messages 1–16, sentences picked):\n")
    assert [entry["content"] for entry in history[1:]] == [
        "question 9 about topic 9?",
        "We decided answer 9 for topic 9. It is file_9.py that matters.",
        "the tenth question",
        "the tenth answer",
    ]
    assert "We decided answer" in history[0]["content"]
    row = Summary.objects.get()
    assert (row.covers_from, row.covers_to, row.rounds_to, row.method) == (1, 16, 8, "extractive")
    assert eleventh.reasons == [
        {"how": "summary", "method": "extractive", "covers_from": 1, "covers_to": 16, "rounds_from": 1, "rounds_to": 8},
        {"how": "history", "from": 17, "to": 20, "messages": 4},
    ]
    it.say("shop", "the eleventh answer", reply_to=eleventh.message_key)
    rounds(it, "shop", 12, 20)
    later = parts_of(it.ask("shop", "the last question"))[1]["data"]
    assert later[0]["content"].startswith("Summary of rounds 1–18 "), "it rolls on"
    assert len(later) == 1 + 4
    assert it.session.messages.count() == 41, "beside the messages, never instead of them"


@override_settings(HUB_SUMMARISER="tests.integration.context.test_strategies.write_well")
def test_a_model_may_write_the_summary_and_its_failure_is_no_ones_problem(talk: MakeTalk) -> None:
    it = talk("shop", cards={"shop": {"kind": "external"}})
    rounds(it, "shop", 1, 10)
    history = parts_of(it.ask("shop", "and now?"))[1]["data"]
    assert history[0]["content"] == "Summary of rounds 1–8 (messages 1–16, by a model):\n16 remarks"
    assert Summary.objects.get().data == {"decisions": ["x"]}
    summaries._writer.cache_clear()
    Summary.objects.all().delete()
    with override_settings(HUB_SUMMARISER="tests.integration.context.test_strategies.write_badly"):
        history = parts_of(it.ask("shop", "and now?"))[1]["data"]
    assert "sentences picked" in history[0]["content"]


def write_well(task: Task) -> Written:
    return Written(f"{len(task.remarks)} remarks", {"decisions": ["x"]})


def write_badly(task: Task) -> Written:
    raise ConnectionError("no model")


def test_a_summary_never_holds_what_its_reader_may_not_see(talk: MakeTalk) -> None:
    secret = "the decided deadline 4711"
    it = talk("shop", "other", cards={name: {"kind": "external"} for name in ("shop", "other")})
    Participant.objects.filter(session_id=it.pk, agent=it.agents["shop"]).update(
        visibility={"withheld_labels": ["secret"], "withheld_senders": ["other"]}
    )
    for number in range(1, 11):
        it.say("user", f"question {number} about topic {number}")
        it.say("user" if number % 2 else "other", f"{secret} we agreed on {number}", metadata={"sensitivity": "secret"})
    told = {name: deliveries.prepare(it.asking(name, "what was agreed, the deadline?")) for name in ("shop", "other")}
    assert secret in told["other"].parts
    assert secret not in told["shop"].parts
    assert Summary.objects.count() == 2, "one for each pair of eyes"
    assert secret not in Summary.objects.get(visibility_hash=told["shop"].visibility_hash).text
    named = it.session.messages.filter(content__contains=secret).first()
    assert named is not None
    refs = deliveries.prepare(it.asking("shop", "deadline agreed?", refs=[named.pk], strategy="per_agent"))
    assert secret not in refs.parts + json.dumps(refs.reasons)
    shown = selectors.conversation(it.session, viewing.find_view(it.pk, it.agents["shop"].pk), it.agents["shop"].pk)
    assert secret not in str(shown["entries"])


def test_nobody_has_an_agent_told_what_he_may_not_read_himself(talk: MakeTalk) -> None:
    it = talk("asked", "other")
    Participant.objects.filter(session_id=it.pk, agent=it.agents["main"]).update(
        visibility={"withheld_senders": ["other"]}
    )
    it.say("user", "begin")
    key = it.say("other", "for the others only")
    assert it.injected(deliveries.prepare(it.asking("asked", "x", refs=[key]))) == []


def test_shared_takes_along_nothing_but_where_to_look(talk: MakeTalk) -> None:
    it = talk("asked", cards={"asked": {"context_strategy": "shared"}})
    it.say("user", "begin")
    delivery = deliveries.prepare(it.asking("asked", "and?"))
    assert parts_of(delivery) == [
        {"text": "and?"},
        {
            "data": {"session_id": it.session_id, "through_sequence": 1},
            "metadata": {"type": "SharedContext", "schemaVersion": "1.0"},
        },
    ]


def test_the_strategy_is_the_participants_then_the_sessions_then_the_agents(talk: MakeTalk) -> None:
    it = talk("asked", cards={"asked": {"context_strategy": "shared"}}, context_strategy="embedded")
    assert deliveries.prepare(it.asking("asked", "x")).strategy == "embedded"
    Participant.objects.filter(session_id=it.pk, agent=it.agents["asked"]).update(context_strategy="per_agent")
    assert deliveries.prepare(it.asking("asked", "x")).strategy == "per_agent"


def test_who_decided_is_said_and_the_stronger_goes_first(talk: MakeTalk) -> None:
    cards = {"weather": {"skills": ["weather"]}, "asked": {"skills": [{"id": "x", "needs": ["weather"]}]}}
    it = talk("weather", "news", "asked", cards=cards)
    it.say("user", "begin")
    by_caller = it.say("news", "the markets fell")
    by_model = it.say("news", "a train was late")
    it.say("weather", "rain yesterday")
    it.say("weather", "sunny today")
    it.say("news", "the botanical garden of Dahlem opened a palm house")
    it.say("news", "nothing else happened")
    query = "is the palm house of the botanical garden in Dahlem nice, and that one?"
    delivery = it.ask("asked", query, refs=[by_caller], model_refs=[by_model])
    chosen = [(reason["how"], reason["source_agent"], reason["sequence"]) for reason in delivery.reasons]
    assert chosen == [
        ("caller", "news", 2),
        ("model", "news", 3),
        ("rule", "weather", 5),
        ("relevance", "news", 6),
        ("anaphor", "news", 7),
    ], "in order of time, and the older weather is not needed"
    assert delivery.reasons[3]["score"] >= 2
    decided = it.ask("asked", query, search=False)
    assert decided.reasons == [], "the model has decided that nothing is wanted"


def test_what_relevance_finds_is_bounded(talk: MakeTalk) -> None:
    it = talk("source", "asked")
    it.say("user", "begin")
    for number in range(30):
        it.say("source", f"zebra giraffe finding {number} " + "x" * 300)
    for number in range(60):
        it.say("source", f"unrelated remark number {number}")
    found = it.ask("asked", "zebra giraffe")
    assert 0 < len(found.reasons) <= 6
    assert sum(reason["tokens"] for reason in found.reasons) <= 400
    assert {reason["how"] for reason in found.reasons} == {"relevance"}


def test_candidates_and_quotations_are_what_was_really_said(talk: MakeTalk) -> None:
    it = talk("source", "asked")
    it.say("user", "begin")
    key = it.say("source", "sunny,  25 degrees")
    reader = choosing.reader_of(it.pk, it.agents["asked"].pk)
    assert [choice.key for choice in choosing.candidates(reader, through=9)] == [key]
    view = viewing.find_view(it.pk, it.agents["main"].pk)
    assert choosing.find_quoted(it.pk, "source", "sunny, 25 degrees", view, 9) == key
    assert choosing.find_quoted(it.pk, "source", "snow", view, 9) is None
    assert choosing.find_quoted(it.pk, "user", "sunny, 25 degrees", view, 9) is None
    deliveries.delivered(deliveries.prepare(it.asking("asked", "x", model_refs=[key])))
    assert choosing.candidates(reader, through=9) == []


# Own histories, bounded


def exchange(it: Talk, number: int, *, size: int = 0) -> None:
    delivery = it.ask("asked", f"question {number}")
    calls = [
        NewEntry(HistoryEntry.TOOL_CALL, "assistant", "", data={"call_id": f"c{number}", "name": "look"}),
        NewEntry(
            HistoryEntry.TOOL_RESULT, "tool", "seen " + "y" * size, data={"call_id": f"c{number}", "name": "look"}
        ),
    ]
    key = it.say("asked", f"answer {number}", reply_to=delivery.message_key)
    deliveries.delivered(delivery, Reply(f"answer {number}", key, calls))


def kinds(turns: list[histories.Turn]) -> list[str]:
    return [turn.kind for turn in turns]


EXCHANGE = ["query", "tool_call", "tool_result", "reply"]


def test_a_window_holds_the_last_exchanges_whole(talk: MakeTalk) -> None:
    it = talk("asked")
    for number in range(1, 13):
        exchange(it, number)
    told = histories.turns(it.pk, it.agents["asked"].pk, mode="window", rounds=3)
    assert kinds(told) == EXCHANGE * 3
    assert told[0].content == "question 10"


def test_a_history_is_summed_up_and_its_oldest_summaries_become_one(talk: MakeTalk) -> None:
    it = talk("asked")
    asked = it.agents["asked"].pk
    for number in range(1, 11):
        exchange(it, number)
    summary = histories.turns(it.pk, asked, mode="summary", current=11)
    assert kinds(summary) == ["summary", *EXCHANGE * 2]
    assert summary[0].content.startswith("Summary of rounds 1–8 (entries 1–32, sentences picked):")
    told: list[histories.Turn] = []
    for start in (11, 21, 31):
        for number in range(start, start + 10):
            exchange(it, number)
        told = histories.turns(it.pk, asked, mode="tiered", current=start + 10)
    assert kinds(told)[-8:] == EXCHANGE * 2
    tiers = list(Summary.objects.filter(history__isnull=False).order_by("id").values_list("tier", flat=True))
    assert 2 in tiers, "a summary of summaries"
    assert kinds(told)[:2] == ["summary", "summary"]
    assert told[0].content.startswith("Summary of rounds 1–28 ")


def test_what_does_not_fit_is_cut_in_whole_exchanges_and_a_large_entry_in_itself(talk: MakeTalk) -> None:
    it = talk("asked")
    for number in range(1, 6):
        exchange(it, number, size=4000)
    told = histories.turns(it.pk, it.agents["asked"].pk, mode="window", window=3000)
    assert kinds(told) == EXCHANGE * (len(told) // 4)
    assert 4 <= len(told) < 20
    tiny = histories.turns(it.pk, it.agents["asked"].pk, mode="window", window=400)
    assert kinds(tiny) == EXCHANGE
    assert tiny[2].content.endswith("[cut]")


def test_estimates_are_corrected_by_what_the_model_counts(talk: MakeTalk) -> None:
    it = talk("asked")
    first = it.ask("asked", "question")
    deliveries.delivered(first, Reply("answer", usage_bytes=400, usage_tokens=200))
    assert it.ask("asked", "question").estimated_tokens == pytest.approx(2 * first.estimated_tokens, abs=2)
