"""The three rounds of the first seed, by rules alone: weather, activity, weather again."""

from __future__ import annotations

from sessions_app.context import deliveries, histories, selectors, turns, viewing
from tests.integration.context.conftest import MakeTalk, Talk

WEATHER = "北京今天晴，25-32℃，空气质量良"
ACTIVITY = "推荐：1.奥森跑步 2.颐和园划船 3.香山徒步"
TOMORROW = "明天多云转阴，22-28℃，建议上午去"
ASKED = ("帮我查询北京今天的天气", "推荐一个适合今天天气的户外活动", "如果去颐和园划船，明天天气怎么样，适合吗")
CARDS = {
    "agent_a": {"skills": [{"id": "weather", "tags": ["天气"]}]},
    "agent_b": {"skills": [{"id": "activity", "tags": ["活动"], "needs": ["weather"]}]},
}


def history(talk: Talk, agent: str) -> list[tuple[str, str]]:
    own = selectors.own_history(talk.pk, talk.agents[agent].pk)
    assert own["session_id"] == f"{talk.session_id}_{agent}"
    return [(message["role"], message["content"]) for message in own["messages"]]


def fence(talk: Talk, sender: str, text: str) -> tuple[str, str]:
    key = talk.session.messages.get(sender=talk.agents[sender], content=text).public_id
    return ("user", f"<<<BEGIN CONTEXT {key}>>>\nFor context: [{sender}] said: {text}\n<<<END CONTEXT {key}>>>")


def test_each_agent_knows_after_each_round_what_the_document_says(talk: MakeTalk) -> None:
    it = talk("agent_a", "agent_b", cards=CARDS)

    first = it.ask("agent_a", ASKED[0])
    assert turns.request_document(first) == {"session_id": it.session_id, "current_query": ASKED[0], "round": 1}
    it.answer(first, WEATHER)
    assert history(it, "agent_a") == [("user", ASKED[0]), ("assistant", WEATHER)]
    assert history(it, "agent_b") == []

    second = it.ask("agent_b", ASKED[1])
    assert turns.request_document(second) == {
        "session_id": it.session_id,
        "current_query": ASKED[1],
        "context_injections": [{"source_agent": "agent_a", "round": 1, "content": WEATHER}],
        "round": 2,
    }
    it.answer(second, ACTIVITY)
    assert history(it, "agent_a") == [("user", ASKED[0]), ("assistant", WEATHER)]
    assert history(it, "agent_b") == [fence(it, "agent_a", WEATHER), ("user", ASKED[1]), ("assistant", ACTIVITY)]

    third = it.ask("agent_a", ASKED[2])
    assert turns.request_document(third)["context_injections"] == [
        {"source_agent": "agent_b", "round": 2, "content": ACTIVITY}
    ]
    it.answer(third, TOMORROW)
    assert history(it, "agent_a") == [
        ("user", ASKED[0]),
        ("assistant", WEATHER),
        fence(it, "agent_b", ACTIVITY),
        ("user", ASKED[2]),
        ("assistant", TOMORROW),
    ], "and the question that was put to B is not in it"

    store = selectors.conversation(it.session, viewing.find_view(it.pk, it.agents["main"].pk), it.agents["main"].pk)
    told = [(e.round, e.is_user_input, e.agent_name, e.message["content"]) for e in store["entries"]]
    assert told == [
        (1, True, "user", ASKED[0]),
        (1, False, "agent_a", WEATHER),
        (2, True, "user", ASKED[1]),
        (2, False, "agent_b", ACTIVITY),
        (3, True, "user", ASKED[2]),
        (3, False, "agent_a", TOMORROW),
    ]
    assert store["current_round"] == 3


def test_the_models_turns_alternate_and_end_with_the_question(talk: MakeTalk) -> None:
    it = talk("agent_a", "agent_b", cards=CARDS)
    it.answer(it.ask("agent_a", ASKED[0]), WEATHER)
    it.answer(it.ask("agent_b", ASKED[1]), ACTIVITY)
    third = it.ask("agent_a", ASKED[2])
    merged = histories.merged(turns.model_turns(third))
    assert [turn.role for turn in merged] == ["user", "assistant", "user"]
    assert merged[-1].content.endswith(ASKED[2])
    assert f"For context: [agent_b] said: {ACTIVITY}" in merged[-1].content


def test_a_failed_call_leaves_nothing_behind_and_the_context_comes_again(talk: MakeTalk) -> None:
    it = talk("agent_a", "agent_b", cards=CARDS)
    it.answer(it.ask("agent_a", ASKED[0]), WEATHER)
    lost = it.ask("agent_b", ASKED[1])
    assert deliveries.failed(lost, "timeout")
    assert not deliveries.failed(lost), "settled once"
    assert history(it, "agent_b") == []
    again = it.ask("agent_b", ASKED[1])
    assert it.injected(again) == [WEATHER]
    it.answer(again, ACTIVITY)
    assert it.injected(it.ask("agent_b", "那么明天呢，天气适合吗")) == [], "and never twice"
