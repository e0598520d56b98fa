"""Nothing is injected twice and nothing is lost, however many rounds run at once and however many deliveries fail."""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from django.db import connection
from django.test import override_settings

from sessions_app.context import deliveries, turns
from sessions_app.context.deliveries import Reply
from sessions_app.db import utc_now
from sessions_app.models import AgentHistory, Delivery, HistoryEntry, Injection
from sessions_app.protocol.errors import Conflict
from tests.integration.context.conftest import MakeTalk, Talk

ROUNDS, WORKERS = 6, 8
WIDE = {"HUB_CONTEXT_ITEMS": 5, "HUB_CONTEXT_TOKENS": 4000, "HUB_CONTEXT_SCORE": 0.01}


@override_settings(**WIDE)
def test_eight_rounds_at_once_with_failing_deliveries_give_each_message_once(talk: MakeTalk) -> None:
    it = talk("source", "asked")
    it.say("user", "begin")
    said = [f"topic {number % 7} finding {number} about the module" for number in range(60)]
    for text in said:
        it.say("source", text)
    problems: list[BaseException] = []
    delivered: list[str] = []
    lock = threading.Lock()

    def rounds(worker: int) -> None:
        dice = random.Random(worker)
        try:
            for number in range(ROUNDS):
                ask = it.asking("asked", "topic finding module", key=f"{worker}.{number}")
                delivery = deliveries.prepare(ask)
                if dice.random() < 0.2:
                    deliveries.failed(delivery, "cut")
                    continue
                assert deliveries.delivered(delivery, Reply("noted"))
                with lock:
                    delivered.extend(it.injected(delivery))
        except BaseException as error:
            problems.append(error)
        finally:
            connection.close()

    workers = [threading.Thread(target=rounds, args=(number,)) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert problems == []
    while True:  # what failed deliveries gave back, and what was never reached
        rest = deliveries.prepare(it.asking("asked", "topic finding module"))
        if not it.injected(rest):
            break
        delivered += it.injected(rest)
        deliveries.delivered(rest, Reply("noted"))
    assert Counter(delivered) == Counter(said), "each once, none lost"
    assert Injection.objects.filter(state=Injection.RESERVED).count() == 0
    history = AgentHistory.objects.get(agent=it.agents["asked"])
    entries = list(HistoryEntry.objects.filter(history=history).order_by("position"))
    assert [entry.position for entry in entries] == list(range(1, history.last_position + 1))
    injected = [entry for entry in entries if entry.kind == HistoryEntry.INJECTION]
    assert len(injected) == len(said)
    for before, after in pairwise(entries):
        if before.kind == HistoryEntry.QUERY:
            assert (after.kind, after.delivery_id) == (HistoryEntry.REPLY, before.delivery_id), "exchanges stay whole"


def asked_about_weather(talk: MakeTalk) -> Talk:
    cards = {"source": {"skills": ["weather"]}, "asked": {"skills": [{"id": "x", "needs": ["weather"]}]}}
    it = talk("source", "asked", cards=cards)
    it.say("user", "begin")
    it.say("source", "sunny")
    return it


def test_a_retry_under_the_same_key_sends_the_same_bytes(talk: MakeTalk) -> None:
    it = asked_about_weather(talk)
    first = deliveries.prepare(it.asking("asked", "and?", key="trace-1:call-1"))
    it.say("source", "rain")
    again = deliveries.prepare(it.asking("asked", "and?", key="trace-1:call-1"))
    assert (again.pk, again.parts, again.metadata) == (first.pk, first.parts, first.metadata)
    deliveries.failed(first, "refused")
    anew = deliveries.prepare(it.asking("asked", "and?", key="trace-1:call-1"))
    assert anew.pk != first.pk
    assert it.injected(anew) == ["rain"], "the newest of what is needed"


def test_while_one_delivery_carries_a_message_another_does_not(talk: MakeTalk) -> None:
    it = asked_about_weather(talk)
    first, second = (deliveries.prepare(it.asking("asked", "and?")) for _ in range(2))
    assert (it.injected(first), it.injected(second)) == (["sunny"], [])
    deliveries.failed(first)
    assert it.injected(deliveries.prepare(it.asking("asked", "and?"))) == ["sunny"]


def test_what_a_dead_process_had_reserved_comes_back(talk: MakeTalk) -> None:
    it = asked_about_weather(talk)
    dead = deliveries.prepare(it.asking("asked", "and?"))
    Delivery.objects.filter(pk=dead.pk).update(created_at=utc_now() - timedelta(hours=1))
    next_one = deliveries.prepare(it.asking("asked", "and?"))
    assert it.injected(next_one) == ["sunny"]
    dead.refresh_from_db()
    assert dead.status == Delivery.FAILED
    assert deliveries.delivered(dead, Reply("late")), "it was alive after all, and the agent has it"
    assert deliveries.delivered(next_one)
    assert Injection.objects.filter(state=Injection.SEEN).count() == 1


def test_an_agent_that_forgot_is_told_everything_once(talk: MakeTalk) -> None:
    it = talk("source", "asked", cards={"asked": {"executor": "a2a", "context_strategy": "per_agent"}})
    key = it.say("user", "what about the weather in Beijing?")
    it.say("source", "sunny, 25 degrees")
    ask = it.asking("asked", "which clothes?", key="k", refs=[it.session.messages.get(content__startswith="sunny").pk])
    deliveries.delivered(deliveries.prepare(ask))
    following = it.asking("asked", "and shoes?", key="k2", message_key=key)
    lost = deliveries.prepare(following)
    assert it.injected(lost) == []
    rebuilt = deliveries.forgotten(lost, following)
    lost.refresh_from_db()
    assert (lost.status, rebuilt.status, rebuilt.rebuilt) == (Delivery.FAILED, Delivery.PREPARED, True)
    assert "sunny, 25 degrees" in rebuilt.parts
    assert "ConversationHistory" in rebuilt.parts
    with pytest.raises(Conflict):
        deliveries.forgotten(rebuilt, following)
    assert it.injected(deliveries.prepare(replace(ask, key="k3"))) == ["sunny, 25 degrees"], (
        "nothing of it counts as seen"
    )


def test_an_expired_history_is_built_anew_from_the_messages(talk: MakeTalk) -> None:
    it = asked_about_weather(talk)
    it.answer(it.ask("asked", "what shall I wear?"), "a hat")
    AgentHistory.objects.update(used_at=utc_now() - timedelta(days=40))
    delivery = it.ask("asked", "and tomorrow?")
    told = [turn.content for turn in turns.model_turns(delivery)]
    assert told[:2] == ["what shall I wear?", "a hat"]
    assert told[-1] == "and tomorrow?"
    assert it.injected(delivery) == ["sunny"], "its ledger was reset, too"
